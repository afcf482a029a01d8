"""Small connections that are closed as soon as both sides have ended have the rows of a close at their end."""

from __future__ import annotations

import gc
import io
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit.capture_rewriting import ACK, FIN, PSH, RST, Talk
from kit.decoded_tables import RtmpTalk, redacting
from kit.handmade_facts import recorded

from rtmp_spark.analysis import early_closing, recording
from rtmp_spark.analysis.connection_analysis import ConnectionAnalysis, ConnectionObserver
from rtmp_spark.analysis.early_closing import ClosedEarly, EarlyClosing
from rtmp_spark.analysis.recording import ALL_TABLES, Recording
from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.codec import handshake

OTHER = ("10.0.0.9", 50000)
WINDOW_BYTES = 3000


def published(frames: int, client: tuple[str, int], start_ns: int = 1_700_000_000_000_000_000) -> RtmpTalk:
    """A stream that is still published."""
    talk = RtmpTalk(Talk(client, start_ns=start_ns)).handshake().command(0, "connect", 1, {"app": "live"})
    talk.command(1, "_result", 1, {}, {})
    talk.command(0, "createStream", 2, None).command(1, "_result", 2, None, 1.0)
    talk.command(0, "publish", 3, None, "key", "live", stream_id=1)
    return send_frames(talk, frames)


def send_frames(talk: RtmpTalk, frames: int) -> RtmpTalk:
    for number in range(frames):
        talk.wait(0.04).send(0, 8, b"\x2fa" * 50, stream_id=1, timestamp=40 * number)
    return talk


def ended(*, frames: int = 20, client: tuple[str, int] = ("10.0.0.1", 40000)) -> RtmpTalk:
    """A published stream whose connection is closed."""
    return published(frames, client).bye()


def followed(talk: RtmpTalk) -> RtmpTalk:
    """Packets of another connection, so that the windows of the first one end."""
    packets = talk.talk.packets
    talk.talk = Talk(OTHER, ("10.0.0.2", 1935), start_ns=talk.talk.now_ns)
    talk.talk.packets = packets
    talk.talk.open().say(0, bytes(3 * WINDOW_BYTES))
    return talk


def late(talk: RtmpTalk, seconds: float, add: Callable[[Talk], object]) -> RtmpTalk:
    """Another packet of the connection, after some of another one."""
    first = talk.talk
    followed(talk)
    first.packets, first.now_ns = talk.talk.packets, talk.talk.now_ns + int(seconds * 1e9)
    add(first)
    talk.talk.now_ns = first.now_ns
    return followed(talk)


LATE: dict[str, Callable[[Talk], object]] = {
    "a retransmission": lambda t: t.add(0, ACK | PSH, b"\x2fa" * 50, seq=t.seq[0] - 151),
    "other bytes": lambda t: t.add(0, ACK | PSH, b"\x00" * 150, seq=t.seq[0] - 151),
    "bytes after the FIN": lambda t: t.add(0, ACK | PSH, b"more"),
    "a reset": lambda t: t.add(0, RST),
    "a reset of the server": lambda t: t.add(1, RST | ACK),
    "a FIN": lambda t: t.add(0, FIN | ACK, seq=t.seq[0] - 1),
    "an acknowledgement": lambda t: t.add(1, ACK),
    "a closed window": lambda t: t.add(1, ACK, window=0),
    "the same packet": lambda t: t.packets.append(t.packets[-30]),
    "the next connection": lambda t: setattr(t, "seq", [70_000, 80_000]) or t.open().say(0, bytes(100)).close(),
}  # fmt: skip


def rows(path: Path, patch: pytest.MonkeyPatch) -> dict[str, list[dict[str, Any]]]:
    patch.setattr(recording, "open_capture", partial(open_capture, window_bytes=WINDOW_BYTES))
    return recorded(path, *ALL_TABLES)


@pytest.fixture
def reopened(monkeypatch: pytest.MonkeyPatch) -> list[ClosedEarly]:
    """The connections that were decoded again."""
    found: list[ClosedEarly] = []
    reopen = ClosedEarly.reopen

    def noted(closed: ClosedEarly) -> ConnectionAnalysis:
        found.append(closed)
        return reopen(closed)

    monkeypatch.setattr(ClosedEarly, "reopen", noted)
    return found


@pytest.mark.parametrize("seconds", [1, 59, 61])
@pytest.mark.parametrize("packet", LATE)
def test_late_packets(
    packet: str, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reopened: list[ClosedEarly]
) -> None:
    path = late(ended(), seconds, LATE[packet]).write(tmp_path / "talk.pcap")
    found = rows(path, monkeypatch)
    is_own = seconds < 60 or packet == "the same packet"  # with its own time
    assert bool(reopened) == (is_own and packet != "the next connection")
    monkeypatch.setattr(EarlyClosing, "applies", staticmethod(lambda context: False))
    assert rows(path, monkeypatch) == found
    assert found["streams"]


def incomplete_for_minutes() -> RtmpTalk:
    """The publisher stops inside a message, and closes two minutes later."""
    talk = published(20, ("10.0.0.1", 40000))
    return talk.say(0, b"\x04\x00\x00\x28\x00\x00\x64\x08\x01\x00\x00\x00\x2faaaa").wait(130).bye()


