"""One publish or play inside a connection, from its command to its end."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import ClassVar

from rtmp_spark.codec.json_value import Json
from rtmp_spark.conversation.facts import Row
from rtmp_spark.conversation.media_row import KIND, MSG_NO, SIZE, TS


class StreamSpan:
    """One publish or play on one message stream id.

    `number` is its index in `Session.spans`, -1 if that list is full. `start_known`: its command was captured.
    """

    __slots__: ClassVar[tuple[str, ...]] = (
        "answered", "audio", "bytes", "direction", "ended", "gaps_after", "gaps_before", "left_at", "media_stream_id",
        "name", "number", "refused", "role", "start_known", "stream_id", "ts_end", "ts_start", "video",
    )  # fmt: skip

    def __init__(self, number: int, stream_id: int, role: str, name: str | None, ts: int, *, start_known: bool) -> None:
        self.number = number
        self.stream_id = stream_id
        self.media_stream_id = stream_id  # Node-Media-Server sends the media of stream 1 on 0
        self.start_known = start_known
        self.role = role
        self.direction = "c2s" if role == "publish" else "s2c"
        self.name = name
        self.ts_start = self.ts_end = ts
        self.left_at = 0  # when its client first ended it
        self.gaps_before = self.gaps_after = 0  # gaps of its direction before it began, and until it ended
        self.audio = self.video = self.bytes = 0
        self.answered = self.refused = self.ended = False

    @property
    def has_media(self) -> bool:
        return self.audio + self.video > 0

    def add(self, rows: Sequence[Row]) -> None:
        """Count media rows of this stream; the rows of one message are never split between two calls."""
        self.ts_end = max(self.ts_end, max([row[TS] for row in rows]))
        self.bytes += sum([row[SIZE] for row in rows])
        kinds = {row[MSG_NO]: row[KIND] for row in rows}  # a message may hold several tracks
        video = list(kinds.values()).count("video")
        self.video += video
        self.audio += len(kinds) - video

    def state(self, name: str | None) -> list[Json]:
        """All fields; `name` is the stream name in the form that may be saved."""
        values = dict(zip(self.__slots__, _values(self)))
        return list((values | {"name": name}).values())

    @classmethod
    def resume(cls, state: list[Json]) -> StreamSpan:
        span = cls(-1, 0, "publish", None, 0, start_known=False)
        for name, value in zip(cls.__slots__, state):
            setattr(span, name, value)
        return span


_values = attrgetter(*StreamSpan.__slots__)
