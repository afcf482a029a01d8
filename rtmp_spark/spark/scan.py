"""The first pass: which packets of which connections stand where in a capture, and what the file is.

One byte range (or one whole file) in, two things out: what the range tells about its file (packets, times, hash
leaves, damage), and an index of its TCP packets, grouped by a hash of their endpoints, at most a thousandth of
the input. No payload leaves. The second pass (decode.py) reads only the packets of its own connections.

A file that is not a plain classic pcap, or whose ranges do not fit together, is scanned whole and carries no
index: whoever needs its packets reads it from the start.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np
import pyarrow as pa

from rtmp_spark.capture.block import Ints, PacketBlock, Problem, rows_at
from rtmp_spark.capture.columns import arrow_batch
from rtmp_spark.capture.files import FIRST_WINDOW_BYTES, Capture, open_capture, read_range
from rtmp_spark.capture.flows import group as group_flows
from rtmp_spark.capture.keylog import tls_secrets
from rtmp_spark.capture.packet import Dissector
from rtmp_spark.capture.pcap import FILE_HEADER_BYTES, byte_order_of, parse_header
from rtmp_spark.capture.recording import BLOCK_BYTES, TreeHash
from rtmp_spark.codec.errors import CaptureError, Severity, ViolationCode

from .paths import open_file

Place = tuple[int, int]  # number and time of a packet
GROUPS = 256  # connections share an index row by the hash of their endpoints

INDEX = pa.schema([pa.field("frame", pa.int32()), pa.field("offset", pa.int32())])  # each from the one before
FLOWS = pa.schema(
    [
        pa.field("key", pa.binary(36)),
        pa.field("packets", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("ts_first_ns", pa.int64()),
        pa.field("ts_last_ns", pa.int64()),
        pa.field("tunnel", pa.bool_()),  # a request of RTMPT was seen: other connections may carry its session on
        pa.field("tls", pa.bool_()),  # a ClientHello was seen: with its secrets it may turn out to be RTMPT
    ]
)
_POST = b"POST /"
_REQUEST = re.compile(rb"POST /(open|send|idle|close|fcs)/")
_HELLO = re.compile(rb"\x16\x03[\x00-\x04]..\x01", re.DOTALL)


@dataclass(frozen=True)
class Split:
    """A byte range of a file; `end` 0 is the whole file, whatever it is."""

    split_id: int
    path: str
    start: int
    end: int
    size_bytes: int


@dataclass
class About:
    """What a split tells about its file."""

    split_id: int
    format: str = "pcap"
    compression: str = ""
    began: int | None = None
    ended: int | None = None
    link_types: list[int] = field(default_factory=list)
    snaplen: int | None = None
    packets: int = 0
    packets_truncated: int = 0
    missing_bytes: int = 0
    over_snaplen: int = 0
    zero_length: int = 0
    time_backwards: int = 0
    first_backwards: Place | None = None
    first_truncated: Place | None = None
    ts_first_ns: int | None = None
    ts_last_ns: int | None = None
    ts_head_ns: int | None = None  # of the first packet in the file's order
    ts_tail_ns: int | None = None  # of the last one
    link_types_unknown: dict[str, int] = field(default_factory=dict)
    first_unknown: dict[str, Place] = field(default_factory=dict)  # by link type
    bad_checksums: int = 0
    first_bad_checksum: Place | None = None
    fragments: bool = False
    damaged: bool = False
    leaves: list[str] = field(default_factory=list)  # of the blocks that start in it
    capture_id: str | None = None  # whole files only
    with_secrets: bool = False  # of TLS; whole files only
    secrets: str = field(default="", repr=False)  # those at its head, as a key log: they hold for all files
    status: str = "ok"
    error_code: str | None = None
    error_hint: str | None = None
    problems: list[tuple[Any, ...]] = field(default_factory=list)

    def take_notes(self, block: PacketBlock) -> None:
        missing = block.origlen - block.caplen
        cut = np.flatnonzero(missing)
        self.packets_truncated += len(cut)
        self.missing_bytes += int(missing.sum())
        if len(cut) and self.first_truncated is None:
            self.first_truncated = block.place(int(cut[0]))
        times = block.ts_ns
        low, high = int(times.min()), int(times.max())
        self.ts_first_ns = low if self.ts_first_ns is None else min(low, self.ts_first_ns)
        self.ts_last_ns = high if self.ts_last_ns is None else max(high, self.ts_last_ns)
        before = int(times[0]) if self.ts_tail_ns is None else self.ts_tail_ns
        if self.ts_head_ns is None:
            self.ts_head_ns = before
        back = np.flatnonzero(np.diff(times, prepend=before) < 0)
        if len(back):
            self.time_backwards += len(back)
            if self.first_backwards is None:
                self.first_backwards = block.place(int(back[0]))
        self.ts_tail_ns = int(times[-1])

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class FlowIndex:
    """Packets of a split by connection."""

    def __init__(self, with_places: bool) -> None:
        self._with_places = with_places
        self._numbers: dict[bytes, int] = {}
        self._totals: list[list[int]] = []  # packets, bytes, first, last
        self._tunnels: set[int] = set()
        self._tls: set[int] = set()
        self._frames: list[Any] = []
        self._offsets: list[Any] = []
        self._flows: list[Any] = []

    def add(self, segments: Any, offsets: Any) -> None:
        """Segments of one window; `offsets`: place of each segment's record relative to the split."""
        if not len(segments):
            return
        flows = group_flows(segments)
        sizes = segments.length[flows.order]
        times = segments.ts_ns[flows.order]
        ends = np.append(flows.starts[1:], len(flows.order))
        bytes_of = np.add.reduceat(sizes, flows.starts)
        low, high = np.minimum.reduceat(times, flows.starts), np.maximum.reduceat(times, flows.starts)
        numbers = np.empty(len(flows.keys), np.int64)
        for i, key in enumerate(flows.keys):
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = len(self._totals)
                self._totals.append([0, 0, int(low[i]), int(high[i])])
            numbers[i] = number
            totals = self._totals[number]
            totals[0] += int(ends[i] - flows.starts[i])
            totals[1] += int(bytes_of[i])
            totals[2] = min(totals[2], int(low[i]))
            totals[3] = max(totals[3], int(high[i]))
        number_of = np.empty(len(flows.order), np.int64)
        number_of[flows.order] = numbers[flows.group]
        self._tunnels.update(number_of[_beginning(segments, _POST, _REQUEST)].tolist())
        self._tls.update(number_of[_beginning(segments, b"\x16\x03", _HELLO)].tolist())
        if self._with_places:
            self._frames.append(segments.frame)
            self._offsets.append(offsets)
            self._flows.append(number_of)

    def rows(self) -> Iterator[tuple[int, bytes, bytes | None]]:
        """(group, its flows, its packets)."""
        keys = list(self._numbers)
        group_of = np.array([group_of_key(k) for k in keys], np.int64)
        frames, offsets, flows = (
            np.concatenate(c) if c else np.zeros(0, np.int64) for c in (self._frames, self._offsets, self._flows)
        )
        packet_group = group_of[flows].astype(np.int16)
        in_groups = np.argsort(packet_group, kind="stable")
        frames, offsets, packet_group = frames[in_groups], offsets[in_groups], packet_group[in_groups]
        for number in np.unique(group_of).tolist():
            members = np.flatnonzero(group_of == number)
            totals = [self._totals[i] for i in members]
            columns = (
                [keys[i] for i in members],
                *zip(*totals),
                *([i in marked for i in members.tolist()] for marked in (self._tunnels, self._tls)),
            )
            packets = None
            if self._with_places:
                first, last = np.searchsorted(packet_group, (number, number + 1))
                steps = [np.diff(c[first:last], prepend=0).astype(np.int32) for c in (frames, offsets)]
                arrays = [pa.Array.from_buffers(pa.int32(), len(c), [None, pa.py_buffer(c)]) for c in steps]
                packets = dump(pa.RecordBatch.from_arrays(arrays, schema=INDEX))
            yield number, dump(arrow_batch(columns, FLOWS)), packets


