"""Interoperability: ffmpeg, rtmpdump, GStreamer and libav with our relay, our client with nginx and others."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from kit.relay_process import FlvTag, Programs, StartRelay, frames, read_flv

from rtmp_relay.client import rtmp_client as client
from rtmp_relay.synthetic_media import Synthetic

pytestmark = [pytest.mark.peers, pytest.mark.slow]

ROOT = Path(__file__).parent.parent.parent


def skip_without(*names: str) -> None:
    for name in names:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A moving test pattern with a tone, encoded by ffmpeg with B-frames."""
    path = tmp_path_factory.mktemp("clip") / "clip.flv"
    skip_without("ffmpeg")
    command = ["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", "testsrc2=s=320x240:r=25"]
    command += ["-f", "lavfi", "-i", "sine=f=440:r=44100", "-t", "3", "-c:v", "libx264", "-g", "25"]
    command += ["-bf", "2", "-c:a", "aac", "-f", "flv", str(path)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("ffmpeg with libx264 and aac is not installed")
    return path


def assert_same_media(
    got: list[FlvTag], published: list[FlvTag], *, from_start: bool = True, may_lack: int = 0
) -> None:
    """Compare frames: the same bodies in the same order, timestamps with one constant offset.

    A late joiner (`from_start=False`) gets the end of the stream. Up to `may_lack` frames may be missing at the end:
    GStreamer's source drops the frames that it still holds when the stream ends.
    """
    for kind in (8, 9):
        wanted, have = frames(published, kind), frames(got, kind)
        assert have, f"no frames of type {kind}"
        if not from_start:
            wanted = wanted[[tag.body for tag in wanted].index(have[0].body) :]
        assert len(wanted) - may_lack <= len(have)
        wanted = wanted[: max(len(have), len(wanted) - may_lack)]
        assert [tag.body for tag in have] == [tag.body for tag in wanted]
        assert len({h.timestamp - w.timestamp for h, w in zip(have, wanted)}) == 1


def test_players_receive_everything_that_ffmpeg_publishes(
    start_relay: StartRelay, programs: Programs, clip: Path, tmp_path: Path
) -> None:
    skip_without("ffmpeg", "rtmpdump")
    relay = start_relay("--record", str(tmp_path / "rec"))
    url = relay.url("cam")
    player = programs.start("rtmpdump", "-q", "-r", url, "--live", "-o", tmp_path / "out.flv")
    copier = programs.start("ffmpeg", "-v", "error", "-i", url, "-c", "copy", "-y", tmp_path / "copy.flv")
    relay.await_log("played by", 2)
    subprocess.run(["ffmpeg", "-v", "error", "-re", "-i", clip, "-c", "copy", "-f", "flv", url], check=True, timeout=60)
    programs.end(player)
    programs.end(copier)
    relay.stop()
    published = read_flv(clip)
    [record] = (tmp_path / "rec").rglob("*.flv")
    assert_same_media(read_flv(record), published)
    assert_same_media(read_flv(tmp_path / "out.flv"), published)
    assert_same_media(read_flv(tmp_path / "copy.flv"), published)


def test_late_ffmpeg_and_rtmpdump_players_start_at_a_keyframe(
    start_relay: StartRelay, programs: Programs, clip: Path, tmp_path: Path
) -> None:
    skip_without("ffmpeg", "rtmpdump")
    relay = start_relay("--gop-cache")
    url = relay.url("cam")
    publisher = programs.start("ffmpeg", "-v", "error", "-re", "-i", clip, "-c", "copy", "-f", "flv", url)
    relay.await_log("published by")
    time.sleep(0.7)
    dumped, copied = tmp_path / "dumped.flv", tmp_path / "copied.flv"
    players = [
        programs.start("rtmpdump", "-q", "-r", url, "--live", "-o", dumped),
        programs.start("ffmpeg", "-v", "error", "-analyzeduration", "500000", "-i", url, "-c", "copy", "-y", copied),
    ]
    assert publisher.wait(60) == 0
    for player in players:
        programs.end(player)
    relay.stop()
    published = read_flv(clip)
    got = read_flv(dumped)
    assert_same_media(got, published, from_start=False)
    assert frames(got, 9)[0].body[0] >> 4 == 1  # a keyframe
    for kind in (8, 9):
        bodies = [tag.body for tag in frames(read_flv(copied), kind)]
        wanted = [tag.body for tag in frames(published, kind)]
        assert bodies and set(bodies) <= set(wanted)


@pytest.mark.parametrize("sink", ["rtmp2sink", "rtmpsink"])
def test_gstreamer_publishes_and_plays(start_relay: StartRelay, programs: Programs, tmp_path: Path, sink: str) -> None:
    skip_without("gst-launch-1.0", "gst-inspect-1.0")
    for element in (sink, "rtmp2src", "x264enc", "avenc_aac", "flvmux"):
        if subprocess.run(["gst-inspect-1.0", element], capture_output=True, check=False).returncode != 0:
            pytest.skip(f"GStreamer's {element} is not installed")
    relay = start_relay("--record", str(tmp_path / "rec"))
    url = relay.url("gst")
    got = tmp_path / "got.flv"
    player = programs.start("gst-launch-1.0", "-q", "rtmp2src", f"location={url}", "!", "filesink", f"location={got}")
    relay.await_log("played by")
    location = f"{url} live=1" if sink == "rtmpsink" else url
    pipeline = (
        "videotestsrc num-buffers=105 is-live=true ! video/x-raw,width=320,height=240,framerate=30/1 "
        "! x264enc key-int-max=15 tune=zerolatency ! h264parse ! flvmux name=m streamable=true"
    ).split()
    pipeline += ["!", sink, f"location={location}"]
    pipeline += "audiotestsrc num-buffers=150 is-live=true ! avenc_aac ! aacparse ! m.".split()
    publisher = programs.start("gst-launch-1.0", "-q", "-e", *pipeline)
    relay.await_log("published by")
    time.sleep(0.7)
    late = tmp_path / "late.flv"
    joiner = programs.start("gst-launch-1.0", "-q", "rtmp2src", f"location={url}", "!", "filesink", f"location={late}")
    assert publisher.wait(90) == 0, publisher.stderr
    programs.end(player)
    programs.end(joiner)
    relay.stop()
    [record] = (tmp_path / "rec").rglob("*.flv")
    recorded = read_flv(record)
    assert len(frames(recorded, 9)) == 105
    assert len(frames(recorded, 8)) >= 140
    assert_same_media(read_flv(got), recorded, may_lack=2)
    assert_same_media(read_flv(late), recorded, from_start=False, may_lack=2)
    assert frames(read_flv(late), 9)[0].body[0] >> 4 == 1


ENHANCED = [("hevc", "libx265", None), ("av1", "libsvtav1", "libopus"), ("vp9", "libvpx-vp9", "libopus")]


def encode_with_pyav(url: str, video: str, audio: str | None, count: int) -> None:
    """Encode a simple pattern with libav and publish it as enhanced RTMP."""
    import av
    import numpy

    output = av.open(url, "w", format="flv")
    stream = output.add_stream(video, rate=25)
    stream.width, stream.height, stream.pix_fmt = 192, 128, "yuv420p"
    stream.gop_size = 12
    audio_stream = output.add_stream(audio, rate=48000) if audio is not None else None
    samples = 0
    for number in range(count):
        image = numpy.full((128, 192, 3), (number * 7) % 256, dtype=numpy.uint8)
        image[:, : number * 4 % 192] = 255
        for packet in stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")):
            output.mux(packet)
        if audio_stream is not None:
            while samples < (number + 1) * 1920:
                tone = numpy.zeros((1, 960 * 2), dtype=numpy.int16)
                block = av.AudioFrame.from_ndarray(tone, format="s16", layout="stereo")
                block.sample_rate, block.pts = 48000, samples
                samples += 960
                for packet in audio_stream.encode(block):
                    output.mux(packet)
    for one in filter(None, (stream, audio_stream)):
        for packet in one.encode(None):
            output.mux(packet)
    output.close()


@pytest.mark.parametrize(("codec", "video", "audio"), ENHANCED, ids=[case[0] for case in ENHANCED])
def test_enhanced_codecs_of_libav_are_forwarded_and_recorded(
    start_relay: StartRelay, tmp_path: Path, codec: str, video: str, audio: str | None
) -> None:
    av = pytest.importorskip("av", reason="PyAV is not installed")
    for encoder in filter(None, (video, audio)):
        if encoder not in av.codecs_available:
            pytest.skip(f"PyAV has no {encoder}")
    relay = start_relay("--record", str(tmp_path / "rec"), "--gop-cache")
    url = relay.url("hdr")
    encode_with_pyav(url, video, audio, 40)
    relay.stop()
    [record] = (tmp_path / "rec").rglob("*.flv")
    tags = read_flv(record)
    fourcc = {"hevc": b"hvc1", "av1": b"av01", "vp9": b"vp09"}[codec]
    video_tags = [tag for tag in tags if tag.type_id == 9 and tag.body]
    assert video_tags and all(tag.body[0] & 0x80 and tag.body[1:5] == fourcc for tag in video_tags)
    with av.open(str(record)) as file:  # libav decodes our recording
        assert sum(1 for _ in file.decode(video=0)) == 40


def test_libav_plays_two_audio_tracks_of_our_client(start_relay: StartRelay) -> None:
    """libav joins late and finds the video track and both audio tracks of an E-RTMP multitrack stream."""
    av = pytest.importorskip("av", reason="PyAV is not installed")
    relay = start_relay("--gop-cache")
    url = relay.url("multi")
    media = Synthetic(seconds=6, enhanced=True, audio_tracks=2, gop=12)

    async def both() -> tuple[int, int, set[bytes]]:
        publishing = asyncio.create_task(client.publish(url, media.tags()))
        await asyncio.sleep(1.0)
        result = await asyncio.to_thread(read_with_libav)
        await publishing
        return result

    def read_with_libav() -> tuple[int, int, set[bytes]]:
        bodies: set[bytes] = set()
        with av.open(url, timeout=20) as stream:
            found = len(stream.streams.video), len(stream.streams.audio)
            for packet in stream.demux():
                if packet.stream.type == "audio" and packet.size:
                    bodies.add(bytes(packet))
                if len(bodies) >= 40:
                    break
        return *found, bodies

    videos, audios, bodies = asyncio.run(both())
    assert (videos, audios) == (1, 2)
    of_track = [{media.audio_frame(number, track) for number in range(300)} for track in (0, 1)]
    assert bodies <= of_track[0] | of_track[1]
    assert bodies & of_track[0] and bodies & of_track[1]


def test_two_audio_tracks_of_libav_are_recorded(start_relay: StartRelay, tmp_path: Path) -> None:
    av = pytest.importorskip("av", reason="PyAV is not installed")
    import numpy

    relay = start_relay("--record", str(tmp_path / "rec"))
    output = av.open(relay.url("two"), "w", format="flv")
    streams = [output.add_stream("aac", rate=44100) for _ in range(2)]
    for number in range(40):
        for stream in streams:
            block = av.AudioFrame.from_ndarray(numpy.zeros((1, 2048), dtype=numpy.int16), format="s16", layout="stereo")
            block.sample_rate, block.pts = 44100, number * 1024
            for packet in stream.encode(block):
                output.mux(packet)
    for stream in streams:
        for packet in stream.encode(None):
            output.mux(packet)
    output.close()
    relay.stop()
    [record] = (tmp_path / "rec").rglob("*.flv")
    with av.open(str(record)) as file:
        counts = [0, 0]
        for packet in file.demux():
            counts[packet.stream.index] += bool(packet.size)
    assert len(set(counts)) == 1 and counts[0] >= 40


def node_media_server() -> list[str]:
    skip_without("node")
    places = [Path(os.environ.get("NODE_MEDIA_SERVER", "")), ROOT / "node_modules" / "node-media-server"]
    for place in places:
        if (place / "bin" / "app.js").is_file():
            return ["node", str(place / "bin" / "app.js")]
    pytest.skip(
        "Node-Media-Server is not installed (npm install node-media-server, or NODE_MEDIA_SERVER=its directory)"
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def await_listener(port: int) -> bool:
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return True
        except OSError:
            time.sleep(0.05)
    return False


async def publish_and_join(url: str, media: Synthetic) -> list[client.Tag]:
    got: list[client.Tag] = []
    publishing = asyncio.create_task(client.publish(url, media.tags()))
    await asyncio.sleep(0.6)
    await client.play(url, got.append, duration_s=media.seconds)
    await publishing
    return got


def assert_is_end_of_stream(got: list[client.Tag], media: Synthetic) -> None:
    for kind in (8, 9):
        wanted = [tag.payload for tag in media.tags() if tag.type_id == kind and tag.payload[1] == 1]
        have = [tag.payload for tag in got if tag.type_id == kind and tag.payload[1] == 1]
        assert len(have) > len(wanted) / 2
        assert have == wanted[wanted.index(have[0]) :][: len(have)]


def test_our_client_publishes_to_and_plays_from_node_media_server(programs: Programs, tmp_path: Path) -> None:
    command = node_media_server()
    port = free_port()
    ports = ["--rtmp-port", str(port), "--http-port", str(free_port()), "--rtmps-port", str(free_port())]
    ports += ["--https-port", str(free_port()), "--data-path", str(tmp_path)]
    server = programs.start(*command, "-b", "127.0.0.1", *ports, "--no-admin")
    if not await_listener(port):
        pytest.fail("Node-Media-Server did not start")
    media = Synthetic(seconds=2.5, gop=12)
    got = asyncio.run(publish_and_join(f"rtmp://127.0.0.1:{port}/live/cam", media))
    programs.end(server, 0.1)
    assert_is_end_of_stream(got, media)


def test_our_client_publishes_to_and_plays_from_nginx(programs: Programs, tmp_path: Path) -> None:
    skip_without("nginx")
    module = Path("/usr/lib/nginx/modules/ngx_rtmp_module.so")
    if not module.exists():
        pytest.skip("nginx has no RTMP module (libnginx-mod-rtmp)")
    port = free_port()
    (tmp_path / "rec").mkdir()
    (tmp_path / "rec").chmod(0o777)
    configuration = tmp_path / "nginx.conf"
    configuration.write_text(
        f"load_module {module}; daemon off; user root; pid {tmp_path}/n.pid; error_log {tmp_path}/e.log;"
        f"events {{ worker_connections 64; }} rtmp {{ server {{ listen 127.0.0.1:{port}; chunk_size 4096;"
        f" application live {{ live on; idle_streams off; record all; record_path {tmp_path}/rec; }} }} }}\n"
    )
    server = programs.start("nginx", "-c", configuration, "-p", tmp_path)
    if not await_listener(port):
        pytest.fail(f"nginx did not start: {(tmp_path / 'e.log').read_text()[-300:]}")
    media = Synthetic(seconds=2.5, gop=12)
    got = asyncio.run(publish_and_join(f"rtmp://127.0.0.1:{port}/live/cam", media))
    programs.end(server, 0.1)
    assert_is_end_of_stream(got, media)
    [record] = (tmp_path / "rec").glob("*.flv")
    recorded = read_flv(record)
    for kind in (8, 9):
        wanted = [tag.payload for tag in media.tags() if tag.type_id == kind and tag.payload[1] == 1]
        assert [tag.body for tag in frames(recorded, kind)] == wanted
