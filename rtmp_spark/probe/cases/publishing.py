"""Cases of publish: its answer, stream names, and how a publication ends (RTMP 1.0 7.2.2.3, 7.2.2.6)."""

from __future__ import annotations

from ..case import MUST, PRACTICE, SHOULD
from ..case_connections import Probe
from ..outcome import Closed, Failed, Result, informational, non_strict, unimplemented
from ..received import status
from .commands import case


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
