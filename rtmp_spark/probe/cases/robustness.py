"""Hostile cases: damaged and malicious input. They run only with --hostile, one at a time.

Every reaction is allowed as long as the server serves the next client.
"""

from __future__ import annotations

import asyncio
import random
import time

from rtmp_spark.codec.encoder import RtmpEncoder, basic_header
from rtmp_spark.codec.message import COMMAND_AMF0, Message

from ..case import PRACTICE, Section
from ..case_connections import Probe
from ..media_check import small_media
from ..outcome import Failed, Result, informational, unimplemented
from ..wire import Silence, Wire
from .handshake import WHOLE, c1

case = Section("robustness", "damaged and malicious input; only with --hostile", hostile=True)


async def reaction(p: Probe, wire: Wire) -> Result:
    """What the server did with the connection, after checking that it serves others."""
    await p.survives()
    return informational("the connection was closed" if wire.closed else "the connection is still open")


_FIRST_BYTES = (
    (1, "Random bytes instead of a handshake", random.Random(1).randbytes(4096)),
    (2, "An HTTP request", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    (3, "A TLS handshake", b"\x16\x03\x01\x02\x00" + bytes(600)),
    (4, "A handshake of zeros and nothing more", b"\3" + bytes(1000)),
)
for _number, _title, _data in _FIRST_BYTES:

    @case(_number, _title, PRACTICE, "RTMP 1.0 5.2")
    async def first_bytes(p: Probe, data: bytes = _data) -> Result:
        """The server serves the next client.

        Port scanners and misdirected browsers do this every day."""
        wire = await p.raw()
        await wire.send(data, "unexpected bytes")
        await p.survives()
        await wire.take_arrived()
        return await reaction(p, wire)


def _announced(csid: int) -> bytes:
    return basic_header(0, csid) + bytes(3) + b"\xff\xff\xff" + b"\x09" + bytes(4) + bytes(128)


_AFTER_HANDSHAKE = (
    (5, "Random bytes after the handshake", random.Random(1).randbytes(20_000)),
    (6, "Set Chunk Size 0", basic_header(0, 2) + bytes(5) + b"\4\1" + bytes(4) + bytes(4) + bytes(300)),
    (7, "50 messages of 16 MB announced", b"".join(_announced(csid) for csid in range(10, 60))),
    (8, "A chunk on each of 5,000 csids", b"".join(_announced(csid)[:140] for csid in range(64, 5064))),
    (9, "fmt 3 as the first chunk", basic_header(3, 30) + bytes(500)),
    (10, "Abort with a wild csid", basic_header(0, 2) + bytes(5) + b"\4\2" + bytes(4) + b"\xff" * 4),
)
for _number, _title, _data in _AFTER_HANDSHAKE:

    @case(_number, _title, PRACTICE, "RTMP 1.0 5.3")
    async def after_handshake(p: Probe, data: bytes = _data) -> Result:
        """The server serves the next client.

        Announced sizes cost an attacker nothing; they must not cost the server memory."""
        peer = await p.peer()
        await peer.send_bytes(data, "damaged chunks")
        return await reaction(p, peer.wire)


@case(11, "A message cut by FIN", PRACTICE, "RTMP 1.0 5.3")
async def cut(p: Probe) -> Result:
    """The server serves the next client.

    Connections break inside messages."""
    peer = await p.publisher()
    data = peer.endpoint.encoder.send(Message(6, 0, 9, peer.stream_id, bytes(50_000)))
    await peer.send_bytes(data[:20_000], "a part of a video frame")
    await peer.close()
    await p.survives()
    return None


@case(12, "A handshake of one byte per 50 ms", PRACTICE, "RTMP 1.0 5.2")
async def slow_handshake(p: Probe) -> Result:
    """Other clients are served meanwhile.

    A slow client must not hold a worker."""
    wire = await p.raw()
    for _ in range(10):
        await wire.send(b"\3")
        await asyncio.sleep(0.05)
    await p.survives()
    return None


@case(13, "A whole session in writes of one byte", PRACTICE, "RTMP 1.0 5")
async def one_byte_writes(p: Probe) -> Result:
    """The session is accepted.

    TCP may deliver single bytes."""
    peer = await p.publisher()
    encode = peer.endpoint.encoder.send
    tags = small_media(video=False)[:6]
    data = b"".join(encode(Message(6, t.timestamp, t.type_id, peer.stream_id, t.payload)) for t in tags)
    await peer.wire.send_slowly(data, "audio")
    await peer.fence()
    return None


@case(14, "FIN after connect", PRACTICE, "RTMP 1.0 7.2")
async def half_close(p: Probe) -> Result:
    """The server answers or closes, and serves the next client.

    Clients that close their sending side still read."""
    peer = await p.connected()
    await peer.command("createStream", None)
    if not peer.wire.half_close():
        return unimplemented("TLS and HTTP have no half-closed connections")
    await p.survives()
    deadline = time.monotonic() + p.target.timeout_s
    while not peer.closed and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    return None if peer.closed else informational("the server keeps the half-closed connection")


@case(15, "200 connections at once", PRACTICE, "RTMP 1.0 5.2")
async def flood(p: Probe) -> Result:
    """The server serves the next client after 200 connections without a word were closed.

    It is far below an attack, and above many default limits."""
    wires = await asyncio.gather(*(p.raw() for _ in range(200)))
    for wire in wires:
        await wire.close()
    await p.survives()
    return None


@case(16, "Sessions with flipped bits", PRACTICE, "RTMP 1.0 5.3")
async def flipped_bits(p: Probe) -> Result:
    """The server serves the next client after 30 damaged sessions.

    The damage is the same in every run."""
    chance = random.Random(1)
    for _ in range(30):
        wire = await p.raw()
        await wire.send(b"\3" + c1(), "C0 and C1")
        try:
            s1 = (await wire.read(WHOLE))[1:1537]
        except (Silence, Failed):
            continue
        peer = p.on_wire(wire)
        message = peer.command_message("connect", 1.0, peer.connect_properties())
        data = bytearray(RtmpEncoder().send(message) * 3)
        for _ in range(5):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        await wire.send(s1 + bytes(data), "C2 and damaged commands")
        await wire.take_arrived()
        await wire.close()
    await p.survives()
    return None


@case(17, "A client that never reads and sends 20,000 commands", PRACTICE, "RTMP 1.0 7.2")
async def never_reads(p: Probe) -> Result:
    """The server serves the next client.

    Unread answers must not fill the server's memory."""
    p.needs_tcp("a client reads the response of each request")
    peer = await p.connected()
    peer.stop_reading()
    message = peer.command_message("someNewCommand", 5.0, None, "x" * 200)
    data = RtmpEncoder().send(Message(9, 0, COMMAND_AMF0, 0, message.payload)) * 100
    try:
        for _ in range(200):
            await peer.send_bytes(data, "")
    except Silence:
        pass
    await p.survives()
    return None
