"""Facts: what one direction of a connection says, as plain tuples. Sessions, rules and rows are made from them.

`at` is the packet that made a fact known: the number of its file in the recording and its frame number in one integer.
Within a direction it never decreases, even if packets arrived out of order, so the facts of both directions can be
sorted into one order. `ts` is in microseconds since the epoch. A fact holds only what the message itself and its
direction say; whatever needs the other direction is decided in conversation.py and session.py.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, NamedTuple

from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.codec.json_value import Json, SavedFields

CLIENT, SERVER = "client", "server"
SENDER: Final = {"c2s": CLIENT, "s2c": SERVER}
RECEIVER: Final = {"c2s": SERVER, "s2c": CLIENT}
OTHER_DIRECTION: Final = {"c2s": "s2c", "s2c": "c2s"}
STREAM_STARTS: Final = frozenset({"publish", "play", "play2"})

Row = tuple[Any, ...]  # of a table, in the order of its columns
MediaFigures = tuple[int, int, int, int, int | None, int | None, int | None]


class CommandFact(NamedTuple):
    """A command, data or shared-object message; `args` in the tagged JSON of AMF values."""

    at: int
    msg_no: int
    ts: int
    frame: int
    stream_id: int
    type_id: int
    name: str | None
    transaction_id: float | None
    amf_version: int
    args: list[Json]
    csid: int | None = None


class ControlFact(NamedTuple):
    """A protocol or user control message; `offset` is where it ends in the bytes of its direction."""

    at: int
    msg_no: int
    ts: int
    frame: int
    offset: int
    kind: str
    value: int | None
    limit_type: int | None
    event_type: int | None
    event_stream_id: int | None
    event_value: int | None


class FaultFact(NamedTuple):
    """A violation that one direction alone proves."""

    at: int
    ts: int
    frame: int
    offset: int
    code: ViolationCode
    severity: Severity
    detail: str
    msg_no: int | None
    stream_id: int | None


class GapFact(NamedTuple):
    """Bytes missing from the capture. `acked`: the receiver acknowledged them, so the capture tool dropped them;
    `cut`: they are beyond the snapshot length."""

    at: int
    ts: int
    frame: int
    offset: int
    length: int
    acked: bool | None
    cut: bool


class LagFact(NamedTuple):
    """From message `msg_no` on, timestamps on a csid lag because deltas were lost; with `over`, the next message has
    an absolute timestamp again."""

    at: int
    msg_no: int
    ts: int
    frame: int
    csid: int
    stream_id: int
    over: bool


class ConflictFact(NamedTuple):
    """Two packets carry different bytes for the same stream offset."""

    at: int
    ts: int
    frame: int
    offset: int
    length: int
    crc_first: int
    crc_second: int
    intact: bool | None = None


class HandshakeFact(NamedTuple):
    """C0/S0 (`part` 0), C1/S1 (1) or C2/S2 (2)."""

    at: int
    ts: int
    frame: int
    part: int
    data: bytes


class Place(NamedTuple):
    """Where a message is, whatever it contains. `end` is at least the offset after its last byte."""

    at: int
    ts: int
    start: int
    end: int
    msg_no: int
    frame: int
    csid: int
    type_id: int
    stream_id: int


class Unread(NamedTuple):
    """Lower bound (packet, time) for facts from bytes that are not decoded yet."""

    at: int
    ts: int


Notable = CommandFact | ControlFact | FaultFact | GapFact | LagFact | ConflictFact | HandshakeFact


class MediaRows(NamedTuple):
    """Consecutive rows of `media_tags` of one direction, and the packet that made each of them known."""

    rows: list[Row]
    known_at: list[int]


class MediaSecond:
    """Media of one direction in one second."""

    __slots__ = ("acknowledged", "audio_bytes", "first_dts", "frames", "key_frames", "last_dts", "video_bytes")

    def __init__(self) -> None:
        self.audio_bytes = self.video_bytes = self.frames = self.key_frames = 0
        self.first_dts: int | None = None
        self.last_dts: int | None = None
        self.acknowledged: int | None = None  # value of the last Acknowledgement

    def add(self, later: MediaSecond) -> None:
        self.audio_bytes += later.audio_bytes
        self.video_bytes += later.video_bytes
        self.frames += later.frames
        self.key_frames += later.key_frames
        if self.first_dts is None:
            self.first_dts = later.first_dts
        if later.last_dts is not None:
            self.last_dts = later.last_dts
        if later.acknowledged is not None:
            self.acknowledged = later.acknowledged

    def values(self) -> MediaFigures:
        """In the column order of `intervals`."""
        return (
            self.audio_bytes, self.video_bytes, self.frames, self.key_frames, self.first_dts, self.last_dts,
            self.acknowledged,
        )  # fmt: skip

    @classmethod
    def resume(cls, values: SavedFields) -> MediaSecond:
        """From what `values` returned."""
        second = cls()
        (
            second.audio_bytes, second.video_bytes, second.frames, second.key_frames, second.first_dts,
            second.last_dts, second.acknowledged,
        ) = values  # fmt: skip
        return second


def add_seconds(known: dict[int, MediaSecond], later: dict[int, MediaSecond]) -> None:
    """Add later figures to those already known, second by second."""
    for second, values in later.items():
        before = known.get(second)
        if before is None:
            known[second] = values
        else:
            before.add(values)


class Facts:
    """What a direction has said since its facts were last taken.

    `messages`, `controls`, `media` and `payloads` are tuples in the column order of their tables, without uid and
    direction, and with file numbers in place of capture ids. `media_at[i]` belongs to `media[i]`. `notable` are the
    facts that sessions and rules receive one by one, in the order of the direction. `passed` are the places of all
    messages, `firsts` those of the first message of each type.
    """

    __slots__: ClassVar[tuple[str, ...]] = (
        "controls", "firsts", "media", "media_at", "messages", "notable", "passed", "payloads", "seconds",
    )  # fmt: skip

    def __init__(self) -> None:
        self.messages: list[Row] = []
        self.controls: list[Row] = []
        self.media: list[Row] = []
        self.media_at: list[int] = []
        self.payloads: list[Row] = []
        self.notable: list[Notable] = []
        self.passed: list[Place] = []
        self.firsts: list[Place] = []
        self.seconds: dict[int, MediaSecond] = {}

    def add(self, later: Facts) -> None:
        for name in FACT_LISTS:
            getattr(self, name).extend(getattr(later, name))
        add_seconds(self.seconds, later.seconds)


FACT_LISTS: Final = tuple(name for name in Facts.__slots__ if name != "seconds")