def _beginning(segments: Any, word: bytes, pattern: re.Pattern[bytes]) -> list[int]:
    """The segments that begin with this pattern; `word` is how it begins, for a first look at all of them."""
    long = np.flatnonzero(segments.length >= len(word))
    if not len(long):
        return []
    likely = (rows_at(segments.data, segments.start[long], len(word)) == np.frombuffer(word, np.uint8)).all(axis=1)
    return [i for i in long[likely].tolist() if pattern.match(segments.data, int(segments.start[i]))]


def group_of_key(key: bytes) -> int:
    return crc32(key) % GROUPS


def ends_of_key(key: bytes) -> tuple[bytes, bytes]:
    return key[:18], key[18:]


def dump(batch: pa.RecordBatch) -> bytes:
    """Without the schema, which its reader knows and which would outweigh the few packets of most groups."""
    data = batch.serialize()
    packed: bytes = pa.compress(data, "zstd", asbytes=True)
    return len(data).to_bytes(8, "big") + packed


def _loaded(blob: bytes, schema: pa.Schema) -> pa.RecordBatch:
    data = pa.decompress(blob[8:], int.from_bytes(blob[:8], "big"), "zstd")
    return pa.ipc.read_record_batch(data, schema)


def flows_of(blob: bytes) -> pa.RecordBatch:
    """The connections of a group in a split."""
    return _loaded(blob, FLOWS)


