"""The saved form of a decoder: versioned bytes that any process can resume.

::

    "RSD" version(1) length(4) | JSON of that length | buffered bytes | payload of each chunk stream
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from .chunk.dechunker import Dechunker
from .chunk.stream import ChunkStream
from .errors import RtmpSparkError
from .limits import Limits

STATE_VERSION = 3  # of the whole format; increase it with every change to a field below or in the decoder
_MAGIC = b"RSD"
_HEAD = struct.Struct(">3sBI")

_CHUNKS_FIELDS = (
    "chunk_size",
    "size_announced",
    "size_floor",
    "old_size",
    "dialect",
    "held",
    "announced",
    "limit_reported",
    "inferred",
)
_STREAM_FIELDS = ("csid", *(name for name in ChunkStream.__slots__ if name not in ("csid", "payload")))
_chunks_values, _stream_values = (attrgetter(*names) for names in (_CHUNKS_FIELDS, _STREAM_FIELDS))


class StateError(RtmpSparkError):
    """A decoder state that this version cannot resume."""


class SavedState(NamedTuple):
    decoder: list[Any]  # the decoder's own fields, in its order
    buffer: bytearray
    chunks: Dechunker


def pack(decoder: Sequence[Any], buffer: bytearray, chunks: Dechunker) -> bytes:
    blobs = [bytes(buffer)]
    streams = []
    for cs in chunks.streams.values():
        streams.append(_stream_values(cs))
        blobs.append(bytes(cs.payload))
    fields = {
        "decoder": decoder,
        "chunks": _chunks_values(chunks),
        "streams": streams,
        "blobs": [len(blob) for blob in blobs],
    }
    text = json.dumps(fields, separators=(",", ":")).encode()
    return b"".join((_HEAD.pack(_MAGIC, STATE_VERSION, len(text)), text, *blobs))


def unpack(state: bytes, limits: Limits) -> SavedState:
    """Raises StateError if the bytes are not a state of this version."""
    try:
        magic, version, size = _HEAD.unpack_from(state)
        if magic != _MAGIC:
            raise StateError("Not a decoder state.")
        if version != STATE_VERSION:
            raise StateError(f"The decoder state has version {version}; this program reads version {STATE_VERSION}.")
        at = _HEAD.size + size
        fields = json.loads(state[_HEAD.size : at])
        chunks = Dechunker(limits)
        for name, value in zip(_CHUNKS_FIELDS, fields["chunks"], strict=True):
            setattr(chunks, name, value)
        blobs = []
        for length in fields["blobs"]:
            blobs.append(bytearray(state[at : at + length]))
            at += length
        if at != len(state):
            raise StateError(f"Damaged decoder state: {len(state)} bytes instead of {at}.")
        for values, payload in zip(fields["streams"], blobs[1:], strict=True):
            cs = ChunkStream(values[0])
            for name, value in zip(_STREAM_FIELDS, values, strict=True):
                setattr(cs, name, value)
            cs.payload = payload
            chunks.streams[cs.csid] = cs
            if cs.active and cs.csid >= 64:
                chunks.high_active[cs.csid] = cs
        return SavedState(fields["decoder"], blobs[0], chunks)
    except (struct.error, ValueError, KeyError, IndexError, TypeError) as error:
        raise StateError(f"Damaged decoder state: {error}") from error
