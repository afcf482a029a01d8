"""Recognise the protocol of a TCP connection by its first bytes, never by its port alone.

RTMP is recognised by its handshake. If the capture starts later, the decoder must find messages that verify. RTMPE,
RTMPT and RTMPS are only named here. All other protocols are refused with a reason, so that they can be counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from rtmp_spark.capture.tcp.stream_items import Item, Run
from rtmp_spark.codec.handshake import PACKET_SIZE, PLAIN_VERSION, RTMPE_VERSIONS
from rtmp_spark.codec.limits import REQUEST_LINE_BYTES, SERVICE_SEARCH_BYTES

RTMP, RTMPE, RTMPT, RTMPS = "rtmp", "rtmpe", "rtmpt", "rtmps"
TLS, HTTP = "tls", "http"  # refusals: without a sign of RTMP inside
REFUSED = "refused"  # by TCP

RTMP_PORTS = frozenset({1935, 1936})
HTTPS_PORT = 443
# Ingest hosts that accept RTMP inside TLS on port 443, by the end of their names.
INGEST_NAMES = (
    "live-api-s.facebook.com", "live-upload.instagram.com", "contribute.live-video.net", "rtmps.youtube.com",
    "pscp.tv", "fa723fc1b171.global-contribute.live-video.net", "live.cloudflare.com", "global-live.mux.com",
)  # fmt: skip

PREFIX_BYTES = 2 * PACKET_SIZE + 1 + 16  # one side of the handshake and the first chunk header
_HTTP_WORDS = (
    b"GET ",
    b"HEAD",
    b"PUT ",
    b"HTTP",
    b"OPTI",
    b"DELE",
    b"CONN",
    b"TRAC",
    b"PATC",
    b"PRI ",
    b"RTSP",
    b"SSH-",
)
_RECORD = re.compile(rb"\x17\x03\x03[\x00-\x41]")
# Before the path in requests to a proxy (RFC 9112 3.2.2).
PROXIED_HOST = re.compile(rb"http://[^/ ]+(?=/)", re.IGNORECASE)
_TUNNEL = re.compile(
    rb"POST (?:http://[^/ ]+)?/(?:send|idle|open|close)/[^ /]+|HTTP/1\.[01] 200 [^\0]*application/x-fcs", re.IGNORECASE
)
_TUNNEL_PATHS = (b"/open/", b"/send/", b"/idle/", b"/close/", b"/fcs/")


class Start(NamedTuple):
    """The protocol of a direction and, for RTMP, the phase its decoder starts in; or why it is refused."""

    service: str | None
    phase: str | None = None
    refusal: str | None = None


def service_port(a: int, b: int) -> int:
    """The RTMP port of the two, else the smaller one."""
    if (a in RTMP_PORTS) == (b in RTMP_PORTS):
        return min(a, b)
    return a if a in RTMP_PORTS else b


def recognise(prefix: bytes, *, from_start: bool, final: bool, port: int) -> Start | None:
    """Recognise the first bytes of a direction; None if more bytes are needed.

    `from_start`: the first byte of the direction was captured; `final`: no more bytes will come; `port`: the RTMP port
    of the two, else the smaller one.
    """
    if not prefix:
        return Start(None, refusal="no data") if final else None
    if prefix[:1] == b"\x16":
        return _tls(prefix, final, port)
    if prefix[:4] in _HTTP_WORDS:
        return Start(None, refusal=HTTP)
    if prefix[:4] == b"POST":
        return _tunnel(prefix, final)
    if len(prefix) < 4 and not final and any(word.startswith(prefix) for word in (b"POST", *_HTTP_WORDS)):
        return None
    if from_start:
        if prefix[0] == PLAIN_VERSION:
            return Start(RTMP, "handshake")
        if prefix[0] in RTMPE_VERSIONS:
            return Start(RTMPE)
        return Start(None, refusal="unknown")
    if prefix[:3] in (b"\x17\x03\x03", b"\x14\x03\x03", b"\x15\x03\x03"):
        return Start(None, refusal=TLS)
    if len(prefix) < PREFIX_BYTES and not final:
        return None
    return Start(RTMP, _joined_phase(prefix))


def _joined_phase(prefix: bytes) -> str:
    """The phase in which a direction without its SYN starts."""
    whole, half = 2 * PACKET_SIZE, PACKET_SIZE
    if prefix[0] == PLAIN_VERSION and _first_header(prefix, whole + 1):
        return "handshake"
    if _first_header(prefix, whole):
        return "part1"
    if _first_header(prefix, half):
        return "part2"
    return "midstream"


def _first_header(data: bytes, at: int) -> bool:
    """Whether the chunk header after a handshake is at this offset: fmt 0, stream 0, the type of a first message."""
    header = data[at : at + 12]
    if len(header) < 12:
        return False
    length = int.from_bytes(header[4:7], "big")
    if header[0] >> 6 or not 2 <= header[0] & 63 < 16 or header[8:12] != bytes(4):
        return False
    return (header[7] in (17, 20) and 0 < length < 65536) or (header[7] in (1, 3, 4, 5, 6) and 3 < length <= 10)


def has_tls_record(items: Iterable[Item]) -> bool:
    """Whether the first bytes of a direction that starts midstream contain the header of a TLS record."""
    return any(isinstance(item, Run) and has_tls_record_in(item.data) for item in items)


def has_tls_record_in(data: bytes) -> bool:
    return _RECORD.search(data, 0, SERVICE_SEARCH_BYTES) is not None


def has_tunnel_request(items: Iterable[Item]) -> bool:
    """Whether the first bytes of a direction that starts midstream contain an RTMPT request or response."""
    return any(isinstance(item, Run) and has_tunnel_request_in(item.data) for item in items)


def has_tunnel_request_in(data: bytes) -> bool:
    return _TUNNEL.search(data, 0, SERVICE_SEARCH_BYTES) is not None


def _tls(prefix: bytes, final: bool, port: int) -> Start | None:
    if len(prefix) < 6 and not final:
        return None
    if len(prefix) < 6 or prefix[1] != 3 or prefix[2] > 4 or prefix[5] not in (1, 2):
        return Start(None, refusal="unknown")
    if port in RTMP_PORTS:
        return Start(RTMPS)
    if port == HTTPS_PORT and prefix[5] == 1:
        if len(prefix) < 5 + int.from_bytes(prefix[3:5], "big") and not final and len(prefix) < PREFIX_BYTES:
            return None
        name = server_name(prefix)
        if name is not None and name.endswith(INGEST_NAMES):
            return Start(RTMPS)
    return Start(None, refusal=TLS)


def server_name(hello: bytes) -> str | None:
    """The host name in a TLS ClientHello (RFC 6066 3)."""
    try:
        at = 5 + 4 + 2 + 32
        at += 1 + hello[at]
        at += 2 + int.from_bytes(hello[at : at + 2], "big")
        at += 1 + hello[at]
        end = at + 2 + int.from_bytes(hello[at : at + 2], "big")
        at += 2
        while at + 4 <= min(end, len(hello)):
            kind, size = int.from_bytes(hello[at : at + 2], "big"), int.from_bytes(hello[at + 2 : at + 4], "big")
            if kind == 0:
                length = int.from_bytes(hello[at + 7 : at + 9], "big")
                return hello[at + 9 : at + 9 + length].decode("ascii", "replace").lower()
            at += 4 + size
    except IndexError:
        pass
    return None


def _tunnel(prefix: bytes, final: bool) -> Start | None:
    line, found, _ = prefix.partition(b"\r\n")
    if not found and not final and len(line) < REQUEST_LINE_BYTES:
        return None
    path = line.split(b" ")[1] if line.count(b" ") else b""
    return Start(RTMPT) if PROXIED_HOST.sub(b"", path, count=1).startswith(_TUNNEL_PATHS) else Start(None, refusal=HTTP)
