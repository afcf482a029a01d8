"""Scenarios for clients: what a server may do, and what an encoder or player should make of it.

A scenario is a case whose script plays the server for one connection (`ListeningPeer`). Add one like a case: a
coroutine with a docstring, decorated with a number, a title, a level and a clause.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

from rtmp_spark.codec.errors import UserError, ViolationCode
from rtmp_spark.codec.handshake import PACKET_SIZE
from rtmp_spark.codec.message import (
    ACKNOWLEDGEMENT,
    AUDIO,
    PING_RESPONSE,
    SET_CHUNK_SIZE,
    SET_PEER_BANDWIDTH,
    VIDEO,
    WINDOW_ACK_SIZE,
    Message,
    dump_ping_request,
    dump_set_chunk_size,
    dump_set_peer_bandwidth,
    dump_window_ack_size,
)

from .case import MUST, PRACTICE, SHOULD, Case, Section
from .listener import PLAY, ListeningPeer
from .media_check import small_media
from .outcome import Closed, Failed, Inconclusive, Result, informational, unimplemented
from .received import event, of_type
from .wire import Silence

scenario = Section("client", "what an encoder or player makes of a server")
_SILENCE_S = 0.5  # how long a client must not send something; a slow client passes


async def begin(peer: ListeningPeer, announce: bool = True) -> None:
    """Handshake and connect, with the usual announcements."""
    await peer.shake_hands()
    connect = await peer.accept_connect() if not announce else None
    if connect is None:
        await peer.wait(lambda one: one.name == "connect", "connect")
        await peer.control(WINDOW_ACK_SIZE, dump_window_ack_size(2_500_000))
        await peer.control(SET_PEER_BANDWIDTH, dump_set_peer_bandwidth(2_500_000, 2))
        await peer.accept_connect()


async def whole(peer: ListeningPeer) -> None:
    """An ordinary session up to media."""
    await begin(peer)
    await peer.until_streaming()
    await peer.media()


@scenario(1, "An ordinary session", PRACTICE, "RTMP 1.0 7.2")
async def ordinary(peer: ListeningPeer) -> Result:
    """The client publishes media, or plays and stays.

    If this fails, the other scenarios say little."""
    await whole(peer)
    return informational(f"the client uses {peer.role}")


@scenario(2, "The client waits for S1", MUST, "RTMP 1.0 5.2.1",
          "The client MUST wait until S1 has been received before sending C2.")  # fmt: skip
async def waits_for_s1(peer: ListeningPeer) -> Result:
    """Nothing follows C1 while S0 and S1 are held back.

    C2 echoes S1, so it cannot be right before."""
    await peer.wire.read(1 + PACKET_SIZE)
    try:
        data = bytes(peer.wire.arrived) or await peer.wire.receive(_SILENCE_S)
    except Silence:
        return None
    if data:
        raise Failed(f"{len(data)} bytes followed C1 before S1 was sent")
    raise Inconclusive("the client closed the connection")


@scenario(3, "The client waits for S2", MUST, "RTMP 1.0 5.2.1",
          "The client MUST wait until S2 has been received before sending any other data.")  # fmt: skip
async def waits_for_s2(peer: ListeningPeer) -> Result:
    """At most C2 follows while S2 is held back.

    A server that has not answered may still close the connection."""
    await peer.wire.read(1 + PACKET_SIZE)
    await peer.wire.send(b"\3" + bytes(8) + bytes(range(256)) * 5 + bytes(PACKET_SIZE - 8 - 1280), "S0 and S1")
    got = len(peer.wire.arrived)
    deadline = time.monotonic() + _SILENCE_S
    while (left := deadline - time.monotonic()) > 0:
        try:
            data = await peer.wire.receive(left)
        except Silence:
            break
        if not data:
            raise Inconclusive("the client closed the connection")
        got += len(data)
    if got > PACKET_SIZE:
        raise Failed(f"{got - PACKET_SIZE} bytes followed C2 before S2 was sent")
    return None


@scenario(4, "The bytes of the client are valid", MUST, "RTMP 1.0 5.3, 5.4",
          "This type MUST be used at the start of a chunk stream [...] These protocol control "
          "messages MUST have message "
          "stream ID 0 [...] and be sent in chunk stream ID 2.")  # fmt: skip
async def valid_bytes(peer: ListeningPeer) -> Result:
    """No chunk violates the specification.

    A strict server would close the connection."""
    await whole(peer)
    codes = (
        ViolationCode.CHUNK_FRESH_CSID, ViolationCode.CHUNK_SIZE_NOT_APPLIED, ViolationCode.CHUNK_SIZE_ZERO,
        ViolationCode.CHUNK_EXT_TS_MISSING, ViolationCode.CHUNK_DELTA_NEGATIVE,
    )  # fmt: skip
    for one in peer.violations:
        if one.code in codes:
            raise Failed(f"{one.code.value}: {one.detail}")
    for received in peer.inbox:
        message = received.message
        if message.type_id in (1, 2, 3, 5, 6) and (message.csid != 2 or message.stream_id != 0):
            raise Failed(f"type {message.type_id} on csid {message.csid}, stream {message.stream_id}")
    return None


for _number, _size in ((5, 128), (6, 1), (7, 65536)):

    @scenario(_number, f"Chunk size {_size}", MUST if _size >= 128 else PRACTICE, "RTMP 1.0 5.4.1",
              "Valid sizes are 1 to 2147483647 (0x7FFFFFFF) inclusive")  # fmt: skip
    async def chunk_size(peer: ListeningPeer, size: int = _size) -> Result:
        """The client understands answers in chunks of this size.

        Servers announce 60000 and more."""
        await peer.shake_hands()
        await peer.wait(lambda one: one.name == "connect", "connect")
        await peer.control(SET_CHUNK_SIZE, dump_set_chunk_size(size))
        await peer.accept_connect()
        await peer.until_streaming()
        await peer.media()
        return None


@scenario(8, "No announcements", PRACTICE, "RTMP 1.0 7.2.1.1")
async def no_announcements(peer: ListeningPeer) -> Result:
    """The client works without Window Acknowledgement Size, Set Peer Bandwidth and Set Chunk Size.

    They have defaults, and small servers leave them out."""
    await begin(peer, announce=False)
    await peer.until_streaming()
    await peer.media()
    return None


@scenario(9, "Acknowledgements", MUST, "RTMP 1.0 5.4.4",
          "The receiving peer MUST send an Acknowledgement (Section 5.4.3) after receiving the "
          "indicated number of bytes "
          "since the last Acknowledgement was sent")  # fmt: skip
async def acknowledges(peer: ListeningPeer) -> Result:
    """The client acknowledges 20,000 bytes with a window of 5,000.

    A server that waits for it would stop."""
    await peer.shake_hands()
    await peer.wait(lambda one: one.name == "connect", "connect")
    await peer.control(WINDOW_ACK_SIZE, dump_window_ack_size(5_000))
    await peer.accept_connect()
    await peer.until_streaming()
    for _ in range(20):  # in data messages, which clients ignore
        await peer.send(Message(6, 0, 18, peer.used_stream_id, b"\2\0\x0aonTextData\2\3\xe0" + bytes(992)))
    found = await peer.wait(of_type(ACKNOWLEDGEMENT), "Acknowledgement")
    value = found.control.value if found.control is not None else None
    if value is None or value > 40_000:
        raise Failed(f"the client acknowledged {value} bytes")
    return None


@scenario(10, "A server that never acknowledges", PRACTICE, "RTMP 1.0 5.4.3")
async def never_acknowledges(peer: ListeningPeer) -> Result:
    """A publisher sends media although its window is small and nothing is acknowledged; or it waits.

    The specification lets it wait; encoders that do so stop with servers that forget."""
    await peer.shake_hands()
    await peer.wait(lambda one: one.name == "connect", "connect")
    await peer.control(SET_PEER_BANDWIDTH, dump_set_peer_bandwidth(10_000, 0))
    await peer.accept_connect()
    peer.endpoint.ack_window = 1 << 40
    await peer.until_streaming()
    if peer.role == PLAY:
        return unimplemented("the client is a player")
    await peer.media()
    await peer.listen_for(1.0)
    size = sum(len(one.message.payload) for one in peer.inbox if one.message.type_id in (AUDIO, VIDEO))
    return informational(f"{size} bytes of media without an acknowledgement")


@scenario(11, "Set Peer Bandwidth", SHOULD, "RTMP 1.0 5.4.5",
          "The peer receiving this message SHOULD respond with a Window Acknowledgement Size message "
          "if the window size "
          "is different from the last one sent to the sender of this message.")  # fmt: skip
async def bandwidth(peer: ListeningPeer) -> Result:
    """Window Acknowledgement Size arrives.

    It tells the server when to acknowledge."""
    await peer.shake_hands()
    await peer.wait(lambda one: one.name == "connect", "connect")
    await peer.control(SET_PEER_BANDWIDTH, dump_set_peer_bandwidth(1_234_567, 2))
    await peer.accept_connect()
    await peer.until_streaming()
    await peer.media()
    if not [one for one in peer.inbox if of_type(WINDOW_ACK_SIZE)(one)]:
        raise Failed("no Window Acknowledgement Size")
    return None


@scenario(12, "Ping", MUST, "RTMP 1.0 7.1.7",
          "The client responds with PingResponse on receiving MsgPingRequest.")  # fmt: skip
async def ping(peer: ListeningPeer) -> Result:
    """A ping response with the same timestamp arrives.

    Servers close connections that do not answer."""
    await begin(peer)
    await peer.until_streaming()
    since = len(peer.inbox)
    await peer.control(4, dump_ping_request(4711))
    found = await peer.wait(event(PING_RESPONSE), "a ping response", since)
    if found.control is None or found.control.event_value != 4711:
        raise Failed("the ping response has another timestamp")
    return None


@scenario(13, "Stream id 5", MUST, "RTMP 1.0 7.2.1.3",
          "The return value is either a stream ID or an error information object.")  # fmt: skip
async def stream_id(peer: ListeningPeer) -> Result:
    """publish or play and media use the stream id that createStream returned.

    Clients with a fixed id work only with servers that return 1."""
    await peer.shake_hands()
    peer.stream_id = 5
    await peer.accept_connect()
    await peer.until_streaming()
    await peer.media()
    if peer.used_stream_id != 5:
        raise Failed(f"{peer.role} is on stream {peer.used_stream_id}")
    wrong = {one.message.stream_id for one in peer.inbox if one.message.type_id in (AUDIO, VIDEO)} - {5}
    if wrong:
        raise Failed(f"media is on stream {sorted(wrong)}")
    return None


@scenario(14, "Slow answers", PRACTICE, "RTMP 1.0 7.2.1")
async def slow(peer: ListeningPeer) -> Result:
    """The client waits a second for each answer and does not send media before publish is answered.

    Servers that ask a database are slow."""
    await peer.shake_hands()
    await peer.listen_for(1.0)
    await peer.accept_connect()
    await peer.listen_for(1.0)
    found = await peer.until("publish", "play")
    await peer.listen_for(1.0)
    early = [one for one in peer.inbox if one.message.type_id in (AUDIO, VIDEO)]
    peer.role, peer.used_stream_id = found.name, found.message.stream_id
    await peer.status("NetStream.Publish.Start" if peer.role == "publish" else "NetStream.Play.Start")
    await peer.media()
    if early:
        raise Failed("media arrived before publish was answered")
    return None


async def _ends(peer: ListeningPeer, what: str) -> Result:
    """The client ends the connection, or at least sends no media."""
    try:
        await peer.wait(lambda one: one.message.type_id in (AUDIO, VIDEO), "media")
    except Closed:
        return None
    except Silence:
        return informational("the client stays connected and sends nothing")
    raise Failed(f"the client sends media after {what}")


@scenario(15, "publish or play is refused", PRACTICE, "RTMP 1.0 7.2.2")
async def refused(peer: ListeningPeer) -> Result:
    """The client sends no media after an onStatus of level error.

    It should tell its user."""
    await begin(peer)
    found = await peer.until("publish", "play")
    peer.used_stream_id = found.message.stream_id
    code = "NetStream.Publish.BadName" if found.name == "publish" else "NetStream.Play.StreamNotFound"
    await peer.status(code, "error")
    return await _ends(peer, code)


@scenario(16, "connect is refused", PRACTICE, "RTMP 1.0 7.2.1.1")
async def connect_refused(peer: ListeningPeer) -> Result:
    """The client sends no further command than closing ones after `_error`.

    It should tell its user."""
    await peer.shake_hands()
    await peer.until("connect")
    info = {"level": "error", "code": "NetConnection.Connect.Rejected", "description": "refused by a scenario"}
    await peer.command("_error", 1.0, None, info)
    since = len(peer.inbox)
    await peer.listen_for(2 * _SILENCE_S)
    names = [one.name for one in peer.inbox[since:] if one.name in ("createStream", "publish", "play")]
    if names:
        raise Failed(f"the client sent {names[0]} after connect was refused")
    return None


_MOVES: tuple[tuple[int, str, dict[str, object]], ...] = (
    (17, "Redirect", {"code": "NetConnection.Connect.Rejected", "ex": {"code": 302.0, "redirect": "rtmp://127.0.0.1/x"}}),
    (18, "Reconnect request", {"code": "NetConnection.Connect.ReconnectRequest", "tcUrl": "rtmp://127.0.0.1/x"}),
)  # fmt: skip
for _number, _title, _info in _MOVES:

    @scenario(_number, _title, PRACTICE, "E-RTMP v2, Reconnect Request")
    async def elsewhere(peer: ListeningPeer, title: str = _title, info: dict[str, object] = _info) -> Result:
        """The client leaves, or continues where nothing forces it to leave; its bytes stay valid.

        A client that does not know the message ignores it."""
        if title == "Redirect":
            await peer.shake_hands()
            await peer.until("connect")
            await peer.command("_error", 1.0, None, {"level": "error", "description": "moved", **info})
        else:
            await whole(peer)
            more = {"level": "status", "description": "please reconnect", **info}
            await peer.command("onStatus", 0.0, None, more)
        since = len(peer.inbox)
        left = not await peer.listen_for(2 * _SILENCE_S)
        names = [one.name for one in peer.inbox[since:] if one.name in ("createStream", "publish", "play")]
        if names:
            raise Failed(f"the client sent {names[0]} as if it had not been sent elsewhere")
        return informational("the client left" if left else "the client stayed")


@scenario(19, "Unusual but legal messages", PRACTICE, "RTMP 1.0 7.1")
async def unusual(peer: ListeningPeer) -> Result:
    """The client ignores unknown commands, events, message types and empty media.

    Servers send onBWDone, |RtmpSampleAccess and more."""
    await peer.shake_hands()
    await peer.command("onBWDone", 0.0, None)
    await peer.control(4, struct.pack(">HI", 77, 1))
    await peer.accept_connect(somethingNew={"a": 1.0})
    await peer.send(Message(9, 0, 99, 0, b"\1\2\3"))
    await peer.command("someNewCommand", 0.0, None, {"x": [1.0, None]})
    await peer.until_streaming()
    await peer.send(Message(6, 0, AUDIO, peer.used_stream_id, b""))
    await peer.media()
    return None


@scenario(20, "Timestamps beyond 0xFFFFFF", MUST, "RTMP 1.0 5.3.1.3",
          "This field is present in Type 3 chunks when the most recent Type 0, 1, or 2 chunk for the "
          "same chunk stream ID "
          "indicated the presence of an extended timestamp field.")  # fmt: skip
async def extended(peer: ListeningPeer) -> Result:
    """A player stays when timestamps need the extended field and frames have several chunks.

    It happens after 4 hours and 39 minutes."""
    await begin(peer)
    await peer.until_streaming()
    if peer.role != PLAY:
        return unimplemented("the client is a publisher")
    for tag in small_media(seconds=1.0, first_timestamp=0xFFFFFF - 200):
        await peer.send(Message(6, tag.timestamp, tag.type_id, peer.used_stream_id, tag.payload))
    since = len(peer.inbox)
    await peer.control(4, dump_ping_request(99))
    found = await peer.wait(event(PING_RESPONSE), "a ping response", since)
    if found.control is None or found.control.event_value != 99:
        raise Failed("the client lost synchronisation")
    return None


def choose_scenarios(only: Sequence[str] = ()) -> list[Case]:
    """The scenarios to play, by number or id; all if none is given. Raises UserError."""
    wanted = [f"client/{choice}" if choice.isdigit() else choice for choice in only]
    known = {case.id: case for case in scenario.cases}
    for choice in wanted:
        if choice not in known:
            raise UserError(f"Unknown scenario {choice}.", "`rtmp-spark probe --listen :0 --list` lists them.")
    return [known[choice] for choice in wanted] if wanted else list(known.values())
