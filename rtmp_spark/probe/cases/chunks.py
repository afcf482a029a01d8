"""Cases of chunks: sizes, chunk stream ids, Abort, whole messages (RTMP 1.0 5.3, 5.4.1, 5.4.2)."""

from __future__ import annotations

import struct

from rtmp_spark.codec.encoder import RtmpEncoder, basic_header
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.message import (
    ABORT,
    AUDIO,
    SET_CHUNK_SIZE,
    USER_CONTROL,
    VIDEO,
    Message,
    dump_abort,
    dump_set_chunk_size,
)

from ..case import MUST, PRACTICE, SHOULD, Section
from ..case_connections import Probe
from ..media_check import arrival, coded, compare, deliver, small_media
from ..outcome import Closed, Failed, Result, non_strict, unimplemented
from ..peer import Peer

case = Section("chunks", "chunk sizes, csids, header formats, timestamps, whole messages")
_CONTROL = (1, 2, 3, 5, 6)
LONG = "x" * 700  # an argument that spreads a command over several chunks


async def whole_session(p: Probe) -> tuple[Peer, Peer]:
    """A publisher and a player that have exchanged media: what the server sends in a normal session."""
    publisher = await p.publisher()
    player = await p.player(publisher.name)
    await deliver(publisher, player, small_media(video_bitrate=2_000_000))
    return publisher, player


def broken(peers: tuple[Peer, ...], *codes: ViolationCode) -> str:
    """The first violation of these rules in what the server sent, or an empty text."""
    found = [one for peer in peers for one in peer.violations if one.code in codes]
    return f"{found[0].code.value}: {found[0].detail}" if found else ""


@case(1, "The server starts every chunk stream with fmt 0", MUST, "RTMP 1.0 5.3.1.2.1",
      "This type MUST be used at the start of a chunk stream")  # fmt: skip
async def server_starts_with_fmt0(p: Probe) -> Result:
    """The first chunk on each csid has a full header.

    Other headers refer to an earlier chunk that does not exist."""
    peers = await whole_session(p)
    if found := broken(peers, ViolationCode.CHUNK_FRESH_CSID):
        raise Failed(found)
    return None


@case(2, "Control messages of the server: csid 2, stream 0", MUST, "RTMP 1.0 5.4",
      "These protocol control messages MUST have message stream ID 0 (known as the control stream) and be "
      "sent in chunk stream ID 2.")  # fmt: skip
async def control_on_csid_2(p: Probe) -> Result:
    """Types 1, 2, 3, 5 and 6 are on csid 2 and message stream 0.

    Receivers may handle csid 2 before anything else."""
    for peer in await whole_session(p):
        for one in peer.inbox:
            message = one.message
            if message.type_id in _CONTROL and (message.csid != 2 or message.stream_id != 0):
                raise Failed(f"type {message.type_id} on csid {message.csid}, stream {message.stream_id}")
    return None


@case(3, "Chunk sizes of the server are valid", MUST, "RTMP 1.0 5.4.1",
      "The maximum chunk size SHOULD be at least 128 bytes, and MUST be at least 1 byte. [...] 0: This bit "
      "MUST be zero.")  # fmt: skip
async def server_chunk_size(p: Probe) -> Result:
    """Set Chunk Size of the server is 1 to 0x7FFFFFFF.

    Size 0 cannot carry data."""
    peers = await whole_session(p)
    for peer in peers:
        for one in peer.inbox:
            if one.message.type_id == SET_CHUNK_SIZE:
                (value,) = struct.unpack(">I", one.message.payload[:4].rjust(4, b"\0"))
                if not 1 <= value <= 0x7FFFFFFF:
                    raise Failed(f"Set Chunk Size {value:#x}")
                if value < 128:
                    return non_strict(f"chunk size {value} is below 128")
    return None


@case(4, "The server's chunks fit its chunk size", MUST, "RTMP 1.0 5.4.1",
      "This field holds the new maximum chunk size, in bytes, which will be used for all of the sender's "
      "subsequent chunks until further notice.")  # fmt: skip
