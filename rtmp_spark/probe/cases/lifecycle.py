"""Cases of lifecycle: publishers that leave and come back, players that are slow, keys."""

from __future__ import annotations

import asyncio
import time

from rtmp_spark.codec.message import STREAM_EOF, VIDEO

from ..case import PRACTICE, Section
from ..case_connections import Probe
from ..media_check import arrival, coded, compare, deliver, forwarded, frame, small_media
from ..outcome import Closed, Failed, Inconclusive, Result, informational, non_strict
from ..peer import Peer
from ..received import event, status
from ..wire import Silence

case = Section("lifecycle", "leaving, crashing, coming back, slow players, keys")
_ENDS = ("NetStream.Play.UnpublishNotify", "NetStream.Play.Stop", "NetStream.Play.Complete")


async def leave(p: Probe, peer: Peer, how: str) -> None:
    if how == "deleteStream":
        await peer.command("deleteStream", None, float(peer.stream_id))
        await peer.is_open()  # a server may close the connection
    elif how == "RST":
        p.needs_tcp("a session continues after its TCP connection")
        peer.stop_reading()
        peer.wire.abort()
    else:
        await peer.close()


for _number, _how in ((1, "deleteStream"), (2, "FIN"), (3, "RST")):

    @case(_number, f"Players are notified when the publisher leaves ({_how})", PRACTICE, "RTMP 1.0 7.1.7, 7.2.2")
    async def notified(p: Probe, how: str = _how) -> Result:
        """Stream EOF, a status or the end of the connection arrives at the player.

        A player that is not notified shows a frozen picture."""
        publisher = await p.publisher()
        player = await p.player(publisher.name)
        await deliver(publisher, player, small_media())
        since = len(player.inbox)
        await leave(p, publisher, how)
        try:
            await player.wait(lambda one: event(STREAM_EOF)(one) or status(*_ENDS)(one), "the end", since)
        except Closed:
            return non_strict("the player's connection was closed without a word")
        except Silence as silence:
            await p.confirm(silence)
            raise Failed("the player was not notified") from None
        return None


async def publish_until_accepted(p: Probe, name: str) -> Peer:
    """Publish as soon as the server has noticed that the earlier publisher left."""
    deadline = time.monotonic() + p.target.timeout_s
    checked = False
    while True:
        peer = await p.connected()
        reason = "closed"
        try:
            found = await peer.publish(name)
            if not found.is_error and await peer.is_open():  # lal closes it after Publish.Start
                return peer
            reason = f"closed after {found.code}" if peer.closed else found.code
        except Closed:
            pass
        await peer.close()
        if checked:
            raise Failed(f"the name is not free after {p.target.timeout_s:g} s: {reason}")
        if time.monotonic() > deadline:
            await p.reference()
            checked = True  # and try once more
        await asyncio.sleep(0.05)


for _number, _how in ((4, "FIN"), (5, "RST")):

    @case(_number, f"The publisher comes back after {_how}", PRACTICE, "RTMP 1.0 7.2.2.6")
    async def comes_back(p: Probe, how: str = _how) -> Result:
        """The same name can be published again within the timeout, and a new player gets the media.

        Encoders reconnect after every network error."""
        first = await p.publisher()
        await leave(p, first, how)
        second = await publish_until_accepted(p, first.name)
        player = await p.player(first.name)
        tags = small_media()
        await deliver(second, player, tags)
        return compare(tags, player.tags())


@case(6, "A player stays while the publisher reconnects", PRACTICE, "RTMP 1.0 7.2.2")
async def player_stays(p: Probe) -> Result:
    """The player gets the media of the second publication, or is notified that the first ended.

    Viewers should not have to press play again."""
    first = await p.publisher()
    player = await p.player(first.name)
    await deliver(first, player, small_media())
    since = len(player.inbox)
    await leave(p, first, "FIN")
    second = await publish_until_accepted(p, first.name)
    tags = small_media(first_timestamp=5000, width=640, height=480)
    for tag in tags:
        await second.tag(tag)
    await second.fence()
    try:
        await forwarded(second, player, tags, frame(coded(tags, VIDEO)[-1]), "the last frame")
    except Closed:
        return informational("the server closed the player's connection")
    except Silence as silence:
        await p.confirm(silence)
        if player.find(lambda one: event(STREAM_EOF)(one) or status(*_ENDS)(one), since):
            return informational("the player was notified of the end and must play again")
        raise Failed("the player got neither media nor the end") from None
    return None


