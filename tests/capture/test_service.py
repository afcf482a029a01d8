"""The protocol of a connection is recognised by its first bytes."""

from __future__ import annotations

import ssl

import pytest

from rtmp_spark.capture.service import PREFIX_BYTES, Start, recognise, server_name

C2 = bytes(range(256)) * 6
CONNECT_HEADER = bytes.fromhex("03000000000a 8b 14 00000000".replace(" ", ""))


def client_hello(name: str) -> bytes:
    """A ClientHello of OpenSSL."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        (b"\x03" + C2, Start("rtmp", "handshake")),
        (b"\x06" + C2, Start("rtmpe")),
        (b"\x08" + C2, Start("rtmpe")),
        (b"POST /open/1 HTTP/1.1\r\n", Start("rtmpt")),
        (b"POST /fcs/ident2 HTTP/1.1\r\n", Start("rtmpt")),
        (b"POST /upload HTTP/1.1\r\n", Start(None, refusal="http")),
        (b"GET / HTTP/1.1\r\n", Start(None, refusal="http")),
        (b"HTTP/1.1 200 OK\r\n", Start(None, refusal="http")),
        (b"SSH-2.0-x", Start(None, refusal="http")),
        (b"\x05\x01\x00", Start(None, refusal="unknown")),
    ],
)
def test_from_the_start(prefix: bytes, expected: Start) -> None:
    assert recognise(prefix, from_start=True, final=False, port=5000) == expected


def test_asks_for_more_bytes_and_decides_at_the_end() -> None:
    assert recognise(b"", from_start=True, final=False, port=1) is None
    assert recognise(b"PO", from_start=True, final=False, port=1) is None
    assert recognise(b"POST /op", from_start=True, final=False, port=1) is None
    assert recognise(b"PO", from_start=True, final=True, port=1) == Start(None, refusal="unknown")
    assert recognise(b"", from_start=True, final=True, port=1) == Start(None, refusal="no data")


def test_a_start_inside_the_handshake() -> None:
    rest = CONNECT_HEADER + bytes(PREFIX_BYTES)
    for prefix, phase in (
        (b"\x03" + C2 + C2, "handshake"),
        (C2 + C2, "part1"),
        (C2, "part2"),
        (b"\xc4\x00", "midstream"),
    ):
        assert recognise(prefix + rest, from_start=False, final=False, port=1935) == Start("rtmp", phase)
    assert recognise(C2 + CONNECT_HEADER[:5], from_start=False, final=False, port=1935) is None


def test_tls_is_rtmps_only_on_rtmp_ports_and_ingest_hosts() -> None:
    ingest, other = client_hello("ingest.contribute.live-video.net"), client_hello("www.example.org")
    assert server_name(ingest) == "ingest.contribute.live-video.net"
    assert recognise(ingest, from_start=True, final=False, port=443) == Start("rtmps")
    assert recognise(other, from_start=True, final=False, port=443) == Start(None, refusal="tls")
    assert recognise(other, from_start=True, final=False, port=1935) == Start("rtmps")
    assert recognise(other, from_start=True, final=False, port=19443) == Start(None, refusal="tls")
