"""Cases of the handshake (RTMP 1.0 5.2)."""

from __future__ import annotations

import os

from rtmp_spark.codec import handshake
from rtmp_spark.codec.handshake import DIGEST0, DIGEST1, PACKET_SIZE, PLAIN

from ..case import MUST, PRACTICE, SHOULD, Section
from ..case_connections import Probe
from ..outcome import Closed, Failed, Inconclusive, Result, informational, non_strict
from ..peer import Peer
from ..wire import Wire

case = Section("handshake", "C0 to C2 and S0 to S2")
WHOLE = 1 + 2 * PACKET_SIZE  # S0, S1, S2
_TIME = 0x01020304


def c1(scheme: str = PLAIN, version: int = 0) -> bytes:
    return handshake.dump_packet1(handshake.CLIENT, _TIME, version, os.urandom(PACKET_SIZE - 8), scheme)


async def answered(p: Probe, packet: bytes, version: int = 3) -> tuple[Wire, bytes, bytes, bytes]:
    """Send C0 and C1; return the connection, S0, S1 and S2."""
    wire = await p.raw()
    await wire.send(bytes((version,)) + packet, f"C0 {version} and C1")
    data = await wire.read(WHOLE)
    return wire, data[:1], data[1 : 1 + PACKET_SIZE], data[1 + PACKET_SIZE :]


async def commands_work(peer: Peer) -> None:
    """The handshake is complete if connect and createStream are answered."""
    await peer.connect()
    await peer.create_stream()


@case(1, "Nothing before C0", MUST, "RTMP 1.0 5.2.1",
      "The server MUST wait until C0 has been received before sending S0 and S1")  # fmt: skip
async def nothing_before_c0(p: Probe) -> Result:
    """A server sends nothing to a client that has sent nothing.

    A client that reads S0 before it sends C0 would otherwise learn a version that it never asked for."""
    wire = await p.raw()
    await p.reference()
    data = await wire.take_arrived()
    if data:
        raise Failed(f"{len(data)} bytes arrived before C0 was sent")
    return None


@case(2, "S2 only after the whole of C1", MUST, "RTMP 1.0 5.2.1",
      "The server MUST wait until C1 has been received before sending S2")  # fmt: skip
async def s2_after_c1(p: Probe) -> Result:
    """S2 does not arrive before the last byte of C1 was sent, and arrives after it.

    S2 echoes C1, so it cannot be complete before."""
    wire = await p.raw()
    packet = c1()
    await wire.send(b"\3" + packet[:-1], "C0 and C1 without its last byte")
    await p.reference()
    early = await wire.take_arrived()
    if len(early) > 1 + PACKET_SIZE:
        raise Failed(f"{len(early) - 1 - PACKET_SIZE} bytes of S2 arrived before C1 was complete")
    await wire.send(packet[-1:], "the last byte of C1")
    await wire.read(WHOLE - len(early))
    return None


@case(3, "Nothing but the handshake before C2", MUST, "RTMP 1.0 5.2.1",
      "The server MUST wait until C2 has been received before sending any other data")  # fmt: skip
async def nothing_before_c2(p: Probe) -> Result:
    """After S2 a server is silent until C2 has arrived.

    Clients that read exactly 3073 bytes and then start the chunk parser depend on it."""
    wire, *_ = await answered(p, c1())
    await p.reference()
    data = await wire.take_arrived()
    if data:
        raise Failed(f"{len(data)} bytes arrived before C2 was sent")
    return None


@case(4, "S0 selects version 3", MUST, "RTMP 1.0 5.2.2", "The version defined by this specification is 3.")
async def s0_is_3(p: Probe) -> Result:
    """S0 is 3 if C0 is 3.

    A client that asked for plain RTMP cannot continue with another version."""
    _, s0, _, _ = await answered(p, c1())
    if s0 != b"\3":
        raise Failed(f"S0 is {s0[0]}")
    return None


@case(5, "Zero field of S1", MUST, "RTMP 1.0 5.2.3", "Zero (4 bytes): This field MUST be all 0s.")
async def s1_zero(p: Probe) -> Result:
    """Bytes 4 to 7 of S1 are zero if C1 has zero there.

    Other values announce the digest handshake of the Flash Player, which this client did not ask for."""
    _, _, s1, _ = await answered(p, c1())
    if s1[4:8] != bytes(4):
        digest = handshake.parse_packet1(s1, handshake.SERVER).digest
        more = ", with a digest that the client did not ask for" if digest else ""
        raise Failed(f"bytes 4 to 7 of S1 are {s1[4:8].hex()}{more}")
    return None


