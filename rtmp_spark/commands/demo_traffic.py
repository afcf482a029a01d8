"""The traffic of `rtmp-spark demo`: a relay, a publisher that breaks one rule, and two players, one on a slow link."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.exit_codes import ENVIRONMENT
from rtmp_spark.commands.output.demo_output import DemoResult

if TYPE_CHECKING:
    from rtmp_relay.client.rtmp_client import Progress
    from rtmp_relay.relay.relay_server import Relay

RTMP_PORT = 1935
PARTIES = ("publisher", "player", "slow player")  # in the order in which they connect
_SLOW_BYTES_PER_S = 40_000
_SEND_BUFFER_BYTES = 32_768  # small, so that the slow player delays the relay soon


async def make_traffic(demo: DemoResult, seconds: float, show: Callable[[str], None]) -> str:
    """Publish and play for so many seconds, recorded in `demo.pcap`; returns what each party did, in words."""
    from rtmp_relay.client import rtmp_client as client
    from rtmp_relay.faults import fault_catalogue
    from rtmp_relay.synthetic_media import Synthetic
    from rtmp_relay.tap.proxy import NetworkConditions, Proxy

    relay = await _start_relay(demo.pcap)
    slow_link = Proxy(
        ("127.0.0.1", 0), ("127.0.0.1", relay.port), downstream=NetworkConditions(bytes_per_s=_SLOW_BYTES_PER_S)
    )
    try:
        await slow_link.start()
        demo.url = f"rtmp://127.0.0.1:{relay.port}/live/demo"
        fault = fault_catalogue.factory(demo.fault, "client")()
        media = Synthetic(seconds=seconds, width=640, height=360, fps=50, gop=50, video_bitrate=2_000_000)

        def show_progress(progress: Progress) -> None:
            show(f"{progress.media_ms / 1000:4.1f} of {seconds:g} s, {progress.bytes / 1e6:.1f} MB")

        publish = client.publish(demo.url, media.tags(), fault=fault, on_progress=show_progress)
        publisher = asyncio.ensure_future(publish)
        await asyncio.sleep(0.6)
        player = asyncio.ensure_future(_play(demo.url, demo.directory / "played.flv", seconds))
        await asyncio.sleep(0.2)
        slow_url = demo.url.replace(f":{relay.port}/", f":{slow_link.port}/")
        slow_player = asyncio.ensure_future(_play(slow_url, demo.directory / "played-slow.flv", seconds))
        outcomes = await asyncio.gather(publisher, player, slow_player, return_exceptions=True)
    finally:
        await slow_link.stop()
        await relay.stop()
    words = []
    for name, outcome in zip(PARTIES, outcomes):
        if isinstance(outcome, UserError):  # a fault may well end a connection
            words.append(f"{name}: {outcome.text.rstrip('.')}")
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            words.append(f"{name} {outcome.tags} tags")
    return "; ".join(words)


async def _play(url: str, target: Path, seconds: float) -> Progress:
    from rtmp_relay.client import rtmp_client as client

    return await client.play_to_file(url, target, duration_s=seconds + 3)


async def _start_relay(pcap: Path) -> Relay:
    """A relay on the RTMP port, or on any free port if that is taken."""
    from rtmp_relay.relay.relay_server import Relay, RelayOptions

    for port in (RTMP_PORT, 0):
        relay = Relay(RelayOptions(port=port, tap=pcap, send_buffer_bytes=_SEND_BUFFER_BYTES))
        try:
            await relay.start()
            return relay
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES) or port == 0:
                raise UserError(f"Cannot listen on 127.0.0.1: {error.strerror}.", "", ENVIRONMENT) from None
    raise AssertionError
