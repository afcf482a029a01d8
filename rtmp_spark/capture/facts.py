"""What one direction of a connection says, as plain tuples: the material of rows, folds and rules.

`at` is the packet that made a fact known: the number of its file in the recording and its frame number in one
integer. Within a direction it never goes back, even where packets came out of order, so both directions can be put
into one order. Times are microseconds since the epoch. Facts hold only what the message itself and its direction tell;
what needs the other direction is the work of conversation.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from rtmp_spark.codec.errors import Severity, ViolationCode

FRAME_BITS = 40
FRAME_MASK = (1 << FRAME_BITS) - 1
NEARBY_US = 2_000_000  # a question recorded so much later than an answer is another one

Row = tuple[Any, ...]
Result = TypeVar("Result")


class Arguments(list[Any]):
    """Arguments that all commands of the same bytes share, with what was made of them; nobody changes them."""

    __slots__ = ("notes",)

    def __init__(self, values: list[Any]) -> None:
        super().__init__(values)
        self.notes: dict[Any, Any] = {}


def noted(read: Callable[[list[Any]], Result]) -> Callable[[list[Any]], Result]:
    """`read`, which is asked once for all commands of the same bytes; its result is nobody's to change."""

    def ask(args: list[Any]) -> Result:
        if type(args) is not Arguments:
            return read(args)
        notes = args.notes
        if read not in notes:
            notes[read] = read(args)
        result: Result = notes[read]
        return result

    return ask


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
    args: list[Any]
    csid: int | None = None


class ControlFact(NamedTuple):
    """A protocol or user control message; `offset` is where it ends in its direction's bytes."""

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
    """A rule that one direction alone shows to be broken."""

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
    """Bytes in no packet. `acked`: the receiver had them, the recorder lost them; `cut`: beyond the snapshot length."""

    at: int
    ts: int
    frame: int
    offset: int
    length: int
    acked: bool | None
    cut: bool


class LagFact(NamedTuple):
    """Before message `msg_no`: differences of time were lost on a csid, so its times lag; or, with `over`, the next one
    is said in full."""

    at: int
    msg_no: int
    ts: int
    frame: int
    csid: int
    stream_id: int
    over: bool


class ConflictFact(NamedTuple):
    """Two packets with different bytes for one place."""

    at: int
    ts: int
    frame: int
    offset: int
    length: int
    crc_first: int
    crc_second: int
    intact: bool | None = None


class HandshakeFact(NamedTuple):
    """C0/S0 (`part` 0), C1/S1, C2/S2."""

    at: int
    ts: int
    frame: int
    part: int
    data: bytes


# The place of a message, whatever is in it: at, ts, start, end (at least the offset behind its last byte), msg_no,
# frame, csid, type_id, stream_id. A plain tuple: there is one for each message.
Place = tuple[int, ...]

Notable = CommandFact | ControlFact | FaultFact | GapFact | LagFact | ConflictFact | HandshakeFact


class Facts:
    """What a direction has told since the last time it was asked.

    `messages`, `controls`, `media` and `payloads` are rows of their tables without uid and direction, their file
    numbers where capture ids belong; `media_at` runs beside `media`. `notable` are the facts that folds look at one
    by one, in the order of the direction. `seconds` adds up media per second: audio bytes, video bytes, frames, key
    frames, first and last dts, last acknowledgement. `passed` are the places of all messages, `firsts` of the first of
    each type.
    """

    __slots__ = ("controls", "firsts", "media", "media_at", "messages", "notable", "passed", "payloads", "seconds")

    def __init__(self) -> None:
        self.messages: list[Row] = []
        self.controls: list[Row] = []
        self.media: list[Row] = []
        self.media_at: list[int] = []
        self.payloads: list[Row] = []
        self.notable: list[Notable] = []
        self.passed: list[Place] = []
        self.firsts: list[Place] = []
        self.seconds: dict[int, list[Any]] = {}

    def add(self, more: Facts) -> None:
        """What was told after this."""
        for name in _LISTS:
            getattr(self, name).extend(getattr(more, name))
        add_seconds(self.seconds, more.seconds)


_LISTS = tuple(name for name in Facts.__slots__ if name != "seconds")


def add_seconds(known: dict[int, list[Any]], more: dict[int, list[Any]]) -> None:
    """Figures of media per second, joined with later ones."""
    for second, values in more.items():
        before = known.get(second)
        if before is None:
            known[second] = values
            continue
        for index in (0, 1, 2, 3):
            before[index] += values[index]
        if before[4] is None:
            before[4] = values[4]
        for index in (5, 6):
            if values[index] is not None:
                before[index] = values[index]
