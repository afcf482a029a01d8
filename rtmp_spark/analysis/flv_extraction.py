"""Collects published and played streams as FLV tags while a recording is analyzed.

The result is the stream as the server saw it: message bodies and timestamps as sent, `@setDataFrame` removed.
Incomplete messages are counted and left out. Tags go to temporary files, so memory does not grow with the stream.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

from rtmp_spark.analysis.connection_analysis import ConnectionAnalysis, ConnectionObserver
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.capture.tcp.tcp_connection import Connection
from rtmp_spark.codec import flv
from rtmp_spark.codec.command import parse_command, without_set_data_frame
from rtmp_spark.codec.events import COMPLETE, MessageReceived
from rtmp_spark.codec.limits import EXTRACT_SEARCHED_BYTES, EXTRACT_STARTS
from rtmp_spark.codec.message import (
    AGGREGATE,
    AUDIO,
    COMMANDS,
    DATA_AMF0,
    DATA_AMF3,
    OF_STREAMS,
    VIDEO,
    parse_aggregate,
)
from rtmp_spark.conversation.decoding.message_facts import MessageHook

_BUFFER_BYTES = 1 << 20
_KEPT_BYTES = 32 << 20  # of ended streams in memory: a capture can have thousands of streams with few tags each
_LEFT_OUT_DATA = frozenset(
    {"|RtmpSampleAccess", "@clearDataFrame", "onStatus"}
)  # addressed to the peer, not part of the stream


class ExtractedStream(NamedTuple):
    uid: str
    stream_id: int
    role: str
    name: str | None
    tags: int
    incomplete: int
    number: int = 1  # counts the names that were used on one stream id
    shows_secret: bool = False  # its metadata contains a secret that tables would hide

    @property
    def file_name(self) -> str:
        number = f"-{self.number}" if self.number > 1 else ""
        return f"{self.uid}-{self.stream_id}-{self.role}{number}.flv"


class FlvTrack:
    """The tags of one message stream in one direction, in a temporary file."""

    def __init__(self, path: Path, announced: bool) -> None:
        self.path = path
        self.announced = announced  # by publish or NetStream.Play.Start
        self.audio = self.video = False
        self.tags = self.incomplete = 0
        self.data = bytearray()  # the first data tags, to see whether they contain a secret
        self._buffer = bytearray()

    def add(self, type_id: int, timestamp: int, payload: bytes) -> None:
        if type_id == AUDIO or type_id == VIDEO:
            if not payload:
                return  # empty messages only keep the connection alive
            self.audio |= type_id == AUDIO
            self.video |= type_id == VIDEO
            self.tags += 1
        elif len(self.data) < EXTRACT_SEARCHED_BYTES:
            self.data += payload[:EXTRACT_SEARCHED_BYTES] + b"\0"
        self._buffer += flv.dump_tag(type_id, timestamp & 0xFFFFFFFF, payload)
        if len(self._buffer) > _BUFFER_BYTES:
            self.flush()

    @property
    def buffered_bytes(self) -> int:
        return len(self._buffer)

    def flush(self) -> None:
        with self.path.open("ab") as file:
            file.write(self._buffer)
        self._buffer.clear()

    def append(self, other: FlvTrack) -> None:
        """Move the tags of another track to the end of this one."""
        if other.path.exists():
            self.flush()
            with self.path.open("ab") as file, other.path.open("rb") as tags:
                shutil.copyfileobj(tags, file)
            other.path.unlink()
        self._buffer += other._buffer
        self.data += other.data[: max(EXTRACT_SEARCHED_BYTES - len(self.data), 0)]
        self.audio, self.video = self.audio or other.audio, self.video or other.video
        self.tags, self.incomplete = self.tags + other.tags, self.incomplete + other.incomplete

    def write_to(self, out: BinaryIO) -> None:
        """Write the header and all tags as an FLV file."""
        out.write(flv.header(self.audio, self.video))
        if self.path.exists():
            with self.path.open("rb") as tags:
                shutil.copyfileobj(tags, out)
        out.write(self._buffer)


_Tracks: TypeAlias = dict[tuple[int, int], list[FlvTrack]]  # by direction and stream id


class _Note(NamedTuple):
    streams: list[tuple[ExtractedStream, FlvTrack]]
    only_incomplete: bool


class FlvExtraction(ConnectionObserver):
    """Collects the media of every connection through the hooks of `settings`.

    `streams` holds the streams that have media and match the filters, once their connection is closed.
    """

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._directory = directory
        self._settings = settings
        self._tracks: dict[int, _Tracks] = {}  # by connection
        self._kept_bytes = 0
        self.streams: list[tuple[ExtractedStream, FlvTrack]] = []
        self.only_incomplete = False  # a stream had media messages, but all were incomplete
        settings.hook = self._hook

    def _hook(self, connection: Connection, direction: int) -> MessageHook:
        number = connection.number

        def take(msg_no: int, event: MessageReceived, frame: int) -> None:
            type_id = event.type_id
            if type_id in OF_STREAMS:
                tracks = self._started(number, direction, event.stream_id)
                if not tracks:
                    self._begin(number, direction, event.stream_id, False)
                _add(tracks[-1], event)
            elif type_id in COMMANDS and _starts_stream(type_id, event.payload):
                if len(self._started(number, direction, event.stream_id)) < EXTRACT_STARTS:
                    self._begin(number, direction, event.stream_id, True)

        return take

    def _started(self, number: int, direction: int, stream_id: int) -> list[FlvTrack]:
        return self._tracks.setdefault(number, {}).setdefault((direction, stream_id), [])

    def _begin(self, number: int, direction: int, stream_id: int, announced: bool) -> None:
        tracks = self._started(number, direction, stream_id)
        name = f"{os.getpid()}-{number}-{direction}-{stream_id}-{len(tracks)}"
        tracks.append(FlvTrack(self._directory / name, announced))

    def note(self, connection: ConnectionAnalysis) -> _Note:
        found = _Note([], False)
        redactor, wanted, uid = self._settings.redactor, self._settings.filter.stream, connection.uid
        names: dict[tuple[str, int], list[str | None]] = {}  # by role and stream id
        for span in connection.session.spans:
            for stream_id in {span.stream_id, span.media_stream_id}:
                names.setdefault((span.role, stream_id), []).append(span.name)
        for (direction, stream_id), tracks in self._tracks.pop(connection.connection.number, {}).items():
            role = "publish" if connection.direction_name(direction) == "c2s" else "play"
            for place, (own, track) in enumerate(_tracks_by_name(tracks, names.get((role, stream_id), [])), 1):
                asked_for = wanted is None or any(redactor.matches(wanted, name) for name in own)
                if not track.tags or not asked_for:
                    found = found._replace(
                        only_incomplete=found.only_incomplete or (asked_for and track.incomplete > 0)
                    )
                    track.path.unlink(missing_ok=True)
                    continue
                self._keep(track)
                name = next((redactor.stream_name(name) for name in own if name is not None), None)
                shows = connection.secrets.is_known_in(track.data)
                stream = ExtractedStream(uid, stream_id, role, name, track.tags, track.incomplete, place, shows)
                found.streams.append((stream, track))
        return found

    def _keep(self, track: FlvTrack) -> None:
        if self._kept_bytes + track.buffered_bytes > _KEPT_BYTES:
            track.flush()
        self._kept_bytes += track.buffered_bytes

    def noted(self, note: object) -> None:
        assert isinstance(note, _Note)
        self.streams += note.streams
        self.only_incomplete |= note.only_incomplete


def _starts_stream(type_id: int, payload: bytes) -> bool:
    """True if the command may begin another stream, with another name, on the same stream id."""
    if b"NetStream.Play.Start" in payload:
        return True
    if b"publish" not in payload[:12]:
        return False
    command = parse_command(type_id, payload)
    return command.name == "publish" and isinstance(command.arg(1), str)


def _tracks_by_name(tracks: list[FlvTrack], names: list[str | None]) -> list[tuple[list[str | None], FlvTrack]]:
    """One track per name, or a single track if names and starts cannot be matched."""
    if not tracks[0].announced and len(names) == len(tracks) - 1 and names:
        names = [names[0], *names]  # media before the first start
    if len(names) != len(tracks):
        names, known = [None] * len(tracks), names
    else:
        known = []
    joined: dict[str | None, FlvTrack] = {}
    for name, track in zip(names, tracks):
        if name in joined:
            joined[name].append(track)
        else:
            joined[name] = track
    return [(known or [name], track) for name, track in joined.items()]


def _add(track: FlvTrack, event: MessageReceived) -> None:
    type_id, payload = event.type_id, event.payload
    if event.status != COMPLETE:
        track.incomplete += 1
    elif type_id == AUDIO or type_id == VIDEO:
        track.add(type_id, event.timestamp, payload)
    elif type_id == AGGREGATE:
        for part in parse_aggregate(payload, event.timestamp).parts:
            if part.type_id in (AUDIO, VIDEO):
                track.add(part.type_id, part.timestamp, part.payload)
            elif part.type_id == DATA_AMF0:
                _add_data(track, DATA_AMF0, part.timestamp, part.payload)
    else:
        _add_data(track, type_id, event.timestamp, payload)


def _add_data(track: FlvTrack, type_id: int, timestamp: int, payload: bytes) -> None:
    if type_id == DATA_AMF3:
        if payload[:1] != b"\0":
            return  # FLV has no AMF3 data without AMF0
        payload = payload[1:]
    if parse_command(DATA_AMF0, payload).name in _LEFT_OUT_DATA:
        return
    track.add(DATA_AMF0, timestamp, without_set_data_frame(payload))
