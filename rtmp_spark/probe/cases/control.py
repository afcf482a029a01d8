"""Cases of protocol control and user control messages (RTMP 1.0 5.4, 6.2, 7.1.7)."""

from __future__ import annotations

import struct

from rtmp_relay.frames import Tag
from rtmp_spark.codec.message import (
    ACKNOWLEDGEMENT,
    AUDIO,
    PING_REQUEST,
    PING_RESPONSE,
    SET_PEER_BANDWIDTH,
    STREAM_BEGIN,
    STREAM_EOF,
    WINDOW_ACK_SIZE,
    dump_acknowledgement,
    dump_ping_request,
    dump_ping_response,
    dump_set_buffer_length,
    dump_set_peer_bandwidth,
    dump_window_ack_size,
)

from ..case import MUST, PRACTICE, SHOULD, Section
from ..case_connections import Probe
from ..media_check import compare, deliver, small_media
from ..outcome import Closed, Failed, Result, non_strict, unimplemented
from ..peer import Peer
from ..received import event, of_type, status
from ..wire import Silence
from .handshake import answered, c1

case = Section("control", "acknowledgements, windows, pings and stream events")
_WINDOW = 20_000


async def publishing(p: Probe) -> Peer:
    """A publisher of audio that has sent its configuration."""
    peer = await p.publisher()
    await peer.tag(small_media(video=False)[1])
    return peer


