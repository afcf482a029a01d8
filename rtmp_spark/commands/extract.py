"""`rtmp-spark extract`: a playable FLV of what was published or played, without Spark.

The server's view of the stream: message bodies as they were sent, `@setDataFrame` stripped, timestamps as sent.
Messages that lack bytes are left out and told. Tags go to temporary files as they are decoded, so that memory
does not grow with the stream.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from rtmp_spark.capture.conversation import Conversation
from rtmp_spark.capture.direction import MessageHook
from rtmp_spark.capture.recording import Recording
from rtmp_spark.capture.settings import Settings
from rtmp_spark.codec import flv
from rtmp_spark.codec.command import parse_command, without_set_data_frame
from rtmp_spark.codec.errors import UserError
from rtmp_spark.codec.events import COMPLETE, MessageReceived
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
from rtmp_spark.commands.harmless import harmless
from rtmp_spark.commands.output_file import output_path, whole_file
from rtmp_spark.commands.recording_options import (
    NO_RTMP,
    add_filter_arguments,
    add_path_argument,
    check_paths,
    exit_code,
    make_settings,
    tell_problems,
)

_BUFFER_BYTES = 1 << 20
_MOST_STARTS = 1000  # on one stream id; beyond them all is one stream
_LEFT_OUT_DATA = frozenset({"|RtmpSampleAccess", "@clearDataFrame", "onStatus"})  # for the peer, not of the stream


class Stream(NamedTuple):
    uid: str
    stream_id: int
    role: str
    name: str | None
    path: Path
    tags: int
    incomplete: int
    number: int = 1  # of the names that one stream id had

    @property
    def file_name(self) -> str:
        again = f"-{self.number}" if self.number > 1 else ""
        return f"{self.uid}-{self.stream_id}-{self.role}{again}.flv"


class FlvTrack:
    """The tags of one message stream in one direction, on their way to a temporary file."""

    def __init__(self, path: Path, announced: bool) -> None:
        self.path = path
        self.announced = announced  # by a publish or a start
        self.audio = self.video = False
        self.tags = self.incomplete = 0
        self._buffer = bytearray()

    def add(self, type_id: int, timestamp: int, payload: bytes) -> None:
        if type_id == AUDIO or type_id == VIDEO:
            if not payload:
                return  # silence between two talks; a file has no use for it
            self.audio |= type_id == AUDIO
            self.video |= type_id == VIDEO
            self.tags += 1
        self._buffer += flv.dump_tag(type_id, timestamp & 0xFFFFFFFF, payload)
        if len(self._buffer) > _BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        with self.path.open("ab") as file:
            file.write(self._buffer)
        self._buffer.clear()

    def append(self, other: FlvTrack) -> None:
        if other.path.exists():
            self.flush()
            with self.path.open("ab") as file, other.path.open("rb") as tags:
                shutil.copyfileobj(tags, file)
            other.path.unlink()
        self._buffer += other._buffer
        self.audio, self.video = self.audio or other.audio, self.video or other.video
        self.tags, self.incomplete = self.tags + other.tags, self.incomplete + other.incomplete

    def write_to(self, target: Path) -> None:
        with whole_file(target) as out:
            out.write(flv.header(self.audio, self.video))
            with self.path.open("rb") as tags:
                shutil.copyfileobj(tags, out)


class Extraction:
    """Collects the media of every connection; `streams` are those whose connection was RTMP and matches."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._directory = directory
        self._settings = settings
        self._tracks: dict[tuple[int, int, int], list[FlvTrack]] = {}  # connection, direction, stream id
        self.streams: list[tuple[Stream, FlvTrack]] = []
        self.cut = False  # media was there of which nothing can be written
        settings.hook = self._hook
        settings.closed = self._closed

    def _hook(self, conversation: Conversation, direction: int) -> MessageHook:
        number = conversation.connection.number

        def take(msg_no: int, event: MessageReceived, frame: int) -> None:
            type_id = event.type_id
            if type_id in OF_STREAMS:
                tracks = self._tracks.get((number, direction, event.stream_id))
                _add(tracks[-1] if tracks else self._begin(number, direction, event.stream_id, False), event)
            elif type_id in COMMANDS and _starts(type_id, event.payload):
                if len(self._tracks.get((number, direction, event.stream_id), ())) < _MOST_STARTS:
                    self._begin(number, direction, event.stream_id, True)

        return take

    def _begin(self, number: int, direction: int, stream_id: int, announced: bool) -> FlvTrack:
        tracks = self._tracks.setdefault((number, direction, stream_id), [])
        tracks.append(FlvTrack(self._directory / f"{number}-{direction}-{stream_id}-{len(tracks)}", announced))
        return tracks[-1]

    def _closed(self, conversation: Conversation) -> None:
        number = conversation.connection.number
        redactor, wanted, uid = self._settings.redactor, self._settings.stream, conversation.uid or ""
        for key in [key for key in self._tracks if key[0] == number]:
            role = "publish" if conversation.direction_name(key[1]) == "c2s" else "play"
            spans = [s for s in conversation.session.spans if s.role == role]
            names = [s.name for s in spans if key[2] in (s.stream_id, s.media_stream_id)]
            for place, (own, track) in enumerate(_apart(self._tracks.pop(key), names), 1):
                asked_for = wanted is None or any(redactor.matches(wanted, name) for name in own)
                if not track.tags or not asked_for:
                    self.cut |= asked_for and track.incomplete > 0
                    track.path.unlink(missing_ok=True)
                    continue
                track.flush()
                name = next((redactor.stream_name(name) for name in own if name is not None), None)
                stream = Stream(uid, key[2], role, name, track.path, track.tags, track.incomplete, place)
                self.streams.append((stream, track))


