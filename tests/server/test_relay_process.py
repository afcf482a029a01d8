"""The relay as a process: hostile clients, slow players, full disks, signals; and the commands that use it."""

from __future__ import annotations

import asyncio
import os
import random
import re
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kit.relay_process import RelayProcess, StartRelay, frames, read_flv, start_playing

from rtmp_relay.client import rtmp_client as client
from rtmp_relay.client.client_session import PLAY, ClientSession
from rtmp_relay.client.rtmp_client import Refused, Tag, play, publish
from rtmp_relay.faults.fault_catalogue import factory
from rtmp_relay.rtmp_url import parse_url
from rtmp_relay.synthetic_media import Synthetic
from rtmp_spark.codec import flv
from rtmp_spark.codec.command import dump_command
from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.message import COMMAND_AMF0, Message
from rtmp_spark.redact import Redactor, load_key

pytestmark = pytest.mark.slow
CLI = [sys.executable, "-m", "rtmp_spark.cli"]


def connect(relay: RelayProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", relay.port), 5)


def connect_and_handshake(relay: RelayProcess) -> socket.socket:
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


def assert_serves(relay: RelayProcess, name: str = "correct") -> None:
    """A correct publisher and player still work."""

    async def both() -> list[Tag]:
        got: list[Tag] = []
        playing = await start_playing(relay.url(name), got.append, duration_s=60)
        await publish(relay.url(name), Synthetic(seconds=0.5).tags())
        await playing
        return got

    assert asyncio.run(both()) == list(Synthetic(seconds=0.5).tags())


def test_the_relay_survives_garbage_and_huge_announced_messages(start_relay: StartRelay) -> None:
    relay = start_relay()
    assert_serves(relay)
    before = resident_bytes(relay.process.pid)
    chance = random.Random(5)
    for _ in range(30):
        with connect(relay) as peer:
            peer.sendall(chance.randbytes(chance.randrange(1, 5000)))
    with connect_and_handshake(relay) as peer:  # random bytes instead of chunks
        peer.sendall(chance.randbytes(200_000))
        assert is_closed_within(peer, 5)
    with connect_and_handshake(relay) as peer:  # 2000 messages that announce 16 MB
        bomb = b"".join(
            bytes((0x01, csid & 0xFF, csid >> 8)) + bytes.fromhex("000000 ffffff 09 01000000") + bytes(128)
            for csid in range(1000, 3000)
        )
        try:
            peer.sendall(bomb)
        except OSError:
            pass  # already closed
        assert is_closed_within(peer, 5)
    assert relay.alive
    assert resident_bytes(relay.process.pid) - before < 64 << 20
    assert_serves(relay)
    assert "CHUNK_LIMIT" in relay.log.read_text()


def test_a_client_that_sends_the_handshake_slowly_is_closed_after_5_seconds(start_relay: StartRelay) -> None:
    relay = start_relay()
    start = time.monotonic()
    with connect(relay) as peer:
        peer.sendall(b"\3")
        closed = False
        while not closed and time.monotonic() - start < 8:
            try:
                peer.sendall(b"\0")  # one byte at a time
                closed = is_closed_within(peer, 0.5)
            except OSError:
                closed = True
        assert closed
        assert time.monotonic() - start >= 4.5
    assert "handshake timeout" in relay.log.read_text()


def test_refusals_are_sent_before_the_connection_closes(start_relay: StartRelay) -> None:
    relay = start_relay("--publish-key", "s3cret", "--play-key", "look")

    async def refused(name: str, app: str = "live") -> str:
        with pytest.raises(Refused) as error:
            await publish(relay.url(name, app), Synthetic(seconds=0.1).tags())
        return str(error.value)

    async def run() -> None:
        assert "NetStream.Publish.Denied" in await refused("cam")
        assert "NetStream.Publish.Denied" in await refused("cam?key=wrong")
        assert "NetStream.Publish.BadName" in await refused("..%2f..%2fx/../y?key=s3cret")
        publishing = asyncio.Event()
        media = Synthetic(seconds=2).tags()
        first = asyncio.create_task(publish(relay.url("cam?key=s3cret"), media, on_progress=lambda _: publishing.set()))
        await publishing.wait()
        assert "NetStream.Publish.BadName" in await refused("cam?key=s3cret")
        with pytest.raises(Refused, match=r"NetStream.Play.Failed"):
            await play(relay.url("cam"), lambda tag: None)
        got: list[Tag] = []
        await play(relay.url("cam?key=look"), got.append)
        assert got
        progress = await first  # unaffected by the refusals
        assert progress.ended is None

    asyncio.run(run())
    text = relay.log.read_text()
    assert "s3cret" not in text and "look" not in text


def test_a_stalled_player_is_disconnected_and_others_are_unaffected(start_relay: StartRelay) -> None:
    relay = start_relay()
    media = Synthetic(seconds=14.0, video_bitrate=8_000_000, fps=25)

    stalled = socket.socket()
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    stalled.connect(("127.0.0.1", relay.port))
    session = ClientSession(parse_url(relay.url("cam")), PLAY, os.urandom)
    session.begin(0.0)
    stalled.settimeout(60)
    while session.step.value != "streaming":
        stalled.sendall(session.data_to_send())
        session.receive_data(stalled.recv(65536), 0.0)  # from now on it reads nothing

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


def test_a_full_disk_stops_the_recording_and_not_the_stream(tmp_path: Path) -> None:
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
    assert "recording stopped, the stream continues" in errors
    [record] = (tmp_path / "rec").rglob("*.flv")
    kept = read_flv(record)
    assert [tuple(tag) for tag in kept] == [tuple(tag) for tag in media.tags()][: len(kept)]
    assert len(kept) > 10


def test_sigterm_ends_streams_closes_files_and_exits(start_relay: StartRelay, tmp_path: Path) -> None:
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
    assert played.ended is None  # it ended with Stream EOF
    assert published.ended is not None and "AppShutdown" in published.ended
    [record] = (tmp_path / "rec").rglob("*.flv")
    recorded = read_flv(record)
    assert len(frames(recorded, 9)) >= 15
    assert [tuple(tag) for tag in recorded][: len(got)] == [tuple(tag) for tag in got]
    assert (tmp_path / "tap.pcap").stat().st_size > 10_000


def test_connections_beyond_the_limit_are_refused(start_relay: StartRelay) -> None:
    relay = start_relay("--max-connections", "2")
    with connect(relay), connect(relay), connect(relay) as third:
        assert is_closed_within(third, 20)
    relay.await_log(" closed: ", 2)
    assert_serves(relay)


def test_the_publish_and_play_commands(start_relay: StartRelay, tmp_path: Path) -> None:
    relay = start_relay("--validate", "--gop-cache")
    out = tmp_path / "out.flv"
    player = subprocess.Popen([*CLI, "play", relay.url("cam"), "-o", out, "--quiet"], stderr=subprocess.PIPE)
    relay.await_log("played by")
    command = [*CLI, "publish", "synthetic:seconds=1.5,gop=10", relay.url("cam"), "--amf3", "--chunk-size", "60000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "published" in done.stderr
    assert player.wait(60) == 0
    assert player.stderr is not None
    player.stderr.close()
    wanted = list(Synthetic(seconds=1.5, gop=10).tags())
    assert [tuple(tag) for tag in read_flv(out)] == [tuple(tag) for tag in wanted]
    # the written file can be published again, at maximum speed
    again = subprocess.run(
        [*CLI, "publish", out, relay.url("again"), "--speed", "max"], capture_output=True, text=True, check=True
    )
    assert f"published {len(wanted)} tags" in again.stderr
    faulty = [*CLI, "publish", "synthetic:seconds=2", relay.url("bad"), "--speed", "max", "--fault", "MSG_TYPE_UNKNOWN"]
    subprocess.run(faulty, check=True, capture_output=True)
    relay.stop()
    (line,) = relay.output.splitlines()
    hashed = Redactor(load_key()).stream_name("bad")
    wanted = f" live/{hashed} publish: warning MSG_TYPE_UNKNOWN (client): unknown message type 99 -> "
    assert re.fullmatch(rf"\d\d:\d\d:\d\d\.\d\d\d{re.escape(wanted)}.+", line)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["publish", "nothere.flv", "rtmp://127.0.0.1:1/live/x"], 2, "does not exist"),
        (["publish", "synthetic", "http://127.0.0.1/live/x"], 2, "is not an RTMP URL"),
        (["publish", "synthetic", "rtmp://127.0.0.1:1/live"], 2, "lacks"),
        (["publish", "synthetic", "rtmp://127.0.0.1:1/live/x"], 3, ":1 cannot be reached (connection refused)."),
        (["publish", "synthetic", "rtmp://[::1]:1/live/x"], 3, "rtmp-spark: [::1]:1 cannot be reached ("),
        (["publish", "synthetic:nonsense=1", "rtmp://127.0.0.1:1/live/x"], 2, "no setting"),
        (["publish", "synthetic", "rtmp://127.0.0.1:1/live/x", "--fault", "NONSENSE"], 2, "Unknown rule NONSENSE"),
        (["play", "rtmp://127.0.0.1:1/live/x", "-o", "x.flv"], 3, "cannot be reached"),
        (["relay", "--listen", "nowhere"], 2, "Invalid address"),
        (["relay", "--listen", "192.0.2.1:1935"], 3, "Cannot listen on 192.0.2.1:1935 (cannot assign requested"),
        (["relay", "--chunk-size", "0"], 2, "chunk size"),
        (["tap", "--listen", "127.0.0.1:0", "--to", "x", "-o", "x.pcap"], 2, "Invalid address"),
    ],
)
def test_a_user_error_is_one_line_with_its_exit_code(
    tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    done = subprocess.run([*CLI, *arguments], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_second_publisher_fault_reports_the_refusal(start_relay: StartRelay) -> None:
    relay = start_relay()
    command = [*CLI, "publish", "synthetic:seconds=1.5", relay.url("cam"), "--fault", "SESSION_BAD_NAME"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "second publisher: The server refused: NetStream.Publish.BadName" in done.stderr
    assert "published" in done.stderr


def test_fault_help_lists_the_faults() -> None:
    done = subprocess.run([*CLI, "publish", "--fault", "help"], capture_output=True, text=True, check=True)
    assert "CHUNK_SIZE_NOT_APPLIED" in done.stdout
    assert len(done.stdout.splitlines()) > 60


@pytest.mark.parametrize("arguments", [["relay"], ["tap", "-o", "session.pcap", "--to"]])
def test_quiet_relay_and_tap_print_nothing(arguments: list[str], tmp_path: Path) -> None:
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
def test_a_second_process_on_the_same_port_does_not_overwrite_the_capture(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "session.pcap").write_bytes(b"of the first process")
    with socket.create_server(("127.0.0.1", 0)) as first:
        where = f"127.0.0.1:{first.getsockname()[1]}"
        command = [*CLI, *arguments, "session.pcap", "--listen", where]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stderr == f"rtmp-spark: Cannot listen on {where} (address already in use). Choose another --listen.\n"
    assert (done.returncode, done.stdout) == (3, "")
    assert (tmp_path / "session.pcap").read_bytes() == b"of the first process"


@pytest.mark.parametrize("arguments", [["relay", "--tap"], ["tap", "--to", "127.0.0.1:1", "-o"]])
def test_an_unwritable_capture_path_is_a_user_error(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [*CLI, *arguments, "file/session.pcap", "--listen", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("rtmp-spark: file") and "Traceback" not in done.stderr


def test_stream_names_are_hashed_in_the_log(start_relay: StartRelay, tmp_path: Path) -> None:
    """A stream name is a key: who knows it can publish. The recording keeps it, the log does not."""
    relay = start_relay("--record", str(tmp_path / "rec"), "--log-level", "debug")
    (tmp_path / "rec" / "blocked").parent.mkdir()
    (tmp_path / "rec" / "blocked").write_text("a file where a directory should be")

    async def run() -> None:
        await publish(relay.url("s3cretname"), Synthetic(seconds=0.2).tags(), speed=None)
        await publish(relay.url("s3cretname", "blocked"), Synthetic(seconds=0.2).tags(), speed=None)

    asyncio.run(run())
    relay.await_log("recorded ")
    relay.await_log(" closed: ", 2)
    text = relay.log.read_text()
    hashed = Redactor(load_key()).stream_name("s3cretname")
    assert f"live/{hashed}: published by" in text
    assert f"live/{hashed}: video codec avc" in text
    assert f"cannot record blocked/{hashed}" in text
    assert "s3cretname" not in text
    assert len(list((tmp_path / "rec" / "live").glob("s3cretname-*.flv"))) == 1


def test_control_characters_of_a_client_name_are_escaped_in_the_log(start_relay: StartRelay) -> None:
    relay = start_relay()
    with connect_and_handshake(relay) as peer:
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
    assert line.endswith(": published by x.[2J.12:00:00,000 ERROR forged")


def test_play_writes_flv_to_standard_output(start_relay: StartRelay, tmp_path: Path) -> None:
    relay = start_relay()
    command = [*CLI, "play", relay.url("cam"), "-o", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as player:
        relay.await_log("played by")
        asyncio.run(publish(relay.url("cam"), Synthetic(seconds=1).tags()))
        out, err = player.communicate(timeout=60)
    assert (player.returncode, list(tmp_path.glob("-"))) == (0, [])
    assert err.startswith(b"received ")
    (tmp_path / "out.flv").write_bytes(out)
    wanted = [tuple(tag) for tag in Synthetic(seconds=1).tags()]
    assert [tuple(tag) for tag in read_flv(tmp_path / "out.flv")] == wanted


def test_play_ends_when_the_reader_of_its_output_ends(start_relay: StartRelay) -> None:
    relay = start_relay()
    command = [*CLI, "play", relay.url("cam"), "-o", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as player:
        relay.await_log("played by")
        assert player.stdout is not None and player.stderr is not None
        player.stdout.close()
        asyncio.run(publish(relay.url("cam"), Synthetic(seconds=1).tags()))
        assert (player.wait(60), player.stderr.read()) == (141, b"")


@pytest.mark.parametrize(
    ("content", "words", "remedy"),
    [
        (b"", "is empty", "Give an FLV file, or `synthetic`."),
        (b"plain text\n", "is not an FLV file", "Convert it first: ffmpeg -i bad.flv -c copy out.flv"),
        (b"\0\0\0\x18ftypmp42", "is an MP4 file, not FLV", "Convert it first: ffmpeg -i bad.flv -c copy out.flv"),
        (
            bytes.fromhex("d4c3b2a1"),
            "is a packet capture, not FLV",
            "Extract its stream first: rtmp-spark extract bad.flv -o out.flv",
        ),
        (b"FLV\1\5", "ends inside its header", "Record it again."),
        (flv.header(), "has no tags", "Record it again."),
        (
            flv.header() + flv.dump_tag(9, 0, b"\x17") + b"\x63" + bytes(20),
            "is damaged at byte 29 (tag type 99 is invalid), after 1 tag",
            "Convert it first: ffmpeg -i bad.flv -c copy out.flv",
        ),
    ],
)
def test_publish_says_what_is_wrong_with_a_file_before_it_connects(
    tmp_path: Path, content: bytes, words: str, remedy: str
) -> None:
    (tmp_path / "bad.flv").write_bytes(content)
    command = [*CLI, "publish", "bad.flv", "rtmp://127.0.0.1:1/live/x"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (4, f"rtmp-spark: bad.flv {words}. {remedy}\n")


def test_publish_sends_the_complete_tags_of_a_truncated_file(start_relay: StartRelay, tmp_path: Path) -> None:
    tags = list(Synthetic(seconds=0.5).tags())
    content = flv.header() + b"".join(flv.dump_tag(*tag) for tag in tags)
    (tmp_path / "cut.flv").write_bytes(content[:-10])
    command = [*CLI, "publish", "cut.flv", start_relay().url("cam"), "--speed", "max"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    first, second = done.stderr.splitlines()
    assert first == f"rtmp-spark: cut.flv ends inside a tag; its {len(tags) - 1} complete tags are published."
    assert second.startswith(f"published {len(tags) - 1} tags")


def test_the_relay_prints_a_line_per_stream_if_its_output_is_not_a_terminal(start_relay: StartRelay) -> None:
    relay = start_relay("--live")
    asyncio.run(publish(relay.url("cam"), Synthetic(seconds=7, gop=25).tags()))
    relay.stop()
    lines = [line for line in relay.output.splitlines() if " publish: " in line]
    hashed = Redactor(load_key()).stream_name("cam")
    pattern = (
        rf"\d\d:\d\d:\d\d live/{hashed} publish: [\d.]+ fps, [\d,.]+ [kM]b/s, pace [\d.]+, .*GOP 1\.0 s, 0 players"
    )
    assert lines and re.fullmatch(pattern, lines[-1])


def test_the_tap_validates_and_shows_streams(start_relay: StartRelay, tmp_path: Path) -> None:
    relay = start_relay()
    command = [*CLI, "tap", "--listen", "127.0.0.1:0", "--to", relay.address, "-o", "x.pcap", "--live", "--validate"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as tap:
        assert tap.stdout is not None
        address = tap.stdout.readline().split()[2]
        fault = factory("MEDIA_ANNEXB", "client")()
        asyncio.run(publish(f"rtmp://{address}/live/cam", Synthetic(seconds=6.5).tags(), fault=fault))
        tap.terminate()
        out = tap.communicate(timeout=60)[0]
    assert tap.returncode == 0
    name = f"live/{Redactor(load_key()).stream_name('cam')}"
    assert f" {name} publish: error MEDIA_ANNEXB (client): start codes instead of NAL unit lengths -> Convert" in out
    assert re.search(rf" {name} publish: [\d.]+ fps, .* 0 players, last finding MEDIA_ANNEXB\n", out)


def test_the_relay_continues_when_the_reader_of_its_output_ends(start_relay: StartRelay) -> None:
    relay = start_relay("--live", "--validate")
    assert relay.process.stdout is not None
    relay.process.stdout.close()
    fault = factory("MEDIA_ANNEXB", "client")()
    asyncio.run(publish(relay.url("bad"), Synthetic(seconds=2).tags(), speed=None, fault=fault))
    assert_serves(relay)
    relay.process.terminate()
    assert relay.process.wait(60) == 0
    assert "Traceback" not in relay.log.read_text()
