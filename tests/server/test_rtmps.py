"""Our client and relay over TLS: a capture between them is decoded with the key log that either of them wrote."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kit.decoded_tables import decode
from kit.relay_process import RelayProcess, frames, read_flv
from kit.tls_connections import make_certificate

from rtmp_relay.tap.pcap_tap import Tap
from rtmp_relay.tap.proxy import Proxy
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.cli import main


@pytest.mark.parametrize("writer", ["relay", "client"])
def test_a_capture_of_rtmps_is_decoded_with_the_key_log(tmp_path: Path, writer: str) -> None:
    certificate, keys = str(make_certificate(tmp_path)), str(tmp_path / "keys.log")
    options = ["--tls-cert", certificate, "--tls-key", certificate, "--record", str(tmp_path / "recorded")]
    relay = RelayProcess([*options, *(["--keylog", keys] if writer == "relay" else [])], tmp_path / "relay.log")
    host, _, port = relay.address.rpartition(":")
    tap = Tap(tmp_path / "wire.pcap")

    async def publish() -> int:
        proxy = Proxy(("127.0.0.1", 0), (host, int(port)), (tap,))
        await proxy.start()
        command = ["publish", "synthetic:seconds=1", f"rtmps://127.0.0.1:{proxy.port}/live/cam", "--speed", "max"]
        command += ["--tls-insecure", *(["--keylog", keys] if writer == "client" else [])]
        try:
            return await asyncio.to_thread(main, command)
        finally:
            await proxy.stop()

    try:
        assert asyncio.run(publish()) == 0
    finally:
        relay.stop()
        tap.close()
    settings = Settings()
    settings.keylog.add(Path(keys).read_bytes())
    rows = decode(tmp_path / "wire.pcap", settings=settings)
    (connection,) = rows["connections"]
    assert (connection["service"], connection["tls_version"]) == ("rtmps", "TLS 1.3")
    (recorded,) = (tmp_path / "recorded").rglob("*.flv")
    tags = read_flv(recorded)
    for type_id, kind in ((8, "audio"), (9, "video")):
        sent = [row for row in rows["media_tags"] if row["kind"] == kind and row["packet_type"] == "frame"]
        assert [row["dts"] for row in sent] == [tag.timestamp for tag in frames(tags, type_id)]
    assert b"@setDataFrame" not in (tmp_path / "wire.pcap").read_bytes()


def test_an_untrusted_certificate_is_a_one_line_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate = str(make_certificate(tmp_path))
    relay = RelayProcess(["--tls-cert", certificate, "--tls-key", certificate], tmp_path / "relay.log")
    try:
        code = main(["play", f"rtmps://{relay.address}/live/cam", "-o", str(tmp_path / "x.flv"), "--duration", "1"])
    finally:
        relay.stop()
    assert code != 0
    assert "certificate" in capsys.readouterr().err.lower()
