"""A direction that is decoded in another process gives the rows that it gives at home."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import rewrite
from rewrite import Packet
from rulekit import SAMPLES

from rtmp_spark.capture import beside, conversation, recording
from rtmp_spark.capture.beside import Beside, Helpers
from rtmp_spark.capture.files import open_capture
from rtmp_spark.capture.recording import Recording
from rtmp_spark.capture.settings import Settings
from rtmp_spark.forensics.catalogue import entry
from rtmp_spark.forensics.judge import Judge


def lost(packets: list[Packet]) -> list[Packet]:
    chance = random.Random(3)
    return [p for p in packets if chance.random() > 0.02]


CHANGES: dict[str, Callable[[list[Packet]], list[Packet]]] = {
    "as recorded": list,
    "with losses": lost,
    "shuffled": partial(rewrite.shuffle, seed=1, reach=20),
    "each packet twice": rewrite.duplicate,
    "joined in the middle": lambda packets: packets[12:],
}
NAMES = (
    "ffmpeg_publish_bframes_rtmpdump_play.pcap",
    "republish_same_name.pcap",
    "p1936_extended_timestamps_multichunk.pcap",
)


@pytest.fixture
def went_out(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes did, run by run; all runs are long enough."""
    sizes: list[int] = []
    receive_run = Beside.receive_run

    def counted(self: Beside, run: Any) -> None:
        sizes.append(len(run.data))
        receive_run(self, run)

    monkeypatch.setattr(Beside, "receive_run", counted)
    monkeypatch.setattr(conversation, "LONG_RUN", 1)
    return sizes


@pytest.fixture
def helpers() -> Iterator[Helpers]:
    with closing(Helpers(2)) as made:
        yield made


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, list[str]]]:
    def of(path: Path, window_bytes: int, helpers: Helpers | None) -> dict[str, list[str]]:
        monkeypatch.setattr(recording, "open_capture", partial(open_capture, window_bytes=window_bytes))
        settings = Settings(judge=Judge, catalogue=entry, helpers=helpers)
        found: dict[str, list[str]] = {}
        for table, batch in Recording([path], settings).batches():
            found.setdefault(table, []).extend(map(str, batch.to_pylist()))
        return {table: sorted(texts) for table, texts in found.items()}

    return of


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", CHANGES)
def test_the_same_rows(
    name: str, change: str, tmp_path: Path, helpers: Helpers, rows: Any, went_out: list[int]
) -> None:
    path = tmp_path / "changed.pcap"
    path.write_bytes(rewrite.pcap(rewrite.build(CHANGES[change](rewrite.read(SAMPLES / name)))))
    for window_bytes in (2_000, 15_000):
        assert rows(path, window_bytes, helpers) == rows(path, window_bytes, None)
    assert len(went_out) > 5


def chunks(csid: int, timestamp: int, type_id: int, payload: bytes, *, extended: bool = False) -> list[bytes]:
    """A message in chunks of 4096 bytes; `extended` has a field that its timestamp does not need."""
    field = struct.pack(">I", timestamp) if extended else b""
    head = b"\xff\xff\xff" if extended else struct.pack(">I", timestamp)[1:]
    head += struct.pack(">I", len(payload))[1:] + bytes([type_id]) + struct.pack("<I", 1)
    pieces = [payload[at : at + 4096] for at in range(0, len(payload), 4096)]
    rest = [bytes([0xC0 | csid]) + field + piece for piece in pieces[1:]]
    return [bytes([csid]) + head + field + pieces[0], *rest]


def picture(size: int) -> bytes:
    return b"\x27\x01\0\0\0" + struct.pack(">I", size - 9) + b"\x41" + bytes(size - 10)


def with_a_fault_in_a_long_message() -> list[Packet]:
    """The first of two faults is known only when its message is whole, long after the second."""
    packets = [p for p in rewrite.read(SAMPLES / NAMES[0])[:29] if 44878 in (p.sport, p.dport)][:27]
    sound = b"\xaf\x01" + b"\x21" * 198

    def media(first: int, count: int) -> bytes:
        times = range(first, first + 20 * count, 20)
        return b"".join(b"".join(chunks(6, t, 9, picture(900)) + chunks(4, t, 8, sound)) for t in times)

    long, short = chunks(6, 420, 9, picture(10_000), extended=True), chunks(4, 421, 8, sound, extended=True)
    wire = media(20, 20) + b"".join((long[0], short[0], *long[1:])) + media(460, 40)
    sender, last = next(p for p in reversed(packets) if p.sport == 44878), packets[-1]
    seq, ack = sender.seq + len(sender.payload), last.seq + len(last.payload)
    for number, at in enumerate(range(0, len(wire), 500)):
        moved = {"ts_ns": last.ts_ns + (number + 1) * 1_000_000, "seq": (seq + at) & 0xFFFFFFFF, "ack": ack}
        packets.append(replace(sender, payload=wire[at : at + 500], **moved))
    return packets


def test_a_fault_that_is_known_late_has_its_place(
    tmp_path: Path, rows: Any, went_out: list[int], helpers: Helpers
) -> None:
    path = tmp_path / "late.pcap"
    path.write_bytes(rewrite.pcap(rewrite.build(with_a_fault_in_a_long_message())))
    whole = rows(path, 1 << 23, None)
    (told,) = (row for row in whole["findings"] if "CHUNK_EXT_TS_NEEDLESS" in row)
    assert "for 420" in told.split("for 421")[0]
    for window_bytes in (700, 3_000, 14_700, 17_500):
        assert rows(path, window_bytes, None) == whole
        assert rows(path, window_bytes, helpers) == whole
    assert went_out


def test_a_run_that_is_too_long_for_the_shared_memory(
    rows: Any, went_out: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "_ROOM", 4096)
    path = SAMPLES / NAMES[0]
    with closing(Helpers(1)) as helpers:
        assert rows(path, 15_000, helpers) == rows(path, 15_000, None)
    assert min(went_out) < 4096 < max(went_out)


def test_where_nothing_can_be_started_it_goes_without(
    rows: Any, went_out: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    path = SAMPLES / NAMES[0]
    assert rows(path, 15_000, Helpers(1)) == rows(path, 15_000, None)
    assert not went_out


def test_a_helper_that_dies_is_told(rows: Any, went_out: list[int], helpers: Helpers) -> None:
    receive_run = Beside.receive_run

    def killed(self: Beside, run: Any) -> None:
        receive_run(self, run)
        if len(went_out) == 3:
            self._helper._process.kill()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Beside, "receive_run", killed)
        with pytest.raises(RuntimeError, match="beside this one has died"):
            rows(SAMPLES / NAMES[0], 2_000, helpers)


def test_short_runs_stay_at_home(
    rows: Any, went_out: list[int], helpers: Helpers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "LONG_RUN", 6_000)
    rows(SAMPLES / NAMES[0], 15_000, helpers)
    assert went_out and went_out[0] >= 6_000
    went_out.clear()
    monkeypatch.setattr(conversation, "LONG_RUN", 1_000_000)
    rows(SAMPLES / NAMES[0], 15_000, helpers)
    assert not went_out
