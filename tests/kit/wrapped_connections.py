"""A real RTMP connection inside wrappings: TLS by OpenSSL, RTMPT by a few lines of HTTP.

The RTMP bytes are the same, so the tables must be the same; only packets and offsets may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kit import capture_rewriting, tls_connections
from kit.capture_rewriting import Packet, Talk, build, pcap

Said = list[tuple[int, bytes]]
# What a wrapping changes: packets, times of packets, the TCP connection, offsets where HTTP is skipped.
_OF_TRANSPORT = {
    "uid", "ts", "ts_first", "ts_last", "frame", "frame_first", "frame_last", "capture_id", "capture_id_last",
    "response_ms", "stream_offset",
}  # fmt: skip


def said(path: Path) -> Said:
    """The packet payloads of a clean capture of one connection, in order of time; side 0 is the client."""
    packets = capture_rewriting.read(path)
    client = packets[0].sender
    expected: dict[tuple[str, int], int] = {}
    found = []
    for packet in packets:
        if packet.flags & capture_rewriting.SYN:
            expected[packet.sender] = packet.seq + 1 & capture_rewriting.MASK
        elif packet.payload and packet.seq == expected[packet.sender]:
            expected[packet.sender] = packet.seq + len(packet.payload) & capture_rewriting.MASK
            found.append((0 if packet.sender == client else 1, packet.payload))
    return found


def what_was_said(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without the columns that a wrapping changes, sorted."""
    kept = [{k: v for k, v in row.items() if k not in _OF_TRANSPORT} for row in rows]
    return sorted(kept, key=lambda row: (row["direction"], row["msg_no"], row.get("part_no", 0)))


def over_tcp(flights: Said, port: int = 1935, size: int = 1400, start_port: int = 40000) -> list[Packet]:
    talk = Talk(client=("10.0.0.1", start_port), server=("10.0.0.2", port)).open()
    for side, data in flights:
        talk.say(side, data, size=size)
    return talk.close(0).packets


def in_tls(directory: Path, given: Said, **options: Any) -> tuple[Said, bytes]:
    """TLS flights and the key log; close_notify follows the last data."""
    made = tls_connections.talk(directory, given, **options)
    return made.flights, made.keylog


def write(path: Path, packets: Sequence[Packet]) -> Path:
    path.write_bytes(pcap(build(packets)))
    return path


class Tunnel:
    """An RTMPT client and server: `said` in the bodies of POST requests over one or more TCP connections."""

    def __init__(
        self, given: Said, *, connections: int = 1, session_id: str = "BE7A", first_number: int = 0, port: int = 80,
        numbers: Callable[[int], int] | None = None, chunked: bool = False, between: tuple[bytes, bytes] | None = None,
        start_port: int = 50000, proxied: str = "",
    ) -> None:  # fmt: skip
        self.talks = [
            Talk(client=("10.0.0.1", start_port + n), server=("10.0.0.2", port), isn=(7 + n, 9 + n))
            for n in range(connections)
        ]
        self.clock = self.talks[0].now_ns
        self.order: list[Packet] = []
        self.session_id = session_id
        self.number = first_number
        self.numbers = numbers or (lambda n: n)
        self.chunked = chunked
        self.between = between
        self.proxied = proxied  # before each path
        for number in range(connections):
            self._on(number, lambda talk: talk.open())
        self._exchange(0, "/fcs/ident2", b"\0", b"", status="404 Not Found", interval=False)
        self._exchange(0, "/open/1", b"\0", session_id.encode() + b"\n", interval=False)
        for up, down in self._rounds(given):
            self.round(up, down)

    def _rounds(self, given: Said) -> list[tuple[bytes, bytes]]:
        rounds: list[tuple[bytes, bytes]] = []
        up = down = b""
        for side, data in given:
            if side == 0:
                if down or len(up) > 2000:
                    rounds.append((up, down))
                    up = down = b""
                up += data
            else:
                down += data
        return [*rounds, (up, down)]

    def round(self, up: bytes, down: bytes, status: str = "200 OK") -> None:
        number = self.numbers(self.number)
        kind = "send" if up else "idle"
        self._exchange(
            self.number % len(self.talks), f"/{kind}/{self.session_id}/{number}", up or b"\0", down, status=status
        )
        self.number += 1

    def close(self) -> list[Packet]:
        self._exchange(0, f"/close/{self.session_id}/{self.numbers(self.number)}", b"\0", b"")
        for number in range(len(self.talks)):
            self._on(number, lambda talk: talk.close(0))
        return self.order

    def _on(self, number: int, act: Callable[[Talk], object]) -> None:
        talk = self.talks[number]
        before = len(talk.packets)
        talk.now_ns = self.clock
        act(talk)
        self.clock = talk.now_ns
        self.order += talk.packets[before:]

    def _exchange(
        self, number: int, path: str, body: bytes, answer: bytes, status: str = "200 OK", interval: bool = True
    ) -> None:
        head = f"POST {self.proxied}{path} HTTP/1.1\r\nHost: 10.0.0.2\r\nContent-Type: application/x-fcs\r\n"
        request = head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
        content = (b"\x01" if interval else b"") + answer
        back = f"HTTP/1.1 {status}\r\nContent-Type: application/x-fcs\r\n".encode()
        if self.chunked:
            pieces = [content[at : at + 333] for at in range(0, len(content), 333)]
            framed = b"".join(b"%x;x=y\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
            back += b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\nTrailer: 1\r\n\r\n"
        else:
            back += b"content-length:%d\r\n\r\n" % len(content) + content
        if self.between is not None:
            request = self.between[0] + request
            back = self.between[1] + back
        self._carry(number, request, back)

    def _carry(self, number: int, request: bytes, back: bytes) -> None:
        self._on(number, lambda talk: talk.say(0, request, size=1400).say(1, back, size=1400))


class Pipelined(Tunnel):
    """Two requests before their responses on one connection, as librtmp does."""

    def _carry(self, number: int, request: bytes, back: bytes) -> None:
        held: list[tuple[bytes, bytes]] = self.__dict__.setdefault("held", [])
        held.append((request, back))
        if len(held) == 2 or request.startswith((b"POST /open", b"POST /fcs", b"POST /close")):
            for side in (0, 1):
                for exchange in held:
                    self._on(0, lambda talk, data=exchange[side], side=side: talk.say(side, data, size=1400))
            held.clear()


def lose(packets: Sequence[Packet], lost: set[int]) -> list[Packet]:
    """All packets except those with these numbers, which count from 1."""
    return [packet for number, packet in enumerate(packets, 1) if number not in lost]


def without_syn(packets: Sequence[Packet], first: int) -> list[Packet]:
    return list(packets[first:])


def with_ports(packets: Sequence[Packet], client_port: int) -> list[Packet]:
    """The same packets from another client port."""
    client = packets[0].sport
    moved = []
    for packet in packets:
        if packet.sport == client:
            moved.append(replace(packet, sport=client_port))
        else:
            moved.append(replace(packet, dport=client_port))
    return moved