@case(7, "Two players get the same", PRACTICE, "RTMP 1.0 7.2.2.1")
async def two_players(p: Probe) -> Result:
    """Both get every frame unchanged.

    Frames that are shared between players must not be changed for one of them."""
    publisher = await p.publisher()
    players = [await p.player(publisher.name) for _ in range(2)]
    tags = small_media()
    for tag in tags:
        await publisher.tag(tag)
    worst: Result = None
    for player in players:
        await arrival(publisher, player, tags)
        worst = compare(tags, player.tags()) or worst
    return worst


@case(8, "A player that leaves does not hurt the others", PRACTICE, "RTMP 1.0 7.2.2.1")
async def player_leaves(p: Probe) -> Result:
    """The other player gets every frame.

    Viewers come and go."""
    publisher = await p.publisher()
    stays, leaves = [await p.player(publisher.name) for _ in range(2)]
    tags = small_media(seconds=1.0)
    half = len(tags) // 2
    for tag in tags[:half]:
        await publisher.tag(tag)
    leaves.stop_reading()
    leaves.wire.abort()
    for tag in tags[half:]:
        await publisher.tag(tag)
    await arrival(publisher, stays, tags)
    return compare(tags, stays.tags())


@case(9, "A player that does not read does not hurt the others", PRACTICE, "RTMP 1.0 7.2.2.1")
async def slow_player(p: Probe) -> Result:
    """The other player gets every frame of 8 MB of media while one player reads nothing.

    One viewer on a bad link must not stop the stream for all."""
    publisher = await p.publisher()
    reads, slow = [await p.player(publisher.name) for _ in range(2)]
    slow.stop_reading()
    tags = small_media(seconds=4.0, gop=25, audio=False, video_bitrate=16_000_000)
    for tag in tags:
        await publisher.tag(tag)
    await arrival(publisher, reads, tags)
    return compare(tags, reads.tags())


@case(10, "Twenty sessions one after the other", PRACTICE, "RTMP 1.0 7.2")
async def many_sessions(p: Probe) -> Result:
    """Each publishes the same name and is accepted.

    A server that leaks publishers refuses the second."""
    name = p.name()
    for _ in range(20):
        peer = await publish_until_accepted(p, name)
        await leave(p, peer, "deleteStream")
        await leave(p, peer, "FIN")
    return None


@case(11, "A player joins and leaves ten times", PRACTICE, "RTMP 1.0 7.2.2.1")
async def rejoin(p: Probe) -> Result:
    """The tenth join gets the media; the publisher's connection stays open.

    Viewers switch between streams."""
    publisher = await p.publisher()
    for _ in range(9):
        player = await p.player(publisher.name)
        await player.close()
    player = await p.player(publisher.name)
    tags = small_media()
    await deliver(publisher, player, tags)
    return compare(tags, player.tags())


for _number, _title, _suffix in ((12, "no key", ""), (13, "a wrong key", "?key=wrong")):

    @case(_number, f"publish with {_title} is refused", PRACTICE, "--publish-key")
    async def wrong_key(p: Probe, suffix: str = _suffix) -> Result:
        """publish is refused with an error, or the connection is closed.

        Runs only with --publish-key."""
        if not p.target.publish_key:
            raise Inconclusive("--publish-key was not given")
        peer = await p.connected()
        try:
            found = await peer.publish(p.name().partition("?")[0] + suffix)
        except Closed:
            return non_strict("the connection was closed without a reason")
        if not found.is_error:
            raise Failed(f"accepted: {found.code}")
        return None


@case(14, "A connection without connect does not stay for ever", PRACTICE, "RTMP 1.0 7.2.1.1", hostile=True)
async def idle(p: Probe) -> Result:
    """The server closes a connection that sends nothing after the handshake within six timeouts (30 s by default).

    Forgotten connections use up the descriptors of a server."""
    peer = await p.peer()
    seconds = p.target.timeout_s * 6
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not peer.closed:
        await asyncio.sleep(0.2)
    if not peer.closed:
        raise Failed(f"the connection is still open after {seconds:g} s")
    return None


@case(15, "100 players", PRACTICE, "RTMP 1.0 7.2.2.1", hostile=True)
async def hundred_players(p: Probe) -> Result:
    """100 players get every frame.

    It is a small audience."""
    publisher = await p.publisher()
    players = [await p.player(publisher.name) for _ in range(100)]
    tags = small_media()
    for tag in tags:
        await publisher.tag(tag)
    for player in players:
        await arrival(publisher, player, tags)
        compare(tags, player.tags())
    return None