async def server_applies_chunk_size(p: Probe) -> Result:
    """Everything that the server sends can be decoded with the chunk size that it announced.

    A receiver that follows the announcement loses synchronisation otherwise."""
    codes = (ViolationCode.CHUNK_SIZE_NOT_APPLIED, ViolationCode.CHUNK_RESYNC, ViolationCode.CHUNK_INTERRUPTED)
    if found := broken(await whole_session(p), *codes):
        raise Failed(found)
    return None


@case(5, "Chunk sizes of both directions are independent", MUST, "RTMP 1.0 5.4.1",
      "The maximum chunk size is maintained independently for each direction.")  # fmt: skip
async def independent_sizes(p: Probe) -> Result:
    """After a client's Set Chunk Size the server's answers still use the server's own chunk size.

    A server with one variable for both directions garbles its answer to connect."""
    peer = await p.peer()
    await peer.control(SET_CHUNK_SIZE, dump_set_chunk_size(5000))
    await peer.connect()
    await peer.fence()
    if found := broken((peer,), ViolationCode.CHUNK_SIZE_NOT_APPLIED, ViolationCode.CHUNK_RESYNC):
        raise Failed(found)
    return None


_VALID_SIZES = "Valid sizes are 1 to 2147483647 (0x7FFFFFFF) inclusive"
_SIZES = (
    (6, 1, PRACTICE), (7, 127, PRACTICE), (8, 128, MUST), (9, 4096, MUST), (10, 65536, MUST), (11, 0xFFFFFF, PRACTICE),
    (12, 0x7FFFFFFF, PRACTICE),
)  # fmt: skip
for _number, _size, _level in _SIZES:

    @case(_number, f"Chunk size {_size}", _level, "RTMP 1.0 5.4.1", _VALID_SIZES)
    async def chunk_size(p: Probe, size: int = _size) -> Result:
        """A command of 700 bytes in chunks of this size is answered.

        Small sizes are rare, large ones common: OBS uses 4096, ffmpeg 60000. Servers may limit unusual sizes."""
        peer = await p.connected()
        await peer.control(SET_CHUNK_SIZE, dump_set_chunk_size(size))
        await p.reference()  # so that the server reads it alone: nginx-rtmp treats what follows in one read differently
        usual = 128 <= size <= 1 << 20
        try:
            await peer.call("createStream", None, LONG)
        except Closed as error:
            if usual:
                raise
            return unimplemented(f"a configured limit: {error}")
        return None


@case(13, "Set Chunk Size inside a message", PRACTICE, "RTMP 1.0 5.4",
      "Protocol control messages take effect as soon as they are received")  # fmt: skip
async def size_inside_message(p: Probe) -> Result:
    """A chunk size that changes between two chunks of a message applies to the rest of the message.

    Control messages may be interleaved with the chunks of others."""
    peer = await p.connected()
    number = peer.next_transaction()
    payload = peer.command_message("createStream", number, None, LONG).payload
    head = basic_header(0, 3) + bytes(3) + len(payload).to_bytes(3, "big") + bytes((20,)) + bytes(4)
    size_message = basic_header(0, 2) + bytes(3) + b"\0\0\4" + bytes((SET_CHUNK_SIZE,)) + bytes(4)
    data = head + payload[:128] + size_message + struct.pack(">I", 4096) + basic_header(3, 3) + payload[128:]
    await peer.send_bytes(data, "createStream with Set Chunk Size 4096 after its first chunk")
    await peer.answer(number, "createStream")
    return None


@case(14, "The timestamp of Set Chunk Size is ignored", MUST, "RTMP 1.0 5.4",
      "Protocol control messages take effect as soon as they are received; their timestamps are ignored.")  # fmt: skip
async def size_with_timestamp(p: Probe) -> Result:
    """Set Chunk Size with a timestamp in the future takes effect at once.

    Some senders stamp control messages with the media clock."""
    peer = await p.connected()
    await peer.control(SET_CHUNK_SIZE, dump_set_chunk_size(1000), timestamp=3_600_000)
    await peer.call("createStream", None, LONG)
    return None


@case(15, "Interleaved messages", MUST, "RTMP 1.0 5.3",
      "At the receiver end, the chunks are assembled into messages based on the chunk stream ID.")  # fmt: skip
