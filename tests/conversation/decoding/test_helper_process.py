"""A direction that is decoded in a helper process gives the same rows."""

from __future__ import annotations

import os
import random
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit import capture_rewriting
from kit.capture_rewriting import Packet
from kit.handmade_facts import SAMPLES

from rtmp_spark.analysis import recording
from rtmp_spark.analysis.recording import Recording
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.conversation.decoding import directions, helper_process
from rtmp_spark.conversation.decoding.helper_process import HelperPool, RemoteDirection


def lost(packets: list[Packet]) -> list[Packet]:
    chance = random.Random(3)
    return [p for p in packets if chance.random() > 0.02]


CHANGES: dict[str, Callable[[list[Packet]], list[Packet]]] = {
    "as recorded": list,
    "with losses": lost,
    "shuffled": partial(capture_rewriting.shuffle, seed=1, reach=20),
    "each packet twice": capture_rewriting.duplicate,
    "midstream start": lambda packets: packets[12:],
}
NAMES = (
    "ffmpeg_publish_bframes_rtmpdump_play.pcap",
    "republish_same_name.pcap",
    "p1936_extended_timestamps_multichunk.pcap",
)


@pytest.fixture
def sent_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the runs sent to helpers; every run counts as long enough."""
    sizes: list[int] = []
    receive_run = RemoteDirection.receive_run

    def counted(self: RemoteDirection, run: Any) -> None:
        sizes.append(len(run.data))
        receive_run(self, run)

    monkeypatch.setattr(RemoteDirection, "receive_run", counted)
    monkeypatch.setattr(directions, "LONG_RUN_BYTES", 1)
    return sizes


@pytest.fixture
def helpers() -> Iterator[HelperPool]:
    with closing(HelperPool(2)) as made:
        yield made


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, list[str]]]:
    def of(path: Path, window_bytes: int, helpers: HelperPool | None) -> dict[str, list[str]]:
        monkeypatch.setattr(recording, "open_capture", partial(open_capture, window_bytes=window_bytes))
        settings = Settings(rules_across_connections=False, helpers=helpers)
        found: dict[str, list[str]] = {}
        for table, batch in Recording([path], settings).batches():
            found.setdefault(table, []).extend(map(str, batch.to_pylist()))
        return {table: sorted(texts) for table, texts in found.items()}

    return of


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", CHANGES)
def test_the_same_rows(
    name: str, change: str, tmp_path: Path, helpers: HelperPool, rows: Any, sent_sizes: list[int]
) -> None:
    path = tmp_path / "changed.pcap"
    path.write_bytes(
        capture_rewriting.pcap(capture_rewriting.build(CHANGES[change](capture_rewriting.read(SAMPLES / name))))
    )
    for window_bytes in (2_000, 15_000):
        assert rows(path, window_bytes, helpers) == rows(path, window_bytes, None)
    assert len(sent_sizes) > 5


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
    """The first of two faults is known only when its message is complete, long after the second."""
    packets = [p for p in capture_rewriting.read(SAMPLES / NAMES[0])[:29] if 44878 in (p.sport, p.dport)][:27]
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


def test_a_fault_that_is_known_late_keeps_its_place(
    tmp_path: Path, rows: Any, sent_sizes: list[int], helpers: HelperPool
) -> None:
    path = tmp_path / "late.pcap"
    path.write_bytes(capture_rewriting.pcap(capture_rewriting.build(with_a_fault_in_a_long_message())))
    whole = rows(path, 1 << 23, None)
    (found,) = (row for row in whole["findings"] if "CHUNK_EXT_TS_NEEDLESS" in row)
    assert "for 420" in found.split("for 421")[0]
    for window_bytes in (700, 3_000, 14_700, 17_500):
        assert rows(path, window_bytes, None) == whole
        assert rows(path, window_bytes, helpers) == whole
    assert sent_sizes


def test_a_run_that_is_too_long_for_the_shared_memory(
    rows: Any, sent_sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper_process, "SHARED_MEMORY_BYTES", 4096)
    path = SAMPLES / NAMES[0]
    with closing(HelperPool(1)) as helpers:
        assert rows(path, 15_000, helpers) == rows(path, 15_000, None)
    assert min(sent_sizes) < 4096 < max(sent_sizes)


def test_without_a_helper_everything_is_decoded_here(
    rows: Any, sent_sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    path = SAMPLES / NAMES[0]
    assert rows(path, 15_000, HelperPool(1)) == rows(path, 15_000, None)
    assert not sent_sizes


def test_a_helper_that_dies_raises(rows: Any, sent_sizes: list[int], helpers: HelperPool) -> None:
    receive_run = RemoteDirection.receive_run

    def killed(self: RemoteDirection, run: Any) -> None:
        receive_run(self, run)
        if len(sent_sizes) == 3:
            os.kill(self.helper.pid, signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RemoteDirection, "receive_run", killed)
        with pytest.raises(RuntimeError, match=r"helper process .* has died"):
            rows(SAMPLES / NAMES[0], 2_000, helpers)


def test_short_runs_are_not_sent(
    rows: Any, sent_sizes: list[int], helpers: HelperPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directions, "LONG_RUN_BYTES", 6_000)
    rows(SAMPLES / NAMES[0], 15_000, helpers)
    assert sent_sizes and sent_sizes[0] >= 6_000
    sent_sizes.clear()
    monkeypatch.setattr(directions, "LONG_RUN_BYTES", 1_000_000)
    rows(SAMPLES / NAMES[0], 15_000, helpers)
    assert not sent_sizes
