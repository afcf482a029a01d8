"""The streams in progress as rows of a live display."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from rtmp_spark.codec.errors import Severity, ViolationCode

from .observed_streams import PLAY, PUBLISH, ObservedStream
from .recent_measures import Measures


class StreamRow(NamedTuple):
    name: str
    role: str
    measures: Measures
    players: int | None  # of a published stream
    last_finding: tuple[ViolationCode, Severity] | None


def stream_rows(streams: Iterable[ObservedStream], now_ns: int, most: int) -> tuple[list[StreamRow], int]:
    """At most `most` rows, published streams first and by name, and the number of streams left out."""
    ordered = sorted(streams, key=lambda stream: (stream.role != PUBLISH, stream.name))
    players = Counter(stream.name for stream in ordered if stream.role == PLAY)
    rows = [
        StreamRow(
            stream.name,
            stream.role,
            stream.measures.measures(now_ns),
            players[stream.name] if stream.role == PUBLISH else None,
            stream.last_finding,
        )
        for stream in ordered[:most]
    ]
    return rows, len(ordered) - len(rows)
