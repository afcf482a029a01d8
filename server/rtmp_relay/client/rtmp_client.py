"""Publish and play over sockets, with asyncio: `publish`, `play`, `play_to_file` and `play_to_pipe`.

Publishing follows the timestamps of the media (each tag is due at a time counted from the start, so errors do not add
up) or runs as fast as the server reads. The protocol is in `client_session`.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from rtmp_relay.faults.fault import NO_FAULT, Fault
from rtmp_relay.flv_pipe import FlvPipe
from rtmp_relay.flv_recorder import Recorder
from rtmp_relay.frames import Frame, Tag
from rtmp_relay.rtmp_url import RtmpUrl, parse_url
from rtmp_spark.codec.message import AUDIO, VIDEO

from .client_options import DEFAULT_CLIENT, ClientOptions
from .client_session import PLAY, PUBLISH, ClientSession, Step
from .client_socket import REFUSED, UNREACHABLE, ClientSocket, Refused
from .tag_sources import source_tags

__all__ = [
    "REFUSED",
    "UNREACHABLE",
    "Progress",
    "Refused",
    "Tag",
    "play",
    "play_to_file",
    "play_to_pipe",
    "publish",
    "source_tags",
    "try_second_publisher",
]


@dataclass
class Progress:
    """What has been sent or received so far."""

    tags: int = 0
    bytes: int = 0
    media_ms: int = 0
    behind_ms: int = 0  # publishing in real time: how late the last tag was
    ended: str | None = None  # the reason, if the server ended the stream
    sizes: dict[int, int] = field(default_factory=lambda: {AUDIO: 0, VIDEO: 0})

    def count(self, tag: Tag) -> None:
        self.tags += 1
        self.bytes += len(tag.payload)
        self.media_ms = max(self.media_ms, tag.timestamp)
        if tag.type_id in self.sizes:
            self.sizes[tag.type_id] += len(tag.payload)


OnProgress = Callable[[Progress], None]


async def publish(
    url: RtmpUrl | str,
    tags: Iterable[Tag],
    *,
    speed: float | None = 1.0,
    options: ClientOptions = DEFAULT_CLIENT,
    fault: Fault = NO_FAULT,
    tls: ssl.SSLContext | None = None,
    on_progress: OnProgress | None = None,
) -> Progress:
    """Publish `tags`; `speed` None is as fast as the server reads. Raises Refused, but only before the first tag."""
    connection = await _streaming(url, PUBLISH, options, fault, tls)
    session = connection.session
    progress = Progress()
    try:
        start = time.monotonic()
        first: int | None = None
        for tag in fault.changed_tags(tags):
            first = tag.timestamp if first is None else first
            if speed is not None:
                due = start + (fault.due_ms(tag) - first) / 1000 / speed
                while (early := due - time.monotonic()) > 0 and session.step is Step.STREAMING:
                    await asyncio.sleep(min(early, 0.5))
                progress.behind_ms = int((time.monotonic() - due) * 1000)
            extra_s = fault.extra_delay_s(tag)
            if extra_s:
                await asyncio.sleep(extra_s)
            if session.step is not Step.STREAMING:
                progress.ended = session.refusal or "the server closed the connection"
                break
            session.send_tag(tag)
            connection.flush()
            await connection.drain()
            progress.count(tag)
            if on_progress is not None:
                on_progress(progress)
        return progress
    finally:
        await connection.close()


async def _streaming(
    url: RtmpUrl | str, role: str, options: ClientOptions, fault: Fault, tls: ssl.SSLContext | None
) -> ClientSocket:
    """A connection that publishes or plays. Raises Refused.

    go2rtc ignores a connect with an array in it, and pyrtmp closes the connection. A second attempt is made without
    the properties of enhanced RTMP."""
    session = ClientSession(parse_url(url) if isinstance(url, str) else url, role, os.urandom, options, fault)
    connection = await ClientSocket.open(session, tls)
    try:
        await connection.until_streaming()
    except BaseException as error:
        await connection.close()
        if isinstance(error, Refused) and session.connect_unanswered and options.enhanced and fault is NO_FAULT:
            return await _streaming(url, role, replace(options, enhanced=False), fault, tls)
        raise
    return connection


async def try_second_publisher(
    url: RtmpUrl | str, after_s: float = 0.5, options: ClientOptions = DEFAULT_CLIENT
) -> str:
    """Publish under a name that is in use. Returns the server's refusal, or "accepted"."""
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
    options: ClientOptions = DEFAULT_CLIENT,
    fault: Fault = NO_FAULT,
    tls: ssl.SSLContext | None = None,
    on_progress: OnProgress | None = None,
) -> Progress:
    """Play until the stream ends or `duration_s` has passed; calls `on_tag` with each tag. Raises Refused."""
    connection = await _streaming(url, PLAY, options, fault, tls)
    session = connection.session
    progress = Progress()
    deadline = None if duration_s is None else time.monotonic() + duration_s
    try:
        while True:
            ended = session.step is Step.ENDED
            for tag in session.take_tags():
                on_tag(tag)
                progress.count(tag)
            if on_progress is not None:
                on_progress(progress)
            left = 0.5 if deadline is None else deadline - time.monotonic()
            if ended or left <= 0:
                progress.ended = session.refusal
                return progress
            if session.step is Step.STREAMING:
                await connection.wait(min(left, 0.5))
    finally:
        await connection.close()


async def play_to_file(url: RtmpUrl | str, path: Path, **options: object) -> Progress:
    """Play into an FLV file; takes the options of `play`."""
    recorder = Recorder(path, replace=True)
    try:
        return await play(url, lambda tag: recorder.write(Frame(*tag)), **options)  # type: ignore[arg-type]
    finally:
        recorder.close()


async def play_to_pipe(url: RtmpUrl | str, out: BinaryIO, **options: object) -> Progress:
    """Play as FLV into a pipe; takes the options of `play`. Raises BrokenPipeError when the reader is gone."""
    pipe = FlvPipe(out)
    return await play(url, lambda tag: pipe.write(Frame(*tag)), **options)  # type: ignore[arg-type]
