"""The proxy forwards every byte under any network conditions, and its tap records them."""

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
from kit.relay_process import start_playing

from rtmp_relay.client.rtmp_client import Refused, Tag, publish
from rtmp_relay.relay.relay_server import Relay, RelayOptions
from rtmp_relay.synthetic_media import Synthetic
from rtmp_relay.tap.pcap_tap import Tap
from rtmp_relay.tap.proxy import NetworkConditions, Proxy
from rtmp_relay.tap.unread_bytes import unread_bytes

MEDIA = Synthetic(seconds=1.0)
TAGS = list(MEDIA.tags())


async def through(
    network: NetworkConditions, observers: tuple[Tap, ...] = (), downstream: NetworkConditions = NetworkConditions()
) -> list[Tag]:
    """Publish through a proxy to a relay and play directly from the relay. Returns what the player received."""
    relay = Relay(RelayOptions(port=0))
    await relay.start()
    proxy = Proxy(("127.0.0.1", 0), ("127.0.0.1", relay.port), observers, network, downstream)
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
    "network",
    [
        NetworkConditions(),
        NetworkConditions(piece_bytes=1),
        NetworkConditions(delay_s=0.05),
        NetworkConditions(stall_after=20_000, stall_s=0.5),
        NetworkConditions(bytes_per_s=200_000, piece_bytes=2000),
    ],
    ids=["perfect", "one byte", "delay", "stall", "rate"],
)
def test_a_bad_network_changes_no_tag(network: NetworkConditions) -> None:
    assert asyncio.run(through(network)) == TAGS


def test_a_reset_connection_ends_the_stream_for_its_players() -> None:
    got = asyncio.run(through(NetworkConditions(cut_after=30_000)))
    assert 3 < len(got) < len(TAGS)
    assert got == TAGS[: len(got)]


def test_a_reset_in_the_handshake_raises_refused() -> None:
    with pytest.raises(Refused):
        asyncio.run(through(NetworkConditions(cut_after=1000)))


def test_the_tap_of_a_proxy_contains_what_the_client_sent(tmp_path: Path) -> None:
    pytest.importorskip("scapy", reason="scapy is not installed")
    from scapy.layers.inet import TCP
    from scapy.utils import PcapReader

    tap = Tap(tmp_path / "t.pcap")
    asyncio.run(through(NetworkConditions(), (tap,)))
    tap.close()
    segments = [packet[TCP] for packet in PcapReader(str(tmp_path / "t.pcap"))]
    from_client = [segment for segment in segments if segment.sport == segments[0].sport]
    up = b"".join(bytes(segment.payload) for segment in from_client)
    assert up[0] == 3
    assert b"@setDataFrame" in up
    for tag in TAGS[3:]:
        assert tag.payload[:60] in up


def test_the_tap_command_records_a_published_stream(start_relay: object, tmp_path: Path) -> None:
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


def test_publish_and_play_over_tls(tmp_path: Path) -> None:
    """The relay's tap records the decrypted bytes."""
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


def test_bytes_that_a_peer_sent_before_a_reset_are_read() -> None:
    """A failed write must not lose the bytes that the peer sent before."""

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
        time.sleep(0.05)  # blocks the event loop on purpose, so that asyncio cannot read
        peer.sendall(b"last bytes")
        peer.close()
        time.sleep(0.05)
        transport.write(b"too late")
        transport.write(b"too late")
        await asyncio.wait_for(lost.wait(), 60)
        server.close()
        return bytes(got)

    assert asyncio.run(run()) == b"last bytes"
