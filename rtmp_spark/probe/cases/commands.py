"""Cases of commands: connect, createStream, publish, play and what belongs to them (RTMP 1.0 7.2)."""

from __future__ import annotations

from rtmp_spark.codec.amf import AmfObject
from rtmp_spark.codec.message import AUDIO, VIDEO

from ..case import MUST, PRACTICE, SHOULD, Section
from ..case_connections import Probe
from ..media_check import coded, compare, deliver, forwarded, frame, small_media
from ..outcome import Closed, Failed, Result, informational, non_strict, unimplemented
from ..peer import Peer, status

case = Section("commands", "connect, createStream, publish, play, transaction ids, onStatus")


async def handshaken(p: Probe) -> Peer:
    with p.precondition("handshake"):
        return await p.peer()


@case(1, "The answer to connect has transaction id 1", MUST, "RTMP 1.0 7.2.1.1",
      "Transaction ID: Transaction ID is 1 for connect responses")  # fmt: skip
async def connect_answer(p: Probe) -> Result:
    """`_result` with transaction id 1 arrives.

    Clients find the answer by this number."""
    peer = await handshaken(p)
    await peer.command("connect", peer.connect_properties())
    found = await peer.wait(lambda one: one.name in ("_result", "_error"), "an answer to connect")
    if found.name == "_error":
        raise Failed(f"connect was refused: {found.code}")
    if found.command is not None and found.command.transaction_id != 1:
        raise Failed(f"the answer to connect has transaction id {found.command.transaction_id}")
    return None


@case(2, "The answer to connect says what happened", SHOULD, "RTMP 1.0 7.2.1.1",
      "Name-value pairs that describe the response from the server. 'code', 'level', 'description' are names "
      "of few among such information.")  # fmt: skip
async def connect_information(p: Probe) -> Result:
    """level is status, code is NetConnection.Connect.Success, and there is a description.

    Clients compare the code."""
    peer = await handshaken(p)
    found = await peer.connect()
    if found.info is None:
        raise Failed("the answer has no object with a code")
    missing = [name for name in ("level", "code", "description") if name not in found.info]
    if found.code != "NetConnection.Connect.Success" or found.info.get("level") != "status":
        raise Failed(f"code {found.code!r}, level {found.info.get('level')!r}")
    return non_strict(f"no {missing[0]}") if missing else None


@case(3, "The answer to connect names the server", PRACTICE, "RTMP 1.0 7.2.1.1",
      "Name-value pairs that describe the properties(fmsver etc.) of the connection.")  # fmt: skip
async def connect_properties(p: Probe) -> Result:
    """The first object has fmsVer and capabilities.

    Flash-era clients read both."""
    peer = await handshaken(p)
    found = await peer.connect()
    first = found.command.arg(0) if found.command is not None else None
    if not isinstance(first, AmfObject):
        raise Failed("the answer has no properties")
    missing = [name for name in ("fmsVer", "capabilities") if name not in first]
    if len(missing) == 2:
        raise Failed("the properties have neither fmsVer nor capabilities")
    return non_strict(f"no {missing[0]}") if missing else None


