"""The work of executors that gives the rows of `deliveries`: which played stream is which published one.

Frames are compared as `forensics.deliveries` does, by the checksums in `messages`; media is not read. A task holds the
frames of its plays, and of `BATCH_MESSAGES` published messages at a time. It writes its rows as files of the lake.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.codec.message import AUDIO, VIDEO
from rtmp_spark.forensics.deliveries.delivery_frames import CODED, CONFIG, Frames, Stream
from rtmp_spark.forensics.deliveries.delivery_matching import delivery, limit_finding, with_frames
from rtmp_spark.forensics.deliveries.shared_frames import SharedFrames
from rtmp_spark.ingest.publish.delivery_plan import BATCH_MESSAGES, Batch, Group, LakeStream
from rtmp_spark.ingest.publish.lake_rows import Row, one_of, to_table
from rtmp_spark.ingest.publish.open_rows import write_open_and_final
from rtmp_spark.ingest.publish.table_files import TableFiles
from rtmp_spark.lake.parquet_files import FileTarget, WrittenFile

_MESSAGE_COLUMNS = (
    "uid", "direction", "msg_no", "type_id", "stream_id", "timestamp", "ts_last", "length", "payload_crc32",
)  # fmt: skip
_TAG_COLUMNS = ("uid", "direction", "msg_no", "packet_type", "is_config")


@dataclass(frozen=True)
class SearchJob:
    """What every task needs."""

    tables: TableFiles  # `messages` and `media_tags`, with the rows of the ingest under way
    target: FileTarget
    deadline: float  # seconds since 1970; what is left to compare then is left out


@dataclass
class Searched:
    """What one task wrote."""

    files: list[WrittenFile] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    left_out: int = 0  # plays that were not matched
    why: str = ""
    kept: list[str] = field(default_factory=list)  # uids of plays whose older rows stay

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Searched:
        values = json.loads(text)
        values["files"] = [WrittenFile(**file) for file in values["files"]]
        return cls(**values)

    @classmethod
    def nothing(cls, batch: Batch, why: str) -> Searched:
        """The result of a task that failed."""
        return cls(left_out=len(batch.plays), why=why, kept=sorted({play.uid for play in batch.plays}))


def search_batch(job: SearchJob, work: str) -> str:
    """Match the plays of a `Batch`; returns a `Searched`. It never raises: trouble is part of the result."""
    batch = Batch.parse(work)
    try:
        return _search(job, batch).dump()
    except Exception as error:
        return Searched.nothing(batch, f"{type(error).__name__}: {error}").dump()


def _search(job: SearchJob, batch: Batch) -> Searched:
    found = Searched()
    streams = _StreamReader(job.tables)
    if batch.messages <= BATCH_MESSAGES:
        streams.hold(span for group in batch.groups for span in (*group.played, *group.published))
    deliveries: list[Row] = []
    findings: list[Row] = []
    for group in batch.groups:
        found.left_out += _match(job, streams, group, deliveries, findings)
    if found.left_out:
        found.why = "it took too long"
    open_uids = {play.uid for play in batch.plays if play.open}
    for table, rows in (("deliveries", deliveries), ("findings", findings)):
        found.files += write_open_and_final(job.target, table, to_table(table, rows, job.target.ingest_id), open_uids)
        found.rows[table] = len(rows)
    return found


def _match(job: SearchJob, streams: _StreamReader, group: Group, deliveries: list[Row], findings: list[Row]) -> int:
    """Append the rows of a group; returns how many plays were left out because the time was over."""
    played = streams.read(group.played)
    search = SharedFrames(played)
    for part in _parts(group.published):
        if time.time() > job.deadline:
            return len(played)
        search.add(streams.read(part))
    for numbers in _parts_of_plays(group, search):
        sources = sorted({n for number in numbers for n in search.found[number].compared})
        published = dict(zip(sources, streams.read([group.published[n] for n in sources])))
        for number in numbers:
            if time.time() > job.deadline:
                return len(played) - number
            for n in search.found[number].compared:
                row = delivery(published[n], played[number])
                if row is not None:
                    deliveries.append(row)
            findings += limit_finding(played[number], search.found[number])
    return 0


def _parts(published: Sequence[LakeStream]) -> Iterator[Sequence[LakeStream]]:
    """Published streams that are read at once."""
    first = messages = 0
    for number, span in enumerate(published):
        if number > first and messages + span.messages > BATCH_MESSAGES:
            yield published[first:number]
            first, messages = number, 0
        messages += span.messages
    yield published[first:]


def _parts_of_plays(group: Group, search: SharedFrames) -> Iterator[range]:
    """Consecutive plays that are compared at once, because their publishers can be read at once."""
    first = messages = 0
    sources: set[int] = set()
    for number, found in enumerate(search.found):
        messages += sum(group.published[n].messages for n in found.compared if n not in sources)
        if number > first and messages > BATCH_MESSAGES:
            yield range(first, number)
            first, messages = number, sum(group.published[n].messages for n in found.compared)
            sources = set()
        sources.update(found.compared)
    yield range(first, len(search.found))


class _StreamReader:
    """Reads streams with their frames from `messages` and `media_tags`."""

    def __init__(self, tables: TableFiles) -> None:
        self._tables = tables
        self._held: set[str] = set()
        self._frames: dict[tuple[str, str], FramesByStream] = {}

    def hold(self, spans: Iterable[LakeStream]) -> None:
        """Read the frames of these streams and of no others, and keep them."""
        self._held = {span.uid for span in spans}
        uids = one_of("uid", self._held)
        media = pc.field("type_id").isin(pa.array([AUDIO, VIDEO], pa.int32())) & (pc.field("length") > 0)
        messages = self._tables.read("messages", _MESSAGE_COLUMNS, uids & media)
        self._frames = _frames(messages, self._tables.read("media_tags", _TAG_COLUMNS, uids))

    def read(self, spans: Sequence[LakeStream]) -> list[Stream]:
        if not self._held.issuperset(span.uid for span in spans):
            self.hold(spans)
        return [
            with_frames(
                Stream(s.uid, s.stream_id, s.ts_start, Frames(), s.ts_end, s.name, s.direction),
                self._frames.get((s.uid, s.direction), {}), s.alone,
            )
            for s in spans
        ]  # fmt: skip


FramesByStream = dict[int, Frames]  # by message stream id
Numbers = npt.NDArray[Any]


def _frames(messages: pa.Table, tags: pa.Table) -> dict[tuple[str, str], FramesByStream]:
    """The frames of each connection and direction, by message stream id, in message order."""
    places, starts, columns = _by_direction(messages, _MESSAGE_COLUMNS)
    numbers, type_id, stream_ids, dts, ts, length, crc = columns
    key = (length.astype(np.uint64) << np.uint64(8) | type_id.astype(np.uint64)) << np.uint64(32)
    key |= crc.astype(np.uint64)
    dts = dts.astype(np.int64)
    kinds = _kinds(tags)
    found: dict[tuple[str, str], FramesByStream] = {}
    for place, (start, end) in zip(places, pairwise(starts)):
        kind = np.zeros(end - start, np.int8)
        if place in kinds:
            tag_numbers, tag_kinds = kinds[place]
            at = np.minimum(np.searchsorted(tag_numbers, numbers[start:end]), len(tag_numbers) - 1)
            kind = np.where(tag_numbers[at] == numbers[start:end], tag_kinds[at], 0).astype(np.int8)
        ids = stream_ids[start:end]
        found[place] = {
            stream_id: Frames.filled(key[start:end][own], ts[start:end][own], dts[start:end][own], kind[own])
            for stream_id in np.unique(ids).tolist()
            for own in [ids == stream_id]
        }
    return found


def _kinds(tags: pa.Table) -> dict[tuple[str, str], tuple[Numbers, Numbers]]:
    """Message numbers and kinds: a message with a coded frame is CODED, else with a configuration CONFIG."""
    coded = pc.equal(tags["packet_type"], "frame").fill_null(False).cast(pa.int8())
    config = tags["is_config"].fill_null(False).cast(pa.int8())
    ranked = tags.select(["uid", "direction", "msg_no"]).append_column("coded", coded).append_column("config", config)
    places, starts, (messages, is_coded, is_config) = _by_direction(ranked, ranked.schema.names)
    found = {}
    for place, (start, end) in zip(places, pairwise(starts)):
        rank = np.where(is_coded[start:end], 2, is_config[start:end])
        numbers, first = np.unique(messages[start:end], return_index=True)
        highest = np.maximum.reduceat(rank, first)
        found[place] = numbers, np.where(highest == 2, CODED, np.where(highest == 1, CONFIG, 0))
    return found


def _by_direction(table: pa.Table, columns: Sequence[str]) -> tuple[list[tuple[str, str]], list[int], list[Numbers]]:
    """The uids and directions of a table in order, where the rows of each begin and the last end, and the other
    columns, sorted by message number within them."""
    order = [("uid", "ascending"), ("direction", "ascending"), ("msg_no", "ascending")]
    table = table.sort_by(order).combine_chunks()
    values = [table[c].cast(pa.int64()) if pa.types.is_timestamp(table[c].type) else table[c] for c in columns[2:]]
    if not table.num_rows:
        return [], [0], [column.to_numpy() for column in values]
    uids, directions = (table[c].combine_chunks().dictionary_encode() for c in columns[:2])
    codes = uids.indices.to_numpy().astype(np.int64) * 4 + directions.indices.to_numpy()
    starts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist()]
    places = list(zip(*(table[c].take(pa.array(starts)).to_pylist() for c in columns[:2])))
    return places, [*starts, table.num_rows], [column.to_numpy() for column in values]
