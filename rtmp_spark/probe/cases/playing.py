"""Cases of play, pause, seek and what else a player sends (RTMP 1.0 7.2.2.1 to 7.2.2.8)."""

from __future__ import annotations

from rtmp_spark.codec.message import AUDIO, VIDEO

from ..case import MUST, PRACTICE, SHOULD
from ..case_connections import Probe
from ..media_check import coded, compare, deliver, forwarded, frame, small_media
from ..outcome import Closed, Failed, Result, informational, non_strict, unimplemented
from ..received import status
from .commands import case


@case(30, "play", MUST, "RTMP 1.0 7.2.2.1",
      "The server sends an onStatus command messages NetStream.Play.Start & NetStream.Play.Reset if the play "
      "command sent by the client is successful.")  # fmt: skip
async def play(p: Probe) -> Result:
    """NetStream.Play.Start arrives, and media after it.

    Players wait for it."""
    publisher = await p.publisher()
    _, found = await p.plays(publisher.name)
    if found.code != "NetStream.Play.Start":
        raise Failed(f"{found.name} {found.code!r} instead of NetStream.Play.Start")
    return None


@case(31, "Play.Reset only if asked for", SHOULD, "RTMP 1.0 7.2.2.1",
      "NetStream.Play.Reset is sent by the server only if the play command sent by the client has set the "
      "reset flag.")  # fmt: skip
async def play_reset(p: Probe) -> Result:
    """play with reset false brings no NetStream.Play.Reset.

    A player that adds to its list would clear it."""
    publisher = await p.publisher()
    peer, _ = await p.plays(publisher.name, -2.0, -1.0, False)
    await peer.fence()
    if peer.find(status("NetStream.Play.Reset")):
        raise Failed("NetStream.Play.Reset although reset is false")
    return None


_PLAYS: tuple[tuple[int, str, tuple[object, ...]], ...] = (
    (32, "play with start -1", (-1.0,)),
    (33, "play with start, duration and reset", (-2.0, -1.0, True)),
    (34, "play with start 0", (0.0,)),
)
for _number, _title, _args in _PLAYS:

    @case(_number, f"{_title} of a live stream", PRACTICE, "RTMP 1.0 7.2.2.1")
    async def play_arguments(p: Probe, args: tuple[object, ...] = _args) -> Result:
        """The live stream starts; with start 0, which asks for a recording, a refusal is fine too.

        Players differ: ffmpeg sends -2000, librtmp -1000 or -2000, JW Player 0."""
        publisher = await p.publisher()
        await p.player(publisher.name)  # the stream can be played
        player = await p.connected()
        found = await player.play(publisher.name, *args)
        if found.is_error:
            if args[0] == 0.0:
                return informational(f"refused: {found.code}")
            raise Failed(f"refused: {found.code}")
        await player.fence()
        player.joined = len(player.inbox)
        tags = small_media()
        await deliver(publisher, player, tags)
        return compare(tags, player.tags())


@case(35, "play of a name that does not exist", PRACTICE, "RTMP 1.0 7.2.2.1",
      "If the stream to be played is not found, the Server sends the onStatus message "
      "NetStream.Play.StreamNotFound.")  # fmt: skip
async def play_absent(p: Probe) -> Result:
    """The player is refused, or waits for a publisher; the server does not hang.

    A live server may let players wait."""
    peer = await p.connected()
    peer.stream_id = await peer.create_stream()
    since = len(peer.inbox)
    await peer.command("play", None, p.name(), stream_id=peer.stream_id, transaction_id=0.0)
    peer.streaming = True
    alive = await peer.is_open()
    answers = [one for one in peer.inbox[since:] if one.is_error or (status()(one) and "Reset" not in one.code)]
    if not answers:
        return informational("no answer; the player waits" if alive else "the server closed the connection")
    if answers[0].is_error:
        return None if answers[0].code == "NetStream.Play.StreamNotFound" else non_strict(f"refused: {answers[0].code}")
    return informational(f"{answers[0].code}; the player waits")


@case(36, "play before publish", PRACTICE, "RTMP 1.0 7.2.2.1")
async def play_first(p: Probe) -> Result:
    """A player that waits gets the media when the publisher comes.

    Players are often faster than encoders."""
    name = p.name()
    player = await p.connected()
    player.stream_id = await player.create_stream()
    await player.command("play", None, name, stream_id=player.stream_id, transaction_id=0.0)
    player.streaming = True
    if not await player.is_open() or player.find(lambda one: one.is_error):
        return unimplemented("the server refuses to wait for a publisher")
    publisher = await p.publisher(name)
    tags = small_media()
    await deliver(publisher, player, tags)
    return compare(tags, player.tags())


@case(37, "pause", SHOULD, "RTMP 1.0 7.2.2.8",
      "The server sends a status message NetStream.Pause.Notify when the stream is paused.")  # fmt: skip
