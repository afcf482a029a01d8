"""One published or played stream, measured frame by frame: the fold behind `streams` and the rules of time.

It looks at coded frames only, per track, and forgets the frame before wherever the two may not be compared: a seek, a
pause, a hole in the recording. What is wrong with single frames is reported at once, what only the whole stream shows
is asked for at the end (streams.py, declared.py). Its state is a value. Every frame passes here: the loop is plain on
purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rtmp_spark.capture.facts import FRAME_BITS, Row
from rtmp_spark.capture.findings import SENDER, Finding
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.forensics.drift import Drift
from rtmp_spark.forensics.media_row import (
    CHANNELS,
    CODEC,
    CTS,
    DTS,
    ENHANCED,
    FRAME,
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
from rtmp_spark.forensics.stalls import STALL_US, TRACK_STALL_US, Stall, Stalls, TrackStall
from rtmp_spark.forensics.track import Track

_JUMP_MS = 1000
_BUFFERED_MS = 5000  # media delivered this far ahead of time is a file played out, whose pauses starve nobody
_WRAP_STEP_MS = 60_000
_GOP_INFO_MS, _GOP_WARNING_MS = 4000, 10_000
_MOST_TRACKS = 64
_MOST_EXCUSED = 256
_MOST_PAUSES = 16
_MAY_PAUSE = ("speex", "Opus", "nellymoser")  # sound that is not sent in silence
_BOUNDARIES = ((24, "2^24 ms (4 h 39 min)"), (31, "2^31 ms (24.8 days)"), (32, "2^32 ms (49.7 days)"))


class StreamMeasure:
    """`start_known`: the recording shows how the stream began; `recorded`: the server said it plays a file."""

    __slots__ = (
        "_crossed", "_excused", "_lagging", "_last_ts", "_pauses", "_suspended", "_zero", "asked", "declared",
        "direction", "drift", "first_coded", "first_is_key", "found", "gaps", "origin", "recorded", "stalls",
        "start_known", "stream_id", "tracks",
    )  # fmt: skip

    def __init__(self, direction: str, stream_id: int, start_known: bool) -> None:
        self.direction = direction
        self.stream_id = stream_id
        self.start_known = start_known
        self.recorded = False
        self.gaps = 0
        self.tracks: dict[tuple[str, int], Track] = {}
        self._zero: dict[str, Track] = {}  # the tracks with id 0, by kind
        self.declared: dict[str, Any] = {}
        self.drift = Drift()
        self.stalls = Stalls()
        self.first_coded: int | None = None
        self.asked: list[int] = []  # message and packet of the command that began it
        self.first_is_key: bool | None = None
        self.origin: tuple[int, int] | None = None  # time and dts of the frame that delivery is measured from
        self.found: list[Finding] = []
        self._last_ts: int | None = None  # of the coded frame before, whatever its track
        self._pauses: list[list[int]] = []  # the last times in which no track had a frame: from, to
        self._suspended = False
        self._crossed: list[int] = []
        self._excused: list[int] = []  # messages whose times mean nothing
        self._lagging: set[int] = set()  # csids that lost differences of time: sound and picture cannot be compared

    # -- what interrupts it -----------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """The next frames may not be compared with those before."""
        for track in self.tracks.values():
            track.interrupt()
        self.stalls.interrupt()
        self._last_ts = self.origin = None

    def suspend(self) -> None:
        """A seek or pause was asked for; until it is answered old and new frames may be mixed."""
        self.interrupt()
        self.drift.clear()
        self._suspended = True

    def go_on(self) -> None:
        self.end()
        self.interrupt()
        self._suspended = False

    def gap(self) -> None:
        self.gaps += 1
        if self.first_is_key is None:
            self.start_known = False
        self.interrupt()

    def lag(self, csid: int, over: bool) -> None:
        """Behind a loss the times of a csid lag, until one is said in full: that step proves nothing."""
        if over:
            self._lagging.discard(csid)
            self.interrupt()
        else:
            self._lagging.add(csid)

    def excuse(self, msg_no: int) -> None:
        """The time of this message is known to be wrong, and told: its frames are not compared with others."""
        self._excused = [*self._excused[1 - _MOST_EXCUSED :], msg_no]

    # -- frames -----------------------------------------------------------------------------------------------

    def _track(self, kind: str, track_id: int) -> Track:
        key = (kind, track_id)
        track = self.tracks.get(key)
        if track is None:
            if len(self.tracks) >= _MOST_TRACKS:
                key = (kind, -1)
                track = self.tracks.get(key)
            if track is None:
                track = self.tracks[key] = Track(kind)
                if track_id == 0:
                    self._zero[kind] = track
        return track

    def add(self, rows: Sequence[Row], known_at: Sequence[int]) -> None:
        """Media rows of this stream in their order, and the packets that made them known."""
        zero = self._zero
        for index, row in enumerate(rows):
            kind = row[KIND]
            track = zero.get(kind) if row[TRACK_ID] == 0 else None
            if track is None:
                track = self._track(kind, row[TRACK_ID])
                if track.place is None:
                    track.place = [row[MSG_NO], _place(row, known_at[index]), row[TS]]
            if row[PACKET_TYPE] != "frame" or not row[SIZE]:
                if row[IS_CONFIG]:
                    track.configs += 1
                    track.codec = row[CODEC] or track.codec
                elif row[PACKET_TYPE] == "end":
                    track.over_ts = row[TS]
                continue
            size, ts, dts = row[SIZE], row[TS], row[DTS]
            excused = bool(self._excused) and row[MSG_NO] in self._excused
            track.frames += 1
            track.bytes += size
            if row[CODEC] != track.codec:
                track.codec = row[CODEC]
            if kind == "video":
                if row[WIDTH] != track.width or row[HEIGHT] != track.height:
                    track.see_size(row[WIDTH], row[HEIGHT])
                if self.first_is_key is None:
                    self._first_picture(row, known_at[index])
                cts = row[CTS]
                if cts is not None and cts < 0:
                    self._report(
                        ViolationCode.TIME_PTS_BEFORE_DTS, f"a composition time of {cts} ms", row, known_at[index],
                        expected="a presentation time at or after the decoding time",
                    )  # fmt: skip
                sound = zero.get("audio")
                if sound is not None and sound.dts is not None and not self._lagging and not excused:
                    self.drift.add(dts, sound.dts - dts)
            elif row[SAMPLE_RATE] != track.sample_rate:
                track.see_rate(row[SAMPLE_RATE])
                track.channels = row[CHANNELS]
            if self._suspended:
                continue
            if excused:
                track.interrupt()
                self._last_ts = ts
                continue
            before = track.dts
            if before is not None:
                step = dts - before
                if step < 0:
                    self._report(
                        ViolationCode.TIME_BACKWARDS, f"{kind} goes back by {-step} ms", row, known_at[index],
                        expected="decoding times that do not go back",
                    )  # fmt: skip
                else:
                    if step > _JUMP_MS:
                        self._maybe_jump(track, step, row, known_at[index])
                    track.elapsed += step
                    track.steps.add(step)
                    if dts >> 24 != before >> 24:
                        self._maybe_wrap(before, dts, row, known_at[index])
            else:
                self._begin(track, row)
            last = self._last_ts
            if last is not None:
                if ts - last >= STALL_US:
                    self._pauses = [*self._pauses[1 - _MOST_PAUSES :], [last, ts]]
                    self._maybe_stall(track, last, row, known_at[index])
                elif before is not None and ts - track.ts >= TRACK_STALL_US:
                    self._maybe_track_stall(track, row, known_at[index])
                elif self.stalls.watched is not None:
                    self.stalls.follow(ts, dts)
            if row[IS_KEY]:
                self._key(track, row, known_at[index])
            track.dts, track.ts = dts, ts
            track.last = row[MSG_NO], row[FRAME], known_at[index]
            self._last_ts = ts

    def _begin(self, track: Track, row: Row) -> None:
        if track.first_dts is None:
            track.first_dts = row[DTS]
            track.enhanced = row[ENHANCED]
        if self.first_coded is None:
            self.first_coded = row[TS]
        if self.origin is None:
            self.origin = (row[TS], row[DTS])

    def _first_picture(self, row: Row, at: int) -> None:
        self.first_is_key = bool(row[IS_KEY])
        if self.first_is_key or not self.start_known:
            return
        who = "a publisher sends" if self.direction == "c2s" else "the player gets"
        self.found.append(
            self._finding(
                ViolationCode.MEDIA_START_NOT_KEY, f"the first picture that {who} is no keyframe", row, at,
                at_fault=SENDER[self.direction], expected="a keyframe",
            )
        )  # fmt: skip

    def _key(self, track: Track, row: Row, at: int) -> None:
        track.keys += 1
        dts = row[DTS]
        if track.key_dts is not None and dts > track.key_dts:
            gap = dts - track.key_dts
            track.key_gaps.add(gap)
            if gap > track.longest_gop[0]:
                track.longest_gop = [gap, row[MSG_NO], _place(row, at), row[TS]]
        track.key_dts = dts

    def _maybe_jump(self, track: Track, step: int, row: Row, at: int) -> None:
        usual = track.step_ms()
        ahead = step - (row[TS] - track.ts) // 1000
        if usual is None or track.steps.total < 3 or ahead <= _JUMP_MS or step <= 3 * usual:
            return
        track.key_dts = None  # the distance of keyframes across a leap is none
        self._report(
            ViolationCode.TIME_JUMP, f"{track.kind} leaps by {step} ms within {step - ahead} ms", row, at,
            expected=f"steps of about {usual:.0f} ms", actual=f"{step} ms",
        )  # fmt: skip

    def _maybe_wrap(self, before: int, dts: int, row: Row, at: int) -> None:
        if dts - before > _WRAP_STEP_MS:
            return
        for bits, words in _BOUNDARIES:
            once = bits == 24  # later multiples of 2^24 mean nothing: the field stays at its mark
            crossed = before >> bits == 0 and dts >> bits == 1 if once else before >> bits != dts >> bits
            if crossed and not (bits == 31 and dts >> 31 & 1 == 0) and bits not in self._crossed:
                self._crossed.append(bits)
                self._report(ViolationCode.TIME_WRAP, f"times cross {words} and go on", row, at)

    def _maybe_stall(self, track: Track, last: int, row: Row, at: int) -> None:
        ts, dts = row[TS], row[DTS]
        steps = [step for one in self.tracks.values() if (step := one.step_ms()) is not None]
        length_ms = (ts - last) // 1000
        if steps and length_ms <= 3 * min(steps):
            return
        if self.origin is not None:
            ahead = (max(one.dts or 0 for one in self.tracks.values()) - self.origin[1]) - (
                last - self.origin[0]
            ) // 1000
            if ahead > max(_BUFFERED_MS, length_ms) or self.recorded and ahead > length_ms:
                return
        before = track.dts if track.dts is not None else dts
        self.stalls.begin(Stall(last, ts, dts - before, dts, row[MSG_NO], _place(row, at)))

    def _track_quiet_us(self, track: Track, until: int) -> int:
        """How long a track of even rhythm has been silent while others were not; 0: not long enough to matter."""
        step = track.even_step_ms()
        if step is None or track is not self._zero.get(track.kind) or (track.codec or "").startswith(_MAY_PAUSE):
            return 0
        if 0 <= track.over_ts - track.ts < TRACK_STALL_US:
            return 0
        since = track.ts
        alone = until - since - sum(max(min(end, until) - max(begin, since), 0) for begin, end in self._pauses)
        return alone if alone >= max(TRACK_STALL_US, 10_000 * step) else 0

    def _maybe_track_stall(self, track: Track, row: Row, at: int) -> None:
        length = self._track_quiet_us(track, row[TS])
        if length:
            self.stalls.begin_track(TrackStall(track.kind, length, False, row[TS], row[MSG_NO], _place(row, at)))

    def end(self) -> None:
        """No frame will come any more, or others: whether one track ended long before the other."""
        video, audio = self._zero.get("video"), self._zero.get("audio")
        if video is None or audio is None or video.dts is None or audio.dts is None or self.recorded:
            return
        first, last = (video, audio) if video.ts < audio.ts else (audio, video)
        length = self._track_quiet_us(first, last.ts)
        if length and (last.dts or 0) - (first.dts or 0) >= length // 2000:
            msg_no, frame, at = first.last
            place = at >> FRAME_BITS << FRAME_BITS | frame
            self.stalls.begin_track(TrackStall(first.kind, length, True, first.ts, msg_no, place))

    # -- what it tells ------------------------------------------------------------------------------------------

    @property
    def video(self) -> Track | None:
        return self._first("video")

    @property
    def audio(self) -> Track | None:
        return self._first("audio")

    def _first(self, kind: str) -> Track | None:
        if len(self._zero) == len(self.tracks):  # nearly always there is one of a kind
            track = self._zero.get(kind)
            return track if track is not None and (track.frames or track.configs) else None
        return next((t for (k, _), t in sorted(self.tracks.items()) if k == kind and (t.frames or t.configs)), None)

    def frames(self, kind: str) -> int:
        return sum(track.frames for (k, _), track in self.tracks.items() if k == kind)

    def gop_finding(self) -> list[Finding]:
        track = self.video
        if track is None or not track.keys:
            return []
        longest, msg_no, frame, ts = track.longest_gop
        count = sum(n for gap, n in track.key_gaps.counts.items() if gap > _GOP_INFO_MS)
        open_gap = track.dts - track.key_dts if track.dts is not None and track.key_dts is not None else 0
        if open_gap > longest:
            longest, count = open_gap, count + 1
            msg_no, number, at = track.last
            frame, ts = at >> FRAME_BITS << FRAME_BITS | number, track.ts
        if longest <= _GOP_INFO_MS:
            return []
        severity = Severity.WARNING if longest > _GOP_WARNING_MS else Severity.INFO
        text = f"keyframes up to {longest / 1000:.1f} s apart"
        return [
            Finding(
                ViolationCode.MEDIA_GOP_LONG, text, severity, self.author, self.direction, self.stream_id, msg_no,
                frame, ts, max(count, 1), "a keyframe every 4 s or sooner", f"{longest / 1000:.1f} s",
            )
        ]  # fmt: skip

    @property
    def author(self) -> str | None:
        """Who made the media: what a server passes on may not be its own doing."""
        return SENDER[self.direction] if self.direction == "c2s" or self.recorded else None

    def _report(self, code: ViolationCode, detail: str, row: Row, at: int, **words: str) -> None:
        self.found.append(self._finding(code, detail, row, at, at_fault=self.author, **words))

    def _finding(self, code: ViolationCode, detail: str, row: Row, at: int, **words: str | None) -> Finding:
        return Finding(
            code, detail, None, words.get("at_fault"), self.direction, self.stream_id, row[MSG_NO], _place(row, at),
            row[TS], 1, words.get("expected"), words.get("actual"),
        )  # fmt: skip

    # -- state --------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {
            "where": [self.direction, self.stream_id, self.start_known, self.recorded, self.gaps],
            "tracks": [[*key, track.state()] for key, track in self.tracks.items()],
            "declared": self.declared,
            "drift": self.drift.state(),
            "stalls": self.stalls.state(),
            "first": [self.first_coded, self.first_is_key, self.origin],
            "asked": self.asked,
            "lagging": sorted(self._lagging),
            "last": [self._last_ts, self._suspended, self._crossed, self._excused, self._pauses],
            "found": [finding.plain() for finding in self.found],
        }

    @classmethod
    def resume(cls, state: dict[str, Any]) -> StreamMeasure:
        direction, stream_id, start_known, recorded, gaps = state["where"]
        measure = cls(direction, stream_id, start_known)
        measure.recorded, measure.gaps = recorded, gaps
        for kind, track_id, track in state["tracks"]:
            measure.tracks[kind, track_id] = Track.resume(track)
            if track_id == 0:
                measure._zero[kind] = measure.tracks[kind, track_id]
        measure.declared = dict(state["declared"])
        measure.drift = Drift.resume(state["drift"])
        measure.stalls = Stalls.resume(state["stalls"])
        measure.first_coded, measure.first_is_key, origin = state["first"]
        measure.origin = None if origin is None else (origin[0], origin[1])
        measure.asked = list(state["asked"])
        measure._lagging = set(state["lagging"])
        measure._last_ts, measure._suspended, measure._crossed, measure._excused, measure._pauses = state["last"]
        measure.found = [Finding.from_plain(finding) for finding in state["found"]]
        return measure


def _place(row: Row, at: int) -> int:
    """The packet of a row with the number of its file, which the row itself does not hold."""
    return at >> FRAME_BITS << FRAME_BITS | int(row[FRAME])