@case(6, "S2 echoes the time of C1", MUST, "RTMP 1.0 5.2.4",
      "Time (4 bytes): This field MUST contain the timestamp sent by the peer in S1 (for C2) or "
      "C1 (for S2).")  # fmt: skip
async def s2_time(p: Probe) -> Result:
    """The first four bytes of S2 are those of C1.

    Clients measure the round trip with it."""
    packet = c1()
    _, _, _, s2 = await answered(p, packet)
    if s2[:4] != packet[:4]:
        raise Failed(f"the time in S2 is {s2[:4].hex()}, in C1 {packet[:4].hex()}")
    return None


@case(7, "S2 echoes the random data of C1", MUST, "RTMP 1.0 5.2.4",
      "Random echo (1528 bytes): This field MUST contain the random data field sent by the peer in S1 (for "
      "C2) or S2 (for C1).")  # fmt: skip
async def s2_echo(p: Probe) -> Result:
    """Bytes 8 to 1535 of S2 are those of C1.

    librtmp and others verify the echo; the sentence of the specification confuses S2 and C1, its meaning is clear."""
    packet = c1()
    _, _, _, s2 = await answered(p, packet)
    wrong = sum(a != b for a, b in zip(s2[8:], packet[8:], strict=True))
    if wrong:
        raise Failed(f"{wrong} of 1528 bytes of S2 differ from C1")
    return None


for _number, _scheme in ((8, DIGEST0), (9, DIGEST1)):

    @case(_number, f"Handshake with digest, scheme {_scheme[-1]}", PRACTICE, "Flash Player 9 handshake")
    async def digest(p: Probe, scheme: str = _scheme) -> Result:
        """S2 is a valid signature of the digest in C1, or a plain echo of C1.

        The Flash Player plays H.264 only after a signature; ffmpeg and librtmp verify whichever they get."""
        packet = c1(scheme, 0x09007C02)
        _, _, s1, s2 = await answered(p, packet)
        kind = handshake.packet2_kind(s2, handshake.SERVER, packet)
        if kind == handshake.OTHER:
            raise Failed("S2 is neither an echo nor a signature of C1")
        signs = handshake.parse_packet1(s1, handshake.SERVER).digest is not None
        return None if kind == handshake.SIGNATURE and signs else non_strict("plain handshake without digest")


@case(10, "C0 and C1 in one write", PRACTICE, "RTMP 1.0 5.2.1")
async def one_write(p: Probe) -> Result:
    """connect and createStream are answered.

    This is how most clients begin."""
    await commands_work(await p.peer())
    return None


@case(11, "C0, C1 and C2 byte by byte", PRACTICE, "RTMP 1.0 5.2.1")
async def byte_by_byte(p: Probe) -> Result:
    """connect is answered after a handshake in writes of one byte.

    TCP has no message boundaries: a packet may hold any part of the handshake."""
    wire = await p.raw()
    packet = c1()
    await wire.send_slowly(b"\3" + packet, "C0 and C1")
    s1 = (await wire.read(WHOLE))[1 : 1 + PACKET_SIZE]
    await wire.send_slowly(s1, "C2")
    return await _connects(p, wire)


async def _connects(p: Probe, wire: Wire) -> Result:
    peer = p.on_wire(wire)
    peer.endpoint.skip_handshake()
    peer.start_reading()
    await commands_work(peer)
    return None


@case(12, "Pause between C0 and C1", PRACTICE, "RTMP 1.0 5.2.1")
async def c0_alone(p: Probe) -> Result:
    """connect is answered if C1 follows C0 only after a round trip of another connection.

    Slow links and some clients send C0 alone."""
    wire = await p.raw()
    await wire.send(b"\3", "C0")
    await p.reference()
    await wire.send(c1(), "C1")
    s1 = (await wire.read(WHOLE))[1 : 1 + PACKET_SIZE]
    await wire.send(s1, "C2")
    return await _connects(p, wire)


@case(13, "Late C2", PRACTICE, "RTMP 1.0 5.2.1")
async def late_c2(p: Probe) -> Result:
    """connect is answered if C2 comes a round trip of another connection after S2.

    On a slow link C2 is late by definition."""
    wire, _, s1, _ = await answered(p, c1())
    await p.reference()
    await wire.send(s1, "C2")
    return await _connects(p, wire)


@case(14, "C2 and connect in one write", PRACTICE, "RTMP 1.0 5.2.1")
async def coalesced(p: Probe) -> Result:
    """connect is answered if its chunks are in the same packet as C2.

    S2 has arrived, so the client may send data at once; ffmpeg's packets are often merged by TCP."""
    wire, _, s1, _ = await answered(p, c1())
    peer = p.on_wire(wire)
    peer.endpoint.skip_handshake()
    connect = peer.command_message("connect", peer.next_transaction(), peer.connect_properties())
    await wire.send(s1 + peer.endpoint.encoder.send(connect), "C2 and connect in one write")
    peer.start_reading()
    await peer.answer(1.0, "connect")
    await peer.create_stream()
    return None


