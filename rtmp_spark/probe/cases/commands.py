"""Cases of commands of a connection: connect, createStream and unknown ones (RTMP 1.0 7.2.1)."""

from __future__ import annotations

from rtmp_spark.codec.amf import AmfObject

from ..case import MUST, PRACTICE, SHOULD, Section
from ..case_connections import Probe
from ..outcome import Closed, Failed, Result, informational, non_strict, unimplemented
from ..peer import Peer

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