def _starts(type_id: int, payload: bytes) -> bool:
    """Whether another stream may begin on this id: what was sent so far had a name of its own."""
    if b"NetStream.Play.Start" in payload:
        return True
    if b"publish" not in payload[:12]:
        return False
    command = parse_command(type_id, payload)
    return command.name == "publish" and isinstance(command.arg(1), str)


def _apart(tracks: list[FlvTrack], names: list[str | None]) -> list[tuple[list[str | None], FlvTrack]]:
    """One track for each name; one for all where it cannot be told which start had which name."""
    if not tracks[0].announced and len(names) == len(tracks) - 1 and names:
        names = [names[0], *names]  # what was sent before the first start
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
            return  # pure AMF3 has no place in a file
        payload = payload[1:]
    if parse_command(DATA_AMF0, payload).name in _LEFT_OUT_DATA:
        return
    track.add(DATA_AMF0, timestamp, without_set_data_frame(payload))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_path_argument(parser)
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE.flv", help="a file for one stream, or a directory (DIR/) for all"
    )
    add_filter_arguments(parser)


def run(args: argparse.Namespace) -> int:
    paths = check_paths(args.paths)
    settings = make_settings(args)
    into_directory = args.output.endswith("/") or Path(args.output).is_dir()
    target = Path(args.output) if into_directory else output_path(args.output, paths)
    if into_directory:
        target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rtmp-spark-") as scratch:
        extraction = Extraction(Path(scratch), settings)
        recording = Recording(paths, settings, ("connections",))
        for _ in recording.batches():
            pass
        tell_problems(recording.files)
        code = exit_code(recording, args)
        found = sorted(
            extraction.streams, key=lambda pair: (pair[0].uid, pair[0].stream_id, pair[0].role, pair[0].number)
        )
        if not found:
            if not code:
                why = "none of its media is whole: bytes of every message are missing" if extraction.cut else "no media"
                print(f"rtmp-spark: there is RTMP in what was given, but {why}.", file=sys.stderr)
            return code or NO_RTMP
        if into_directory:
            for stream, track in found:
                track.write_to(target / stream.file_name)
                _tell(stream, str(target / stream.file_name))
        elif len(found) > 1:
            lines = "\n".join(f"  {_choice(s)}  ({s.role}, {s.tags} tags)" for s, _ in found)
            raise UserError(f"{len(found)} streams match:\n{lines}\n", "Choose one, or give a directory: -o DIR/")
        else:
            found[0][1].write_to(target)
            _tell(found[0][0], args.output)
        return code


def _choice(stream: Stream) -> str:
    """The options that choose it; a name may be any text, so it is quoted."""
    return f"--uid {stream.uid}" + (f" --stream {shlex.quote(stream.name)}" if stream.name else "")


def _tell(stream: Stream, target: str) -> None:
    left_out = f", {stream.incomplete} incomplete messages left out" if stream.incomplete else ""
    name = harmless(stream.name or "(name not recorded)")
    print(f"{target}: {stream.role} {name}, {stream.tags} tags{left_out}")
