"""Captures that try to cost more than they weigh: each family makes one of any size `n`.

`FAMILIES` names them all. Twice the size must cost at most 2.3 times as much (bench/hostile.py measures it; tests bound
the counted work and the memory). Everything is built here byte by byte, without the project's encoder.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kit.capture_rewriting import enhanced, interface, section

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
MASK = 0xFFFFFFFF
_START_S = 1_700_000_000


class Record(NamedTuple):
    us: int  # since the start
    frame: bytes


class Wire:
    """One TCP connection over IPv4 and Ethernet; each method appends a packet."""

    def __init__(self, records: list[Record], number: int = 0, port: int = 1935, *, step_us: int = 10) -> None:
        self.records = records
        self.port = port
        self.step_us = step_us
        self.client = struct.pack(">I", 0x0A000001 + number // 50_000), 10_000 + number % 50_000
        self.server = b"\xc0\xa8\x00\x02", port
        self.isn = (1000 + 7919 * number, 5000 + 104_729 * number)
        self.sent = [0, 0]
        self.us = records[-1].us if records else 0

    def packet(self, side: int, offset: int, payload: bytes = b"", flags: int = ACK, data_offset: int = 5) -> None:
        """`offset` counts from the first byte after the SYN; -1 is the SYN itself."""
        self.us += self.step_us
        (src, sport), (dst, dport) = (self.client, self.server)[:: 1 - 2 * side]
        seq = (self.isn[side] + 1 + offset) & MASK
        ack = (self.isn[1 - side] + 1 + self.sent[1 - side]) & MASK if flags & ACK else 0
        head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40 + len(payload), 0, 0, 64, 6, 0, src, dst)
        head += struct.pack(">HHIIBBHHH", sport, dport, seq, ack, data_offset << 4, flags, 65_535, 0, 0)
        self.records.append(Record(self.us, bytes(12) + b"\x08\x00" + head + payload))

    def open(self) -> Wire:
        self.packet(0, -1, flags=SYN)
        self.packet(1, -1, flags=SYN | ACK)
        return self

    def say(self, side: int, data: bytes, size: int = 1400) -> Wire:
        for at in range(0, len(data), size):
            part = data[at : at + size]
            self.packet(side, self.sent[side], part, ACK | PSH)
            self.sent[side] += len(part)
        return self

    def close(self) -> Wire:
        for side in (0, 1):
            self.packet(side, self.sent[side], flags=FIN | ACK)
            self.sent[side] += 1
        self.packet(0, self.sent[0])
        return self


def pcap(records: Iterable[Record]) -> bytes:
    parts = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1)]
    for us, frame in records:
        seconds, micro = divmod(us, 1_000_000)
        parts.append(struct.pack("<IIII", _START_S + seconds, micro, len(frame), len(frame)) + frame)
    return b"".join(parts)


# -- RTMP by hand ---------------------------------------------------------------------------------------------------


def text(value: str) -> bytes:
    return b"\x02" + struct.pack(">H", len(value)) + value.encode()


def number(value: float) -> bytes:
    return b"\x00" + struct.pack(">d", value)


def amf_object(**fields: str) -> bytes:
    pairs = b"".join(struct.pack(">H", len(k)) + k.encode() + text(v) for k, v in fields.items())
    return b"\x03" + pairs + b"\x00\x00\x09"


def message(
    csid: int, type_id: int, payload: bytes, *, stream_id: int = 0, timestamp: int = 0, chunk_size: int = 1 << 20
) -> bytes:
    """A message of fmt 0."""
    head = basic_header(0, csid) + timestamp.to_bytes(3, "big") + len(payload).to_bytes(3, "big") + bytes((type_id,))
    head += struct.pack("<I", stream_id)
    first, rest = payload[:chunk_size], payload[chunk_size:]
    again = basic_header(3, csid)
    return head + first + b"".join(again + rest[at : at + chunk_size] for at in range(0, len(rest), chunk_size))


def basic_header(fmt: int, csid: int) -> bytes:
    if csid < 64:
        return bytes((fmt << 6 | csid,))
    if csid < 320:
        return bytes((fmt << 6, csid - 64))
    return bytes((fmt << 6 | 1, (csid - 64) & 0xFF, csid - 64 >> 8))


HANDSHAKE = b"\x03" + bytes(8) + bytes(i * 7 & 0xFF for i in range(1528))
LARGE_CHUNKS = message(2, 1, struct.pack(">I", 1 << 20))
CONNECT = message(3, 20, text("connect") + number(1) + amf_object(app="live", tcUrl="rtmp://192.168.0.2/live"))
CONNECTED = message(3, 20, text("_result") + number(1) + b"\x05" + amf_object(code="NetConnection.Connect.Success"))


def connected(wire: Wire) -> Wire:
    """Handshake and connect; chunks of 1 MiB in both directions."""
    wire.open().say(0, HANDSHAKE).say(1, HANDSHAKE + HANDSHAKE[1:]).say(0, HANDSHAKE[1:] + LARGE_CHUNKS + CONNECT)
    return wire.say(1, LARGE_CHUNKS + CONNECTED)


def publishing(wire: Wire, name: str = "cam", *, tid: float = 2, stream_id: int = 1) -> Wire:
    wire.say(0, message(3, 20, text("createStream") + number(tid) + b"\x05"))
    wire.say(1, message(3, 20, text("_result") + number(tid) + b"\x05" + number(stream_id)))
    wire.say(0, message(4, 20, text("publish") + number(0) + b"\x05" + text(name) + text("live"), stream_id=stream_id))
    started = amf_object(level="status", code="NetStream.Publish.Start", description="a description")
    return wire.say(1, message(4, 20, text("onStatus") + number(0) + b"\x05" + started, stream_id=stream_id))


def one_connection(speak: Callable[[Wire, int], None]) -> Callable[[int], bytes]:
    """The capture of one connection, in which `speak` sends after connect."""

    def capture(n: int) -> bytes:
        records: list[Record] = []
        speak(connected(Wire(records)), n)
        return pcap(records)

    return capture


# -- AMF --------------------------------------------------------------------------------------------------------------


@one_connection
def amf0_references(wire: Wire, n: int) -> None:
    """Commands whose arrays refer twice to the one before."""
    arrays = b"\x0a\x00\x00\x00\x01\x05"
    arrays += b"".join(b"\x0a\x00\x00\x00\x02" + (b"\x07" + struct.pack(">H", i)) * 2 for i in range(12))
    for tid in range(n):
        wire.say(0, message(3, 20, text("refer") + number(tid + 10) + arrays))


@one_connection
def amf3_strings(wire: Wire, n: int) -> None:
    """AMF3 commands with one long string that is referred to many times."""
    string = b"\x06\x8f\x51" + b"s" * 1000
    array = b"\x11\x09\x8f\x53\x01" + string + b"\x06\x00" * 1000  # 1001 items
    for tid in range(n):
        wire.say(0, message(3, 17, b"\x00" + text("refer") + number(tid + 10) + array))


@one_connection
def shared_object_events(wire: Wire, n: int) -> None:
    """One shared-object message of `n` empty events."""
    body = struct.pack(">H", 2) + b"so" + struct.pack(">III", 1, 0, 0) + b"\x01\x00\x00\x00\x00" * n
    wire.say(0, message(3, 19, body))


# -- TCP --------------------------------------------------------------------------------------------------------------


@one_connection
def overlaps_after_a_hole(wire: Wire, n: int) -> None:
    """Segments of 1,000 bytes after a hole, each one byte further and with other bytes."""
    _overlap(wire, range(n))


@one_connection
def overlaps_backwards(wire: Wire, n: int) -> None:
    """The same, last first."""
    _overlap(wire, range(n - 1, -1, -1))


@one_connection
def overlaps_shuffled(wire: Wire, n: int) -> None:
    """The same, in any order."""
    _overlap(wire, random.Random(1).sample(range(n), n))


def _overlap(wire: Wire, order: Iterable[int]) -> None:
    base = wire.sent[0] + 10
    for i in order:
        wire.packet(0, base + i, bytes(((i * 37 + j) * 31 + i) & 0xFF for j in range(1000)))


@one_connection
def overlaps_delivered(wire: Wire, n: int) -> None:
    """Bytes that were delivered come again, `n` times with other content."""
    wire.say(0, message(6, 9, bytes(60_000)))
    base = wire.sent[0] - 60_000
    for i in range(n):
        wire.packet(0, base + i * 13 % 58_000, bytes((i * 7 + j & 0xFF) or 1 for j in range(1000)))


@one_connection
def reverse_segments(wire: Wire, n: int) -> None:
    """Segments of one byte, last first."""
    data = message(6, 9, bytes(n))
    base = wire.sent[0]
    for i in range(n - 1, -1, -1):
        wire.packet(0, base + i, data[i : i + 1])


@one_connection
def every_other_segment(wire: Wire, n: int) -> None:
    """Segments of one byte with a hole after each: as many gaps as segments."""
    base = wire.sent[0]
    for i in range(n):
        wire.packet(0, base + 2 * i + 1, b"\xc6")


@one_connection
def shuffled_segments(wire: Wire, n: int) -> None:
    """A stream whose segments of 100 bytes are in random order."""
    data = b"".join(message(6, 9, bytes(200), stream_id=1, timestamp=i) for i in range(n // 2))
    base = wire.sent[0]
    places = list(range(0, len(data), 100))
    random.Random(1).shuffle(places)
    for at in places:
        wire.packet(0, base + at, data[at : at + 100])


@one_connection
def retransmissions(wire: Wire, n: int) -> None:
    """The same 1,000 bytes `n` times, and a keep-alive after each."""
    wire.say(0, message(6, 9, bytes(1000)))
    for _ in range(n):
        wire.packet(0, wire.sent[0] - 1000, bytes(1000))
        wire.packet(0, wire.sent[0] - 1, b"\x00")


def syns(n: int) -> bytes:
    """`n` SYNs of `n` connections."""
    records: list[Record] = []
    for i in range(n):
        Wire(records, i, step_us=5).packet(0, -1, flags=SYN)
    return pcap(records)


def syn_scans(n: int) -> bytes:
    """SYN and RST of closed ports."""
    records: list[Record] = []
    for i in range(n):
        wire = Wire(records, i, step_us=5)
        wire.packet(0, -1, flags=SYN)
        wire.packet(1, -1, flags=RST | ACK)
    return pcap(records)


def one_packet_flows(n: int) -> bytes:
    """Connections of one packet with payload."""
    records: list[Record] = []
    for i in range(n):
        Wire(records, i, step_us=5).packet(0, 0, b"\x03" + bytes(10), PSH | ACK)
    return pcap(records)


def one_packet_flows_of_any_bytes(n: int) -> bytes:
    """Connections of one packet, each with other bytes."""
    records: list[Record] = []
    any_bytes = random.Random(1)
    for i in range(n):
        Wire(records, i, step_us=5).packet(0, 0, any_bytes.randbytes(1 + i % 40), PSH | ACK)
    return pcap(records)


def silent_connections(n: int) -> bytes:
    """Connections that are opened and closed without payload."""
    records: list[Record] = []
    for i in range(n):
        Wire(records, i, step_us=5).open().close()
    return pcap(records)


def tiny_connections(n: int) -> bytes:
    """RTMP connections of a handshake, connect, and a closed stream."""
    records: list[Record] = []
    for i in range(n):
        publishing(connected(Wire(records, i))).close()
    return pcap(records)


def reused_ports(n: int) -> bytes:
    """One pair of endpoints with `n` connections after each other."""
    records: list[Record] = []
    for i in range(n):
        wire = Wire(records)
        wire.isn = (1000 + 100_000 * i & MASK, 5000 + 100_000 * i & MASK)
        wire.open().say(0, HANDSHAKE[:100]).close()
    return pcap(records)


@one_connection
def resets(wire: Wire, n: int) -> None:
    """RSTs out of the window."""
    for i in range(n):
        wire.packet(0, wire.sent[0] + 10_000_000 + i, flags=RST)


@one_connection
def zero_windows(wire: Wire, n: int) -> None:
    """A window that closes and opens with every packet, seconds apart."""
    wire.step_us = 1_100_000
    for i in range(n):
        wire.packet(1, wire.sent[1])
        us, frame = wire.records[-1]
        if i % 2:
            wire.records[-1] = Record(us, frame[:48] + b"\0\0" + frame[50:])


@one_connection
def short_data_offsets(wire: Wire, n: int) -> None:
    """TCP headers that claim to be shorter than a TCP header."""
    for _ in range(n):
        wire.packet(0, wire.sent[0], bytes(100), data_offset=1)


def fragments(n: int) -> bytes:
    """IP datagrams of which only the first fragment is there, and some with many fragments of 8 bytes, last first."""
    records: list[Record] = []
    for i in range(n):
        ident, place = (i, 0) if i % 2 else (60_000, n - i)
        flags = 0x2000 | place & 0x1FFF
        head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28, ident & 0xFFFF, flags, 64, 6, 0, b"\x0a\0\0\1", b"\x0a\0\0\2")
        records.append(Record(i * 10, bytes(12) + b"\x08\x00" + head + bytes(8)))
    return pcap(records)


# -- RTMP -------------------------------------------------------------------------------------------------------------


@one_connection
def many_streams(wire: Wire, n: int) -> None:
    """createStream and publish, `n` times in one connection."""
    for i in range(n):
        publishing(wire, f"stream{i}", tid=2 + i, stream_id=1 + i)


@one_connection
def many_played_streams(wire: Wire, n: int) -> None:
    """createStream and play with one frame each, and deleteStream of every second one."""
    for i in range(n):
        wire.say(0, message(3, 20, text("createStream") + number(2 + i) + b"\x05"))
        wire.say(1, message(3, 20, text("_result") + number(2 + i) + b"\x05" + number(1 + i)))
        wire.say(0, message(8, 20, text("play") + number(0) + b"\x05" + text(f"s{i}"), stream_id=1 + i))
        started = amf_object(level="status", code="NetStream.Play.Start", description=f"Started s{i}.")
        wire.say(1, message(5, 20, text("onStatus") + number(0) + b"\x05" + started, stream_id=1 + i))
        wire.say(1, message(6, 9, b"\x17\x01\x00\x00\x00" + bytes(20), stream_id=1 + i, timestamp=i))
        if i % 2:
            wire.say(0, message(3, 20, text("deleteStream") + number(0) + b"\x05" + number(1 + i)))


@one_connection
def unanswered_requests(wire: Wire, n: int) -> None:
    """Requests without a response, then responses without a request."""
    for i in range(n):
        wire.say(0, message(3, 20, text("createStream") + number(2 + i) + b"\x05"))
    for i in range(n):
        wire.say(1, message(3, 20, text("_result") + number(10_000_000 + i) + b"\x05" + number(1 + i)))


def many_csids(n: int) -> bytes:
    """A message of 16 MB announced on each of `n` csids, with one byte of it."""
    parts = []
    for i in range(n):
        head = basic_header(0, 64 + i % 65_000) + bytes(3) + b"\xff\xff\xff" + b"\x09" + struct.pack("<I", 1)
        parts.append(head + bytes(128))
    records: list[Record] = []
    wire = connected(Wire(records)).say(0, message(2, 1, struct.pack(">I", 128)))
    wire.say(0, b"".join(parts))
    return pcap(records)


@one_connection
def one_byte_messages(wire: Wire, n: int) -> None:
    """A message of one byte, then `n` more of fmt 3 alone."""
    wire.say(0, message(6, 9, b"\x17", stream_id=1) + b"\xc6\x17" * n)


@one_connection
def empty_messages(wire: Wire, n: int) -> None:
    """Messages without payload, by fmt 3 alone."""
    wire.say(0, message(6, 9, b"", stream_id=1) + b"\xc6" * n)


@one_connection
def one_byte_chunks(wire: Wire, n: int) -> None:
    """Messages in chunks of one byte, two of them interleaved."""
    wire.say(0, message(2, 1, struct.pack(">I", 1)))
    length = n.to_bytes(3, "big")
    for csid in (6, 7):
        head = basic_header(0, csid) + bytes(3) + length + b"\x09" + struct.pack("<I", 1)
        wire.say(0, head + b"\x17")
    wire.say(0, b"\xc6\x00\xc7\x00" * (n - 1))


@one_connection
def chunk_size_changes(wire: Wire, n: int) -> None:
    """Set Chunk Size, `n` times."""
    body = b"".join(message(2, 1, struct.pack(">I", 128 + i % 1000), chunk_size=1 << 20) for i in range(n))
    wire.say(0, body)


@one_connection
def aborted_messages(wire: Wire, n: int) -> None:
    """A message that is begun and aborted, `n` times."""
    begun = basic_header(0, 6) + bytes(3) + b"\x10\x00\x00" + b"\x09" + struct.pack("<I", 1) + bytes(64)
    wire.say(0, message(2, 1, struct.pack(">I", 64)))
    wire.say(0, (begun + message(2, 2, struct.pack(">I", 6))) * n)


@one_connection
def aggregates(wire: Wire, n: int) -> None:
    """Aggregate messages full of empty parts."""
    part = b"\x09\x00\x00\x00" + bytes(7) + b"\x00\x00\x00\x0b"
    wire.say(0, message(6, 22, part * n, stream_id=1))


@one_connection
def pings(wire: Wire, n: int) -> None:
    """Ping Requests that nobody answers, and Acknowledgements that are wrong."""
    parts = [message(2, 4, b"\x00\x06" + struct.pack(">I", i)) + message(2, 3, b"\xff" * 4) for i in range(n)]
    wire.say(1, b"".join(parts))


@one_connection
def findings(wire: Wire, n: int) -> None:
    """Every message breaks a rule, each on another stream id and with another detail."""
    parts = [message(6, 9, bytes((0x70 | i & 15, i & 255)), stream_id=i + 1) for i in range(n)]
    parts += [message(3, 20, text(f"c{i}") + b"\x0d\x0e") for i in range(n)]
    wire.say(0, b"".join(parts))


@one_connection
def backward_timestamps(wire: Wire, n: int) -> None:
    """Frames whose timestamps jump back and forth."""
    publishing(wire)
    frames = [
        message(6, 9, b"\x27\x01\x00\x00\x00" + bytes(8), stream_id=1, timestamp=i * 7_919_000 % 0xFFFFF0)
        for i in range(n)
    ]
    wire.say(0, b"".join(frames))


@one_connection
def resynchronisations(wire: Wire, n: int) -> None:
    """A gap in every packet of a stream of small messages."""
    for i in range(n):
        body = bytes(random.Random(i).randbytes(300))
        data = message(6, 9, b"\x27\x01\x00\x00\x00" + body, stream_id=1, timestamp=i)
        data += message(4, 8, b"\xaf\x01" + body[:80], stream_id=1, timestamp=i)
        wire.say(0, data)
        wire.sent[0] += 37


@one_connection
def random_after_gaps(wire: Wire, n: int) -> None:
    """Random bytes with gaps between them: there is no message to find."""
    for i in range(n):
        wire.say(0, random.Random(i).randbytes(1000))
        wire.sent[0] += 11


@one_connection
def headers_after_gaps(wire: Wire, n: int) -> None:
    """Bytes after a gap that all look like headers of fmt 3."""
    for i in range(n):
        wire.say(0, b"\xc6\xc4\xc3" * 400)
        wire.sent[0] += 11 + i % 3


def identical_frames(n: int) -> bytes:
    """The same frame published and played, `n` times."""
    frame = b"\x27\x01\x00\x00\x00" + bytes(16)
    records: list[Record] = []
    publishing(connected(Wire(records))).say(
        0, b"".join(message(6, 9, frame, stream_id=1, timestamp=i) for i in range(n))
    )
    wire = connected(Wire(records, 1))
    wire.say(0, message(3, 20, text("createStream") + number(2) + b"\x05"))
    wire.say(1, message(3, 20, text("_result") + number(2) + b"\x05" + number(1)))
    wire.say(0, message(8, 20, text("play") + number(0) + b"\x05" + text("cam"), stream_id=1))
    started = amf_object(level="status", code="NetStream.Play.Start", description="Started.")
    wire.say(1, message(5, 20, text("onStatus") + number(0) + b"\x05" + started, stream_id=1))
    wire.say(1, b"".join(message(6, 9, frame, stream_id=1, timestamp=i) for i in range(n)))
    return pcap(records)


# -- wrappings and files ----------------------------------------------------------------------------------------------


def tls_records(n: int) -> bytes:
    """TLS records of one byte without a key."""
    records: list[Record] = []
    hello = b"\x01\x00\x00\x2b\x03\x03" + bytes(32) + b"\x00\x00\x02\xc0\x2f\x01\x00" + bytes(2)
    wire = Wire(records, port=443).open().say(0, b"\x16\x03\x01" + struct.pack(">H", len(hello)) + hello)
    server = b"\x02\x00\x00\x26\x03\x03" + bytes(32) + b"\x00\xc0\x2f\x00"
    wire.say(1, b"\x16\x03\x03" + struct.pack(">H", len(server)) + server)
    for side in (0, 1):
        wire.say(side, b"\x17\x03\x03\x00\x01\x00" * n)
    return pcap(records)


def rtmpt_sessions(n: int) -> bytes:
    """RTMPT requests that each open another session on one connection."""
    records: list[Record] = []
    wire = Wire(records, port=80).open()
    for i in range(n):
        wire.say(0, b"POST /open/1 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n\x00")
        body = b"S%07d\n" % i
        wire.say(1, b"HTTP/1.1 200 OK\r\nContent-Type: application/x-fcs\r\nContent-Length: 9\r\n\r\n" + body)
    return pcap(records)


def rtmpt_requests(n: int) -> bytes:
    """One RTMPT session of many empty requests, the responses only at the end."""
    records: list[Record] = []
    wire = Wire(records, port=80).open()
    wire.say(0, b"POST /open/1 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n\x00")
    wire.say(1, b"HTTP/1.1 200 OK\r\nContent-Type: application/x-fcs\r\nContent-Length: 9\r\n\r\nS0000000\n")
    for i in range(n):
        wire.say(0, b"POST /idle/S0000000/%d HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n\x00" % (i + 1))
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-fcs\r\nContent-Length: 1\r\n\r\n\x01"
    wire.say(1, answer * n)
    return pcap(records)


def pcapng_sections(n: int) -> bytes:
    """A section for every packet."""
    records: list[Record] = []
    wire = Wire(records).open()
    for _ in range(n):
        wire.packet(0, wire.sent[0])
    parts = []
    for us, frame in records:
        parts += [section(), interface(), enhanced(_START_S * 1_000_000 + us, frame)]
    return b"".join(parts)


def pcapng_interfaces(n: int) -> bytes:
    """An interface for every packet, in one section."""
    records: list[Record] = []
    wire = Wire(records).open()
    for _ in range(n):
        wire.packet(0, wire.sent[0])
    parts = [section()]
    for i, (us, frame) in enumerate(records):
        parts += [interface(), enhanced(_START_S * 1_000_000 + us, frame, i)]
    return b"".join(parts)


def pcapng_byte_orders(n: int) -> bytes:
    """A section for every packet, in the other byte order than the one before, and each with another interface."""
    records: list[Record] = []
    wire = Wire(records).open()
    for _ in range(n):
        wire.packet(0, wire.sent[0])
    parts = []
    for i, (us, frame) in enumerate(records):
        order, ticks = "<>"[i % 2], _START_S * 1_000_000 + us
        bodies = {
            0x0A0D0D0A: struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1),
            1: struct.pack(order + "HHI", 1, 0, 65_535 + i),
            6: struct.pack(order + "5I", 0, ticks >> 32, ticks & MASK, len(frame), len(frame)) + frame,
        }
        for kind, body in bodies.items():
            length = 12 + len(body) + (-len(body) & 3)
            parts += [struct.pack(order + "II", kind, length), body, bytes(-len(body) & 3)]
            parts.append(struct.pack(order + "I", length))
    return b"".join(parts)


def empty_records(n: int) -> bytes:
    """Records of no bytes."""
    return pcap(Record(i, b"") for i in range(n))


class Family(NamedTuple):
    make: Callable[[int], bytes]
    n: int  # about 1 MB of capture, or what the promises name
    options: tuple[str, ...] = ()  # of `inspect`


FAMILIES: dict[str, Family] = {
    "amf0_references": Family(amf0_references, 1000, ("--json",)),
    "amf3_strings": Family(amf3_strings, 300, ("--json",)),
    "shared_object_events": Family(shared_object_events, 100_000),
    "overlaps_after_a_hole": Family(overlaps_after_a_hole, 1500),
    "overlaps_backwards": Family(overlaps_backwards, 1500),
    "overlaps_shuffled": Family(overlaps_shuffled, 900),
    "overlaps_delivered": Family(overlaps_delivered, 900),
    "reverse_segments": Family(reverse_segments, 40_000),
    "every_other_segment": Family(every_other_segment, 13_000),
    "shuffled_segments": Family(shuffled_segments, 6000),
    "retransmissions": Family(retransmissions, 850),
    "syns": Family(syns, 500_000),
    "syn_scans": Family(syn_scans, 100_000),
    "one_packet_flows": Family(one_packet_flows, 100_000),
    "one_packet_flows_of_any_bytes": Family(one_packet_flows_of_any_bytes, 100_000),
    "silent_connections": Family(silent_connections, 50_000),
    "tiny_connections": Family(tiny_connections, 5000),
    "reused_ports": Family(reused_ports, 2000),
    "resets": Family(resets, 14_000),
    "zero_windows": Family(zero_windows, 14_000),
    "short_data_offsets": Family(short_data_offsets, 6000),
    "fragments": Family(fragments, 17_000),
    "many_streams": Family(many_streams, 2000),
    "many_streams_with_commands": Family(many_streams, 2000, ("--json",)),
    "many_played_streams": Family(many_played_streams, 1500),
    "unanswered_requests": Family(unanswered_requests, 4000),
    "many_csids": Family(many_csids, 30_000),
    "one_byte_messages": Family(one_byte_messages, 200_000),
    "empty_messages": Family(empty_messages, 200_000),
    "one_byte_chunks": Family(one_byte_chunks, 200_000),
    "chunk_size_changes": Family(chunk_size_changes, 50_000),
    "aborted_messages": Family(aborted_messages, 8000),
    "aggregates": Family(aggregates, 60_000),
    "pings": Family(pings, 25_000),
    "findings": Family(findings, 25_000),
    "backward_timestamps": Family(backward_timestamps, 40_000),
    "resynchronisations": Family(resynchronisations, 1200),
    "random_after_gaps": Family(random_after_gaps, 900),
    "headers_after_gaps": Family(headers_after_gaps, 800),
    "identical_frames": Family(identical_frames, 12_000),
    "tls_records": Family(tls_records, 80_000),
    "rtmpt_sessions": Family(rtmpt_sessions, 2500),
    "rtmpt_requests": Family(rtmpt_requests, 4000),
    "pcapng_sections": Family(pcapng_sections, 8000),
    "pcapng_interfaces": Family(pcapng_interfaces, 10_000),
    "pcapng_byte_orders": Family(pcapng_byte_orders, 7000),
    "empty_records": Family(empty_records, 60_000),
}