def places(blob: bytes) -> tuple[Ints, Ints]:
    """Frame in the split and place of the record relative to it, of each packet of a group."""
    steps = (np.frombuffer(column.buffers()[1], np.int32, len(column)) for column in _loaded(blob, INDEX).columns)
    frame, offset = (np.cumsum(c, dtype=np.int64) for c in steps)  # `to_numpy` would load pandas
    return frame, offset


def is_plain_pcap(path: str) -> bool:
    """Can be cut into byte ranges; anything else, and what cannot be read, is one piece."""
    try:
        with open_file(path) as file:
            head = file.read(FILE_HEADER_BYTES)
    except OSError:
        return False
    return len(head) == FILE_HEADER_BYTES and byte_order_of(head[:4]) is not None


def scan(split: Split) -> tuple[About, FlowIndex]:
    about, index = About(split.split_id), FlowIndex(with_places=bool(split.end))
    try:
        with open_file(split.path) as file:
            if split.end:
                _scan_range(file, split, about, index)
            else:
                _scan_whole(file, about, index)
    except CaptureError as error:
        about.status = "failed"
        about.error_code = error.code.value if error.code is not None else "NOT_A_CAPTURE"
        about.error_hint = f"{error.detail}; {error.hint}".rstrip("; ")
    except OSError as error:
        about.status, about.error_code = "failed", "UNREADABLE"
        about.error_hint = f"the file cannot be read: {error.strerror or error}"
    return about, index


def _scan_range(file: BinaryIO, split: Split, about: About, index: FlowIndex) -> None:
    header = parse_header(file.read(FILE_HEADER_BYTES))
    about.link_types, about.snaplen = [header.link_type], header.snaplen
    about.leaves = [leaf.hex() for leaf in _leaves(file, split)]
    file.seek(0)
    reader = read_range(file, split.start, split.end, header)
    about.began = reader.began
    dissector = Dissector()
    for block in reader:
        assert reader.ended is not None
        window_at = reader.ended - int(block.start[-1] + block.caplen[-1])
        about.take_notes(block)
        segments = dissector.segments(block)
        row = np.searchsorted(block.frame, segments.frame)
        at = block.start[row] + (window_at - header.record_header_bytes - split.start)
        index.add(segments, at)
    about.ended = reader.ended
    about.packets = reader.packets
    about.over_snaplen, about.zero_length = reader._reader.over_snaplen, reader._reader.zero_length
    about.damaged = reader.error is not None
    _about_dissector(about, dissector)


def _about_dissector(about: About, dissector: Dissector) -> None:
    about.link_types_unknown = {str(k): v for k, v in dissector.link_types_unknown.items()}
    about.first_unknown = {str(k): v for k, v in dissector.first_unknown.items()}
    about.bad_checksums, about.first_bad_checksum = dissector.bad_checksums, dissector.first_bad_checksum
    about.fragments = any("fragment" in name for name, count in dissector.counts.items() if count)


