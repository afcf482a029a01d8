"""Publish and play over real sockets: `publish`, `play` for asyncio, `publish_file`, `play_file` for everybody.

Publishing keeps to the clock of the media (each tag is due at a time counted from the start, so errors never add
up) or runs as fast as the server takes it. The protocol itself is `Caller`.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rtmp_spark.codec import flv
from rtmp_spark.codec.errors import UserError
from rtmp_spark.codec.message import AUDIO, VIDEO

from .caller import DEFAULT_CALLER, PLAY, PUBLISH, Caller, CallerOptions, Step
from .fault import NO_FAULT, Fault
from .frames import Frame
from .recorder import Recorder
from .synthetic import Synthetic, Tag
from .url import RtmpUrl, endpoint, parse_url, why
from .wire import unread_bytes

UNREACHABLE, REFUSED = 3, 4
_GOODBYE_S = 1.0
_READ_BYTES = 1 << 16


@dataclass
class Progress:
    """What has passed so far."""

    tags: int = 0
    bytes: int = 0
    media_ms: int = 0
    behind_ms: int = 0  # publishing in real time: how late the last tag was
    ended: str | None = None  # why the server ended it, if it did
    sizes: dict[int, int] = field(default_factory=lambda: {AUDIO: 0, VIDEO: 0})

    def count(self, tag: Tag) -> None:
        self.tags += 1
        self.bytes += len(tag.payload)
        self.media_ms = max(self.media_ms, tag.timestamp)
        if tag.type_id in self.sizes:
            self.sizes[tag.type_id] += len(tag.payload)


OnProgress = Callable[[Progress], None]


class Refused(UserError):
    """The server said no, or nothing."""


class _Line(asyncio.Protocol):
    """A caller on a socket."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._transport: asyncio.Transport | None = None
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._closed = asyncio.Event()

    @classmethod
    async def open(cls, caller: Caller, tls: ssl.SSLContext | None) -> _Line:
        url = caller.url
        if url.scheme == "rtmps" and tls is None:
            tls = ssl.create_default_context()
        loop = asyncio.get_running_loop()
        try:
            _, line = await loop.create_connection(lambda: cls(caller), url.host, url.port, ssl=tls)
        except OSError as error:
            text = f"{endpoint(url.host, url.port)} cannot be reached ({why(error)})."
            raise UserError(text, "Is the server running there?", UNREACHABLE) from None
        return line

    # -- what the socket reports -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._writable.set()
        self.caller.begin(time.monotonic())
        self.flush()

    def data_received(self, data: bytes) -> None:
        self.caller.receive_data(data, time.monotonic())
        self.flush()
        self._changed.set()

    def eof_received(self) -> bool:
        self._hang_up()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        transport, self._transport = self._transport, None
        if exc is not None and transport is not None:
            self.data_received(unread_bytes(transport))
        self._hang_up()
        self._writable.set()
        self._closed.set()

    def _hang_up(self) -> None:
        self.caller.receive_eof()
        self._changed.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # -- what the user of the line does ----------------------------------------------------------------------

    def flush(self) -> None:
        data = self.caller.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def drain(self) -> None:
        """Let others run, and the server read."""
        await asyncio.sleep(0)
        await self._writable.wait()

    async def wait(self, seconds: float) -> None:
        """Until something arrives, at most this long."""
        self._changed.clear()
        await _at_most(seconds, self._changed.wait())
        self.caller.tick(time.monotonic())
        self.flush()

    async def until_streaming(self) -> None:
        while self.caller.step not in (Step.STREAMING, Step.ENDED):
            await self.wait(0.2)
        if self.caller.refusal is not None:
            raise Refused(f"The server refused: {self.caller.refusal}.".replace("..", "."), "", REFUSED)

    async def close(self) -> None:
        """Goodbye, FIN, and a moment for the server's own."""
        self.caller.finish()
        self.flush()
        await _at_most(_GOODBYE_S, self._writable.wait())
        if self._transport is not None:
            if self._transport.can_write_eof():
                self._transport.write_eof()
                await _at_most(_GOODBYE_S, self._closed.wait())
            if self._transport is not None:
                self._transport.close()
                await _at_most(_GOODBYE_S, self._closed.wait())


async def _at_most(seconds: float, what: Coroutine[object, object, object]) -> None:
    try:
        await asyncio.wait_for(what, seconds)
    except asyncio.TimeoutError:
        pass


