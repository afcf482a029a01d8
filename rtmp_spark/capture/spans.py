"""One publish or play inside a connection, as it is seen from its command to its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from rtmp_spark.capture.facts import Row
from rtmp_spark.capture.judging import Measure


class StreamSpan:
    """One publish or play on one message stream id, from its command to its end."""

    __slots__ = (
        "answered", "audio", "bytes", "direction", "ended", "left_at", "measure", "media_stream_id", "name", "refused",
        "role", "stream_id", "ts_end", "ts_start", "video",
    )  # fmt: skip

    def __init__(self, stream_id: int, role: str, name: str | None, ts: int) -> None:
        self.stream_id = stream_id
        self.media_stream_id = stream_id  # Node-Media-Server sends the media of stream 1 on 0
        self.measure: Measure | None = None
        self.role = role
        self.direction = "c2s" if role == "publish" else "s2c"
        self.name = name
        self.ts_start = self.ts_end = ts
        self.left_at = 0  # when its client first said goodbye
        self.audio = self.video = self.bytes = 0
        self.answered = self.refused = self.ended = False

    def add(self, rows: Sequence[Row], known_at: Sequence[int]) -> None:
        """Media rows of this stream; a message's are never parted."""
        if self.measure is not None:
            self.measure.add(rows, known_at)
        self.ts_end = max(self.ts_end, max([row[2] for row in rows]))
        self.bytes += sum([row[17] for row in rows])
        kinds = {row[0]: row[5] for row in rows}  # of messages, which may hold several tracks
        video = list(kinds.values()).count("video")
        self.video += video
        self.audio += len(kinds) - video

    def state(self, name: str | None) -> list[Any]:
        """Its fields; `name` is what may be kept of the stream name."""
        values = dict(zip(self.__slots__, _values(self)))
        values |= {"name": name, "measure": None if self.measure is None else self.measure.state()}
        return list(values.values())

    @classmethod
    def resume(cls, state: list[Any], resume_measure: Callable[[Any], Measure] | None = None) -> StreamSpan:
        span = cls(0, "publish", None, 0)
        for name, value in zip(cls.__slots__, state):
            if name == "measure" and value is not None:
                value = resume_measure(value) if resume_measure is not None else None
            setattr(span, name, value)
        return span


_values = attrgetter(*StreamSpan.__slots__)
