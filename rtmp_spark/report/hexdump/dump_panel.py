"""Hex dumps for notebooks: reads the bytes from the captures, names the fields, renders HTML and text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rtmp_spark.codec.errors import UserError
from rtmp_spark.codec.handshake import PACKET_SIZE
from rtmp_spark.report import page_text, units
from rtmp_spark.report.hexdump import dump
from rtmp_spark.report.hexdump.dump import DumpLine, Piece
from rtmp_spark.report.hexdump.field_names import handshake_fields
from rtmp_spark.report.hexdump.stream_bytes import Excerpt, read_excerpt

Row = dict[str, Any]
_PARTS = {"0": (0, 1), "1": (1, 1 + PACKET_SIZE), "2": (1 + PACKET_SIZE, 1 + 2 * PACKET_SIZE)}
_BEFORE = 1 << 20  # bytes of earlier messages that are parsed to find the chunks of a message
_MOST_WIRE = 20 << 20


def dump_message(
    connection: Row, paths: Sequence[str], rows: Sequence[Row], msg_no: int, direction: str, *,
    keep_secrets: bool = False, whole: bool = False,
) -> tuple[str, str]:  # fmt: skip
    """One message as (HTML, text)."""
    if connection["service"] != "rtmp":
        raise UserError(
            f"{connection['uid']} is {connection['service']}: its messages are wrapped, not plain TCP data.",
            "Only plain RTMP can be dumped.",
        )
    own = next(row for row in rows if row["msg_no"] == msg_no)
    start = dump.clean_start(rows, msg_no)
    if own["stream_offset"] - start > _BEFORE:
        start = own["stream_offset"]
    stop = start + _wire_bound(rows, start, own)
    excerpt = _fetch(connection, paths, direction, start, stop)
    pieces = dump.walk(_contiguous(excerpt), start, rows, msg_no)
    fields, payload = dump.payload_fields(own["type_id"], pieces)
    masked = [] if keep_secrets else dump.secret_parts(own["type_id"], payload, fields)
    lines = dump.lines(pieces, fields, excerpt, masked, whole)
    title = (
        f"message {msg_no} {direction}: {own['type_name']}, csid {own['csid']}, stream {own['stream_id']}, "
        f"timestamp {own['timestamp']}, {own['length']} bytes in {units.counted(own['chunks'], 'chunk')}, "
        f"{own['status']}"
    )
    return _rendered(title, lines)


def dump_handshake(connection: Row, paths: Sequence[str], part: str, *, whole: bool = False) -> tuple[str, str]:
    """C0, C1, C2, S0, S1 or S2 as (HTML, text)."""
    if len(part) != 2 or part[0] not in "CS" or part[1] not in _PARTS:
        raise UserError(f"{part!r} is not a part of the handshake.", "Choose one of C0, C1, C2, S0, S1, S2.")
    if connection["midstream"]:
        raise UserError("The handshake was not recorded.", "Capture the connection from its start.")
    start, stop = _PARTS[part[1]]
    excerpt = _fetch(connection, paths, "c2s" if part[0] == "C" else "s2c", start, stop)
    data = _contiguous(excerpt)
    pieces = [Piece(start, data, dump.PAYLOAD)]
    lines = dump.lines(pieces, handshake_fields(part, data), excerpt, whole=whole)
    return _rendered(f"{part}, {len(data)} bytes", lines)


def _wire_bound(rows: Sequence[Row], start: int, own: Row) -> int:
    """Upper bound of the bytes from `start` to the end of the message, with interleaved messages and headers."""
    size = 0
    for row in rows:
        if row["stream_offset"] >= start and row["msg_no"] <= own["msg_no"]:
            size += row["length"] + 18 * (row["chunks"] + 1)
        elif row["stream_offset"] >= start and row["stream_offset"] < own["stream_offset"] + size:
            size += row["length"] + 18 * (row["chunks"] + 1)
    return min(size, _MOST_WIRE)


def _fetch(connection: Row, paths: Sequence[str], direction: str, start: int, stop: int) -> Excerpt:
    client = (connection["orig_h"], connection["orig_p"])
    server = (connection["resp_h"], connection["resp_p"])
    return read_excerpt(paths, client, server, direction, connection["ts_start"], start, stop)


def _contiguous(excerpt: Excerpt) -> bytes:
    """The bytes before the first gap."""
    data, expected = [], excerpt.offset
    for packet in sorted(excerpt.packets, key=lambda p: p.offset):
        if packet.offset != expected:
            break
        data.append(packet.data)
        expected += len(packet.data)
    return b"".join(data)


def _rendered(title: str, lines: Sequence[DumpLine]) -> tuple[str, str]:
    plain = f"{title}\n{dump.as_text(lines)}"
    rows = []
    for line, words in zip(lines, dump.as_text(lines).split("\n")):
        shown = page_text.escape(words, 400)
        rows.append(f"<span class='{line.kind}'>{shown}</span>")
    return f"<h4>{page_text.escape(title)}</h4><pre class='hex'>{chr(10).join(rows)}</pre>", plain
