"""Packets on their way from the scan to the buckets: files in the staging area of the lake, ordered by group.

A scan task writes one file. A split is one run or, if it is long, several; a run has one section for each group of
connections, so a bucket reads only sections of its own groups. A section holds the places of the packets in the
capture or, in a *sorted copy*, the packets themselves. Places are enough where few buckets share a capture. With many
buckets each of them would read most of it for its few packets; and a compressed capture, or a pcapng whose interfaces
change, has to be read from its start.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rtmp_spark.capture.packet_block import PADDING, Ints, PacketBlock, gathered
from rtmp_spark.codec.limits import READ_WINDOW_BYTES
from rtmp_spark.lake.faults import explained
from rtmp_spark.lake.location import Location

RUN_BYTES = 64 << 20  # of packets in one run of a sorted copy: they are in memory at once

SECTIONS = pa.schema(
    [
        pa.field("run", pa.int32()),
        pa.field("group", pa.int32()),
        pa.field("position", pa.int64()),
        pa.field("length", pa.int64()),
        pa.field("split_id", pa.int64()),
    ]
)
_PLACES = pa.schema([pa.field("frame", pa.int32()), pa.field("offset", pa.int32())])  # each as difference to the last
_PACKETS = pa.schema(
    [
        pa.field("frame", pa.int32()),  # difference to the last
        pa.field("ts_ns", pa.int64()),  # difference to the last
        pa.field("caplen", pa.int32()),
        pa.field("origlen", pa.int32()),
        pa.field("link_type", pa.int32()),
        pa.field("start", pa.int32()),  # difference to the last
    ]
)
_NUMPY = {pa.int32(): np.int32, pa.int64(): np.int64}  # `to_pandas_dtype` would load pandas
Section = tuple[int, int]  # position, length


def dump(batch: pa.RecordBatch) -> bytes:
    """Serialize a batch without its schema, which would be larger than the few packets of most groups."""
    data = batch.serialize()
    packed: bytes = pa.compress(data, "zstd", asbytes=True)
    return len(data).to_bytes(8, "big") + packed


def load(blob: bytes | memoryview, schema: pa.Schema) -> pa.RecordBatch:
    data = pa.decompress(blob[8:], int.from_bytes(blob[:8], "big"), "zstd")
    return pa.ipc.read_record_batch(data, schema)


def _batch(columns: Iterable[Ints], schema: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for column, field in zip(columns, schema):
        values = column.astype(_NUMPY[field.type])
        arrays.append(pa.Array.from_buffers(field.type, len(values), [None, pa.py_buffer(values)]))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _columns(batch: pa.RecordBatch) -> list[Ints]:
    buffers = [(column.buffers()[1], _NUMPY[column.type]) for column in batch.columns]  # `to_numpy` loads pandas, too
    return [np.frombuffer(buffer, kind, batch.num_rows).astype(np.int64) for buffer, kind in buffers]


class PacketFile:
    """The file of one scan task. Every attempt of a task has a name of its own."""

    def __init__(self, staging: Location) -> None:
        self._staging = staging
        self.name = f"packets-{uuid.uuid4().hex}"
        self._file: Any = None
        self._position = 0

    def write(self, parts: Sequence[bytes]) -> Section:
        with explained(str(self._staging), "write packets"):
            if self._file is None:
                if self._staging.is_local:
                    Path(self._staging.uri).mkdir(parents=True, exist_ok=True)
                self._file = pa.BufferedOutputStream(self._staging.files_of("").open_output_stream(self.name), 1 << 20)
            for part in parts:
                self._file.write(part)
        begun, length = self._position, sum(map(len, parts))
        self._position += length
        return begun, length

    def close(self) -> None:
        if self._file is not None:
            with explained(str(self._staging), "write packets"):
                self._file.close()
            self._file = None


class SplitPackets:
    """Collects the packets of a split and writes them run by run."""

    def __init__(self, file: PacketFile, *, with_packets: bool) -> None:
        self._file = file
        self._with_packets = with_packets
        self._columns: list[tuple[Ints, ...]] = []  # of each window: group, frame, then places or packets
        self._windows: list[bytes] = []
        self._bytes = 0
        self._run = 0
        self._sections: list[tuple[int, int, int, int]] = []

    @property
    def run(self) -> int:
        return self._run

    def add_places(self, group: Ints, frame: Ints, offset: Ints) -> None:
        """`offset`: of each record, from the start of the split."""
        self._columns.append((group, frame, offset))

    def add_packets(self, group: Ints, packets: PacketBlock) -> None:
        window = np.full(len(packets), len(self._windows), np.int64)
        self._windows.append(packets.data)
        self._columns.append(
            (group, packets.frame, packets.ts_ns, packets.caplen, packets.origlen, packets.link_type, window,
             packets.start)
        )  # fmt: skip
        self._bytes += int(packets.caplen.sum())
        if self._bytes >= RUN_BYTES:
            self.end_run()

    def end_run(self) -> None:
        """Write what was collected."""
        if not self._columns:
            return
        group, frame, *rest = (np.concatenate(column) for column in zip(*self._columns))
        order = np.lexsort((frame, group))
        group, frame, rest = group[order], frame[order], [column[order] for column in rest]
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        for first, last in zip(starts.tolist(), [*starts[1:].tolist(), len(group)]):
            columns = [frame[first:last], *(column[first:last] for column in rest)]
            parts = self._packets(columns) if self._with_packets else [dump(_batch(map(_steps, columns), _PLACES))]
            self._sections.append((self._run, int(group[first]), *self._file.write(parts)))
        self._columns, self._windows, self._bytes = [], [], 0
        self._run += 1

    def _packets(self, columns: list[Ints]) -> list[bytes]:
        frame, ts_ns, caplen, origlen, link_type, window, start = columns
        data, start = gathered(self._windows, window, start, caplen)
        head = dump(_batch((_steps(frame), _steps(ts_ns), caplen, origlen, link_type, _steps(start)), _PACKETS))
        return [len(head).to_bytes(8, "big"), head, data]

    def sections(self, split_id: int) -> Iterator[tuple[int, ...]]:
        """Rows with schema SECTIONS."""
        return ((*section, split_id) for section in self._sections)


def _steps(values: Ints) -> Ints:
    return np.diff(values, prepend=0)


class StagedFiles:
    """Reads sections; the file that was used last stays open."""

    def __init__(self, staging: Location) -> None:
        self._files = staging.files_of("")
        self._name = ""
        self._file: Any = None

    def read(self, name: str, sections: Sequence[Section]) -> list[memoryview]:
        if name != self._name:
            self.close()
            self._file, self._name = self._files.open_input_file(name), name
        found: list[memoryview] = []
        ordered = sorted(sections)
        while ordered:  # sections that follow each other are read at once
            count, (begun, length) = 1, ordered[0]
            while count < len(ordered) and ordered[count][0] == begun + length:
                length += ordered[count][1]
                count += 1
            data = memoryview(self._file.read_at(length, begun))
            if len(data) < length:
                raise OSError(f"{name} ends at byte {begun + len(data)}")
            found += [data[at - begun : at - begun + size] for at, size in ordered[:count]]
            ordered = ordered[count:]
        return found

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file, self._name = None, ""


def places(sections: Iterable[memoryview]) -> tuple[Ints, Ints]:
    """Frame number in the split and offset of the record from its start, of each packet, in the order of the file."""
    columns = [[np.cumsum(column) for column in _columns(load(section, _PLACES))] for section in sections]
    frame, offset = (np.concatenate(column) for column in zip(*columns))
    order = np.argsort(frame, kind="stable")
    return frame[order], offset[order]


def packets(sections: Sequence[memoryview], frames_before: int) -> Iterator[PacketBlock]:
    """The packets of a run of a sorted copy, in windows, in the order of the file."""
    columns: list[list[Ints]] = []
    parts: list[memoryview] = []
    at = 0
    for section in sections:
        begun = 8 + int.from_bytes(section[:8], "big")
        frame, ts_ns, caplen, origlen, link_type, start = _columns(load(section[8:begun], _PACKETS))
        frame, ts_ns, start = np.cumsum(frame) + frames_before, np.cumsum(ts_ns), at + np.cumsum(start)
        columns.append([frame, ts_ns, start, caplen, origlen, link_type])
        parts.append(section[begun:])
        at += len(parts[-1])
    data = b"".join([*parts, PADDING])
    block = PacketBlock(data, *(np.concatenate(column) for column in zip(*columns)))
    block = block.select(np.argsort(block.frame, kind="stable"))
    window = np.cumsum(block.caplen) // READ_WINDOW_BYTES
    starts = np.flatnonzero(np.diff(window, prepend=-1)).tolist()
    for first, last in zip(starts, [*starts[1:], len(block)]):
        yield block.select(slice(first, last))