_CONNECTS: tuple[tuple[int, str, dict[str, object], tuple[str, ...], bool], ...] = (
    (4, "connect without tcUrl", {}, ("tcUrl",), False),
    (5, "connect without flashVer", {}, ("flashVer",), False),
    (6, "connect with app only", {}, ("tcUrl", "flashVer"), False),
    (7, "connect with a slash after the app", {"app": "{app}/"}, (), True),
    (8, "connect with a query after the app", {"app": "{app}?probe=1"}, (), True),
    (9, "connect with objectEncoding 3", {"objectEncoding": 3.0}, (), False),
    (10, "connect with all properties of the Flash Player",
     {"swfUrl": "http://localhost/p.swf", "pageUrl": "http://localhost/", "fpad": False, "capabilities": 239.0,
      "audioCodecs": 3575.0, "videoCodecs": 252.0, "videoFunction": 1.0}, (), False),
    (11, "connect with an empty app", {"app": ""}, (), True),
    (12, "connect with an app that is a number", {"app": 7.0}, (), True),
)  # fmt: skip
for _number, _title, _more, _without, _may_refuse in _CONNECTS:

    @case(_number, _title, PRACTICE, "RTMP 1.0 7.2.1.1")
    async def odd_connect(
        p: Probe,
        more: dict[str, object] = _more,
        without: tuple[str, ...] = _without,
        may_refuse: bool = _may_refuse,
    ) -> Result:
        """connect is accepted; an odd app may also be refused with `_error` or the end of the connection.

        Cameras and encoders leave out what they do not need. A server that refuses says so and does not hang."""
        peer = await handshaken(p)
        properties = peer.connect_properties(**more)
        for name, value in more.items():
            if isinstance(value, str):
                properties[name] = value.replace("{app}", p.target.app)
        for name in without:
            del properties[name]
        try:
            found = await peer.call("connect", properties)
            if found.name == "_error":
                raise Closed(f"connect was refused: {found.code}")
            if "objectEncoding" in more and found.info is not None and found.info.get("objectEncoding") not in (
                None, 0.0, 3.0,
            ):  # fmt: skip
                raise Failed(f"objectEncoding {found.info.get('objectEncoding')!r} in the answer")
            await peer.create_stream()
        except Closed as error:
            if not may_refuse:
                raise
            await p.survives()
            return informational(str(error))
        return None


@case(13, "connect with optional arguments", PRACTICE, "RTMP 1.0 7.2.1.1", "Optional User Arguments")
async def connect_arguments(p: Probe) -> Result:
    """connect with a string and a number after the command object is accepted.

    Applications pass user names this way."""
    peer = await handshaken(p)
    found = await peer.call("connect", peer.connect_properties(), "user", 1.0)
    if found.name == "_error":
        raise Failed(f"connect was refused: {found.code}")
    return None


@case(14, "connect twice", PRACTICE, "RTMP 1.0 7.2.1.1")
async def connect_twice(p: Probe) -> Result:
    """The second connect is refused, accepted or ends the connection; the server does not hang.

    It happens after bugs in retry loops."""
    peer = await p.connected()
    await peer.command("connect", peer.connect_properties())
    return None if await peer.is_open() else informational("the server closed the connection")


@case(15, "createStream before connect", PRACTICE, "RTMP 1.0 7.2.1.1")
async def create_before_connect(p: Probe) -> Result:
    """The command is refused, answered, ignored or ends the connection; other connections work.

    connect is the first command of a session."""
    peer = await handshaken(p)
    await peer.command("createStream", None, transaction_id=2.0)  # connect always has 1
    try:
        await peer.connect()
    except Failed as error:
        await p.survives()
        return informational(str(error))
    return None


@case(16, "createStream answers with the same transaction id", MUST, "RTMP 1.0 7.2.1.3",
      "ID of the command that response belongs to.")  # fmt: skip
async def transaction_ids(p: Probe) -> Result:
    """Answers to createStream with ids 77 and 100000 have these ids.

    Clients count in their own way."""
    peer = await p.connected()
    for number in (77.0, 100_000.0):
        since = len(peer.inbox)
        await peer.command("createStream", None, transaction_id=number)
        found = await peer.wait(lambda one: one.name in ("_result", "_error"), "an answer to createStream", since)
        if found.command is None or found.command.transaction_id != number:
            raise Failed(
                f"the answer to createStream {number:g} has id {found.command and found.command.transaction_id}"
            )
    return None


@case(17, "createStream returns a stream id above 0", MUST, "RTMP 1.0 7.2.1.3",
      "The return value is either a stream ID or an error information object.")  # fmt: skip
async def stream_id(p: Probe) -> Result:
    """The fourth value is a whole number of at least 1.

    Stream 0 belongs to the connection (7.2.1.3: "NetConnection is the default communication channel")."""
    peer = await p.connected()
    number = await peer.create_stream()
    if number < 1:
        raise Failed(f"createStream returned {number}")
    return None


