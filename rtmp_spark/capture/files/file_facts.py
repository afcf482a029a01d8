"""What is known about one capture file: one value that grows while the file is read and can be merged.

The sequential analysis fills one FileFacts per file. The distributed ingest fills one per byte range and merges them
in order; the result equals that of one reading of the whole file. `conclude` turns the counts into problems and sets
the status. The value becomes a row of `captures`, and its problems become findings.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from rtmp_spark.capture.packet_block import PacketBlock
from rtmp_spark.capture.problem import Problem, explanation, often
from rtmp_spark.codec.errors import CaptureError, Severity, ViolationCode

OK, PARTIAL, FAILED = "ok", "partial", "failed"


@dataclass
class Occurrences:
    """How many packets show something, and the first of them."""

    count: int = 0
    frame: int | None = None
    ts_ns: int | None = None

    def add(self, count: int, frame: int, ts_ns: int) -> None:
        """`count` more, of which this packet is the first."""
        if not self.count:
            self.frame, self.ts_ns = frame, ts_ns
        self.count += count

    def merge(self, later: Occurrences, frames_before: int) -> None:
        """Add those of a part that follows `frames_before` packets."""
        if later.count and later.frame is not None and later.ts_ns is not None:
            self.add(later.count, later.frame + frames_before, later.ts_ns)

    def __bool__(self) -> bool:
        return self.count > 0


@dataclass
class UndecodedPackets:
    """Packets whose headers could not be read, or read only with doubt."""

    link_types: dict[int, Occurrences] = field(default_factory=dict)  # that neither this program nor scapy knows
    bad_checksums: Occurrences = field(default_factory=Occurrences)  # of IPv4 headers
    bad_offsets: Occurrences = field(default_factory=Occurrences)  # TCP headers with an impossible length

    def merge(self, later: UndecodedPackets, frames_before: int) -> None:
        for link_type, packets in later.link_types.items():
            self.link_types.setdefault(link_type, Occurrences()).merge(packets, frames_before)
        self.bad_checksums.merge(later.bad_checksums, frames_before)
        self.bad_offsets.merge(later.bad_offsets, frames_before)

    def problems(self) -> list[Problem]:
        found = [
            Problem(
                ViolationCode.CAPTURE_LINK_TYPE,
                f"{packets.count} packets of link type {link_type} were not decoded",
                _link_type_remedy(),
                packets.count,
                packets.frame,
                packets.ts_ns,
            )
            for link_type, packets in sorted(self.link_types.items())
        ]
        bad = self.bad_checksums
        if bad:
            found.append(
                Problem(
                    ViolationCode.CAPTURE_BAD_RECORD,
                    f"{bad.count} IPv4 headers have a wrong checksum",
                    "the packets were decoded anyway, although a receiver drops them; look for a damaged file, a "
                    "broken network card or a tool that rewrote addresses",
                    bad.count,
                    bad.frame,
                    bad.ts_ns,
                    Severity.WARNING,
                )
            )
        bad = self.bad_offsets
        if bad:
            found.append(
                Problem(
                    ViolationCode.CAPTURE_BAD_RECORD,
                    f"{bad.count} TCP headers have an impossible data offset",
                    "the packets were skipped, as a receiver does; look for a damaged file or a tool that rewrote it",
                    bad.count,
                    bad.frame,
                    bad.ts_ns,
                    Severity.WARNING,
                )
            )
        return found

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> UndecodedPackets:
        link_types = {int(link_type): Occurrences(**packets) for link_type, packets in values["link_types"].items()}
        return cls(link_types, Occurrences(**values["bad_checksums"]), Occurrences(**values["bad_offsets"]))


@dataclass
class FileFacts:
    """Times are nanoseconds since the epoch, except `modified_at` (microseconds)."""

    path: str = ""
    size_bytes: int | None = None  # on disk
    modified_at: int | None = None
    capture_id: str | None = None
    format: str | None = None
    compression: str | None = None
    link_types: list[int] = field(default_factory=list)
    snaplen: int | None = None
    packets: int = 0
    truncated: Occurrences = field(default_factory=Occurrences)  # packets cut by the snapshot length
    missing_bytes: int = 0  # cut off them
    over_snaplen: int = 0  # packets longer than the snapshot length of the file
    zero_length: int = 0
    time_backwards: Occurrences = field(default_factory=Occurrences)  # packets older than the one before them
    ts_first_ns: int | None = None  # the earliest time
    ts_last_ns: int | None = None  # the latest time
    ts_head_ns: int | None = None  # of the first packet in file order
    ts_tail_ns: int | None = None  # of the last packet in file order
    undecoded: UndecodedPackets = field(default_factory=UndecodedPackets)
    with_secrets: bool = False  # it contains TLS secrets
    other_flows: int = 0  # TCP connections that are not RTMP
    error: Problem | None = None  # what ended the reading before the end of the file
    problems: list[Problem] = field(default_factory=list)
    status: str = FAILED  # until it was read
    error_code: str | None = None
    error_hint: str | None = None

    def add_packets(self, block: PacketBlock) -> None:
        """Count the packets of the next window; `packets` itself comes from the reader, which also sees empty ones."""
        missing = block.origlen - block.caplen
        cut = np.flatnonzero(missing)
        if len(cut):
            self.truncated.add(len(cut), *block.place(int(cut[0])))
            self.missing_bytes += int(missing.sum())
        times = block.ts_ns
        self._extend_times(int(times.min()), int(times.max()))
        before = int(times[0]) if self.ts_tail_ns is None else self.ts_tail_ns
        if self.ts_head_ns is None:
            self.ts_head_ns = before
        back = np.flatnonzero(np.diff(times, prepend=before) < 0)
        if len(back):
            self.time_backwards.add(len(back), *block.place(int(back[0])))
        self.ts_tail_ns = int(times[-1])

    def _extend_times(self, first_ns: int, last_ns: int) -> None:
        self.ts_first_ns = first_ns if self.ts_first_ns is None else min(first_ns, self.ts_first_ns)
        self.ts_last_ns = last_ns if self.ts_last_ns is None else max(last_ns, self.ts_last_ns)

    def merge(self, later: FileFacts) -> None:
        """Add the facts of the byte range that follows in the same file. Its frame numbers begin at 1."""
        frames = self.packets
        if self.ts_tail_ns is not None and later.ts_head_ns is not None and later.ts_head_ns < self.ts_tail_ns:
            self.time_backwards.add(1, frames + 1, later.ts_head_ns)
        self.time_backwards.merge(later.time_backwards, frames)
        self.truncated.merge(later.truncated, frames)
        self.undecoded.merge(later.undecoded, frames)
        self.packets += later.packets
        self.missing_bytes += later.missing_bytes
        self.over_snaplen += later.over_snaplen
        self.zero_length += later.zero_length
        if later.ts_first_ns is not None and later.ts_last_ns is not None:
            self._extend_times(later.ts_first_ns, later.ts_last_ns)
        if self.ts_head_ns is None:
            self.ts_head_ns = later.ts_head_ns
        if later.ts_tail_ns is not None:
            self.ts_tail_ns = later.ts_tail_ns
        if later.error is not None:
            self.error = replace(later.error, frame=frames + (later.error.frame or 0), ts_ns=self.ts_tail_ns)

    def conclude(self, more: Iterable[Problem] = ()) -> None:
        """Set `problems`, `status` and the error columns after the file was read; `more` are problems of later steps.

        A file none of whose packets could be decoded has failed.
        """
        self.problems = [*self._own_problems(), *more]
        error = self.error
        if error is None:
            self.status = OK
            undecoded = [p for p in self.problems if p.code is ViolationCode.CAPTURE_LINK_TYPE]
            if undecoded and sum(p.count for p in undecoded) >= self.packets > 0:
                self.status, error = FAILED, undecoded[0]
        else:
            self.status = PARTIAL if self.packets else FAILED
        if error is not None:
            self.error_code, self.error_hint = error.code.value, error.explanation

    def fail(self, error: CaptureError | OSError) -> None:
        """The file could not be opened."""
        self.status = FAILED
        if isinstance(error, CaptureError):
            self.error_code = error.code.value if error.code is not None else "NOT_A_CAPTURE"
            self.error_hint = explanation(error.detail, error.hint)
        else:
            self.error_code = "UNREADABLE"
            self.error_hint = f"the file cannot be read: {error.strerror or error}"

    def _own_problems(self) -> list[Problem]:
        found = [] if self.error is None else [self.error]
        if self.truncated:
            found.append(
                Problem(
                    ViolationCode.CAPTURE_SNAPLEN,
                    f"{self.missing_bytes} bytes were cut off {self.truncated.count} packets when they were captured",
                    "capture with a snapshot length of 0 (tcpdump -s 0)",
                    self.truncated.count,
                    self.truncated.frame,
                    self.truncated.ts_ns,
                )
            )
        if self.over_snaplen:
            found.append(
                Problem(
                    ViolationCode.CAPTURE_SNAPLEN,
                    f"{self.over_snaplen} packets are longer than the snapshot length of the file",
                    "no action needed: they were read in full",
                    self.over_snaplen,
                )
            )
        if self.time_backwards:
            found.append(
                Problem(
                    ViolationCode.CAPTURE_TIME_BACKWARDS,
                    f"packet timestamps go back {often(self.time_backwards.count)}",
                    "sort the packets with reordercap if you need them in order; streams are reassembled by sequence "
                    "number anyway",
                    self.time_backwards.count,
                    self.time_backwards.frame,
                    self.time_backwards.ts_ns,
                )
            )
        return found + self.undecoded.problems()

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FileFacts:
        facts = cls(**values)
        facts.truncated = Occurrences(**values["truncated"])
        facts.time_backwards = Occurrences(**values["time_backwards"])
        facts.undecoded = UndecodedPackets.from_dict(values["undecoded"])
        facts.error = None if values["error"] is None else Problem.from_dict(values["error"])
        facts.problems = [Problem.from_dict(problem) for problem in values["problems"]]
        return facts


def _link_type_remedy() -> str:
    capture = "capture on an Ethernet, loopback or raw IP interface"
    known = importlib.util.find_spec("scapy") is not None
    return (
        f"scapy does not know it either; {capture}"
        if known
        else f"pip install scapy, which knows more link types, or {capture}"
    )