async def interleaved(p: Probe) -> Result:
    """Audio and video whose chunks alternate arrive complete at a player.

    Chunks exist so that a large video frame does not delay audio."""
    publisher = await p.publisher()
    player = await p.player(publisher.name)
    tags = small_media()
    sound, picture = coded(tags, AUDIO), coded(tags, VIDEO)
    both = list(zip(picture, sound, strict=False))
    for tag in tags[:3]:
        await publisher.tag(tag)
    for video, audio in both:
        messages = [
            Message(6, video.timestamp, VIDEO, publisher.stream_id, video.payload),
            Message(4, audio.timestamp, AUDIO, publisher.stream_id, audio.payload),
        ]
        encoder = RtmpEncoder(publisher.endpoint.encoder.chunk_size)  # a new one starts with full headers
        await publisher.send_bytes(encoder.send_interleaved(messages), "interleaved video and audio")
    sent = [tag for pair in both for tag in pair]
    await arrival(publisher, player, sent)
    return compare(sent, player.tags())


_CSIDS = (
    (16, 3, None, MUST), (17, 31, None, PRACTICE), (18, 63, None, PRACTICE), (19, 64, None, PRACTICE),
    (20, 319, None, PRACTICE), (21, 320, None, PRACTICE), (22, 65599, None, PRACTICE), (23, 100, 3, PRACTICE),
)  # fmt: skip
for _number, _csid, _form, _level in _CSIDS:

    @case(_number, f"csid {_csid}" + (f" in {_form} bytes" if _form else ""), _level, "RTMP 1.0 5.3.1.1",
          "The protocol supports up to 65597 streams with IDs 3-65599.")  # fmt: skip
    async def csid(p: Probe, csid: int = _csid, form: int | None = _form) -> Result:
        """A command of several chunks on this csid is answered.

        Every form of the basic header is legal; servers may limit the number of chunk streams."""
        peer = await p.connected()
        number = peer.next_transaction()
        message = peer.command_message("createStream", number, None, LONG)
        await peer.send(Message(csid, 0, message.type_id, 0, message.payload), csid_form=form)
        try:
            await peer.answer(number, f"createStream on csid {csid}")
        except Closed as error:
            if csid <= 3:
                raise
            return unimplemented(f"a configured limit: {error}")
        return None


@case(34, "Abort", PRACTICE, "RTMP 1.0 5.4.2",
      "Abort Message, is used to notify the peer if it is waiting for chunks to complete a message, then to "
      "discard the partially received message over a chunk stream.")  # fmt: skip
async def abort(p: Probe) -> Result:
    """After Abort, a new message on the same csid is understood.

    Senders use it to drop a frame that is too late."""
    peer = await p.connected()
    payload = peer.command_message("createStream", 999.0, None, LONG).payload
    head = basic_header(0, 9) + bytes(3) + len(payload).to_bytes(3, "big") + bytes((20,)) + bytes(4)
    number = peer.next_transaction()
    message = peer.command_message("createStream", number, None)
    encode = peer.endpoint.encoder.send
    rest = encode(Message(2, 0, ABORT, 0, dump_abort(9))) + encode(Message(9, 0, message.type_id, 0, message.payload))
    note = "the first chunk of a createStream on csid 9, Abort, and another createStream on csid 9, in one write"
    await peer.send_bytes(head + payload[:128] + rest, note)
    await peer.answer(number, "createStream after Abort")
    return None


@case(35, "Abort of an unused csid", PRACTICE, "RTMP 1.0 5.4.2")
async def abort_nothing(p: Probe) -> Result:
    """Abort for a csid without a partial message changes nothing.

    The message may have been completed in the meantime."""
    peer = await p.connected()
    await peer.control(ABORT, dump_abort(60))
    await peer.fence()
    return None