@case(18, "createStream ten times", PRACTICE, "RTMP 1.0 7.2.1.3")
async def many_streams(p: Probe) -> Result:
    """Ten calls return ten different ids.

    A connection may carry several streams; many servers support only one and repeat its id."""
    peer = await p.connected()
    ids = [await peer.create_stream() for _ in range(10)]
    if len(set(ids)) == 10:
        return None
    return non_strict(f"the ids are {sorted(set(ids))}")


@case(19, "publish", MUST, "RTMP 1.0 7.2.2.6",
      "The server responds with the onStatus command to mark the beginning of publish.")  # fmt: skip
async def publish(p: Probe) -> Result:
    """NetStream.Publish.Start arrives.

    Encoders wait for it before they send media."""
    peer = await p.connected()
    found = await peer.publish(p.name())
    if found.code != "NetStream.Publish.Start":
        raise Failed(f"{found.name} {found.code!r} instead of NetStream.Publish.Start")
    return None


@case(20, "The object of onStatus", MUST, "RTMP 1.0 7.2.2",
      "Info Object: An AMF object having at least the following three properties: \"level\" (String) "
      "[...] \"code\" (String) [...] and \"description\" (String)")  # fmt: skip
async def status_object(p: Probe) -> Result:
    """Every onStatus of publish and play has level, code and description as strings, and a known level.

    Clients show the description and decide by level and code."""
    publisher = await p.publisher()
    player = await p.player(publisher.name)
    for one in publisher.find(status()) + player.find(status()):
        info = one.info
        wrong = [n for n in ("level", "code", "description") if info is None or not isinstance(info.get(n), str)]
        if wrong:
            raise Failed(f"onStatus {one.code} without {', '.join(wrong)}")
        if info is not None and info.get("level") not in ("status", "error", "warning"):
            raise Failed(f"level {info.get('level')!r}")
    return None


@case(21, "The transaction id of onStatus", SHOULD, "RTMP 1.0 7.2.2", "Transaction ID: Transaction ID set to 0.")
async def status_transaction(p: Probe) -> Result:
    """onStatus has transaction id 0 and a null command object.

    It answers no call."""
    publisher = await p.publisher()
    for one in publisher.find(status()):
        assert one.command is not None
        if one.command.transaction_id != 0:
            raise Failed(f"onStatus {one.code} has transaction id {one.command.transaction_id}")
        if one.command.arg(0) is not None:
            return non_strict(f"the command object of onStatus {one.code} is not null")
    return None


@case(22, "onStatus is sent on the stream", PRACTICE, "RTMP 1.0 7.2.2")
async def status_stream(p: Probe) -> Result:
    """onStatus of publish is on the message stream that publishes.

    Clients with several streams could not tell them apart."""
    publisher = await p.publisher()
    on = {one.message.stream_id for one in publisher.find(status("NetStream.Publish.Start"))}
    return None if on == {publisher.stream_id} else _wrong_stream(on, publisher.stream_id)


def _wrong_stream(on: set[int], expected: int) -> Result:
    raise Failed(f"onStatus is on stream {sorted(on)} instead of {expected}")


for _number, _kind in ((23, "record"), (24, "append"), (25, None)):

    @case(_number, f"publish {_kind}" if _kind else "publish without a type", PRACTICE, "RTMP 1.0 7.2.2.6",
          "Publishing Type: Type of publishing. Set to \"live\", \"record\", or \"append\".")  # fmt: skip
    async def publish_kind(p: Probe, kind: str | None = _kind) -> Result:
        """The stream starts, or is refused with an error.

        A live server need not record, but it must answer."""
        peer = await p.connected()
        found = await peer.publish(p.name(), kind)
        if found.is_error:
            return unimplemented(f"refused: {found.code}")
        if found.code != "NetStream.Publish.Start":
            raise Failed(f"{found.code!r} instead of NetStream.Publish.Start or an error")
        return None


