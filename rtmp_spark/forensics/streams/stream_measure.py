"""Measures one published or played stream frame by frame, and reports single frames that break a rule.

Only coded frames are measured, per track. A frame is not compared with the previous one across a seek, a pause or
missing data. Rules that need the whole stream are applied at the end (keyframe_interval.py, stream_verdict.py,
declared_media.py). Every frame passes through `add`, so it and `_add_frame` are written for speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final, TypedDict

from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.json_value import SavedFields
from rtmp_spark.codec.limits import IGNORED_TIMESTAMPS, KEPT_PAUSES, MEASURED_TRACKS
from rtmp_spark.conversation.facts import SENDER, Row
from rtmp_spark.conversation.media_row import (
    CHANNELS,
    CODEC,
    CTS,
    DTS,
    ENHANCED,
    FRAME,
    FRAME_TYPE,
    HEIGHT,
    IS_CONFIG,
    IS_KEY,
    KIND,
    MSG_NO,
    PACKET_TYPE,
    SAMPLE_RATE,
    SIZE,
    TRACK_ID,
    TS,
    WIDTH,
)
from rtmp_spark.forensics.findings import Finding, SavedFinding
from rtmp_spark.forensics.position import Position, frame_with_file
from rtmp_spark.forensics.streams.av_drift import Drift
from rtmp_spark.forensics.streams.pace import PacedTrack, stream_pace
from rtmp_spark.forensics.streams.stalls import Received, Stall, Stalls, StallsState, TrackStall
from rtmp_spark.forensics.streams.timestamp_rules import crossed_boundaries, jump
from rtmp_spark.forensics.streams.track import Gop, Track
from rtmp_spark.forensics.thresholds import (
    BUFFERED_MS,
    JUMP_KNOWN_STEPS,
    JUMP_MS,
    STALL_CAUSE_SHARE,
    STALL_STEPS,
    STALL_US,
    TRACK_STALL_STEPS,
    TRACK_STALL_US,
)

_PAUSING_CODECS: Final = ("speex", "Opus", "nellymoser")  # audio that is not sent during silence


class Declared(TypedDict, total=False):
    """What onMetaData declares, by the name of the measured column, and the message that declares it."""

    msg_no: int
    frame: int
    ts: int
    width: int
    height: int
    fps: float
    video_bitrate: float
    audio_bitrate: float
    sample_rate: int
    channels: int
    video_codec: str
    audio_codec: str


class MeasureState(TypedDict):
    where: SavedFields  # direction, stream id, start known, recorded, gaps
    tracks: list[SavedFields]  # kind, id, state
    declared: Declared
    drift: list[object]
    stalls: StallsState
    first: SavedFields  # first coded frame, whether it is a key frame, origin
    asked: list[int]
    lagging: list[int]
    received: SavedFields  # frames, bytes, us
    last: SavedFields  # in the order of `StreamMeasure.state`
    found: list[SavedFinding]


class StreamMeasure:
    """`start_known`: the start of the stream was captured; `recorded`: the server announced that it plays a file;
    `found`: findings that were not yet taken."""

    __slots__ = (
        "_closed_us", "_crossed", "_held_back_for", "_ignored", "_lagging", "_last_ts", "_main", "_paced", "_pauses",
        "_received_bytes", "_received_frames", "_received_us", "_suspended", "asked", "declared", "direction", "drift",
        "first_coded", "first_is_key", "found", "gaps", "origin", "recorded", "stalls", "start_known", "stream_id",
        "tracks",
    )  # fmt: skip

    def __init__(self, direction: str, stream_id: int, start_known: bool) -> None:
        self.direction = direction
        self.stream_id = stream_id
        self.start_known = start_known
        self.recorded = False
        self.gaps = 0
        self.tracks: dict[tuple[str, int], Track] = {}
        self._main: dict[str, Track] = {}  # the tracks with id 0, by kind
        self.declared: Declared = {}
        self.drift = Drift()
        self.stalls = Stalls()
        self._closed_us = 0  # when the receiver closed, at the end; 0 if it did not
        self._paced: list[PacedTrack] | None = None  # at the end
        self.first_coded: int | None = None
        self.asked: list[int] = []  # msg_no and packet of the publish or play command
        self.first_is_key: bool | None = None
        self.origin: tuple[int, int] | None = None  # ts and dts of the frame that delivery is measured from
        self.found: list[Finding] = []
        self._last_ts: int | None = None  # of the previous coded frame of any track
        self._received_frames = self._received_bytes = self._received_us = 0
        self._pauses: list[tuple[int, int]] = []  # latest times (from, to) in which no track had a frame
        self._suspended = False
        self._held_back_for = ""  # the kind of track that its sender interleaves the other one with
        self._crossed: list[int] = []  # bits of the field boundaries already reported
        self._ignored: list[int] = []  # messages whose timestamp is known to be wrong
        self._lagging: set[int] = set()  # csids that lost timestamp deltas: audio and video cannot be compared

    # -- interruptions ----------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Do not compare the next frames with the previous ones."""
        for track in self.tracks.values():
            track.interrupt()
        self.stalls.interrupt()
        self._last_ts = self.origin = None

    def suspend(self) -> None:
        """Stop comparing frames: the client requested a seek or pause, and until the server answers, frames from before
        and after it may be mixed."""
        self.interrupt()
        self.drift.clear()
        self._suspended = True

    def restart(self) -> None:
        """Compare frames again from the next one on: the server answered, or a new part of the stream begins."""
        self.end()
        self.interrupt()
        self._suspended = False

    def gap(self, count: int) -> None:
        """Data of this stream is missing from the capture, `count` times so far."""
        self.gaps = count
        if self.first_is_key is None:
            self.start_known = False
        self.interrupt()

    def lag(self, csid: int, over: bool) -> None:
        """Timestamps of a csid lag after lost deltas, until an absolute timestamp corrects them (`over`); that
        correction is not a jump."""
        if over:
            self._lagging.discard(csid)
            self.interrupt()
        else:
            self._lagging.add(csid)

    def ignore_timestamp(self, msg_no: int) -> None:
        """Do not compare the frames of this message: its wrong timestamp is already reported."""
        self._ignored = [*self._ignored[1 - IGNORED_TIMESTAMPS :], msg_no]

    # -- frames -----------------------------------------------------------------------------------------------

    def _track(self, kind: str, track_id: int) -> Track:
        key = (kind, track_id)
        track = self.tracks.get(key)
        if track is None:
            if len(self.tracks) >= MEASURED_TRACKS:
                key = (kind, -1)
                track = self.tracks.get(key)
            if track is None:
                track = self.tracks[key] = Track(kind)
                if track_id == 0:
                    self._main[kind] = track
        return track

    def add(self, rows: Sequence[Row], known_at: Sequence[int]) -> None:
        """Measure rows of `media_tags` of this stream, in order; `known_at[i]` is the packet that made row i known."""
        main = self._main
        for index, row in enumerate(rows):
            kind = row[KIND]
            track = main.get(kind) if row[TRACK_ID] == 0 else None
            if track is None:
                track = self._track(kind, row[TRACK_ID])
                if track.place is None:
                    track.place = Position(row[MSG_NO], frame_with_file(row[FRAME], known_at[index]), row[TS])
            if row[PACKET_TYPE] != "frame" or not row[SIZE]:
                if row[IS_CONFIG]:
                    track.configs += 1
                    track.codec = row[CODEC] or track.codec
                elif row[PACKET_TYPE] == "end":
                    track.over_ts = row[TS]
                continue
            self._add_frame(track, row, known_at[index])

    def _add_frame(self, track: Track, row: Row, at: int) -> None:
        kind, ts, dts = row[KIND], row[TS], row[DTS]
        ignored = bool(self._ignored) and row[MSG_NO] in self._ignored
        track.frames += 1
        track.bytes += row[SIZE]
        if row[CODEC] != track.codec:
            track.codec = row[CODEC]
        if kind == "video":
            if row[WIDTH] != track.width or row[HEIGHT] != track.height:
                track.set_size(row[WIDTH], row[HEIGHT])
            if self.first_is_key is None and track.frames == 1 and row[FRAME_TYPE] is not None:
                self._first_video_frame(row, at)
            cts = row[CTS]
            if cts is not None and cts < 0:
                self._report(
                    ViolationCode.TIME_PTS_BEFORE_DTS, f"composition time of {cts} ms", row, at,
                    expected="a presentation time at or after the decoding time",
                )  # fmt: skip
            audio = self._main.get("audio")
            if audio is not None and audio.dts is not None and not self._lagging and not ignored:
                self.drift.add(dts, audio.dts - dts)
        elif row[SAMPLE_RATE] != track.sample_rate:
            track.set_sample_rate(row[SAMPLE_RATE])
            track.channels = row[CHANNELS]
        if self._suspended:
            return
        if ignored:
            track.interrupt()
            self._last_ts = ts
            return
        before = track.dts
        if before is not None:
            step = dts - before
            if step < 0:
                self._report(
                    ViolationCode.TIME_BACKWARDS, f"{kind} timestamps go back by {-step} ms", row,
                    at, expected="timestamps that never decrease",
                )  # fmt: skip
                if step < -JUMP_MS:
                    track.pace.cut()
            else:
                if step > JUMP_MS:
                    self._check_jump(track, step, row, at)
                track.elapsed += step
                track.steps.add(step)
                if dts >> 24 != before >> 24:
                    self._check_wrap(before, dts, row, at)
        else:
            self._begin(track, row)
        place = row[MSG_NO], row[FRAME], at
        if not self._lagging or dts != before:  # equal ones may only repeat a delta that was lost
            track.pace.add(ts, dts, place)
        last = self._last_ts
        if last is not None:
            if ts - last >= STALL_US:
                self._pauses = [*self._pauses[1 - KEPT_PAUSES :], (last, ts)]
                self._check_stall(track, last, row, at)
            else:
                if before is not None and ts - track.ts >= TRACK_STALL_US:
                    self._check_track_stall(track, row, at)
                if self.stalls.watched is not None:
                    self._follow_stall(track, row)
            self._received_us += ts - last
        self._received_frames += 1
        self._received_bytes += row[SIZE]
        if row[IS_KEY]:
            self._keyframe(track, row, at)
        track.dts, track.ts = dts, ts
        track.last = place
        self._last_ts = ts

    def _begin(self, track: Track, row: Row) -> None:
        if track.first_dts is None:
            track.first_dts = row[DTS]
            track.enhanced = row[ENHANCED]
        if self.first_coded is None:
            self.first_coded = row[TS]
        if self.origin is None:
            self.origin = (row[TS], row[DTS])

    def _first_video_frame(self, row: Row, at: int) -> None:
        self.first_is_key = bool(row[IS_KEY])
        if self.first_is_key or not self.start_known:
            return
        who = "published" if self.direction == "c2s" else "that the player receives"
        self.found.append(
            self._finding(
                ViolationCode.MEDIA_START_NOT_KEY, f"the first video frame {who} is not a keyframe", row, at,
                at_fault=SENDER[self.direction], expected="a keyframe",
            )
        )  # fmt: skip

    def _keyframe(self, track: Track, row: Row, at: int) -> None:
        track.keys += 1
        dts = row[DTS]
        if track.key_dts is not None and dts > track.key_dts:
            gap = dts - track.key_dts
            track.key_gaps.add(gap)
            if gap > track.longest_gop.length_ms:
                track.longest_gop = Gop(gap, row[MSG_NO], frame_with_file(row[FRAME], at), row[TS])
        track.key_dts = dts

    def _check_jump(self, track: Track, step: int, row: Row, at: int) -> None:
        found = jump(track, step, row[TS])
        if found is None:
            if track.steps.total < JUMP_KNOWN_STEPS and step - (row[TS] - track.ts) // 1000 > JUMP_MS:
                track.pace.cut()  # the first timestamps of a stream may be of another clock
            return
        track.pace.cut()
        track.key_dts = None  # a keyframe interval across a jump means nothing
        self._report(
            ViolationCode.TIME_JUMP, f"{track.kind} timestamps jump by {step} ms within {found.arrival_ms} ms", row, at,
            expected=f"steps of about {found.usual_ms:.0f} ms", actual=f"{step} ms",
        )  # fmt: skip

    def _check_wrap(self, before: int, dts: int, row: Row, at: int) -> None:
        for boundary in crossed_boundaries(before, dts):
            if boundary.bits not in self._crossed:
                self._crossed.append(boundary.bits)
                self._report(ViolationCode.TIME_WRAP, f"timestamps pass {boundary.text} and continue", row, at)

    def _check_stall(self, track: Track, last: int, row: Row, at: int) -> None:
        ts, dts = row[TS], row[DTS]
        length_ms = (ts - last) // 1000
        step = self._usual_step_ms()
        if step is not None and step < inf and length_ms <= STALL_STEPS * step:
            return
        if self.origin is not None:
            origin_ts, origin_dts = self.origin
            delivered_ms = max(one.dts or 0 for one in self.tracks.values()) - origin_dts
            ahead_ms = delivered_ms - (last - origin_ts) // 1000
            if ahead_ms > max(BUFFERED_MS, length_ms) or self.recorded and ahead_ms > length_ms:
                return
        before = track.dts if track.dts is not None else dts
        frame = frame_with_file(row[FRAME], at)
        received = Received(self._received_frames, self._received_bytes, self._received_us)
        self.stalls.begin(Stall(last, ts, dts - before, dts, row[MSG_NO], frame, received))

    def _follow_stall(self, track: Track, row: Row) -> None:
        """A frame after a stall may show its cause, or that there was none."""
        self.stalls.follow(row[TS], row[DTS])
        stall = self.stalls.watched
        if stall is not None and track.dts is not None:
            stall.note_interval(track.kind, track.ts, row[TS], row[DTS] - track.dts)
            if stall.on_time is not None and self._waited_for_slow_track(stall):
                self.stalls.forget(lambda one: one is stall)

    def _waited_for_slow_track(self, stall: Stall) -> bool:
        """A sender that interleaves audio with slides holds the audio back until the next slide. Before the first and
        after the last slide nothing shows this, except that it did so with the others."""
        kind = stall.on_time or ("" if stall.delayed else self._held_back_for)
        track = self._main.get(kind)
        step = None if track is None else track.usual_step_ms()
        if step is None or stall.length_us > STALL_STEPS * 1000 * step or not stall.is_caught_up:
            return False
        self._held_back_for = kind
        return True

    def _usual_step_ms(self) -> float | None:
        """The frame interval of the track that has the shortest."""
        return min((step for one in self.tracks.values() if (step := one.usual_step_ms()) is not None), default=None)

    def _forget_long_intervals(self) -> None:
        """Stalls that the intervals of the whole stream show to be usual, as those of a variable frame rate."""
        step = self._usual_step_ms() or 0.0
        variable = bool(self.tracks) and all(one.is_variable for one in self.tracks.values() if one.steps.total)

        def is_usual(stall: Stall) -> bool:
            on_time = variable and stall.leap_ms * 1000 >= stall.length_us * STALL_CAUSE_SHARE
            return on_time or self._waited_for_slow_track(stall) or stall.length_us <= STALL_STEPS * 1000 * step

        self.stalls.forget(is_usual)

    def _silence_us(self, track: Track, until: int) -> int:
        """How long a regular track has been silent while the other one was not; 0 if too short to be a stall."""
        step = track.regular_step_ms()
        if step is None or track is not self._main.get(track.kind) or (track.codec or "").startswith(_PAUSING_CODECS):
            return 0
        if 0 <= track.over_ts - track.ts < TRACK_STALL_US:  # the sender announced the end of the sequence
            return 0
        since = track.ts
        alone = until - since - sum(max(min(end, until) - max(begin, since), 0) for begin, end in self._pauses)
        return alone if alone >= max(TRACK_STALL_US, TRACK_STALL_STEPS * 1000 * step) else 0

    def _check_track_stall(self, track: Track, row: Row, at: int) -> None:
        length = self._silence_us(track, row[TS])
        if length:
            frame = frame_with_file(row[FRAME], at)
            self.stalls.begin_track(TrackStall(track.kind, length, False, row[TS], row[MSG_NO], frame))

    def close(self, receiver_closed_us: int) -> None:
        """The connection is over; `receiver_closed_us` is when the receiver of the media closed it, 0 if it did not.
        Frames after that do not count in rules of time: servers flush their queues then."""
        self._closed_us = receiver_closed_us
        if receiver_closed_us and self.stalls.kept:
            late = self.stalls.forget(lambda stall: stall.ts_after >= receiver_closed_us)
            if late is not None:
                self._received_frames, self._received_bytes, self._received_us = late.received
        if self.stalls.kept:
            self._forget_long_intervals()
        self.end()
        self._paced = self._judged_tracks()

    def end(self) -> None:
        """Check whether one track ended long before the other: no more frames of this part of the stream will come."""
        video, audio = self._main.get("video"), self._main.get("audio")
        if video is None or audio is None or video.dts is None or audio.dts is None or self.recorded:
            return
        first, last = (video, audio) if video.ts < audio.ts else (audio, video)
        length = self._silence_us(first, last.ts)
        if length and (last.dts or 0) - (first.dts or 0) >= length // 2000:
            msg_no, frame, known_at = first.last
            stall = TrackStall(first.kind, length, True, first.ts, msg_no, frame_with_file(frame, known_at))
            self.stalls.begin_track(stall)

    # -- results ------------------------------------------------------------------------------------------------

    @property
    def video(self) -> Track | None:
        """The first video track with frames or a configuration."""
        return self._first("video")

    @property
    def audio(self) -> Track | None:
        """The first audio track with frames or a configuration."""
        return self._first("audio")

    def _first(self, kind: str) -> Track | None:
        track = self._main.get(kind)
        if len(self._main) == len(self.tracks):  # the usual case: one track per kind
            return track if track is not None and (track.frames or track.configs) else None
        return next((t for (k, _), t in sorted(self.tracks.items()) if k == kind and (t.frames or t.configs)), None)

    def paced_tracks(self) -> list[PacedTrack]:
        """The main audio and video, or the first tracks there are."""
        return self._judged_tracks() if self._paced is None else self._paced

    def _judged_tracks(self) -> list[PacedTrack]:
        judged = []
        for track in (self.video, self.audio):
            if track is not None:
                paced = track.pace.paced(self._closed_us)
                judged.append(paced._replace(step_ms=track.usual_step_ms() or 0.0) if paced.parts else paced)
        return judged

    def pace(self) -> float | None:
        """Media time over wall time."""
        return stream_pace(self.paced_tracks())

    def received_bitrate(self) -> float | None:
        """Bits of coded frames per second of wall time."""
        count = self._received_frames  # the last frame has no duration, as in Track.bitrate
        return self._received_bytes * 8e6 * (count - 1) / count / self._received_us if self._received_us > 0 else None

    @property
    def has_frames(self) -> bool:
        return any(track.frames for track in self.tracks.values())

    def frames(self, kind: str) -> int:
        return sum(track.frames for (k, _), track in self.tracks.items() if k == kind)

    @property
    def author(self) -> str | None:
        """Who produced the media; None if a server may only forward it."""
        return SENDER[self.direction] if self.direction == "c2s" or self.recorded else None

    def _report(self, code: ViolationCode, detail: str, row: Row, at: int, **words: str) -> None:
        self.found.append(self._finding(code, detail, row, at, at_fault=self.author, **words))

    def _finding(self, code: ViolationCode, detail: str, row: Row, at: int, **words: str | None) -> Finding:
        return Finding(
            code, detail, None, words.get("at_fault"), self.direction, self.stream_id, row[MSG_NO],
            frame_with_file(row[FRAME], at), row[TS], 1, words.get("expected"), words.get("actual"),
        )  # fmt: skip

    # -- state --------------------------------------------------------------------------------------------------

    def state(self) -> MeasureState:
        return {
            "where": (self.direction, self.stream_id, self.start_known, self.recorded, self.gaps),
            "tracks": [(*key, track.state()) for key, track in self.tracks.items()],
            "declared": self.declared,
            "drift": self.drift.state(),
            "stalls": self.stalls.state(),
            "first": (self.first_coded, self.first_is_key, self.origin),
            "asked": self.asked,
            "lagging": sorted(self._lagging),
            "received": (self._received_frames, self._received_bytes, self._received_us),
            "last": (self._last_ts, self._suspended, self._crossed, self._ignored, self._pauses, self._held_back_for),
            "found": [finding.plain() for finding in self.found],
        }

    @classmethod
    def resume(cls, state: MeasureState) -> StreamMeasure:
        direction, stream_id, start_known, recorded, gaps = state["where"]
        own = cls(direction, stream_id, start_known)
        own.recorded, own.gaps = recorded, gaps
        for kind, track_id, track in state["tracks"]:
            own.tracks[kind, track_id] = Track.resume(track)
            if track_id == 0:
                own._main[kind] = own.tracks[kind, track_id]
        own.declared = {**state["declared"]}
        own.drift = Drift.resume(state["drift"])
        own.stalls = Stalls.resume(state["stalls"])
        own.first_coded, own.first_is_key, origin = state["first"]
        own.origin = None if origin is None else (origin[0], origin[1])
        own.asked = list(state["asked"])
        own._lagging = set(state["lagging"])
        own._received_frames, own._received_bytes, own._received_us = state["received"]
        own._last_ts, own._suspended, own._crossed, own._ignored, pauses, own._held_back_for = state["last"]
        own._pauses = [(begin, end) for begin, end in pauses]
        own.found = [Finding.from_plain(finding) for finding in state["found"]]
        return own