@case(15, "C2 with a wrong echo", PRACTICE, "RTMP 1.0 5.2.4")
async def wrong_c2(p: Probe) -> Result:
    """connect is answered although C2 is not an echo of S1.

    Many working encoders send zeros or their own C1; servers do not verify C2."""
    wire, *_ = await answered(p, c1())
    await wire.send(os.urandom(PACKET_SIZE), "C2 of random bytes")
    return await _connects(p, wire)


@case(16, "Version bytes without a digest", PRACTICE, "RTMP 1.0 5.2.3")
async def version_without_digest(p: Probe) -> Result:
    """A client with a version in bytes 4 to 7 of C1 but no digest is answered with the plain handshake.

    librtmp and several cameras send such packets."""
    packet = c1(PLAIN, 0x0A000000)
    wire, _, s1, s2 = await answered(p, packet)
    if handshake.packet2_kind(s2, handshake.SERVER, packet) != handshake.ECHO:
        raise Failed("S2 is not an echo of C1")
    await wire.send(s1, "C2")
    return await _connects(p, wire)


_OTHER_VERSIONS = (
    (17, 2, "a deprecated version"),
    (18, 6, "the version of RTMPE"),
    (19, 31, "a reserved version"),
    (20, 32, "a version that is not allowed"),
)
for _number, _version, _what in _OTHER_VERSIONS:

    @case(_number, f"C0 with version {_version}", SHOULD, "RTMP 1.0 5.2.2",
          "A server that does not recognize the client's requested version SHOULD respond with 3.")  # fmt: skip
    async def other_version(p: Probe, version: int = _version) -> Result:
        """S0 is 3, or the server closes the connection.

        5.2.5 also allows to terminate the connection. A server that answers with a version it does not speak confuses
        clients that could have continued with 3."""
        try:
            _, s0, _, _ = await answered(p, c1(), version)
        except Closed as error:
            if "after 0 of" not in str(error):
                raise
            return non_strict("the server closed the connection")
        if s0 == b"\3":
            return None
        if s0[0] == version == 6:
            return informational("the server speaks RTMPE")
        raise Failed(f"S0 is {s0[0]} for C0 {version}")


@case(21, "S1 differs between connections", SHOULD, "RTMP 1.0 5.2.3",
      "this data SHOULD send something sufficiently random")  # fmt: skip
async def s1_random(p: Probe) -> Result:
    """Two connections get different random data in S1.

    A constant S1 makes it impossible to tell an echo from the peer's own packet. The specification adds that dynamic
    values are not needed, so equal but varied bytes are non-strict."""
    _, _, first, _ = await answered(p, c1())
    _, _, second, _ = await answered(p, c1())
    if len(set(first[8:])) < 16:
        raise Failed("the random data of S1 has fewer than 16 different bytes")
    return None if first[8:] != second[8:] else non_strict("S1 is the same in every connection")


@case(22, "Two handshakes at the same time", PRACTICE, "RTMP 1.0 5.2")
async def two_at_once(p: Probe) -> Result:
    """A client in the middle of its handshake does not keep another one from connecting.

    One slow client must not block a server."""
    wire = await p.raw()
    await wire.send(b"\3" + c1()[:700], "C0 and half of C1")
    try:
        await commands_work(await p.peer())
    except Closed as error:
        raise Failed(str(error)) from None
    if wire.closed:
        raise Inconclusive("the first connection was closed meanwhile")
    return None


@case(23, "The first bytes of connect with C2, the rest later", PRACTICE, "RTMP 1.0 5.2.1")
async def split_after_c2(p: Probe) -> Result:
    """connect is answered if the packet with C2 ends inside the first chunk header.

    TCP has no message boundaries: bytes after C2 belong to the first chunk, however few they are."""
    wire, _, s1, _ = await answered(p, c1())
    peer = p.on_wire(wire)
    peer.endpoint.skip_handshake()
    connect = peer.command_message("connect", peer.next_transaction(), peer.connect_properties())
    data = peer.endpoint.encoder.send(connect)
    await wire.send(s1 + data[:5], "C2 and 5 bytes of connect")
    await p.reference()
    await wire.send(data[5:], "the rest of connect")
    peer.start_reading()
    await peer.answer(1.0, "connect")
    await peer.create_stream()
    return None
