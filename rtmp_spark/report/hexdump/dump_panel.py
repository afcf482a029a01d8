"""Hex dumps for notebooks: finds the bytes in the captures, names them, renders them as HTML and text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rtmp_spark.capture import hexdump
from rtmp_spark.capture.excerpt import Excerpt, read_excerpt
from rtmp_spark.capture.fields import handshake_fields
from rtmp_spark.capture.hexdump import DumpLine, Piece
from rtmp_spark.codec.errors import UserError
from rtmp_spark.codec.handshake import PACKET_SIZE
from rtmp_spark.report import text

Row = dict[str, Any]
_PARTS = {"0": (0, 1), "1": (1, 1 + PACKET_SIZE), "2": (1 + PACKET_SIZE, 1 + 2 * PACKET_SIZE)}
_BEFORE = 1 << 20  # bytes of earlier messages that are walked to know the chunks of one
_MOST_WIRE = 20 << 20


def dump_message(
    connection: Row, paths: Sequence[str], rows: Sequence[Row], msg_no: int, direction: str, *,
    keep_secrets: bool = False, whole: bool = False,
) -> tuple[str, str]:  # fmt: skip
    """HTML and text of one message."""
    if connection["service"] != "rtmp":
        raise UserError(
            f"{connection['uid']} is {connection['service']}: its messages are not in the TCP bytes as they are.",
            "Dumps are made of plain RTMP.",
        )
    own = next(row for row in rows if row["msg_no"] == msg_no)
    start = hexdump.clean_start(rows, msg_no)
    if own["stream_offset"] - start > _BEFORE:
        start = own["stream_offset"]
    stop = start + _wire_bound(rows, start, own)
    excerpt = _fetch(connection, paths, direction, start, stop)
    pieces = hexdump.walk(_contiguous(excerpt), start, rows, msg_no)
    fields, payload = hexdump.payload_fields(own["type_id"], pieces)
    masked = [] if keep_secrets else hexdump.secret_parts(own["type_id"], payload, fields)
    dump = hexdump.lines(pieces, fields, excerpt, masked, whole)
    title = (
        f"message {msg_no} {direction}: {own['type_name']}, csid {own['csid']}, stream {own['stream_id']}, "
        f"timestamp {own['timestamp']}, {own['length']} bytes in {text.one_of(own['chunks'], 'chunk')}, {own['status']}"
    )
    return _rendered(title, dump)


def dump_handshake(connection: Row, paths: Sequence[str], part: str, *, whole: bool = False) -> tuple[str, str]:
    """HTML and text of C0, C1, C2, S0, S1 or S2."""
    if len(part) != 2 or part[0] not in "CS" or part[1] not in _PARTS:
        raise UserError(f"{part!r} is no part of a handshake.", "Choose one of C0, C1, C2, S0, S1, S2.")
    if connection["midstream"]:
        raise UserError("The recording starts inside the connection.", "Its handshake was not recorded.")
    start, stop = _PARTS[part[1]]
    excerpt = _fetch(connection, paths, "c2s" if part[0] == "C" else "s2c", start, stop)
    data = _contiguous(excerpt)
    pieces = [Piece(start, data, hexdump.PAYLOAD)]
    dump = hexdump.lines(pieces, handshake_fields(part, data), excerpt, whole=whole)
    return _rendered(f"{part}, {len(data)} bytes", dump)


def _wire_bound(rows: Sequence[Row], start: int, own: Row) -> int:
    """Wire bytes that surely hold the message: itself and everything that completed before it, headers and all."""
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
    """The bytes up to the first hole."""
    data, expected = [], excerpt.offset
    for packet in sorted(excerpt.packets, key=lambda p: p.offset):
        if packet.offset != expected:
            break
        data.append(packet.data)
        expected += len(packet.data)
    return b"".join(data)


def _rendered(title: str, dump: Sequence[DumpLine]) -> tuple[str, str]:
    plain = f"{title}\n{hexdump.as_text(dump)}"
    rows = []
    for line, words in zip(dump, hexdump.as_text(dump).split("\n")):
        shown = text.escape(words, 400)
        rows.append(f"<span class='{line.kind}'>{shown}</span>")
    return f"<h4>{text.escape(title)}</h4><pre class='hex'>{chr(10).join(rows)}</pre>", plain
