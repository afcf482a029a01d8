"""CPU, memory and delay of the relay, compared with nginx-rtmp under the same load.

    python bench/relay.py                       4 streams x 50 players at 2.4 Mb/s for 60 s, then the delay to 20
    python bench/relay.py --seconds 5           the same, shorter
    python bench/relay.py --no-nginx

It prints the CPU time of the server process per delivered gigabyte, its resident memory and the number of streams with
missing frames. The load (publishers, and players that only count bytes) runs in this process and needs more CPU than
the server, so the capacity of one core is computed and not reached.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rtmp_relay.client.client_session import PLAY, ClientSession, Step
from rtmp_relay.client.rtmp_client import play, publish
from rtmp_relay.frames import Tag
from rtmp_relay.rtmp_url import parse_url
from rtmp_relay.synthetic_media import Synthetic

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
NGINX_MODULE = Path("/usr/lib/nginx/modules/ngx_rtmp_module.so")


class Server:
    """A server process: its port, CPU time and memory."""

    def __init__(self, name: str, process: subprocess.Popen[str], port: int, pid: int) -> None:
        self.name = name
        self.process = process
        self.port = port
        self.pid = pid

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def resident_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


def start_relay() -> Server:
    command = [sys.executable, "-m", "rtmp_spark.cli", "relay", "--listen", "127.0.0.1:0", "--log-level", "error"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline().split("//")[1].split("/")[0].rpartition(":")[2])
    return Server("relay", process, port, process.pid)


def start_nginx(directory: Path) -> Server | None:
    if shutil.which("nginx") is None or not NGINX_MODULE.exists():
        return None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (directory / "nginx.conf").write_text(
        f"load_module {NGINX_MODULE}; daemon off; master_process off; user root; pid {directory}/pid;"
        f"error_log {directory}/log; events {{ worker_connections 1024; }} rtmp {{ server {{ listen 127.0.0.1:{port};"
        f"chunk_size 4096; application live {{ live on; idle_streams off; wait_key on; }} }} }}\n"
    )
    command = ["nginx", "-c", str(directory / "nginx.conf"), "-p", str(directory)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, text=True)
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return Server("nginx-rtmp", process, port, process.pid)
        except OSError:
            time.sleep(0.05)
    process.kill()
    return None


class Counter(asyncio.Protocol):
    """A player that runs the protocol until the stream plays and then only counts bytes."""

    def __init__(self, url: str) -> None:
        self.session = ClientSession(parse_url(url), PLAY, os.urandom)
        self.bytes = 0
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.session.begin(time.monotonic())
        transport.write(self.session.data_to_send())

    def data_received(self, data: bytes) -> None:
        if self.session.step is not Step.STREAMING:
            self.session.receive_data(data, time.monotonic())
            self.transport.write(self.session.data_to_send())
        else:
            self.bytes += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


async def load(server: Server, streams: int, players: int, seconds: float) -> dict[str, float]:
    media = Synthetic(seconds=seconds, width=1280, height=720, video_bitrate=2_400_000, audio_bitrate=96_000)
    tags = list(media.tags())
    loop = asyncio.get_running_loop()
    urls = [f"rtmp://127.0.0.1:{server.port}/live/s{number}" for number in range(streams)]
    publishers = [asyncio.create_task(publish(url, tags)) for url in urls]
    await asyncio.sleep(1.5)
    counters = []
    for url in urls:
        for _ in range(players):
            _, counter = await loop.create_connection(lambda url=url: Counter(url), "127.0.0.1", server.port)
            counters.append(counter)
    await asyncio.sleep(1.0)
    cpu, start = server.cpu_s(), time.monotonic()
    before = sum(counter.bytes for counter in counters)
    memory = []
    while not all(publisher.done() for publisher in publishers):
        memory.append(server.resident_mb())
        if time.monotonic() - start > seconds - 4:
            break
        await asyncio.sleep(0.5)
    used, took = server.cpu_s() - cpu, time.monotonic() - start
    delivered = sum(counter.bytes for counter in counters) - before
    await asyncio.gather(*publishers)
    await asyncio.sleep(0.5)
    totals = [counter.bytes for counter in counters]
    per_stream = [totals[at : at + players] for at in range(0, len(totals), players)]
    # Players of a stream joined within the same second, so a skipped group of pictures shows as a large difference.
    uneven = sum(max(group) - min(group) > 1_500_000 for group in per_stream)
    for counter in counters:
        counter.transport.abort()
    return {
        "cpu_s": used,
        "seconds": took,
        "gigabytes": delivered / 1e9,
        "mbit_per_player": delivered * 8 / 1e6 / took / len(counters),
        "rss_first_mb": memory[0],
        "rss_last_mb": memory[-1],
        "uneven_streams": float(uneven),
        "late_ms": float(max(publisher.result().behind_ms for publisher in publishers)),
    }


async def delay(server: Server, players: int, seconds: float) -> list[float]:
    """Return the delay from publisher to player for each tag, in milliseconds."""
    url = f"rtmp://127.0.0.1:{server.port}/live/delay"
    sent: dict[bytes, float] = {}
    delays: list[float] = []

    def stamped() -> object:
        for tag in Synthetic(seconds=seconds).tags():
            yield tag
            sent[tag.payload] = time.monotonic()

    def received(tag: Tag) -> None:
        at = sent.get(tag.payload)
        if at is not None:
            delays.append((time.monotonic() - at) * 1000)

    playing = [asyncio.create_task(play(url, received, duration_s=seconds + 5)) for _ in range(players)]
    await asyncio.sleep(1.0)
    await publish(url, stamped())  # type: ignore[arg-type]
    await asyncio.gather(*playing)
    return delays


def report(server: Server, streams: int, players: int, seconds: float) -> float:
    figures = asyncio.run(load(server, streams, players, seconds))
    per_gigabyte = figures["cpu_s"] / figures["gigabytes"]
    share = figures["cpu_s"] / figures["seconds"]
    print(f"{server.name}: {streams} streams x {players} players, {figures['seconds']:.0f} s measured")
    print(f"  delivered          {figures['gigabytes']:.2f} GB, {figures['mbit_per_player']:.2f} Mb/s to each player")
    print(f"  CPU                {per_gigabyte:.2f} s per GB delivered, {share * 100:.0f} % of one core")
    print(f"  resident memory    {figures['rss_first_mb']:.0f} MB at first, {figures['rss_last_mb']:.0f} MB at the end")
    print(f"  streams with a player that missed frames: {figures['uneven_streams']:.0f}")
    print(f"  publishers late by at most {figures['late_ms']:.0f} ms (a limit of the load generator)")
    return per_gigabyte


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--players", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--no-nginx", action="store_true")
    args = parser.parse_args()
    seconds = args.seconds + 4  # players join during the first seconds
    relay = start_relay()
    try:
        ours = report(relay, args.streams, args.players, seconds)
        delays = sorted(asyncio.run(delay(relay, 20, min(args.seconds, 10))))
        median, p95 = statistics.median(delays), delays[int(len(delays) * 0.95)]
        print(f"  delay              {median:.1f} ms median, {p95:.1f} ms p95 to 20 players ({len(delays)} tags)")
    finally:
        relay.stop()
    if args.no_nginx:
        return
    with tempfile.TemporaryDirectory() as directory:
        nginx = start_nginx(Path(directory))
        if nginx is None:
            print("nginx-rtmp: not installed")
            return
        try:
            theirs = report(nginx, args.streams, args.players, seconds)
            print(f"per core, nginx-rtmp delivers {ours / theirs:.1f} times as much as the relay")
        finally:
            nginx.stop()


if __name__ == "__main__":
    main()
