"""The bytes of a message or handshake part as sent: named fields, marked chunk headers, packet numbers.

`walk` finds the chunk headers from rows of `messages` and the raw bytes; each chunk of another message in between
becomes one line. Strings of commands that carry credentials are masked unless the caller keeps secrets.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rtmp_spark.codec.command import parse_command
from rtmp_spark.redact import carries_credentials
from rtmp_spark.report.hexdump.field_names import Field, fields_of
from rtmp_spark.report.hexdump.stream_bytes import Excerpt

Row = dict[str, Any]
HEADER, PAYLOAD, OTHER = "header", "payload", "other"
_COMMANDS = range(15, 21)
_PLAIN_KEYS = frozenset({"app", "type", "flashVer", "fmsVer", "code", "level", "encoder"})
_PLAIN_VALUES = frozenset({b"live", b"record", b"append"})
LINE = 16
FIELD_LINES = 6  # per field; more is rarely worth reading
MOST_LINES = 400


@dataclass(frozen=True)
class Piece:
    """Consecutive bytes of one kind. `at` is the position in the payload, for payload pieces."""

    offset: int
    data: bytes
    kind: str
    label: str = ""
    at: int = 0


@dataclass(frozen=True)
class DumpLine:
    """One line of a dump: stream offset, bytes, label; or a label only (`data` empty)."""

    offset: int
    data: bytes
    kind: str
    label: str
    masked: bool = False


def clean_start(rows: Sequence[Row], msg_no: int) -> int:
    """The last stream offset at or before this message where no other message is in progress."""
    by_offset = sorted(rows, key=lambda row: row["stream_offset"])
    target = next(row["stream_offset"] for row in by_offset if row["msg_no"] == msg_no)
    latest, best = -1, target
    least_after = [0] * (len(by_offset) + 1)
    least_after[-1] = 1 << 62
    for index in range(len(by_offset) - 1, -1, -1):
        least_after[index] = min(least_after[index + 1], by_offset[index]["msg_no"])
    for index, row in enumerate(by_offset):
        if row["stream_offset"] > target:
            break
        if latest < least_after[index]:
            best = row["stream_offset"]
        latest = max(latest, row["msg_no"])
    return int(best)


def walk(data: bytes, start: int, rows: Sequence[Row], msg_no: int) -> list[Piece]:
    """The pieces of message `msg_no` in `data`, which begins at stream offset `start` with a chunk header."""
    begins = {row["stream_offset"]: row for row in rows}
    own = next(row for row in rows if row["msg_no"] == msg_no)
    active: dict[int, tuple[Row, int]] = {}  # csid -> its message, payload bytes so far
    control: dict[int, bytes] = {}
    chunk_size = int(begins[start]["chunk_size"]) if start in begins else int(own["chunk_size"])
    pieces: list[Piece] = []
    pos = 0
    while pos < len(data):
        here = start + pos
        fmt, csid, used = _basic_header(data, pos)
        if used == 0:
            break
        row, got = active.get(csid, (None, 0))
        if here in begins:
            row, got = begins[here], 0
            chunk_size = int(row["chunk_size"])
        if row is None:
            break
        heads, used = _headers(data, pos, fmt, csid, row)
        take = min(chunk_size, row["length"] - got, len(data) - pos - used)
        body = data[pos + used : pos + used + take]
        mine = row is own or row["msg_no"] == msg_no
        if mine:
            pieces += [Piece(start + a, data[a:b], HEADER, label) for a, b, label in heads]
            pieces.append(Piece(here + used, body, PAYLOAD, at=got))
        elif pieces:
            words = f"chunk of csid {csid}: {row['type_name']} message {row['msg_no']}, {take} bytes"
            pieces.append(Piece(here, data[pos : pos + used + take], OTHER, words))
        got += take
        pos += used + take
        if row["type_id"] == 1:
            control[csid] = control.get(csid, b"") + body
        if got >= row["length"]:
            active.pop(csid, None)
            if mine:
                break
            if row["type_id"] == 1 and len(control.get(csid, b"")) >= 4:
                chunk_size = min(max(struct.unpack(">I", control.pop(csid)[:4])[0] & 0x7FFFFFFF, 1), 0xFFFFFF)
        else:
            active[csid] = (row, got)
    return pieces


def _basic_header(data: bytes, pos: int) -> tuple[int, int, int]:
    """fmt, csid and length of the basic header; length 0 if it is incomplete. RTMP 1.0 5.3.1.1"""
    first = data[pos]
    low = first & 63
    if low > 1:
        return first >> 6, low, 1
    if pos + 1 + low >= len(data):
        return 0, 0, 0
    csid = 64 + data[pos + 1] + (data[pos + 2] << 8 if low else 0)
    return first >> 6, csid, 2 + low


def _headers(data: bytes, pos: int, fmt: int, csid: int, row: Row) -> tuple[list[tuple[int, int, str]], int]:
    """The named parts of one chunk header, and its length."""
    used = _basic_header(data, pos)[2]
    heads = [(pos, pos + used, f"chunk header: fmt {fmt}, csid {csid}")]
    at = pos + used
    raw = int.from_bytes(data[at : at + 3], "big")
    if fmt <= 2:
        heads.append((at, at + 3, f"timestamp{'' if fmt == 0 else ' delta'} {raw:,}"))
        at += 3
    if fmt <= 1:
        heads.append((at, at + 3, f"message length {int.from_bytes(data[at : at + 3], 'big'):,}"))
        heads.append((at + 3, at + 4, f"message type {row['type_id']} ({row['type_name']})"))
        at += 4
    if fmt == 0:
        heads.append((at, at + 4, f"message stream id {int.from_bytes(data[at : at + 4], 'little')}"))
        at += 4
    extended = data[at : at + 4]
    value = row["ext_timestamp"]
    if (fmt <= 2 and raw == 0xFFFFFF) or (fmt == 3 and value is not None and extended == value.to_bytes(4, "big")):
        heads.append((at, at + 4, f"extended timestamp {int.from_bytes(extended, 'big'):,}"))
        at += 4
    return heads, at - pos


def lines(
    pieces: Sequence[Piece], fields: Sequence[Field], excerpt: Excerpt | None,
    masked: Sequence[tuple[int, int]] = (), whole: bool = False,
) -> list[DumpLine]:  # fmt: skip
    """The lines of a dump: pieces split at fields, packets and 16 bytes. Long fields are shortened unless `whole`."""
    out: list[DumpLine] = []
    frame = None
    for piece in pieces:
        for low, high, label, hidden in _cuts(piece, fields, masked, excerpt):
            if excerpt is not None:
                packet = excerpt.packet_at(piece.offset + low)
                if packet is not None and packet.frame != frame:
                    frame = packet.frame
                    out.append(DumpLine(piece.offset + low, b"", "packet", f"packet {frame}"))
            if piece.kind == OTHER and high - low > 0:
                out.append(DumpLine(piece.offset + low, b"", OTHER, piece.label))
                break
            for start in range(low, high, LINE):
                if not whole and start - low >= FIELD_LINES * LINE and high - start > LINE:
                    out.append(DumpLine(piece.offset + start, b"", OTHER, f"… {high - start:,} more bytes"))
                    break
                data = piece.data[start : min(start + LINE, high)]
                words = label if start == low else ""
                out.append(DumpLine(piece.offset + start, data, piece.kind, words, hidden))
                if len(out) >= MOST_LINES and not whole:
                    left = sum(len(p.data) for p in pieces) - sum(len(line.data) for line in out)
                    return [*out, DumpLine(0, b"", OTHER, f"… {left:,} more bytes")]
    return out


def _cuts(
    piece: Piece, fields: Sequence[Field], masked: Sequence[tuple[int, int]], excerpt: Excerpt | None
) -> list[tuple[int, int, str, bool]]:
    """(from, to, label, masked) within the piece, split where a field or a packet begins."""
    size = len(piece.data)
    edges = {0, size}
    labels = {0: piece.label}
    if piece.kind == PAYLOAD:
        for field in fields:
            for place in (field.start - piece.at, field.end - piece.at):
                if 0 < place < size:
                    edges.add(place)
            if 0 <= field.start - piece.at < size:
                labels[field.start - piece.at] = field.label
            elif field.start < piece.at < field.end:
                labels.setdefault(0, "")
                labels[0] = labels[0] or f"… {field.label.strip()}"
    if excerpt is not None:
        edges |= {p.offset - piece.offset for p in excerpt.packets if 0 < p.offset - piece.offset < size}
    ordered = sorted(edges)
    return [
        (low, high, labels.get(low, ""), any(a < piece.at + high and b > piece.at + low for a, b in masked))
        for low, high in pairwise(ordered)
    ]


def secret_parts(type_id: int, payload: bytes, fields: Sequence[Field]) -> list[tuple[int, int]]:
    """The payload bytes (from, to) of a message that may be credentials."""
    if type_id not in _COMMANDS:
        return []
    command = parse_command(type_id, payload)
    if not carries_credentials(command.name) and command.name:
        return []
    texts: list[tuple[int, int]] = []
    key, own_name = "", True
    for field in fields:
        if field.text:
            if not own_name and not _is_public(key, payload[field.start : field.end]):
                texts.append((field.start, field.end))
            own_name = False
        elif "string of" not in field.label:
            key = field.label.strip().strip('":')
    named = max((field.end for field in fields), default=0)
    return [*texts, (named, len(payload))] if named < len(payload) else texts


def _is_public(key: str, value: bytes) -> bool:
    """True if the tables do not redact this string either."""
    return value in _PLAIN_VALUES or (key in _PLAIN_KEYS and not set(b"?=@") & set(value))


def as_text(dump: Sequence[DumpLine]) -> str:
    """The dump as text for a terminal."""
    rows = []
    for line in dump:
        if not line.data:
            rows.append(f"{'-- ' if line.kind == 'packet' else '   '}{line.label}")
            continue
        shown = "".join(chr(b) if 32 <= b < 127 else "." for b in line.data)
        digits = line.data.hex(" ")
        if line.masked:
            shown, digits = "*" * len(line.data), " ".join(["**"] * len(line.data))
        label = line.label
        if line.masked and '"' in label:
            label = label.split('"')[0] + '"…" (may be a credential)'
        mark = ">" if line.kind == HEADER else " "
        rows.append(f"{line.offset:08x} {mark} {digits:<47}  {shown:<16}  {label}".rstrip())
    return "\n".join(rows)


def payload_fields(type_id: int, pieces: Sequence[Piece]) -> tuple[list[Field], bytes]:
    """The fields of the message that these pieces carry, and its payload."""
    payload = b"".join(piece.data for piece in pieces if piece.kind == PAYLOAD)
    return fields_of(type_id, payload), payload