_WRONG_STREAMS = ((26, "publish on stream 0", 0), (27, "publish on a stream that was not created", 55))
for _number, _title, _stream_id in _WRONG_STREAMS:

    @case(_number, _title, PRACTICE, "RTMP 1.0 7.2.1.3")
    async def publish_wrong_stream(p: Probe, stream_id: int = _stream_id) -> Result:
        """publish is refused, ignored, accepted or ends the connection; the server does not hang.

        rtmp-go publishes on stream 0. A refusal names the reason."""
        peer = await p.connected()
        since = len(peer.inbox)
        await peer.command("publish", None, p.name(), "live", stream_id=stream_id)
        peer.streaming = True
        alive = await peer.is_open()
        answers = [one for one in peer.inbox[since:] if one.is_error or status()(one)]
        if not answers:
            return informational("ignored" if alive else "the server closed the connection")
        if answers[0].is_error:
            return non_strict("refused as a bad name") if "BadName" in answers[0].code else None
        return informational("the server accepted it")


@case(28, "publish with an empty name", PRACTICE, "RTMP 1.0 7.2.2.6")
async def empty_name(p: Probe) -> Result:
    """publish is refused or ends the connection.

    No player could name the stream."""
    peer = await p.connected()
    try:
        found = await peer.publish("")
    except Closed:
        return non_strict("the server closed the connection without a reason")
    return None if found.is_error else non_strict(f"accepted: {found.code}")


@case(29, "A name that is in use", PRACTICE, "RTMP 1.0 7.2.2.6")
async def name_in_use(p: Probe) -> Result:
    """The second publisher is refused, or takes over and the first is notified or closed.

    Two publishers of one name would mix their media."""
    first = await p.publisher()
    second = await p.connected()
    try:
        found = await second.publish(first.name)
    except Closed:
        return non_strict("the second publisher was closed without a reason")
    if found.is_error:
        if not await first.is_open():
            raise Failed("the refusal of the second publisher closed the first")
        return None
    if not await first.is_open():
        return informational("the second publisher replaced the first")
    if not await second.is_open():
        return non_strict(f"the second publisher was closed after {found.code}")
    return non_strict("both publish")


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


for _number, _command in ((42, "closeStream"), (43, "deleteStream"), (44, "FCUnpublish")):

    @case(_number, f"The name is free after {_command}", PRACTICE, "RTMP 1.0 7.2.2.3")
    async def name_is_free(p: Probe, command: str = _command) -> Result:
        """Another client can publish the same name at once.

        An encoder that restarts would otherwise be locked out."""
        first = await p.publisher()
        argument: list[object] = []
        if command == "deleteStream":
            argument = [float(first.stream_id)]
        elif command == "FCUnpublish":
            argument = [first.name]
        on = first.stream_id if command == "closeStream" else 0
        await first.command(command, None, *argument, stream_id=on)
        if not await first.is_open():
            return informational("the server closed the connection")
        second = await p.connected()
        try:
            found = await second.publish(first.name)
            if not found.is_error and await second.is_open():
                return None
            reason = found.code if found.is_error else f"the server closed the connection after {found.code}"
        except Closed as error:
            reason = str(error)
        if command == "FCUnpublish":
            return unimplemented("FCUnpublish does not end the publication")
        raise Failed(f"the name is still in use: {reason}")


@case(45, "deleteStream has no answer", SHOULD, "RTMP 1.0 7.2.2.3", "The server does not send any response.")
async def delete_is_silent(p: Probe) -> Result:
    """No `_result` or `_error` with its transaction id arrives.

    A client does not wait for one."""
    peer = await p.publisher()
    number = await peer.command("deleteStream", None, float(peer.stream_id))
    if not await peer.is_open():
        return informational("the server closed the connection")
    answers = peer.find(lambda one: one.name in ("_result", "_error") and one.command is not None
                        and one.command.transaction_id == number)  # fmt: skip
    if answers:
        raise Failed(f"{answers[0].name} for deleteStream")
    return None


