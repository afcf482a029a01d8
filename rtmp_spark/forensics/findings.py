"""Folds findings into rows: many findings of one kind become one row with a count.

`FindingFold` collects the findings of one connection or of one file. The texts that all findings of a rule share come
from the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from rtmp_spark.capture.problem import Problem
from rtmp_spark.capture.tcp.frame_numbers import FRAME_BITS, FRAME_MASK
from rtmp_spark.codec.errors import LAYER, Severity, ViolationCode
from rtmp_spark.codec.json_value import SavedFields
from rtmp_spark.codec.limits import DETAIL_CHARACTERS, LISTED_DETAILS, MAX_FINDING_KINDS, MAX_FINDING_STREAMS
from rtmp_spark.conversation.facts import Row
from rtmp_spark.forensics.catalogue.rules import entry

NETWORK, CAPTURE = "network", "capture"  # at fault, beside client and server
_new: Final = tuple.__new__  # creates a NamedTuple at a third of its constructor's cost
StreamKey = tuple[int | None, int | None]
_ALL_STREAMS: Final[StreamKey] = (None, None)
# The fields of a finding, with the names of its code and severity.
SavedFinding = SavedFields
# First finding, count, details, last msg_no, last frame, last ts, streams.
SavedKind = SavedFields
# Beginnings of rule ids whose texts contain nothing that a peer chose, except for the reason of a refusal.
_OWN_WORDS: Final = (
    "CAPTURE_", "TCP_", "TLS_", "RTMPT_", "HS_", "CHUNK_", "MSG_", "CTRL_", "FLOW_", "TIME_", "SESSION_", "MEDIA_",
    "CMD_NO_RESPONSE", "CMD_STREAM_", "CMD_REFUSED", "CMD_AUTH_ROUND",
)  # fmt: skip
_REFUSED: Final = "refused: "  # a reason follows, which a peer wrote
_WORDS: Final = {severity: severity.value for severity in Severity}
_PEERS_WORDS: Final = ("MEDIA_CODEC_UNKNOWN", "MEDIA_NOT_NEGOTIATED")


class Finding(NamedTuple):
    """One violation or observation, at one place; `frame` includes the file number."""

    code: ViolationCode
    detail: str
    severity: Severity | None = None  # None: the usual one of the code
    at_fault: str | None = None
    direction: str | None = None
    stream_id: int | None = None
    msg_no: int | None = None
    frame: int | None = None
    ts: int | None = None
    times: int = 1
    expected: str | None = None
    actual: str | None = None
    fix_hint: str | None = None
    stream_ts: int | None = None  # when its stream began: several streams may use the same id

    def without_secrets(self, hide: Callable[[str], str]) -> Finding:
        """The finding with the known secrets in its texts replaced: a peer may choose the names in them."""
        detail = _hidden(self.code, self.detail, hide)
        if has_own_words(self.code):
            return self if detail == self.detail else self._replace(detail=detail)
        expected, actual = (text and hide(text) for text in (self.expected, self.actual))
        return self._replace(detail=detail, expected=expected, actual=actual)

    def plain(self) -> SavedFinding:
        """As a JSON value."""
        severity = self.severity.value if self.severity else None
        return self.code.value, self.detail, severity, *self[3:]

    @classmethod
    def from_plain(cls, plain: SavedFinding) -> Finding:
        severity = plain[2]
        return cls(ViolationCode[plain[0]], plain[1], Severity(severity) if severity else None, *plain[3:])


_CODES_WITH_OWN_WORDS: Final = frozenset(
    code for code in ViolationCode if code.startswith(_OWN_WORDS) and not code.startswith(_PEERS_WORDS)
)


def has_own_words(code: ViolationCode) -> bool:
    """Whether the texts of a rule are our own, except for the reason of a refusal. A stream may be called "s" or
    "video": these words of our own texts are not its name."""
    return code in _CODES_WITH_OWN_WORDS


def _hidden(code: ViolationCode, detail: str, hide: Callable[[str], str]) -> str:
    """A detail with the known secrets in it replaced. A name in the reason of a refusal may become known later."""
    if not has_own_words(code):
        return hide(detail)
    own, mark, reason = detail.partition(_REFUSED)
    return own + mark + hide(reason) if reason else detail


class _Kind(NamedTuple):
    """Findings that agree in all of these become one row."""

    code: ViolationCode
    severity: Severity
    at_fault: str | None
    direction: str | None
    stream_id: int | None


def stream_key(began: int | None, stream_id: int) -> StreamKey:
    """A stream by its start time; findings whose stream had not begun are found by its id."""
    return (None, stream_id) if began is None else (began, None)


def lasting(microseconds: int) -> str:
    """A duration as text: 43 ms, 9.0 s."""
    if microseconds < 1000:
        return "less than 1 ms"
    return f"{microseconds / 1e6:.1f} s" if microseconds >= 999_500 else f"{microseconds / 1000:.0f} ms"


def problem_findings(file_no: int, problems: Sequence[Problem]) -> FindingFold:
    """The findings about a capture file."""
    fold = FindingFold()
    for problem in problems:
        fold.add(
            Finding(
                problem.code, problem.detail, problem.severity, CAPTURE,
                frame=file_no << FRAME_BITS | (problem.frame or 0),
                ts=None if problem.ts_ns is None else problem.ts_ns // 1000, times=problem.count,
                fix_hint=problem.remedy,
            )
        )  # fmt: skip
    return fold


class _Folded:
    """All findings of one kind."""

    __slots__ = ("count", "details", "first", "frame_last", "msg_no_last", "streams", "ts_last")

    def __init__(self, first: Finding) -> None:
        self.first = first
        self.count = 0
        self.details: list[str] = []
        self.msg_no_last: int | None = None
        self.frame_last: int | None = None
        self.ts_last: int | None = None
        self.streams: dict[int | None, None] = {}  # start times of the streams it was seen in; None: start unknown

    def add(self, finding: Finding) -> None:
        self.count += finding.times
        if finding.detail not in self.details and len(self.details) < LISTED_DETAILS:
            self.details.append(finding.detail)
        if finding.msg_no is not None:
            self.msg_no_last = finding.msg_no
        if finding.frame is not None:
            self.frame_last, self.ts_last = finding.frame, finding.ts
        if len(self.streams) < MAX_FINDING_STREAMS:
            self.streams[finding.stream_ts] = None

    def row(self, severity: Severity, uid: str | None, hide: Callable[[str], str]) -> Row:
        """The row of `findings`, with a file number in place of the capture id."""
        first = self.first.without_secrets(hide)
        texts = entry(first.code)
        detail = "; ".join([_hidden(first.code, detail, hide) for detail in self.details])
        if len(detail) > DETAIL_CHARACTERS:
            detail = detail[:DETAIL_CHARACTERS] + "..."
        frame, last = first.frame, self.frame_last
        return (
            texts.rule_id, _WORDS[severity], first.at_fault, uid, first.direction, first.stream_id, first.msg_no,
            self.msg_no_last, None if frame is None else frame >> FRAME_BITS, _packet(frame), _packet(last),
            first.ts, self.ts_last, self.count, texts.title, detail, texts.clause, first.expected, first.actual,
            first.fix_hint or texts.fix_hint,
        )  # fmt: skip


class FindingFold:
    """Findings of one connection, or of one file."""

    __slots__ = ("_folded", "_of_streams", "_ordered")

    def __init__(self) -> None:
        self._folded: dict[_Kind, _Folded] = {}
        self._ordered: list[tuple[_Kind, _Folded]] | None = None
        self._of_streams: dict[StreamKey, list[int]] | None = None

    def __len__(self) -> int:
        return len(self._folded)

    def add(self, finding: Finding) -> None:
        severity = finding.severity or finding.code.severity
        kind = _new(_Kind, (finding.code, severity, finding.at_fault, finding.direction, finding.stream_id))
        folded = self._folded.get(kind)
        if folded is None and len(self._folded) >= MAX_FINDING_KINDS and finding.stream_id is not None:
            self.add(finding._replace(stream_id=None))
            return
        if folded is None:
            folded = self._folded[kind] = _Folded(finding)
            self._ordered = None
        self._of_streams = None
        folded.add(finding)

    def has_only_infos(self) -> bool:
        return all(kind.severity is Severity.INFO for kind in self._folded)

    def extend(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            self.add(finding)

    def drop(self, code: ViolationCode, direction: str | None = None) -> None:
        """Remove the findings of a rule, because another finding explains them."""
        for kind in [kind for kind in self._folded if kind.code is code and direction in (None, kind.direction)]:
            del self._folded[kind]
            self._ordered = self._of_streams = None

    def lower_to_info(self, code: ViolationCode, direction: str) -> None:
        """Make the findings of a rule infos, because they are harmless here."""
        for kind in [kind for kind in self._folded if kind.code is code and kind.direction == direction]:
            folded = self._folded.pop(kind)
            folded.first = folded.first._replace(severity=Severity.INFO)
            self._folded[kind._replace(severity=Severity.INFO)] = folded
            self._ordered = None

    def _in_order(self) -> list[tuple[_Kind, _Folded]]:
        """By the places of their first findings."""
        if self._ordered is None:
            self._ordered = list(self._folded.items())
            if len(self._ordered) > 1:  # most connections have one finding: their end
                self._ordered.sort(key=lambda item: _order(item[1].first, item[0]))
        return self._ordered

    def severities(self) -> set[Severity]:
        return {kind.severity for kind in self._folded}

    def codes(self) -> set[ViolationCode]:
        return {kind.code for kind in self._folded}

    def codes_by_stream(self) -> list[tuple[ViolationCode, int | None]]:
        return [(kind.code, kind.stream_id) for kind in self._folded]

    def first_ones(self, streams: Iterable[StreamKey] | None = None) -> list[Finding]:
        """The first finding of each kind, with its severity and count, in the order of their places; without those
        that were seen only in streams other than `streams`."""
        ordered = self._in_order()
        chosen: Iterable[int] = range(len(ordered))
        if streams is not None:
            by_stream = self._by_stream(ordered)
            chosen = sorted({place for stream in (_ALL_STREAMS, *streams) for place in by_stream.get(stream, ())})
        return [
            folded.first._replace(severity=kind.severity, times=folded.count)
            for kind, folded in (ordered[place] for place in chosen)
        ]

    def _by_stream(self, ordered: list[tuple[_Kind, _Folded]]) -> dict[StreamKey, list[int]]:
        """Places in `ordered` by stream; findings about no single stream under `_ALL_STREAMS`."""
        if self._of_streams is None:
            self._of_streams = {}
            for place, (kind, folded) in enumerate(ordered):
                if kind.stream_id is None:
                    keys: list[StreamKey] = [_ALL_STREAMS]
                else:
                    keys = [stream_key(began, kind.stream_id) for began in folded.streams]
                for key in keys:
                    self._of_streams.setdefault(key, []).append(place)
        return self._of_streams

    def errors_since(self, ts: int) -> set[str | None]:
        """Who is at fault for errors that were seen at this time or later."""
        errors = [(kind.at_fault, f) for kind, f in self._folded.items() if kind.severity is Severity.ERROR]
        return {at_fault for at_fault, folded in errors if folded.ts_last is None or folded.ts_last >= ts}

    def rows(self, uid: str | None, hide: Callable[[str], str] = str) -> list[Row]:
        """Rows of the table `findings`, with file numbers in place of capture ids. `hide` replaces the known secrets in
        a text: a peer may choose the names in it."""
        return [folded.row(kind.severity, uid, hide) for kind, folded in self._in_order()]

    def state(self, hide: Callable[[str], str] = str) -> list[SavedKind]:
        """`hide` replaces the known secrets in a text."""
        return [
            (
                f.first.without_secrets(hide).plain(), f.count,
                [_hidden(f.first.code, detail, hide) for detail in f.details],
                f.msg_no_last, f.frame_last, f.ts_last, list(f.streams),
            )
            for f in self._folded.values()
        ]  # fmt: skip

    @classmethod
    def resume(cls, state: list[SavedKind]) -> FindingFold:
        own = cls()
        for first, count, details, msg_no_last, frame_last, ts_last, streams in state:
            own.add(Finding.from_plain(first))
            folded = next(reversed(own._folded.values()))
            folded.count, folded.details = count, list(details)
            folded.msg_no_last, folded.frame_last, folded.ts_last = msg_no_last, frame_last, ts_last
            folded.streams = dict.fromkeys(streams)
        return own


def _order(finding: Finding, kind: _Kind) -> tuple[int, int, str, Severity, str, int]:
    frame = finding.frame if finding.frame is not None else -1
    layer, direction = LAYER[finding.code], finding.direction or ""
    return (frame, layer, direction, kind.severity, kind.at_fault or "", kind.stream_id or 0)


def _packet(frame: int | None) -> int | None:
    """The packet number within its file; None for a place in the file that is not a packet."""
    return None if frame is None else frame & FRAME_MASK or None