def _leaves(file: BinaryIO, split: Split) -> Iterator[bytes]:
    """Hashes of the 1 MiB blocks that start in the range; the last may reach beyond it."""
    start = -(-split.start // BLOCK_BYTES) * BLOCK_BYTES
    for at in range(start, split.end, BLOCK_BYTES):
        file.seek(at)
        yield hashlib.sha256(file.read(BLOCK_BYTES)).digest()


def _scan_whole(file: BinaryIO, about: About, index: FlowIndex) -> None:
    tree = TreeHash()
    capture = open_capture(file, on_bytes=tree.update)
    dissector = Dissector()
    for block in capture:
        if about.ts_head_ns is None:
            about.ts_head_ns = int(block.ts_ns[0])
        about.ts_tail_ns = int(block.ts_ns[-1])
        index.add(dissector.segments(block), None)
    about.capture_id = tree.result()
    describe(about, capture)
    if about.with_secrets:
        file.seek(0)
        head = open_capture(file, window_bytes=FIRST_WINDOW_BYTES)
        head.first_ts_ns()
        about.secrets = tls_secrets(head.decryption_secrets).decode("latin-1")
    _about_dissector(about, dissector)
    about.problems += [_problem(p) for p in dissector.take_problems()]


def describe(about: About, capture: Capture) -> None:
    about.format, about.compression = capture.format, capture.compression
    about.link_types, about.snaplen = [int(t) for t in capture.link_types], capture.snaplen
    about.packets, about.packets_truncated = capture.packets, capture.packets_truncated
    about.ts_first_ns, about.ts_last_ns = capture.ts_first_ns, capture.ts_last_ns
    about.status = capture.status
    about.with_secrets = bool(capture.decryption_secrets)
    about.problems = [_problem(p) for p in capture.problems]
    error = capture.error
    if error is not None:
        about.error_code, about.error_hint = error.code.value, f"{error.detail}; {error.hint}".rstrip("; ")


def _problem(problem: Problem) -> tuple[Any, ...]:
    severity = problem.severity and problem.severity.value
    return problem.code.value, problem.detail, problem.hint, problem.count, problem.frame, problem.ts_ns, severity


def as_problem(values: Sequence[Any]) -> Problem:
    code, *rest = values
    problem = Problem(ViolationCode[code], *rest)
    return replace(problem, severity=problem.severity and Severity(problem.severity))


def fits(parts: list[About]) -> bool:
    """The ranges of one file join without a seam and hold nothing that only a whole read can judge."""
    if any(p.status != "ok" or p.damaged or p.fragments or p.zero_length for p in parts):
        return False
    found = [p for p in parts if p.began is not None]
    return bool(found) and all(a.ended == b.began for a, b in itertools.pairwise(found)) and found[0] is parts[0]


_SUMS = ("packets", "packets_truncated", "missing_bytes", "over_snaplen", "time_backwards", "bad_checksums")


def joined(parts: list[About], size_bytes: int) -> About:
    """What the ranges of one file say together: the same words as one reading of the whole file."""
    whole = About(parts[0].split_id, link_types=parts[0].link_types, snaplen=parts[0].snaplen)
    previous: int | None = None
    frames = 0
    for part in parts:
        for name in _SUMS:
            setattr(whole, name, getattr(whole, name) + getattr(part, name))
        for name, pick in (("ts_first_ns", min), ("ts_last_ns", max)):
            values = [v for v in (getattr(whole, name), getattr(part, name)) if v is not None]
            setattr(whole, name, pick(values) if values else None)
        back = part.first_backwards
        if previous is not None and part.ts_head_ns is not None and part.ts_head_ns < previous:
            whole.time_backwards += 1
            back = (1, part.ts_head_ns)
        whole.first_backwards = whole.first_backwards or _moved(back, frames)
        whole.first_truncated = whole.first_truncated or _moved(part.first_truncated, frames)
        whole.first_bad_checksum = whole.first_bad_checksum or _moved(part.first_bad_checksum, frames)
        for link_type, place in part.first_unknown.items():
            whole.first_unknown.setdefault(link_type, (place[0] + frames, place[1]))
        if whole.ts_head_ns is None:
            whole.ts_head_ns = part.ts_head_ns
        previous = previous if part.ts_tail_ns is None else part.ts_tail_ns
        frames += part.packets
        for link_type, count in part.link_types_unknown.items():
            whole.link_types_unknown[link_type] = whole.link_types_unknown.get(link_type, 0) + count
        whole.leaves += part.leaves
    whole.ts_tail_ns = previous
    digest = hashlib.sha256(b"".join(map(bytes.fromhex, whole.leaves)) + size_bytes.to_bytes(8, "big"))
    whole.capture_id = digest.hexdigest()[:32]
    whole.leaves = []
    whole.problems = [_problem(p) for p in _problems_of(whole)]
    return whole


def _moved(place: Place | None, frames: int) -> Place | None:
    """A place of a range in its file: `frames` packets stand before the range."""
    return None if place is None else (place[0] + frames, place[1])


class _AsCapture:
    """As much of a capture as its list of problems asks for."""

    def __init__(self, about: About) -> None:
        self.error = None
        self.packets_truncated, self.missing_bytes = about.packets_truncated, about.missing_bytes
        self.time_backwards, self._first_backwards = about.time_backwards, about.first_backwards
        self._first_truncated = about.first_truncated
        self._reader = self
        self.over_snaplen = about.over_snaplen


def _problems_of(about: About) -> list[Problem]:
    problems: list[Problem] = Capture.problems.fget(_AsCapture(about))  # type: ignore[attr-defined]
    dissector = Dissector()
    dissector.link_types_unknown.update({int(k): v for k, v in about.link_types_unknown.items()})
    dissector.first_unknown.update({int(k): v for k, v in about.first_unknown.items()})
    dissector.bad_checksums, dissector.first_bad_checksum = about.bad_checksums, about.first_bad_checksum
    return problems + dissector.take_problems()


def unreadable(about: About) -> None:
    """A file of whose packets none could be decoded has failed."""
    of_link = [p for p in about.problems if p[0] == ViolationCode.CAPTURE_LINK_TYPE.value]
    if about.error_code is None and of_link and sum(p[3] for p in of_link) >= about.packets > 0:
        about.status, about.error_code = "failed", of_link[0][0]
        about.error_hint = f"{of_link[0][1]}; {of_link[0][2]}".rstrip("; ")