_HARMLESS = (
    (36, "Audio message of length 0", AUDIO, b""),
    (37, "Video message of length 0", VIDEO, b""),
    (38, "Message of an unknown type", 99, b"\1\2\3\4"),
    (39, "Shared object message", 19, b"\0\1a" + bytes(12)),
)
for _number, _title, _type, _body in _HARMLESS:

    @case(_number, _title, PRACTICE, "RTMP 1.0 6.1")
    async def harmless(p: Probe, type_id: int = _type, body: bytes = _body) -> Result:
        """The message is ignored or forwarded; the publisher's connection stays open and media still arrives.

        Encoders send empty frames as silence, and new message types appear."""
        publisher = await p.publisher()
        tags = small_media(video=False)
        player = await p.player(publisher.name, tags)
        await publisher.send(Message(8, 0, type_id, publisher.stream_id, body))
        await deliver(publisher, player, tags)
        return compare(tags, player.tags())


@case(40, "Messages as long as a chunk", PRACTICE, "RTMP 1.0 5.3.1")
async def exact_lengths(p: Probe) -> Result:
    """Commands of 127, 128, 129, 256 and 257 bytes are answered.

    A message that ends with its chunk has no continuation; off-by-one errors show here."""
    for length in (127, 128, 129, 256, 257):
        peer = await p.connected()  # SRS closes a connection after a few streams that are not used
        bare = len(peer.command_message("createStream", 1.0, None, "").payload)
        await peer.call("createStream", None, "y" * (length - bare))
    return None


@case(41, "A command of 100,000 bytes", PRACTICE, "RTMP 1.0 5.3")
async def long_command(p: Probe) -> Result:
    """The command is answered, or the connection is closed.

    Commands are short in practice; a server may limit them."""
    peer = await p.connected()
    number = peer.next_transaction()
    await peer.send(peer.command_message("createStream", number, None, "z" * 99_900))
    try:
        await peer.answer(number, "createStream")
    except Closed as error:
        return unimplemented(f"a configured limit: {error}")
    return None


@case(42, "A command in writes of one byte", PRACTICE, "RTMP 1.0 5.3")
async def command_byte_by_byte(p: Probe) -> Result:
    """A command whose bytes arrive one by one is answered.

    TCP may split the stream anywhere."""
    peer = await p.connected()
    number = peer.next_transaction()
    data = peer.endpoint.encoder.send(peer.command_message("createStream", number, None, LONG))
    await peer.wire.send_slowly(data, "createStream")
    await peer.answer(number, "createStream")
    return None


@case(43, "User control messages of the server: csid 2, stream 0", SHOULD, "RTMP 1.0 6.2",
      "User Control messages SHOULD use message stream ID 0 (known as the control stream) and, when sent over "
      "RTMP Chunk Stream, be sent on chunk stream ID 2.")  # fmt: skip
async def events_on_csid_2(p: Probe) -> Result:
    """User control messages are on csid 2 and message stream 0.

    Receivers may look for them only there."""
    for peer in await whole_session(p):
        for one in peer.inbox:
            message = one.message
            if message.type_id == USER_CONTROL and (message.csid != 2 or message.stream_id != 0):
                raise Failed(f"user control on csid {message.csid}, stream {message.stream_id}")
    return None


@case(44, "Continuation chunks of the server use fmt 3", SHOULD, "RTMP 1.0 5.3.1.2.4",
      "When a single message is split into chunks, all chunks of a message except the first one SHOULD use "
      "this type.")  # fmt: skip
async def server_continues_with_fmt3(p: Probe) -> Result:
    """All but the first chunk of the server's messages have fmt 3.

    Some receivers take any other format for a new message."""
    if found := broken(await whole_session(p), ViolationCode.CHUNK_CONTINUATION_FMT):
        raise Failed(found)
    return None


@case(45, "Several small messages in one write", PRACTICE, "RTMP 1.0 5.3")
async def many_in_one_write(p: Probe) -> Result:
    """Three commands in one TCP segment are all answered, in order.

    ffmpeg sends releaseStream, FCPublish and createStream at once."""
    peer = await p.connected()
    numbers = [peer.next_transaction() for _ in range(3)]
    encode = peer.endpoint.encoder.send
    data = b"".join(encode(peer.command_message("createStream", number, None)) for number in numbers)
    await peer.send_bytes(data, "createStream three times in one write")
    for number in numbers:
        await peer.answer(number, "createStream")
    order = [one.command.transaction_id for one in peer.inbox if one.name == "_result" and one.command is not None]
    if [number for number in order if number in numbers] != numbers:
        raise Failed(f"the answers arrived in the order {order}")
    return None
