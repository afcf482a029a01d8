"""The running relay and the promises it keeps: hostile peers, slow players, full disks, signals."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from relaykit import RelayProcess, StartRelay, frames, read_flv, start_playing

from rtmp_relay import client
from rtmp_relay.caller import PLAY, Caller
from rtmp_relay.client import Refused, Tag, play, publish
from rtmp_relay.faults import factory
from rtmp_relay.synthetic import Synthetic
from rtmp_relay.url import parse_url
from rtmp_spark.codec.command import dump_command
from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.message import COMMAND_AMF0, Message

pytestmark = pytest.mark.slow
CLI = [sys.executable, "-m", "rtmp_spark.cli"]


def connect(relay: RelayProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", relay.port), 5)


def shake(relay: RelayProcess) -> socket.socket:
    peer = connect(relay)
    peer.sendall(b"\3" + bytes(1536))
    got = b""
    while len(got) < 3073:
        got += peer.recv(4096)
    peer.sendall(got[1:1537])
    return peer


def is_closed_within(peer: socket.socket, seconds: float) -> bool:
    peer.settimeout(seconds)
    try:
        while peer.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def assert_serves(relay: RelayProcess, name: str = "honest") -> None:
    """An honest publisher and player still get what they came for."""

    async def both() -> list[Tag]:
        got: list[Tag] = []
        playing = await start_playing(relay.url(name), got.append, duration_s=60)
        await publish(relay.url(name), Synthetic(seconds=0.5).tags())
        await playing
        return got

    assert asyncio.run(both()) == list(Synthetic(seconds=0.5).tags())


def test_garbage_and_bombs_leave_it_standing(start_relay: StartRelay) -> None:
    relay = start_relay()
    assert_serves(relay)
    before = resident_bytes(relay.process.pid)
    chance = random.Random(5)
    for _ in range(30):
        with connect(relay) as peer:
            peer.sendall(chance.randbytes(chance.randrange(1, 5000)))
    with shake(relay) as peer:  # noise where chunks belong
        peer.sendall(chance.randbytes(200_000))
        assert is_closed_within(peer, 5)
    with shake(relay) as peer:  # 16 MB announced, again and again
        bomb = b"".join(
            bytes((0x01, csid & 0xFF, csid >> 8)) + bytes.fromhex("000000 ffffff 09 01000000") + bytes(128)
            for csid in range(1000, 3000)
        )
        try:
            peer.sendall(bomb)
        except OSError:
            pass  # closed already
        assert is_closed_within(peer, 5)
    assert relay.alive
    assert resident_bytes(relay.process.pid) - before < 64 << 20
    assert_serves(relay)
    assert "CHUNK_LIMIT" in relay.log.read_text()


def test_slowloris_is_closed_at_5_seconds(start_relay: StartRelay) -> None:
    relay = start_relay()
    start = time.monotonic()
    with connect(relay) as peer:
        peer.sendall(b"\3")
        closed = False
        while not closed and time.monotonic() - start < 8:
            try:
                peer.sendall(b"\0")  # one byte now and then
                closed = is_closed_within(peer, 0.5)
            except OSError:
                closed = True
        assert closed
        assert time.monotonic() - start >= 4.5
    assert "no handshake in time" in relay.log.read_text()


def test_refusals_are_said_before_the_end(start_relay: StartRelay) -> None:
    relay = start_relay("--publish-key", "s3cret", "--play-key", "look")

    async def refused(name: str, app: str = "live") -> str:
        with pytest.raises(Refused) as error:
            await publish(relay.url(name, app), Synthetic(seconds=0.1).tags())
        return str(error.value)

    async def run() -> None:
        assert "NetStream.Publish.Denied" in await refused("cam")
        assert "NetStream.Publish.Denied" in await refused("cam?key=wrong")
        assert "NetStream.Publish.BadName" in await refused("..%2f..%2fx/../y?key=s3cret")
        begun = asyncio.Event()
        media = Synthetic(seconds=2).tags()
        first = asyncio.create_task(publish(relay.url("cam?key=s3cret"), media, on_progress=lambda _: begun.set()))
        await begun.wait()
        assert "NetStream.Publish.BadName" in await refused("cam?key=s3cret")
        with pytest.raises(Refused, match=r"NetStream.Play.Failed"):
            await play(relay.url("cam"), lambda tag: None)
        got: list[Tag] = []
        await play(relay.url("cam?key=look"), got.append)
        assert got
        progress = await first  # unaffected by all that
        assert progress.ended is None

    asyncio.run(run())
    text = relay.log.read_text()
    assert "s3cret" not in text and "look" not in text


def test_a_stalled_player_is_cut_off_and_nobody_else_notices(start_relay: StartRelay) -> None:
    relay = start_relay()
    media = Synthetic(seconds=14.0, video_bitrate=8_000_000, fps=25)

    stalled = socket.socket()
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    stalled.connect(("127.0.0.1", relay.port))
    caller = Caller(parse_url(relay.url("cam")), PLAY, os.urandom)
    caller.begin(0.0)
    stalled.settimeout(60)
    while caller.step.value != "streaming":
        stalled.sendall(caller.data_to_send())
        caller.receive_data(stalled.recv(65536), 0.0)  # and from here on it reads nothing

    async def run() -> tuple[list[Tag], client.Progress]:
        got: list[Tag] = []
        playing = await start_playing(relay.url("cam"), got.append, duration_s=120)
        progress = await publish(relay.url("cam"), media.tags())
        await playing
        return got, progress

    got, progress = asyncio.run(run())
    assert got == list(media.tags())
    assert progress.ended is None
    assert is_closed_within(stalled, 60)
    stalled.close()
    assert "reads too slowly" in relay.log.read_text()


def test_a_player_that_never_acknowledges_is_still_served(start_relay: StartRelay) -> None:
    relay = start_relay("--window", "10000")
    media = Synthetic(seconds=1.5)

    async def run() -> list[Tag]:
        got: list[Tag] = []
        fault = factory("FLOW_ACK_STARVED", "client")()
        playing = await start_playing(relay.url("cam"), got.append, fault=fault, duration_s=60)
        await publish(relay.url("cam"), media.tags())
        await playing
        return got

    assert asyncio.run(run()) == list(media.tags())


def test_a_full_disk_stops_the_record_and_not_the_stream(tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    process = subprocess.Popen(
        [*CLI, "relay", "--listen", "127.0.0.1:0", "--record", tmp_path / "rec", "--tap", tmp_path / "tap.pcap"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=small_files,
    )
    try:
        assert process.stdout is not None
        url = "rtmp" + process.stdout.readline().split("rtmp", 1)[1].split("APP")[0] + "live/cam"
        media = Synthetic(seconds=2.0)

        async def run() -> list[Tag]:
            got: list[Tag] = []
            playing = await start_playing(url, got.append, duration_s=60)
            await publish(url, media.tags())
            await playing
            return got

        assert asyncio.run(run()) == list(media.tags())
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "the record stops, the stream goes on" in errors
    [record] = (tmp_path / "rec").rglob("*.flv")
    kept = read_flv(record)
    assert [tuple(tag) for tag in kept] == [tuple(tag) for tag in media.tags()][: len(kept)]
    assert len(kept) > 10


def test_sigterm_ends_streams_files_and_the_process(start_relay: StartRelay, tmp_path: Path) -> None:
    relay = start_relay("--record", str(tmp_path / "rec"), "--tap", str(tmp_path / "tap.pcap"))

    async def run() -> tuple[list[Tag], client.Progress, client.Progress, float]:
        got: list[Tag] = []
        playing = await start_playing(relay.url("cam"), got.append)
        publishing = asyncio.create_task(publish(relay.url("cam"), Synthetic(seconds=60).tags()))
        while len(got) < 60 and not publishing.done():
            await asyncio.sleep(0.05)
        took = await asyncio.to_thread(relay.stop)
        return got, await publishing, await playing, took

    got, published, played, took = asyncio.run(run())
    assert took < 5
    assert played.ended is None  # Stream EOF: a proper end
    assert published.ended is not None and "AppShutdown" in published.ended
    [record] = (tmp_path / "rec").rglob("*.flv")
    recorded = read_flv(record)
    assert len(frames(recorded, 9)) >= 15
    assert [tuple(tag) for tag in recorded][: len(got)] == [tuple(tag) for tag in got]
    assert (tmp_path / "tap.pcap").stat().st_size > 10_000


def test_too_many_connections_are_turned_away(start_relay: StartRelay) -> None:
    relay = start_relay("--max-connections", "2")
    with connect(relay), connect(relay), connect(relay) as third:
        assert is_closed_within(third, 20)
    relay.await_said(" closed: ", 2)
    assert_serves(relay)


def test_the_command_line_publishes_and_plays(start_relay: StartRelay, tmp_path: Path) -> None:
    relay = start_relay("--validate", "--gop-cache")
    out = tmp_path / "out.flv"
    player = subprocess.Popen([*CLI, "play", relay.url("cam"), "-o", out, "--quiet"], stderr=subprocess.PIPE)
    relay.await_said("played by")
    command = [*CLI, "publish", "synthetic:seconds=1.5,gop=10", relay.url("cam"), "--amf3", "--chunk-size", "60000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "published" in done.stderr
    assert player.wait(60) == 0
    assert player.stderr is not None
    player.stderr.close()
    wanted = list(Synthetic(seconds=1.5, gop=10).tags())
    assert [tuple(tag) for tag in read_flv(out)] == [tuple(tag) for tag in wanted]
    # the file it wrote can be published in turn, as fast as it goes
    again = subprocess.run(
        [*CLI, "publish", out, relay.url("again"), "--speed", "max"], capture_output=True, text=True, check=True
    )
    assert f"published {len(wanted)} tags" in again.stderr
    faulty = [*CLI, "publish", "synthetic:seconds=2", relay.url("bad"), "--speed", "max", "--fault", "MSG_TYPE_UNKNOWN"]
    subprocess.run(faulty, check=True, capture_output=True)
    relay.stop()
    assert [line for line in relay.output.splitlines() if "connection" in line] == [
        "connection 4 client: warning MSG_TYPE_UNKNOWN: message type 99 has no meaning"
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["publish", "nothere.flv", "rtmp://127.0.0.1:1/live/x"], 2, "no such file"),
        (["publish", "synthetic", "http://127.0.0.1/live/x"], 2, "no RTMP address"),
        (["publish", "synthetic", "rtmp://127.0.0.1:1/live"], 2, "lacks"),
        (["publish", "synthetic", "rtmp://127.0.0.1:1/live/x"], 3, ":1 cannot be reached (connection refused)."),
        (["publish", "synthetic", "rtmp://[::1]:1/live/x"], 3, "rtmp-spark: [::1]:1 cannot be reached ("),
        (["publish", "synthetic:nonsense=1", "rtmp://127.0.0.1:1/live/x"], 2, "no setting"),
        (["publish", "synthetic", "rtmp://127.0.0.1:1/live/x", "--fault", "NONSENSE"], 2, "no finding"),
        (["play", "rtmp://127.0.0.1:1/live/x", "-o", "x.flv"], 3, "cannot be reached"),
        (["relay", "--listen", "nowhere"], 2, "no address"),
        (["relay", "--listen", "192.0.2.1:1935"], 3, "Cannot listen on 192.0.2.1:1935 (cannot assign requested"),
        (["relay", "--chunk-size", "0"], 2, "chunk size"),
        (["tap", "--listen", "127.0.0.1:0", "--to", "x", "-o", "x.pcap"], 2, "no address"),
    ],
)
def test_what_a_person_gets_wrong_is_one_sentence(tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    done = subprocess.run([*CLI, *arguments], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_second_publisher_on_purpose(start_relay: StartRelay) -> None:
    relay = start_relay()
    command = [*CLI, "publish", "synthetic:seconds=1.5", relay.url("cam"), "--fault", "SESSION_BAD_NAME"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "second publisher: The server refused: NetStream.Publish.BadName" in done.stderr
    assert "published" in done.stderr


def test_fault_help_lists_them() -> None:
    done = subprocess.run([*CLI, "publish", "--fault", "help"], capture_output=True, text=True, check=True)
    assert "CHUNK_SIZE_NOT_APPLIED" in done.stdout
    assert len(done.stdout.splitlines()) > 60


@pytest.mark.parametrize("arguments", [["relay"], ["tap", "-o", "session.pcap", "--to"]])
def test_quiet_ones_say_nothing(arguments: list[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as target, socket.create_server(("127.0.0.1", 0)) as other:
        if arguments[0] == "tap":
            arguments = [*arguments, f"127.0.0.1:{target.getsockname()[1]}"]
        port = other.getsockname()[1]
        other.close()
        command = [*CLI, *arguments, "--quiet", "--listen", f"127.0.0.1:{port}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as process:
            while process.poll() is None:
                try:
                    socket.create_connection(("127.0.0.1", port), 5).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            process.terminate()
            assert process.communicate() == (b"", b"")
        assert process.returncode == 0


@pytest.mark.parametrize("arguments", [["relay", "--tap"], ["tap", "--to", "127.0.0.1:1", "-o"]])
def test_a_second_one_on_the_same_port_leaves_the_recording_alone(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "session.pcap").write_bytes(b"of the first one")
    with socket.create_server(("127.0.0.1", 0)) as first:
        where = f"127.0.0.1:{first.getsockname()[1]}"
        command = [*CLI, *arguments, "session.pcap", "--listen", where]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stderr == f"rtmp-spark: Cannot listen on {where} (address already in use). Choose another --listen.\n"
    assert (done.returncode, done.stdout) == (3, "")
    assert (tmp_path / "session.pcap").read_bytes() == b"of the first one"


@pytest.mark.parametrize("arguments", [["relay", "--tap"], ["tap", "--to", "127.0.0.1:1", "-o"]])
def test_a_recording_that_cannot_be_written_is_told_as_that(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [*CLI, *arguments, "file/session.pcap", "--listen", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("rtmp-spark: file") and "Traceback" not in done.stderr


def test_what_a_peer_calls_itself_is_one_line_of_the_log(start_relay: StartRelay) -> None:
    relay = start_relay()
    with shake(relay) as peer:
        name = {"app": "live", "flashVer": "x\x1b[2J\n12:00:00,000 ERROR forged", "tcUrl": "rtmp://127.0.0.1/live"}
        encoder = RtmpEncoder()
        for stream_id, payload in (
            (0, dump_command("connect", 1.0, name)),
            (0, dump_command("createStream", 2.0, None)),
            (1, dump_command("publish", 3.0, None, "cam", "live")),
        ):
            peer.sendall(encoder.send(Message(3, 0, COMMAND_AMF0, stream_id, payload)))
        while b"Publish.Start" not in peer.recv(65536):
            pass
    relay.stop()
    (line,) = (line for line in relay.log.read_text().splitlines() if "published by" in line)
    assert line.endswith("live/cam: published by x.[2J.12:00:00,000 ERROR forged")
