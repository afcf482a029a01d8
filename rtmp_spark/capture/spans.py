"""One publish or play inside a connection, as it is seen from its command to its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rtmp_spark.capture.facts import Row
from rtmp_spark.capture.judging import Measure


class StreamSpan:
    """One publish or play on one message stream id, from its command to its end."""

    __slots__ = (
        "answered", "audio", "audio_codec", "bytes", "channels", "direction", "ended", "first_key", "first_media",
        "height", "measure", "media_stream_id",
        "name", "refused", "role", "sample_rate", "stream_id", "ts_end", "ts_start", "video", "video_codec",
        "width",
    )  # fmt: skip

    def __init__(self, stream_id: int, role: str, name: str | None, ts: int) -> None:
        self.stream_id = stream_id
        self.media_stream_id = stream_id  # Node-Media-Server sends the media of stream 1 on 0
        self.measure: Measure | None = None
        self.role = role
        self.direction = "c2s" if role == "publish" else "s2c"
        self.name = name
        self.ts_start = self.ts_end = ts
        self.first_media: int | None = None
        self.first_key: bool | None = None
        self.audio = self.video = self.bytes = 0
        self.video_codec: str | None = None
        self.audio_codec: str | None = None
        self.width: int | None = None
        self.height: int | None = None
        self.sample_rate: int | None = None
        self.channels: int | None = None
        self.answered = self.refused = self.ended = False

    def add(self, rows: Sequence[Row], known_at: Sequence[int]) -> None:
        """Media rows of this stream: (msg_no, part_no, ts, frame, stream_id, kind, codec, ...)."""
        if self.measure is not None:
            self.measure.add(rows, known_at)
        if self.first_media is None:
            self.first_media = rows[0][2]
        self.ts_end = max(self.ts_end, rows[-1][2])
        last_no = -1
        for row in rows:
            self.bytes += row[17]
            if row[5] == "video":
                self.video += row[0] != last_no
                self.video_codec = row[6] or self.video_codec
                self.width, self.height = row[19] or self.width, row[20] or self.height
                if self.first_key is None and row[9] == "frame":
                    self.first_key = row[11]
            else:
                self.audio += row[0] != last_no
                self.audio_codec = row[6] or self.audio_codec
                self.sample_rate, self.channels = row[23] or self.sample_rate, row[24] or self.channels
            last_no = row[0]

    def state(self, name: str | None) -> list[Any]:
        """Its fields; `name` is what may be kept of the stream name."""
        values = {field: getattr(self, field) for field in self.__slots__}
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
