"""Saved connections: a connection that may continue after the last file, as bytes for the table `open_flows`.

A header that the driver can read alone, then the state of the analysis (analysis/core.py) as compressed JSON, or the
packets of a connection that has only a few (capture/tcp/brief_flows.py). Never pickle, because a lake is shared.
States of another version are not read. Stream names are saved as their hashes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from rtmp_spark.analysis.open_connection import ConnectionState
from rtmp_spark.codec.errors import UserError

STATE_VERSION = 18
SavedFlow = tuple[str, int, bytes]  # a row of `open_flows`: uid, version, state
_json = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode  # states are trees


@dataclass
class OpenFlow:
    """The header of a saved connection."""

    uid: str  # of the rows it gave; a placeholder if it gave none
    key: str  # endpoints, hex
    ts_last_ns: int
    over_ns: int  # later packets between its endpoints belong to another connection
    has_rows: bool
    second: int  # the first second whose row of `intervals` is provisional
    files: dict[str, str]  # number -> capture id of the files that contain it
    tunnel: bool = False  # carries RTMPT
    tls: bool = False  # may carry RTMPT inside TLS
    brief: bool = False  # has only a few packets, which are saved instead of a state


def freeze(state: ConnectionState) -> bytes:
    """The state as bytes. Call it at once: the state shares its lists with the connection it was taken from."""
    text = _json(state).encode()
    compressed: bytes = pa.compress(text, "zstd", asbytes=True)
    return len(text).to_bytes(8, "big") + compressed


def pack(header: OpenFlow, body: bytes) -> bytes:
    """`body`: what `freeze` returned, or the packets of a brief flow."""
    return _json(vars(header)).encode() + b"\n" + body


def header_of(packed: bytes) -> OpenFlow:
    return OpenFlow(**json.loads(packed[: packed.index(b"\n")]))


def body_of(packed: bytes) -> bytes:
    return packed[packed.index(b"\n") + 1 :]


def state_of(packed: bytes) -> ConnectionState:
    """The state of a connection that is not brief."""
    body = body_of(packed)
    state: ConnectionState = json.loads(pa.decompress(body[8:], int.from_bytes(body[:8], "big"), "zstd", asbytes=True))
    return state


def placeholder(sensor: str, key: str) -> str:
    """The uid in `open_flows` of a connection that gave no rows."""
    return f"-{key}{sensor}"


def is_placeholder(uid: str) -> bool:
    return uid.startswith("-")


def readable(saved: Iterable[SavedFlow]) -> tuple[list[tuple[OpenFlow, bytes]], list[str]]:
    """Saved connections that can continue, and the uids of those that an older version saved."""
    flows, outdated = [], []
    for uid, version, packed in saved:
        if version > STATE_VERSION:
            raise UserError(
                f"A newer rtmp-spark saved the open connections of this lake (states of version {version}; "
                f"this one knows {STATE_VERSION}).",
                "Upgrade rtmp-spark, or use another lake.",
            )
        if version < STATE_VERSION:
            outdated.append(uid)
        else:
            flows.append((header_of(packed), packed))
    return flows, outdated


def newest(flows: Iterable[tuple[OpenFlow, bytes]]) -> dict[bytes, tuple[OpenFlow, bytes]]:
    """The last saved connection of each pair of endpoints."""
    chosen: dict[bytes, tuple[OpenFlow, bytes]] = {}
    for header, packed in sorted(flows, key=lambda flow: flow[0].ts_last_ns):
        chosen[bytes.fromhex(header.key)] = (header, packed)
    return chosen
