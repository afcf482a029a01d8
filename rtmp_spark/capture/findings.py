"""Findings on their way to rows: the same fault many times becomes one finding with a count.

`FindingFold` collects what the session and the rules report about one connection. Texts come from a catalogue that can
be replaced: this module only makes a plain title out of a code it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rtmp_spark.capture.facts import FRAME_BITS, FRAME_MASK, Row
from rtmp_spark.codec.errors import LAYER, Severity, ViolationCode

CLIENT, SERVER, NETWORK, CAPTURE = "client", "server", "network", "capture"
SENDER = {"c2s": CLIENT, "s2c": SERVER}
_LISTED = 5  # places that are told one by one in `detail`
_DETAIL_CHARS = 2000
_MOST_KINDS = 1024  # beyond them streams are not told apart
_MOST_STREAMS = 4096  # of one id; no more have rows


class Finding(NamedTuple):
    """One thing worth telling, at one place; `frame` includes the file number."""

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
    stream_ts: int | None = None  # when its stream began: others may have the same id

    def plain(self) -> list[Any]:
        """As JSON can hold it."""
        return list(_plain(self))

    @classmethod
    def from_plain(cls, plain: list[Any]) -> Finding:
        code, detail, severity, *rest = plain
        return cls(ViolationCode[code], detail, Severity(severity) if severity else None, *rest)


class CatalogueEntry(NamedTuple):
    title: str
    clause: str | None = None
    fix_hint: str | None = None


Catalogue = Callable[[ViolationCode], CatalogueEntry]


def plain_entry(code: ViolationCode) -> CatalogueEntry:
    family, _, rest = code.value.partition("_")
    return CatalogueEntry(f"{family}: {rest.replace('_', ' ').lower()}")


def lasting(microseconds: int) -> str:
    """A length of time in words: 43 ms, 9.0 s."""
    if microseconds < 1000:
        return "less than 1 ms"
    return f"{microseconds / 1e6:.1f} s" if microseconds >= 999_500 else f"{microseconds / 1000:.0f} ms"


class _Folded:
    """All findings of one kind about one thing."""

    __slots__ = ("count", "details", "first", "frame_last", "msg_no_last", "streams", "ts_last")

    def __init__(self, first: Finding) -> None:
        self.first = first
        self.count = 0
        self.details: list[str] = []
        self.msg_no_last: int | None = None
        self.frame_last: int | None = None
        self.ts_last: int | None = None
        self.streams: dict[int | None, None] = {}  # when those began that it was seen in; None: not seen to begin

    def add(self, finding: Finding) -> None:
        self.count += finding.times
        if finding.detail not in self.details and len(self.details) < _LISTED:
            self.details.append(finding.detail)
        if finding.msg_no is not None:
            self.msg_no_last = finding.msg_no
        if finding.frame is not None:
            self.frame_last, self.ts_last = finding.frame, finding.ts
        if len(self.streams) < _MOST_STREAMS:
            self.streams[finding.stream_ts] = None


class FindingFold:
    """Findings of one connection, or of one file."""

    __slots__ = ("_folded", "_ordered")

    def __init__(self) -> None:
        self._folded: dict[tuple[Any, ...], _Folded] = {}
        self._ordered: list[tuple[tuple[Any, ...], _Folded]] | None = None

    def __len__(self) -> int:
        return len(self._folded)

    def add(self, finding: Finding) -> None:
        severity = finding.severity or finding.code.severity
        key = (finding.code, severity, finding.at_fault, finding.direction, finding.stream_id)
        folded = self._folded.get(key)
        if folded is None and len(self._folded) >= _MOST_KINDS and finding.stream_id is not None:
            self.add(finding._replace(stream_id=None))
            return
        if folded is None:
            folded = self._folded[key] = _Folded(finding)
            self._ordered = None
        folded.add(finding)

    def extend(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            self.add(finding)

    def drop(self, code: ViolationCode, direction: str | None = None) -> None:
        """Take back what another finding explains."""
        for key in [key for key in self._folded if key[0] is code and direction in (None, key[3])]:
            del self._folded[key]
            self._ordered = None

    def _in_order(self) -> list[tuple[tuple[Any, ...], _Folded]]:
        """As their places follow each other."""
        if self._ordered is None:
            self._ordered = sorted(self._folded.items(), key=lambda item: _order(item[1].first, item[0]))
        return self._ordered

    def severities(self) -> set[Severity]:
        return {key[1] for key in self._folded}

    def codes(self) -> set[ViolationCode]:
        return {key[0] for key in self._folded}

    def first_ones(self, streams: frozenset[int | None] | None = None) -> list[Finding]:
        """The first of each kind, with its severity and how often it was seen, in the order of their places; without
        what was told only of streams that began at other times than `streams`."""
        return [
            folded.first._replace(severity=key[1], times=folded.count)
            for key, folded in self._in_order()
            if streams is None or key[4] is None or not streams.isdisjoint(folded.streams)
        ]

    def errors_since(self, ts: int) -> set[str | None]:
        """Who is at fault for the errors that were still seen at this time or later."""
        errors = [(key[2], folded) for key, folded in self._folded.items() if key[1] is Severity.ERROR]
        return {at_fault for at_fault, folded in errors if folded.ts_last is None or folded.ts_last >= ts}

    def rows(self, uid: str | None, catalogue: Catalogue) -> list[Row]:
        """Rows of the table `findings`, capture ids as file numbers."""
        return [_row(key[1], folded, uid, catalogue) for key, folded in self._in_order()]

    def state(self) -> list[Any]:
        return [
            [list(_plain(f.first)), f.count, f.details, f.msg_no_last, f.frame_last, f.ts_last, list(f.streams)]
            for f in self._folded.values()
        ]

    @classmethod
    def resume(cls, state: list[Any]) -> FindingFold:
        fold = cls()
        for first, count, details, msg_no_last, frame_last, ts_last, streams in state:
            fold.add(Finding.from_plain(first))
            folded = next(reversed(fold._folded.values()))
            folded.count, folded.details = count, list(details)
            folded.msg_no_last, folded.frame_last, folded.ts_last = msg_no_last, frame_last, ts_last
            folded.streams = dict.fromkeys(streams)
        return fold


def _plain(finding: Finding) -> tuple[Any, ...]:
    severity = finding.severity.value if finding.severity else None
    return (finding.code.value, finding.detail, severity, *finding[3:])


def _order(finding: Finding, key: tuple[Any, ...]) -> tuple[Any, ...]:
    frame = finding.frame if finding.frame is not None else -1
    return (frame, LAYER[finding.code], finding.direction or "", key[1], key[2] or "", key[4] or 0)


def _row(severity: Severity, folded: _Folded, uid: str | None, catalogue: Catalogue) -> Row:
    first = folded.first
    entry = catalogue(first.code)
    detail = "; ".join(folded.details)
    if len(detail) > _DETAIL_CHARS:
        detail = detail[:_DETAIL_CHARS] + "..."
    frame, last = first.frame, folded.frame_last
    return (
        first.code.value, severity.value, first.at_fault, uid, first.direction, first.stream_id, first.msg_no,
        folded.msg_no_last, None if frame is None else frame >> FRAME_BITS, None if frame is None else _number(frame),
        None if last is None else _number(last), first.ts, folded.ts_last, folded.count, entry.title, detail,
        entry.clause, first.expected, first.actual, first.fix_hint or entry.fix_hint,
    )  # fmt: skip


def _number(frame: int) -> int | None:
    return frame & FRAME_MASK or None  # 0: a place in the file, not a packet