@case(46, "deleteStream of an unknown stream", PRACTICE, "RTMP 1.0 7.2.2.3")
async def delete_unknown(p: Probe) -> Result:
    """Nothing happens.

    Clients delete streams twice when they close."""
    peer = await p.connected()
    await peer.command("deleteStream", None, 4000.0)
    if not await peer.is_open():
        raise Failed("the server closed the connection")
    return None


_EXTRAS = (
    (47, "releaseStream", True), (48, "FCPublish", True), (49, "FCSubscribe", True), (50, "_checkbw", False),
    (51, "getStreamLength", True),
)  # fmt: skip
for _number, _command, _named in _EXTRAS:

    @case(_number, f"{_command} before publish", PRACTICE, "Flash Media Live Encoder")
    async def extra_command(p: Probe, command: str = _command, named: bool = _named) -> Result:
        """The command is answered or ignored, and publish works after it.

        OBS, ffmpeg and librtmp send these without waiting for an answer."""
        peer = await p.connected()
        name = p.name()
        await peer.command(command, None, *([name] if named else []))
        found = await peer.publish(name)
        if found.is_error:
            raise Failed(f"publish was refused after {command}: {found.code}")
        return None


@case(52, "An unknown command", PRACTICE, "RTMP 1.0 7.2.1.2",
      "Transaction ID: If a response is expected we give a transaction Id. Else we pass a value of 0")  # fmt: skip
async def unknown_command(p: Probe) -> Result:
    """`_error` with its transaction id, or nothing; the connection stays open.

    New commands appear; old servers must survive them."""
    peer = await p.connected()
    number = await peer.command("someNewCommand", None, "argument")
    if not await peer.is_open():
        raise Failed("the server closed the connection")
    answers = peer.find(lambda one: one.command is not None and one.command.transaction_id == number)
    if not answers:
        return non_strict("ignored, although it has a transaction id")
    return None if answers[0].name == "_error" else non_strict(f"answered with {answers[0].name}")


@case(53, "An unknown command that expects no answer", SHOULD, "RTMP 1.0 7.2.1.2",
      "If a response is expected we give a transaction Id. Else we pass a value of 0")  # fmt: skip
async def unknown_without_answer(p: Probe) -> Result:
    """A command with transaction id 0 gets no `_result` and no `_error`.

    A client that reads answers by number would misread it."""
    peer = await p.connected()
    since = len(peer.inbox)
    await peer.command("someNewCommand", None, transaction_id=0.0)
    if not await peer.is_open():
        raise Failed("the server closed the connection")
    answers = peer.find(lambda one: one.name in ("_result", "_error") and one.command is not None
                        and one.command.transaction_id == 0, since)  # fmt: skip
    if answers:
        raise Failed(f"{answers[0].name} with transaction id 0")
    return None


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


@case(56, "publish again after closeStream", PRACTICE, "RTMP 1.0 7.2.2")
async def publish_again(p: Probe) -> Result:
    """A client can publish twice on one connection.

    OBS reuses its connection in some modes."""
    peer = await p.publisher()
    if not await p.fences():
        return unimplemented("the server answers no commands on a connection that publishes")
    await peer.command("closeStream", None, stream_id=peer.stream_id)
    if not await peer.is_open():
        return unimplemented("the server closed the connection after closeStream")
    found = await peer.publish(p.name())
    if found.is_error:
        raise Failed(f"the second publish was refused: {found.code}")
    if not await peer.is_open():
        raise Failed(f"the server closed the connection after {found.code}")
    return None


@case(57, "createStream while publishing", PRACTICE, "RTMP 1.0 7.2.1.3")
async def create_while_publishing(p: Probe) -> Result:
    """The command is answered; a server that reads only media then may ignore it, but keeps the connection.

    Clients may open a second stream at any time. Cases use this answer to know that the server has read everything."""
    if not await p.fences():
        peer = await p.publisher()
        await peer.command("createStream", None)
        await p.reference()
        if peer.closed:
            raise Failed("the server closed the connection")
        return unimplemented("the server answers no commands on a connection that publishes")
    await (await p.publisher()).fence()
    return None