async def publish(
    url: RtmpUrl | str,
    tags: Iterable[Tag],
    *,
    speed: float | None = 1.0,
    options: CallerOptions = DEFAULT_CALLER,
    fault: Fault = NO_FAULT,
    tls: ssl.SSLContext | None = None,
    on_progress: OnProgress | None = None,
) -> Progress:
    """Publish `tags`; `speed` None is as fast as the server reads. Raises Refused before the first tag only."""
    caller = Caller(parse_url(url) if isinstance(url, str) else url, PUBLISH, os.urandom, options, fault)
    line = await _Line.open(caller, tls)
    progress = Progress()
    try:
        await line.until_streaming()
        start = time.monotonic()
        first: int | None = None
        for tag in fault.spoil(tags):
            first = tag.timestamp if first is None else first
            if speed is not None:
                due = start + (fault.due_ms(tag) - first) / 1000 / speed
                while (early := due - time.monotonic()) > 0 and caller.step is Step.STREAMING:
                    await asyncio.sleep(min(early, 0.5))
                progress.behind_ms = int((time.monotonic() - due) * 1000)
            held_s = fault.hold_s(tag)
            if held_s:
                await asyncio.sleep(held_s)
            if caller.step is not Step.STREAMING:
                progress.ended = caller.refusal or "the server closed the connection"
                break
            caller.send_tag(tag)
            line.flush()
            await line.drain()
            progress.count(tag)
            if on_progress is not None:
                on_progress(progress)
        return progress
    finally:
        await line.close()


async def contest(url: RtmpUrl | str, after_s: float = 0.5, options: CallerOptions = DEFAULT_CALLER) -> str:
    """Try to publish under a name that is taken; the server's words."""
    await asyncio.sleep(after_s)
    try:
        await publish(url, (), options=options)
    except Refused as refused:
        return str(refused)
    return "accepted"


async def play(
    url: RtmpUrl | str,
    on_tag: Callable[[Tag], None],
    *,
    duration_s: float | None = None,
    options: CallerOptions = DEFAULT_CALLER,
    fault: Fault = NO_FAULT,
    tls: ssl.SSLContext | None = None,
    on_progress: OnProgress | None = None,
) -> Progress:
    """Play until the stream or `duration_s` ends, giving each tag to `on_tag`."""
    caller = Caller(parse_url(url) if isinstance(url, str) else url, PLAY, os.urandom, options, fault)
    line = await _Line.open(caller, tls)
    progress = Progress()
    deadline = None if duration_s is None else time.monotonic() + duration_s
    try:
        await line.until_streaming()
        while True:
            ended = caller.step is Step.ENDED
            for tag in caller.take_tags():
                on_tag(tag)
                progress.count(tag)
            if on_progress is not None:
                on_progress(progress)
            left = 0.5 if deadline is None else deadline - time.monotonic()
            if ended or left <= 0:
                progress.ended = caller.refusal
                return progress
            if caller.step is Step.STREAMING:
                await line.wait(min(left, 0.5))
    finally:
        await line.close()


def file_tags(path: Path) -> Iterator[Tag]:
    """The tags of an FLV file, read piece by piece."""
    with path.open("rb") as file:
        data = file.read(_READ_BYTES)
        _, _, position = flv.parse_header(data)
        while True:
            tags, position = flv.take_tags(data, position)
            for tag in tags:
                yield Tag(tag.type_id, tag.timestamp, tag.payload)
            more = file.read(max(_READ_BYTES, len(data) - position))
            if not more:
                return
            data = data[position:] + more
            position = 0


def source_tags(source: str) -> Iterator[Tag]:
    """A file, or `synthetic[:field=value,...]` for media made on the spot."""
    name, _, settings = source.partition(":")
    if name != "synthetic":
        return file_tags(Path(source))
    values: dict[str, float | int | bool] = {}
    for setting in filter(None, settings.split(",")):
        key, _, value = setting.partition("=")
        default = getattr(Synthetic, key, None)
        if default is None or not isinstance(default, (bool, int, float)):
            raise UserError(f"Synthetic media has no setting {key!r}.", "For example synthetic:seconds=10,fps=30.")
        try:
            values[key] = (
                value.lower() in ("", "1", "true", "yes") if isinstance(default, bool) else type(default)(value)
            )
        except ValueError:
            raise UserError(f"{value!r} is no value for {key}.", "For example synthetic:seconds=10,fps=30.") from None
    return Synthetic(**values).tags()  # type: ignore[arg-type]


def publish_file(source: str, url: str, speed: float | None = 1.0, **options: object) -> Progress:
    """Publish an FLV file or `synthetic`, outside asyncio; the options of `publish`."""
    return asyncio.run(publish(url, source_tags(source), speed=speed, **options))  # type: ignore[arg-type]


async def play_to_file(url: RtmpUrl | str, path: Path, **options: object) -> Progress:
    recorder = Recorder(path, replace=True)
    try:
        return await play(url, lambda tag: recorder.write(Frame(*tag)), **options)  # type: ignore[arg-type]
    finally:
        recorder.close()


def play_file(url: str, path: Path, **options: object) -> Progress:
    """Play into an FLV file, outside asyncio; the options of `play`."""
    return asyncio.run(play_to_file(url, path, **options))
