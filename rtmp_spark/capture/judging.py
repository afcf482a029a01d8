"""What a recording can be given to judge connections by: the shapes, not the rules.

A `Judge` runs beside the session of one connection and is told the same things in the same order; the `Measure` that it
makes for each stream rides on the stream's span. Rules live above this layer (forensics); without a judge the measured
columns stay null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rtmp_spark.capture.facts import Notable, Place, Row

if TYPE_CHECKING:
    from rtmp_spark.capture.closing import Ending
    from rtmp_spark.capture.findings import Finding, FindingFold
    from rtmp_spark.capture.session import Session
    from rtmp_spark.capture.spans import StreamSpan


class Measure(Protocol):
    def add(self, rows: Sequence[Row], known_at: Sequence[int]) -> None: ...

    def state(self) -> Any: ...


class Identified(Protocol):
    """Which software an end is, and why we think so."""

    @property
    def software(self) -> str | None: ...

    @property
    def evidence(self) -> Sequence[str]: ...


class Judge(Protocol):
    def measure(self, direction: str, stream_id: int, start_known: bool) -> Measure: ...

    def resume_measure(self, state: Any) -> Measure: ...

    def passed(self, direction: str, messages: Sequence[Place], firsts: Sequence[Place]) -> None:
        """`firsts` are those of them that are the first of their type."""

    def notable(self, direction: str, fact: Notable) -> None: ...

    def advance(self, at: int | None) -> Sequence[Finding]: ...

    def settle(self) -> None:
        """No message will come any more, though the end may be a minute away."""

    def seconds(self, direction: str, rows: Sequence[Row]) -> None: ...

    def close_cause(self, ending: Ending, cause: str) -> str: ...

    def end(self, ending: Ending, cause: str, findings: FindingFold) -> None: ...

    def stream_columns(self, span: StreamSpan, findings: FindingFold) -> dict[str, Any]:
        """All that is measured and judged, the verdict included; asked only where somebody looks."""

    def foresee(self, name: str, redacted: str) -> None:
        """A stream that a state without secrets will call by its redacted name."""

    def client(self) -> Identified: ...

    def server(self) -> Identified: ...

    def state(self) -> Any: ...

    def resume(self, state: Any) -> None: ...


class Frames(Protocol):
    """Collects the media of all connections of a recording; at its end gives the rows of `deliveries`."""

    def collect(self, uid: str, direction: str, messages: Sequence[Row], media: Sequence[Row]) -> None: ...

    def rows(self, streams: Sequence[Row]) -> list[Row]: ...


class Ended(NamedTuple):
    """A connection that is over, for what only several of them show together."""

    uid: str
    orig_h: str
    resp_h: str
    resp_p: int
    ts_start: int
    closed_by: str | None
    close_kind: str
    close_cause: str


# (numbered rows of streams, ends of connections, rows of findings) -> rows of findings
Hindsight = Callable[[Sequence[Row], Sequence[Ended], Sequence[Row]], list[Row]]
JudgeFactory = Callable[["Session"], Judge]