async def send_bytes(peer: Peer, count: int) -> None:
    """Publish this many bytes in audio frames of 1000 bytes."""
    for number in range(-(-count // 1000)):
        await peer.tag(Tag(AUDIO, 20 * number, b"\xaf\x01\x21" + bytes(997)))


def acknowledged(peer: Peer) -> list[int]:
    return [one.control.value or 0 for one in peer.find(of_type(ACKNOWLEDGEMENT)) if one.control is not None]


@case(1, "Acknowledgement after the window", MUST, "RTMP 1.0 5.4.4",
      "The receiving peer MUST send an Acknowledgement (Section 5.4.3) after receiving the indicated number "
      "of bytes since the last Acknowledgement was sent, or from the beginning of the session if no "
      "Acknowledgement has yet been sent.")  # fmt: skip
async def acknowledges(p: Probe) -> Result:
    """After a window of 20,000 bytes and 30,000 bytes of messages an Acknowledgement arrives.

    A sender that waits for it, as the specification allows, stops otherwise."""
    peer = await publishing(p)
    await peer.control(WINDOW_ACK_SIZE, dump_window_ack_size(_WINDOW))
    await send_bytes(peer, 30_000)
    await peer.fence()
    await peer.wait(of_type(ACKNOWLEDGEMENT), "Acknowledgement")
    return None


@case(2, "The acknowledged number", MUST, "RTMP 1.0 5.4.3",
      "sequence number (32 bits): This field holds the number of bytes received so far.")  # fmt: skip
async def acknowledged_number(p: Probe) -> Result:
    """The number is at most what was sent, and at least a window.

    Servers count with or without the handshake; both are accepted."""
    peer = await publishing(p)
    await peer.control(WINDOW_ACK_SIZE, dump_window_ack_size(_WINDOW))
    await send_bytes(peer, 30_000)
    await peer.fence()
    with p.precondition("an Acknowledgement"):
        await peer.wait(of_type(ACKNOWLEDGEMENT), "Acknowledgement")
    value = acknowledged(peer)[-1]
    sent = 3073 + 40_000
    if not 10_000 <= value <= sent:
        raise Failed(f"the server acknowledged {value} bytes of at most {sent}")
    return None


@case(3, "Acknowledgements go on", MUST, "RTMP 1.0 5.4.3",
      "The client or the server MUST send an acknowledgment to the peer after receiving bytes equal to the "
      "window size.")  # fmt: skip
async def acknowledges_again(p: Probe) -> Result:
    """Every further window is acknowledged with a larger number.

    Senders that honour the window need every one of them."""
    peer = await publishing(p)
    await peer.control(WINDOW_ACK_SIZE, dump_window_ack_size(_WINDOW))
    for expected in (1, 2, 3):
        since = len(peer.inbox)
        await send_bytes(peer, 25_000)
        await peer.wait(of_type(ACKNOWLEDGEMENT), f"Acknowledgement {expected} for {expected * 25_000} bytes", since)
    values = acknowledged(peer)
    if values != sorted(set(values)):
        raise Failed(f"the acknowledged numbers do not increase: {values}")
    return None


@case(4, "A smaller window takes effect", MUST, "RTMP 1.0 5.4.4",
      "The client or the server sends this message to inform the peer of the window size to use between "
      "sending acknowledgments.")  # fmt: skip
async def smaller_window(p: Probe) -> Result:
    """After Window Acknowledgement Size 1,000,000 and then 10,000, 15,000 bytes are acknowledged.

    The last announcement counts."""
    peer = await publishing(p)
    await peer.control(WINDOW_ACK_SIZE, dump_window_ack_size(1_000_000))
    await peer.fence()
    await peer.control(WINDOW_ACK_SIZE, dump_window_ack_size(10_000))
    await send_bytes(peer, 15_000)
    await peer.fence()
    await peer.wait(of_type(ACKNOWLEDGEMENT), "Acknowledgement")
    return None


@case(5, "Set Peer Bandwidth", SHOULD, "RTMP 1.0 5.4.5",
      "The peer receiving this message SHOULD respond with a Window Acknowledgement Size message if the "
      "window size is different from the last one sent to the sender of this message.")  # fmt: skip
async def peer_bandwidth(p: Probe) -> Result:
    """Window Acknowledgement Size arrives with the requested window.

    Few clients ask, but this is the only answer that the protocol has."""
    peer = await p.connected()
    since = len(peer.inbox)
    await peer.control(SET_PEER_BANDWIDTH, dump_set_peer_bandwidth(1_234_567, 0))
    await peer.fence()
    answers = peer.find(of_type(WINDOW_ACK_SIZE), since)
    if not answers:
        raise Failed("no Window Acknowledgement Size")
    if answers[0].control is not None and answers[0].control.value != 1_234_567:
        raise Failed(f"Window Acknowledgement Size {answers[0].control.value} instead of 1234567")
    return None


@case(6, "Ping request of a client", PRACTICE, "RTMP 1.0 7.1.7")
async def ping(p: Probe) -> Result:
    """A ping response with the same timestamp, or none.

    The specification has only servers ping, but clients use it to measure the round trip."""
    peer = await p.connected()
    since = len(peer.inbox)
    await peer.user_event(dump_ping_request(4711))
    await peer.fence()
    answers = peer.find(event(PING_RESPONSE), since)
    if not answers:
        return unimplemented("no ping response")
    if answers[0].control is not None and answers[0].control.event_value != 4711:
        raise Failed(f"the ping response has {answers[0].control.event_value} instead of 4711")
    return None


_IGNORED = (
    (7, "Set Buffer Length", dump_set_buffer_length(1, 3000), 4),
    (8, "Ping response without a request", dump_ping_response(1), 4),
    (9, "Unknown user control event", struct.pack(">HI", 77, 1), 4),
    (10, "Acknowledgement of more than was sent", dump_acknowledgement(0xFFFFFFF0), ACKNOWLEDGEMENT),
    (11, "Window Acknowledgement Size 0", bytes(4), WINDOW_ACK_SIZE),
    (12, "Window Acknowledgement Size 0xFFFFFFFF", b"\xff" * 4, WINDOW_ACK_SIZE),
    (13, "Set Peer Bandwidth with an unknown limit type", struct.pack(">IB", 2_500_000, 9), SET_PEER_BANDWIDTH),
    (14, "User control message of one byte", b"\0", 4),
)
for _number, _title, _body, _type in _IGNORED:

    @case(_number, _title, PRACTICE, "RTMP 1.0 5.4, 7.1.7")
    async def ignored(p: Probe, body: bytes = _body, type_id: int = _type, title: str = _title) -> Result:
        """The connection stays open and commands are answered.

        Players send Set Buffer Length before play; odd values come from clients with bugs and must not end a stream."""
        peer = await p.connected()
        await peer.control(type_id, body)
        if not await peer.is_open():
            raise Failed(f"the server closed the connection after {title}")
        return None


@case(15, "Stream Begin 0 after connect", SHOULD, "RTMP 1.0 7.1.7",
      "By default, this event is sent on ID 0 after the application connect command is successfully received "
      "from the client.")  # fmt: skip
async def stream_begin_0(p: Probe) -> Result:
    """Stream Begin for stream 0 arrives before or soon after the answer to connect.

    The Flash Player waited for it; today's clients do not."""
    peer = await p.connected()
    await peer.fence()
    found = peer.find(event(STREAM_BEGIN))
    if not found:
        raise Failed("no Stream Begin")
    if found[0].control is not None and found[0].control.event_stream_id != 0:
        raise Failed(f"Stream Begin for stream {found[0].control.event_stream_id}")
    return None


@case(16, "Stream Begin for a played stream", PRACTICE, "RTMP 1.0 7.2.2.1",
      "The server sends another protocol message (user control) specifying the event 'StreamBegin', to "
      "indicate beginning of the streaming to the client.")  # fmt: skip
async def stream_begin_play(p: Probe) -> Result:
    """Stream Begin with the id of the played stream arrives.

    librtmp and Flash start their buffers with it."""
    publisher = await p.publisher()
    player = await p.player(publisher.name)
    await deliver(publisher, player, small_media())
    for one in player.find(event(STREAM_BEGIN)):
        if one.control is not None and one.control.event_stream_id == player.stream_id:
            return None
    raise Failed(f"no Stream Begin for stream {player.stream_id}")


@case(17, "Stream EOF when the publisher leaves", PRACTICE, "RTMP 1.0 7.1.7",
      "The server sends this event to notify the client that the playback of data is over as requested on "
      "this stream.")  # fmt: skip
async def stream_eof(p: Probe) -> Result:
    """Stream EOF, a status or the end of the connection tells the player.

    A player that is not notified waits for ever."""
    publisher = await p.publisher()
    player = await p.player(publisher.name)
    await deliver(publisher, player, small_media())
    since = len(player.inbox)
    await publisher.command("deleteStream", None, float(publisher.stream_id))
    await publisher.close()
    ends = ("NetStream.Play.UnpublishNotify", "NetStream.Play.Stop", "NetStream.Play.Complete")
    try:
        found = await player.wait(lambda one: event(STREAM_EOF)(one) or status(*ends)(one), "the end", since)
    except Closed:
        return non_strict("the server closed the player's connection without a word")
    except Silence as silence:
        await p.confirm(silence)
        raise Failed("the player was not notified that the stream ended") from None
    control = found.control
    if control is not None and control.event_stream_id != player.stream_id:
        raise Failed(f"Stream EOF for stream {control.event_stream_id} instead of {player.stream_id}")
    return None


@case(18, "Window and bandwidth after connect", PRACTICE, "RTMP 1.0 7.2.1.1",
      "After receiving the connect command, the server sends the protocol message 'Window Acknowledgement "
      "Size' to the client.")  # fmt: skip
async def announcements(p: Probe) -> Result:
    """Window Acknowledgement Size and Set Peer Bandwidth arrive with the answer to connect.

    Clients acknowledge only after they know a window."""
    peer = await p.connected()
    await peer.fence()
    missing = [
        name
        for name, type_id in (
            ("Window Acknowledgement Size", WINDOW_ACK_SIZE),
            ("Set Peer Bandwidth", SET_PEER_BANDWIDTH),
        )
        if not peer.find(of_type(type_id))
    ]
    if missing:
        raise Failed(f"no {' and no '.join(missing)}")
    return None


@case(19, "Nothing between the handshake and connect", PRACTICE, "RTMP 1.0 7.2.1.1")
async def nothing_before_connect(p: Probe) -> Result:
    """A server sends nothing after the handshake until connect arrives.

    The specification shows window, bandwidth and chunk size after connect; the client of lal crashes on others."""
    wire, _, s1, _ = await answered(p, c1())
    await wire.send(s1, "C2")
    await p.reference()
    data = await wire.take_arrived()
    if data:
        raise Failed(f"{len(data)} bytes arrived before connect was sent")
    return None


@case(20, "The server's window is at least a frame", PRACTICE, "RTMP 1.0 5.4.4")
async def useful_window(p: Probe) -> Result:
    """The announced window and bandwidth are at least 10,000 bytes.

    A sender that honours a tiny window waits for an acknowledgement after every packet."""
    peer = await p.connected()
    await peer.fence()
    for one in peer.find(lambda one: one.message.type_id in (WINDOW_ACK_SIZE, SET_PEER_BANDWIDTH)):
        if one.control is not None and (one.control.value or 0) < 10_000:
            raise Failed(f"{one.control.kind} {one.control.value}")
    return None


@case(21, "Pings of the server are answered by the client only", PRACTICE, "RTMP 1.0 7.1.7")
async def no_ping_response_unasked(p: Probe) -> Result:
    """A server does not send ping responses without a request, and its pings have a timestamp.

    Clients use responses to measure the round trip."""
    peer = await p.connected()
    await peer.fence()
    if peer.find(event(PING_RESPONSE)):
        raise Failed("a ping response without a request")
    for one in peer.find(event(PING_REQUEST)):
        if one.control is not None and one.control.event_value is None:
            raise Failed("a ping request without a timestamp")
    return None


@case(22, "Acknowledgements of the client across 2^32", PRACTICE, "RTMP 1.0 5.4.3")
async def acknowledgement_wraps(p: Probe) -> Result:
    """A player whose acknowledged number wraps to a small one still gets the media.

    The number has 32 bits: at 10 Mbit/s it wraps after 57 minutes."""
    publisher = await p.publisher()
    player = await p.player(publisher.name)
    for value in (0x7FFFFFFF, 0xFFFFF000, 0x00001000):
        await player.control(ACKNOWLEDGEMENT, dump_acknowledgement(value))
    if not await player.is_open():
        raise Failed("the server closed the connection")
    tags = small_media()
    await deliver(publisher, player, tags)
    return compare(tags, player.tags())
