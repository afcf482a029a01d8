"""Faults of the media itself (MEDIA_ rules): tag headers, configurations, keyframes, declared metadata."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from rtmp_relay.client.client_options import ClientOptions
from rtmp_relay.frames import Tag
from rtmp_relay.synthetic_media import Synthetic, unique_bytes
from rtmp_spark.codec.message import AUDIO, DATA_AMF0, VIDEO

from .fault import ALWAYS, CLIENT, FaultEntry, MediaFault
from .message_choice import is_coded
from .tag_changes import changed_frames, changed_payload, dropped


class _NotOffered(MediaFault):
    """Sends enhanced media without offering it in connect."""

    def client_options(self, options: ClientOptions) -> ClientOptions:
        return replace(options, enhanced=False)


def _annex_b(payload: bytes) -> bytes:
    out, position = bytearray(payload[:5]), 5
    while position + 4 <= len(payload):
        size = int.from_bytes(payload[position : position + 4], "big")
        out += b"\0\0\0\1" + payload[position + 4 : position + 4 + size]
        position += 4 + size
    return bytes(out)


def _adts(payload: bytes) -> bytes:
    size = len(payload) - 2 + 7
    bits = 0xFFF << 44 | 1 << 40 | 1 << 38 | 4 << 34 | 1 << 30 | size << 13 | 0x7FF << 2
    return payload[:2] + bits.to_bytes(7, "big") + payload[2:]


def _with_metadata(tag: Tag, name: bytes, change: Callable[[float], float]) -> Tag:
    """Return onMetaData with another number under this name; return every other tag unchanged."""
    marker = len(name).to_bytes(2, "big") + name + b"\x00"
    at = tag.payload.find(marker) if tag.type_id == DATA_AMF0 else -1
    if at < 0:
        return tag
    at += len(marker)
    value = change(struct.unpack_from(">d", tag.payload, at)[0])
    return tag._replace(payload=tag.payload[:at] + struct.pack(">d", value) + tag.payload[at + 8 :])


def _declared_wider(tags: Iterable[Tag]) -> Iterator[Tag]:
    return (_with_metadata(tag, b"width", lambda width: width * 2) for tag in tags)


def _synthetic_instead(**settings: object) -> Callable[[Iterable[Tag]], Iterator[Tag]]:
    """Replace the media to be published by synthetic media with these settings."""
    return lambda _: Synthetic(**settings).tags()  # type: ignore[arg-type]


def _preceded_by_other_config(tag: Tag) -> list[Tag]:
    return [tag._replace(payload=bytes((0x17, 0, 0, 0, 0)) + Synthetic(fps=50).avc_config()), tag]


def _frame_type_0(_: Iterable[Tag]) -> Iterator[Tag]:
    """Synthetic enhanced media whose video has frame type 0, as gortmplib writes it."""
    for tag in Synthetic(seconds=3.0, enhanced=True).tags():
        reserved = tag.payload[:1] and bytes((tag.payload[0] & 0x8F,)) + tag.payload[1:]
        yield tag._replace(payload=reserved) if tag.type_id == VIDEO else tag


# Parameter sets of an x265 encoding of a 320x240 test pattern.
_VPS = "40010c01ffff01600000030090000003000003003c959809"
_SPS = "42010101600000030090000003000003003ca00a080f165959a4932bc05a020000030002000003003210"
_PPS = "4401c172b46240"


def _hevc_under_12(tags: Iterable[Tag]) -> Iterator[Tag]:
    """Replace the video by HEVC with codec id 12."""
    sets = [bytes.fromhex(text) for text in (_VPS, _SPS, _PPS)]
    arrays = b"".join(bytes((0x80 | s[0] >> 1, 0, 1)) + len(s).to_bytes(2, "big") + s for s in sets)
    profile = bytes.fromhex("016000000090000000000000") + b"\x3c"
    record = b"\1" + profile[:11] + b"\x3c" + bytes.fromhex("f000fcfdf8f800000f03") + arrays
    number = 0
    for tag in tags:
        if tag.type_id != VIDEO:
            yield _with_metadata(tag, b"videocodecid", lambda _: 12.0)
        elif not is_coded(tag.payload):
            yield tag._replace(payload=bytes.fromhex("1c00000000") + record)
        else:
            key = tag.payload[0] >> 4 == 1
            unit = bytes.fromhex("2601" if key else "0201") + b"\xaf" + unique_bytes(b"h%d" % number, 800)
            number += 1
            first = bytes((0x1C if key else 0x2C, 1, 0, 0, 0))
            yield tag._replace(payload=first + len(unit).to_bytes(4, "big") + unit)


MEDIA_FAULTS = {
    "MEDIA_TAG": FaultEntry(
        CLIENT,
        "sends a video tag of one byte",
        changed_frames(VIDEO, lambda tag: [tag, tag._replace(payload=b"\x27")], after=5),
    ),
    "MEDIA_RESERVED": FaultEntry(
        CLIENT, "sends synthetic enhanced video with frame type 0", lambda: MediaFault(_frame_type_0)
    ),
    "MEDIA_CODEC_UNKNOWN": FaultEntry(
        CLIENT,
        "sends an audio tag with sound format 13",
        changed_frames(AUDIO, lambda tag: [tag, tag._replace(payload=b"\xdf" + tag.payload[2:])], after=5),
    ),
    "MEDIA_CONFIG_MISSING": FaultEntry(
        CLIENT, "sends no AVC configuration", changed_frames(VIDEO, dropped, times=ALWAYS, coded=False)
    ),
    "MEDIA_KEY_FLAG": FaultEntry(
        CLIENT,
        "flags an inter frame as a keyframe",
        changed_frames(VIDEO, changed_payload(lambda p: bytes((p[0] & 0x0F | 0x10,)) + p[1:]), after=5),
    ),
    "MEDIA_ANNEXB": FaultEntry(
        CLIENT,
        "sends start codes instead of NAL unit lengths",
        changed_frames(VIDEO, changed_payload(_annex_b), after=5),
    ),
    "MEDIA_ADTS": FaultEntry(
        CLIENT, "sends AAC frames with ADTS headers", changed_frames(AUDIO, changed_payload(_adts), after=5, times=3)
    ),
    "MEDIA_CONFIG_CHANGED": FaultEntry(
        CLIENT, "changes the SPS during the stream", changed_frames(VIDEO, _preceded_by_other_config, after=25)
    ),
    "MEDIA_NAL": FaultEntry(
        CLIENT,
        "sends a NAL unit length that exceeds the tag",
        changed_frames(VIDEO, changed_payload(lambda p: p[:5] + b"\0\1\0\0" + p[9:]), after=5),
    ),
    "MEDIA_START_NOT_KEY": FaultEntry(CLIENT, "omits the first keyframe", changed_frames(VIDEO, dropped)),
    "MEDIA_DECLARED": FaultEntry(
        CLIENT, "declares twice the real width in onMetaData", lambda: MediaFault(_declared_wider)
    ),
    "MEDIA_GOP_LONG": FaultEntry(
        CLIENT,
        "sends synthetic media with keyframes 5 s apart",
        lambda: MediaFault(_synthetic_instead(seconds=11.0, gop=125)),
    ),
    "MEDIA_NOT_NEGOTIATED": FaultEntry(
        CLIENT,
        "sends synthetic enhanced media that connect did not offer",
        lambda: _NotOffered(_synthetic_instead(seconds=3.0, enhanced=True)),
    ),
    "MEDIA_HEVC_ID12": FaultEntry(
        CLIENT, "replaces the video by HEVC with codec id 12", lambda: MediaFault(_hevc_under_12)
    ),
    "MEDIA_TRACK_ABSENT": FaultEntry(
        CLIENT, "announces audio and sends none", changed_frames(AUDIO, dropped, times=ALWAYS)
    ),
}
