"""The fields of a message or handshake part: where each begins and what it holds, as labels for a hex dump.

The layouts are those of the codec (RTMP 1.0 5.2, 5.4, 7.1; AMF 0; FLV 10.1 E.4; E-RTMP v2). Malformed bytes end the
list of fields; they never raise an error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from rtmp_spark.codec.errors import DecodeError, RtmpSparkError
from rtmp_spark.codec.handshake import parse_packet1
from rtmp_spark.codec.media.tag import parse_tag
from rtmp_spark.codec.message import AUDIO, USER_CONTROL_EVENTS, VIDEO

MOST_FIELDS = 400
_SHOWN = 60
_EMPTY_VALUES = {5: "null", 6: "undefined", 13: "unsupported"}


class Field(NamedTuple):
    """Bytes [start, end) of a payload. `text`: the bytes are a string from the sender, which may be a secret."""

    start: int
    end: int
    label: str
    text: bool = False


def fields_of(type_id: int, payload: bytes) -> list[Field]:
    """The fields of a message in order. Bytes after the last field have no label."""
    found: list[Field] = []
    try:
        for one in _fields(type_id, payload):
            found.append(one)
            if len(found) >= MOST_FIELDS:
                break
    except (IndexError, struct.error, RtmpSparkError):
        pass
    return [one for one in found if one.end <= len(payload)]


def _fields(type_id: int, payload: bytes) -> Iterator[Field]:
    if type_id in (1, 2, 3, 5):
        names = {1: "chunk size", 2: "csid to abort", 3: "bytes received", 5: "window"}
        yield Field(0, 4, f"{names[type_id]} {_u32(payload, 0):,}")
    elif type_id == 6:
        yield Field(0, 4, f"window {_u32(payload, 0):,}")
        yield Field(4, 5, f"limit type {payload[4]} ({('hard', 'soft', 'dynamic')[payload[4]]})")
    elif type_id == 4:
        yield from _user_control(payload)
    elif type_id in (AUDIO, VIDEO):
        yield from _tag(type_id, payload)
    elif type_id in (18, 19, 20):
        yield from _amf0(payload, 0)
    elif type_id in (15, 16, 17) and payload:
        yield Field(0, 1, f"encoding {payload[0]}")
        if payload[0] == 0:
            yield from _amf0(payload, 1)


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from(">I", data, at)[0])


def _user_control(payload: bytes) -> Iterator[Field]:
    event = struct.unpack_from(">H", payload)[0]
    kind = USER_CONTROL_EVENTS[event].kind if event in USER_CONTROL_EVENTS else "unknown event"
    yield Field(0, 2, f"event {event} ({kind.replace('_', ' ')})")
    if len(payload) >= 6:
        name = "timestamp" if "ping" in kind else "stream id"
        yield Field(2, 6, f"{name} {_u32(payload, 2)}")
    if len(payload) >= 10:
        yield Field(6, 10, f"buffer length {_u32(payload, 6)} ms")


def _tag(type_id: int, payload: bytes) -> Iterator[Field]:
    tags = parse_tag(type_id, payload)
    if not tags:
        return
    first = tags[0]
    if first.enhanced:
        yield Field(0, 1, f"enhanced {first.kind} header, packet type {payload[0] & 15}")
        if len(tags) == 1 and first.body_start >= 5:
            yield Field(1, 5, f"FourCC {first.codec}")
    elif type_id == VIDEO:
        yield Field(0, 1, f"frame type {payload[0] >> 4} ({first.frame_type}), codec {payload[0] & 15} ({first.codec})")
        if payload[0] & 15 in (7, 12):
            yield Field(1, 2, f"packet type {payload[1]} ({first.packet_type})")
            yield Field(2, 5, f"composition time {first.cts} ms")
    else:
        yield Field(0, 1, f"format {payload[0] >> 4} ({first.codec}), rate, size, channels {payload[0] & 15:04b}")
        if payload[0] >> 4 == 10:
            yield Field(1, 2, f"packet type {payload[1]} ({first.packet_type})")
    for tag in tags:
        where = f" of track {tag.track_id}" if len(tags) > 1 or tag.track_id else ""
        yield Field(tag.body_start, tag.body_end, f"{tag.codec} {tag.packet_type}{where}, {tag.size:,} bytes")


def _amf0(data: bytes, at: int) -> Iterator[Field]:
    """AMF 0 values in order. Values inside objects and arrays are indented by their depth."""
    stack: list[int] = []  # per container: remaining values, or -1 if an end marker closes it
    while at < len(data):
        while stack and stack[-1] == 0:
            stack.pop()
        indent = "  " * len(stack)
        if stack and stack[-1] < 0:
            length = struct.unpack_from(">H", data, at)[0]
            if length == 0 and data[at + 2 : at + 3] == b"\x09":
                stack.pop()
                yield Field(at, at + 3, f"{'  ' * len(stack)}end of object")
                at += 3
                continue
            yield Field(at, at + 2 + length, f"{indent}{_quoted(data[at + 2 : at + 2 + length])}:")
            at += 2 + length
        elif stack:
            stack[-1] -= 1
        marker = data[at]
        if marker in (3, 8, 10):
            size = 1 if marker == 3 else 5
            count = _u32(data, at + 1) if marker == 10 else -1
            name = {3: "object", 8: "ECMA array", 10: f"strict array of {count:,}"}[marker]
            yield Field(at, at + size, f"{indent}{name}")
            stack.append(count)
            at += size
            continue
        found = list(_plain_value(data, at, indent))
        if not found:
            return
        yield from found
        at = found[-1].end


def _plain_value(data: bytes, at: int, indent: str) -> Iterator[Field]:
    """A value that is not a container; nothing for an unknown marker."""
    marker = data[at]
    if marker == 0:
        yield Field(at, at + 9, f"{indent}number {struct.unpack_from('>d', data, at + 1)[0]:g}")
    elif marker == 1:
        yield Field(at, at + 2, f"{indent}boolean {'true' if data[at + 1] else 'false'}")
    elif marker in (2, 12, 15):
        head = 3 if marker == 2 else 5
        length = struct.unpack_from(">H", data, at + 1)[0] if marker == 2 else _u32(data, at + 1)
        yield Field(at, at + head, f"{indent}string of {length:,} bytes")
        if length:
            yield Field(at + head, at + head + length, f"{indent}{_quoted(data[at + head : at + head + length])}", True)
    elif marker in _EMPTY_VALUES:
        yield Field(at, at + 1, f"{indent}{_EMPTY_VALUES[marker]}")
    elif marker == 11:
        yield Field(at, at + 11, f"{indent}date {struct.unpack_from('>d', data, at + 1)[0]:.0f} ms")


def _quoted(raw: bytes) -> str:
    text = raw[: _SHOWN * 4].decode("utf-8", "replace")
    shown = "".join(c if c.isprintable() else "." for c in text[:_SHOWN])
    return f'"{shown}{"…" if len(text) > _SHOWN else ""}"'


def handshake_fields(part: str, data: bytes) -> list[Field]:
    """The fields of C0, C1, C2, S0, S1 or S2."""
    if part.endswith("0"):
        return [Field(0, 1, f"version {data[0]}")] if data else []
    if len(data) < 8:
        return []
    if part.endswith("2"):
        return [
            Field(0, 4, f"time {_u32(data, 0)} (from the peer)"),
            Field(4, 8, f"time 2: {_u32(data, 4)}"),
            Field(8, len(data), "copy of the peer's random bytes, or a signature at the end"),
        ]
    found = [Field(0, 4, f"time {_u32(data, 0)}"), Field(4, 8, f"version or zero: {'.'.join(map(str, data[4:8]))}")]
    try:
        packet = parse_packet1(data, "client" if part[0] == "C" else "server")
        digest = data.find(packet.digest, 8) if packet.digest else -1
    except (DecodeError, ValueError):
        digest = -1
    if digest < 0:
        return [*found, Field(8, len(data), "random bytes")]
    return [
        *found,
        Field(8, digest, "random bytes"),
        Field(digest, digest + 32, f"digest ({packet.scheme})"),
        Field(digest + 32, len(data), "random bytes"),
    ]