async def pause(p: Probe) -> Result:
    """NetStream.Pause.Notify, or an error, or nothing if the server cannot pause.

    A live stream cannot really be paused."""
    return await _pauses(p, True, "NetStream.Pause.Notify")


@case(38, "unpause", SHOULD, "RTMP 1.0 7.2.2.8", "NetStream.Unpause.Notify is sent when a stream in un-paused.")
async def unpause(p: Probe) -> Result:
    """NetStream.Unpause.Notify, or an error, or nothing if the server cannot pause.

    A player must know that media comes again."""
    return await _pauses(p, False, "NetStream.Unpause.Notify")


async def _pauses(p: Probe, flag: bool, code: str) -> Result:
    publisher = await p.publisher()
    player = await p.player(publisher.name)
    since = len(player.inbox)
    await player.command("pause", None, True, 0.0, stream_id=player.stream_id, transaction_id=0.0)
    if not flag:
        await player.command("pause", None, False, 0.0, stream_id=player.stream_id, transaction_id=0.0)
    if not await player.is_open():
        raise Failed("the server closed the connection after pause")
    answers = [one for one in player.inbox[since:] if one.is_error or (status()(one) and "ause" in one.code)]
    if not answers:
        return unimplemented("no answer to pause")
    if answers[-1].is_error:
        return unimplemented(f"refused: {answers[-1].code}")
    if answers[-1].code != code:
        raise Failed(f"{answers[-1].code} instead of {code}")
    return None


@case(39, "seek in a live stream", PRACTICE, "RTMP 1.0 7.2.2.7",
      "The server sends a status message NetStream.Seek.Notify when seek is successful. In failure, it "
      "returns an _error message.")  # fmt: skip
async def seek(p: Probe) -> Result:
    """seek is answered or ignored; media still arrives.

    Players seek by accident; the stream must not end."""
    publisher = await p.publisher()
    player = await p.player(publisher.name)
    since = len(player.inbox)
    await player.command("seek", None, 0.0, stream_id=player.stream_id, transaction_id=0.0)
    if not await player.is_open():
        raise Failed("the server closed the connection after seek")
    answered = [one for one in player.inbox[since:] if one.is_error or "Seek" in one.code]
    tags = small_media()
    await deliver(publisher, player, tags)
    return compare(tags, player.tags()) or (None if answered else unimplemented("no answer to seek"))


for _number, _command, _type in ((40, "receiveAudio", AUDIO), (41, "receiveVideo", VIDEO)):

    @case(_number, _command, PRACTICE, f"RTMP 1.0 7.2.2.{4 if _type == AUDIO else 5}")
    async def receive(p: Probe, command: str = _command, type_id: int = _type) -> Result:
        """With false, the other kind of media still arrives, and this kind stops if the server supports it.

        Players switch off video to save bandwidth."""
        publisher = await p.publisher()
        player = await p.player(publisher.name)
        await player.command(command, None, False, stream_id=player.stream_id, transaction_id=0.0)
        if not await player.is_open():
            raise Failed(f"the server closed the connection after {command}")
        other = VIDEO if type_id == AUDIO else AUDIO
        tags = small_media()
        for tag in tags:
            await publisher.tag(tag)
        last = frame(coded(tags, other)[-1])
        await forwarded(publisher, player, tags, last, "the last frame of the other kind")
        return unimplemented(f"{command} false has no effect") if coded(player.tags(), type_id) else None


@case(54, "No media before Play.Start", PRACTICE, "RTMP 1.0 7.2.2.1")
async def order_of_play(p: Probe) -> Result:
    """Audio and video of a running stream arrive after NetStream.Play.Start.

    Players set up their decoders at that moment."""
    publisher = await p.publisher()
    for tag in small_media(seconds=3.0):
        await publisher.tag(tag)
    await publisher.fence()
    player, _ = await p.plays(publisher.name)
    await player.fence()
    kinds = ["start" if one.code == "NetStream.Play.Start" else "media"
             for one in player.inbox
             if one.code == "NetStream.Play.Start" or one.message.type_id in (AUDIO, VIDEO)]  # fmt: skip
    if kinds[:1] == ["media"]:
        raise Failed("media arrived before NetStream.Play.Start")
    return None


@case(55, "Publish and play on one connection", PRACTICE, "RTMP 1.0 7.2.2")
async def two_streams(p: Probe) -> Result:
    """A client that publishes can play another stream on a second message stream.

    Conference clients did so; many servers have one stream per connection."""
    other = await p.publisher()
    peer = await p.publisher()
    published_on = peer.stream_id
    if not await p.fences():
        return unimplemented("the server answers no commands on a connection that publishes")
    try:
        found = await peer.play(other.name)
    except Closed as error:
        await p.survives()
        return unimplemented(str(error))
    if found.is_error:
        return unimplemented(f"refused: {found.code}")
    if peer.stream_id == published_on:
        return unimplemented("createStream returned the stream that publishes")
    await peer.fence()
    tags = small_media()
    await deliver(other, peer, tags)
    return compare(tags, peer.tags())
