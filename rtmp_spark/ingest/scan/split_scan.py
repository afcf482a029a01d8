"""The first pass over one split: a byte range of an uncompressed capture, or a whole file.

One read of a split gives the facts about it (packets, times, block hashes, damage), its connections, and its packets
in the staging area, by group (staged_packets.py). The scans of a file's ranges are merged into the facts of the file. A
file whose ranges do not fit together is scanned whole.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, cast

import numpy as np

from rtmp_spark.capture.files.byte_range import PcapngRange, PcapRange
from rtmp_spark.capture.files.content_hash import RangeHash, TreeHash, hash_of_blocks
from rtmp_spark.capture.files.file_facts import OK, FileFacts
from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.capture.files.pcap import FILE_HEADER_BYTES, parse_header
from rtmp_spark.capture.packet_block import Ints, PacketBlock
from rtmp_spark.capture.packets.dissector import Dissector
from rtmp_spark.capture.packets.ip_fragments import Key as FragmentKey
from rtmp_spark.capture.unwrap.tls.keylog import tls_secrets
from rtmp_spark.codec.errors import CaptureError, ViolationCode
from rtmp_spark.ingest.captures.capture_paths import FirstBytes, open_file, require_unchanged
from rtmp_spark.ingest.scan.flow_index import FlowIndex
from rtmp_spark.ingest.scan.staged_packets import PacketFile, SplitPackets


@dataclass(frozen=True)
class Split:
    """A byte range of a file; `end` 0 means the whole file."""

    split_id: int
    path: str
    start: int
    end: int
    size_bytes: int
    modified_ns: int = 0
    format: str = "pcap"  # empty: compressed, or not a capture


@dataclass
class SplitScan:
    """The result of scanning a split."""

    split_id: int
    facts: FileFacts = field(default_factory=FileFacts)
    began: int | None = None  # offset of its first record; None: there is none
    ended: int | None = None  # offset after its last record
    fragments: list[str] = field(default_factory=list)  # IP packets of which it has fragments
    incomplete: list[str] = field(default_factory=list)  # those of which fragments are missing
    alone: bool = False  # it cannot be understood without the rest of the file
    leaves: list[str] = field(default_factory=list)  # hashes of the blocks that start in it
    staged: str = ""  # the file with its packets
    is_copy: bool = False  # that file holds the packets themselves
    secrets: list[tuple[int, str]] = field(default_factory=list, repr=False)  # TLS secrets, and the run they precede

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SplitScan:
        return cls(**{**values, "facts": FileFacts.from_dict(values["facts"])})


class SplitScanner:
    """Scans one split into `found`, `flows` and `packets`."""

    def __init__(self, split: Split, staged: PacketFile, *, sort: bool) -> None:
        """`sort`: write a sorted copy even of a byte range, whose packets can be found again by their places."""
        self._split = split
        self._is_copy = sort or not split.end
        self.found = SplitScan(split.split_id, staged=staged.name, is_copy=self._is_copy)
        self.flows = FlowIndex()
        self.packets = SplitPackets(staged, with_packets=self._is_copy)
        self._dissector = Dissector()
        self._fragments: dict[int, tuple[PacketBlock, Ints | None]] = {}  # packets that later ones may complete

    def run(self) -> None:
        try:
            with open_file(self._split.path) as opened:
                file = opened
                if self._split.format:
                    file = cast(BinaryIO, FirstBytes(opened, self._split.size_bytes))
                if self._split.end:
                    self._scan_range(file)
                    self._note_fragments()
                else:
                    self._scan_whole(file)
        except (CaptureError, PermissionError) as error:  # other faults of the machine fail the ingest
            self.found.facts.fail(error)
            return
        if self._is_copy:
            require_unchanged(self._split)
        self.packets.end_run()

    def _scan_range(self, file: BinaryIO) -> None:
        split, found = self._split, self.found
        self._dissector.fragment_keys = set()
        hashed = RangeHash(file, split.start, split.end)
        given = cast(BinaryIO, hashed)
        reader: PcapRange | PcapngRange
        if split.format == "pcapng":
            reader = PcapngRange(given, split.start, split.end)
        else:
            header = parse_header(given.read(FILE_HEADER_BYTES))
            reader = PcapRange(given, split.start, split.end, header)
        for block in reader:
            self._add(block, reader.offsets(block) - split.start)
        found.alone = isinstance(reader, PcapngRange) and reader.needs_the_whole_file
        found.began, found.ended = reader.began, reader.ended
        found.facts = reader.facts
        found.facts.undecoded = self._dissector.undecoded
        found.leaves = hashed.leaves()

    def _note_fragments(self) -> None:
        found, dissector = self.found, self._dissector
        found.fragments = sorted(map(_digest, dissector.fragment_keys or ()))
        found.incomplete = sorted(map(_digest, dissector.waiting_fragments))
        found.alone |= dissector.dropped_fragments

    def _scan_whole(self, file: BinaryIO) -> None:
        tree, taken = TreeHash(), 0
        facts = self.found.facts
        capture = open_capture(file, on_bytes=tree.update, facts=facts, read_ahead=True)
        for block in capture:
            secrets = capture.decryption_secrets
            if len(secrets) > taken:  # they apply from this window on
                self.packets.end_run()
                self.found.secrets.append((self.packets.run, tls_secrets(secrets[taken:]).decode("latin-1")))
                taken = len(secrets)
            self._add(block, None)
        facts.capture_id = tree.result()
        facts.conclude(self._dissector.take_problems())

    def _add(self, block: PacketBlock, offsets: Ints | None) -> None:
        """`offsets`: of the records, from the start of the split."""
        segments = self._dissector.segments(block)
        group = self.flows.add(segments)
        if self._dissector.fragments or self._fragments:
            self._add_fragments(block, offsets, dict(zip(segments.frame.tolist(), group.tolist())))
        if len(segments):
            row = np.searchsorted(block.frame, segments.frame)
            self._stage(group, block.select(row), None if offsets is None else offsets[row])

    def _stage(self, group: Ints, block: PacketBlock, offsets: Ints | None) -> None:
        if self._is_copy:
            self.packets.add_packets(group, block)
        elif offsets is not None:
            self.packets.add_places(group, block.frame, offsets)

    def _add_fragments(self, block: PacketBlock, offsets: Ints | None, group_of: dict[int, int]) -> None:
        """With a segment that came in fragments, the packets before the last of them."""
        kept = self._fragments
        for row in self._dissector.fragments:
            alone = replace(block.select([row]), data=block.packet(row), start=np.zeros(1, np.int64))
            kept[int(block.frame[row])] = alone, None if offsets is None else offsets[[row]]
        for last, frames in self._dissector.completed.items():
            for frame in frames if last in group_of else ():
                if frame != last and frame in kept:
                    self._stage(np.array([group_of[last]]), *kept[frame])
        waiting = {frame for frames in self._dissector.waiting_fragments.values() for frame in frames}
        self._fragments = {frame: packet for frame, packet in kept.items() if frame in waiting}


def _digest(key: FragmentKey) -> str:
    return hashlib.blake2b(repr(key).encode(), digest_size=8).hexdigest()


def fits(parts: list[SplitScan]) -> bool:
    """Whether the ranges of a file join without a gap and contain nothing that only a scan of the whole file shows."""
    found = [part for part in parts if part.began is not None]
    if not found or found[0] is not parts[0] or any(a.ended != b.began for a, b in itertools.pairwise(found)):
        return False
    if any(part.facts.status != OK or part.facts.zero_length or part.alone for part in parts):
        return False
    if any(part.facts.error is not None for part in found[:-1]):
        return False
    last = found[-1].facts.error
    if last is not None and last.code is not ViolationCode.CAPTURE_TRUNCATED:
        return False
    incomplete: set[str] = set()
    for part in parts:  # fragments of one IP packet in two ranges
        if not incomplete.isdisjoint(part.fragments):
            return False
        incomplete.update(part.incomplete)
    return True


def joined(parts: list[SplitScan], size_bytes: int) -> FileFacts:
    """The facts of a file from the scans of its ranges, equal to those of a scan of the whole file."""
    first = parts[0].facts
    whole = FileFacts(format=first.format, link_types=first.link_types, snaplen=first.snaplen)
    for part in parts:
        whole.merge(part.facts)
    leaves = (bytes.fromhex(leaf) for part in parts for leaf in part.leaves)
    whole.capture_id = hash_of_blocks(leaves, size_bytes)
    whole.conclude()
    return whole