def undecided_server() -> RtmpTalk:
    """The server sends one byte and closes."""
    c1 = handshake.dump_packet1("client", 1, 0, bytes(range(191)) * 8, "plain")
    talk = RtmpTalk(Talk()).say(0, b"\x03" + c1).say(0, bytes(1536))
    return talk.command(0, "connect", 1, {"app": "live"}).say(1, b"H").bye(1)


def beside_http() -> RtmpTalk:
    """Some frames arrive in a window in which a connection that may be RTMPT speaks first; a reset follows late."""
    http = Talk(("10.0.0.8", 41000), ("10.0.0.2", 80)).open()
    talk = published(20, ("10.0.0.1", 40000), http.now_ns)
    own = talk.talk
    own.packets = [*http.packets, *own.packets]
    http.packets, http.now_ns = [], own.now_ns
    own.packets += http.say(0, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").packets
    own.now_ns = http.now_ns
    send_frames(talk, 10)
    other = Talk(OTHER, ("10.0.0.2", 1935), start_ns=own.now_ns).open()
    own.packets += other.say(0, bytes(3 * WINDOW_BYTES)).packets
    own.now_ns = other.now_ns
    send_frames(talk, 10).bye()
    other.packets, other.now_ns = [], own.now_ns
    own.packets += other.say(0, bytes(3 * WINDOW_BYTES)).packets
    own.now_ns = other.now_ns
    own.add(1, RST | ACK)
    return talk


@pytest.mark.parametrize("make", [incomplete_for_minutes, undecided_server, beside_http])
def test_connections_with_more_to_decode_are_not_closed_early(
    make: Callable[[], RtmpTalk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = followed(make()).write(tmp_path / "talk.pcap")
    found = rows(path, monkeypatch)
    monkeypatch.setattr(EarlyClosing, "applies", staticmethod(lambda context: False))
    assert rows(path, monkeypatch) == found
    assert found["connections"]


def test_what_was_decoded_is_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = followed(ended()).write(tmp_path / "talk.pcap")
    monkeypatch.setattr(recording, "open_capture", partial(open_capture, window_bytes=WINDOW_BYTES))
    left: list[int] = []

    def progress(size: int, number: int) -> None:
        left.append(sum(type(known) is ConnectionAnalysis for known in gc.get_objects()))

    gc.collect()
    before = sum(type(known) is ConnectionAnalysis for known in gc.get_objects())
    assert list(Recording([path], redacting(), ALL_TABLES, progress=progress).batches())
    assert max(left) == before + 1
    assert left[-2] == before + 1  # of the other connection


class FullDisk(io.BytesIO):
    """Takes the first bytes."""

    def write(self, data: Any) -> int:
        super().write(data[:100])
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("made", [True, False])
def test_a_full_disk(made: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reopened: list[ClosedEarly]) -> None:
    """What cannot be written stays in memory, and no further connection is closed early."""
    first, second = ended(), ended(client=OTHER)
    first.talk.packets += second.talk.packets
    path = late(first, 1, LATE["a reset"]).write(tmp_path / "talk.pcap")
    monkeypatch.setattr(early_closing, "RUN_WRITE_BYTES", 1)
    found = rows(path, monkeypatch)
    assert reopened

    def full() -> FullDisk:
        if made:
            return FullDisk()
        raise OSError(28, "No space left on device")

    reopened.clear()
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    assert rows(path, monkeypatch) == found
    assert len(reopened) == 1


def test_connections_with_more_bytes_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reopened: list[ClosedEarly]
) -> None:
    path = late(ended(frames=400), 1, LATE["a reset"]).write(tmp_path / "talk.pcap")
    assert rows(path, monkeypatch)["streams"]
    assert not reopened


def test_bytes_of_many_connections_are_in_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each can be deleted with the last of its connections."""
    first, second = ended(), ended(client=OTHER)
    first.talk.packets += second.talk.packets
    files: list[object] = []
    make = tempfile.TemporaryFile
    monkeypatch.setattr(early_closing, "RUN_FILE_BYTES", 0)
    monkeypatch.setattr(early_closing, "RUN_WRITE_BYTES", 1)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: files.append(1) or make())
    assert len(rows(first.write(tmp_path / "talk.pcap"), monkeypatch)["streams"]) == 2
    assert len(files) == 2


class Notes(ConnectionObserver):
    def __init__(self) -> None:
        self.made: list[str] = []
        self.got: list[object] = []

    def note(self, connection: ConnectionAnalysis) -> str:
        self.made.append(connection.uid)
        return connection.uid

    def noted(self, note: object) -> None:
        self.got.append(note)


def test_one_note_of_each_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reopened: list[ClosedEarly]
) -> None:
    path = late(ended(), 1, LATE["a reset"]).write(tmp_path / "talk.pcap")
    monkeypatch.setattr(recording, "open_capture", partial(open_capture, window_bytes=WINDOW_BYTES))
    notes = Notes()
    assert list(Recording([path], redacting(), ALL_TABLES, observer=notes).batches())
    assert reopened
    assert notes.made == notes.got
    assert len(notes.got) == 1
