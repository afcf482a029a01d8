"""The proxy: what passes is what was sent, whatever the weather; and the tap holds it."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from relaykit import start_playing

from rtmp_relay.client import Refused, Tag, publish
from rtmp_relay.proxy import Proxy, Weather
from rtmp_relay.relay import Relay, RelayOptions
from rtmp_relay.synthetic import Synthetic
from rtmp_relay.tap import Tap
from rtmp_relay.wire import unread_bytes

MEDIA = Synthetic(seconds=1.0)
TAGS = list(MEDIA.tags())


async def through(weather: Weather, observers: tuple[Tap, ...] = (), downstream: Weather = Weather()) -> list[Tag]:
    """Publish through a proxy to a relay, play from it directly; what the player got."""
    relay = Relay(RelayOptions(port=0))
    await relay.start()
    proxy = Proxy(("127.0.0.1", 0), ("127.0.0.1", relay.port), observers, weather, downstream)
    await proxy.start()
    got: list[Tag] = []
    playing = await start_playing(f"rtmp://127.0.0.1:{relay.port}/live/cam", got.append, duration_s=60)
    try:
        await publish(f"rtmp://127.0.0.1:{proxy.port}/live/cam", TAGS)
        await playing
    finally:
        playing.cancel()
        await proxy.stop()
        await relay.stop()
    return got


@pytest.mark.slow
@pytest.mark.parametrize(
    "weather",
    [
        Weather(),
        Weather(piece_bytes=1),
        Weather(delay_s=0.05),
        Weather(stall_after=20_000, stall_s=0.5),
        Weather(bytes_per_s=200_000, piece_bytes=2000),
    ],
    ids=["fair", "one byte", "delay", "stall", "rate"],
)
def test_bad_weather_changes_no_tag(weather: Weather) -> None:
    assert asyncio.run(through(weather)) == TAGS


def test_a_cut_connection_ends_the_stream_for_its_players() -> None:
    got = asyncio.run(through(Weather(cut_after=30_000)))
    assert 3 < len(got) < len(TAGS)
    assert got == TAGS[: len(got)]


def test_a_connection_cut_in_the_handshake_is_a_refusal() -> None:
    with pytest.raises(Refused):
        asyncio.run(through(Weather(cut_after=1000)))


def test_the_tap_of_a_proxy_holds_both_directions(tmp_path: Path) -> None:
    pytest.importorskip("scapy", reason="scapy is not installed")
    from scapy.layers.inet import TCP
    from scapy.utils import PcapReader

    tap = Tap(tmp_path / "t.pcap")
    asyncio.run(through(Weather(), (tap,)))
    tap.close()
    segments = [packet[TCP] for packet in PcapReader(str(tmp_path / "t.pcap"))]
    from_client = [segment for segment in segments if segment.sport == segments[0].sport]
    up = b"".join(bytes(segment.payload) for segment in from_client)
    assert up[0] == 3
    assert b"@setDataFrame" in up
    for tag in TAGS[3:]:
        assert tag.payload[:60] in up


def test_the_tap_command(start_relay: object, tmp_path: Path) -> None:
    assert callable(start_relay)
    relay = start_relay()
    command = [sys.executable, "-m", "rtmp_spark.cli", "tap", "--listen", "127.0.0.1:0", "--to", relay.address]
    tap = subprocess.Popen(
        [*command, "-o", tmp_path / "t.pcap"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert tap.stdout is not None
    address = tap.stdout.readline().split()[2]
    asyncio.run(publish(f"rtmp://{address}/live/cam", TAGS, speed=None))
    tap.terminate()
    _, errors = tap.communicate(timeout=60)
    assert tap.returncode == 0, errors
    size = (tmp_path / "t.pcap").stat().st_size
    assert size > sum(len(tag.payload) for tag in TAGS)


def test_rtmps(tmp_path: Path) -> None:
    """The same inside TLS; the relay's tap is of the plain bytes."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    client = ssl.create_default_context(cafile=str(certificate))

    async def run() -> list[Tag]:
        relay = Relay(RelayOptions(port=0, tls=server, tap=tmp_path / "t.pcap"))
        await relay.start()
        url = f"rtmps://127.0.0.1:{relay.port}/live/cam"
        got: list[Tag] = []
        playing = await start_playing(url, got.append, duration_s=60, tls=client)
        await publish(url, TAGS, tls=client)
        await playing
        await relay.stop()
        return got

    assert asyncio.run(run()) == TAGS
    assert b"@setDataFrame" in (tmp_path / "t.pcap").read_bytes()


def test_what_a_peer_sent_before_it_reset_the_connection_is_not_lost() -> None:
    """A write of ours that fails must not cost us what the peer had said before."""

    async def run() -> bytes:
        loop = asyncio.get_running_loop()
        got = bytearray()
        made: asyncio.Future[asyncio.Transport] = loop.create_future()
        lost = asyncio.Event()

        class Reader(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                assert isinstance(transport, asyncio.Transport)
                self.transport = transport
                made.set_result(transport)

            def data_received(self, data: bytes) -> None:
                got.extend(data)

            def connection_lost(self, exc: Exception | None) -> None:
                got.extend(unread_bytes(self.transport))
                lost.set()

        server = await loop.create_server(Reader, "127.0.0.1", 0)
        peer = socket.create_connection(server.sockets[0].getsockname())
        transport = await made
        transport.write(b"a ping that is never read")
        time.sleep(0.05)  # on purpose without giving asyncio a chance to read
        peer.sendall(b"last words")
        peer.close()
        time.sleep(0.05)
        transport.write(b"too late")
        transport.write(b"too late")
        await asyncio.wait_for(lost.wait(), 60)
        server.close()
        return bytes(got)

    assert asyncio.run(run()) == b"last words"
