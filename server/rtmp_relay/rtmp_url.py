"""RTMP URLs (`rtmp://host[:port]/app/name[?query]`, `rtmps` for TLS, `rtmpt` for HTTP) and `host:port` addresses."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from rtmp_spark.codec.errors import UserError

PORTS = {"rtmp": 1935, "rtmps": 443}
RTMPT_PORTS = {"rtmpt": 80, "rtmpts": 443}  # inside HTTP; the client of this package does not speak it
_ALL_PORTS = PORTS | RTMPT_PORTS


@dataclass(frozen=True)
class RtmpUrl:
    scheme: str
    host: str
    port: int
    app: str
    name: str  # with its query, because servers look for keys there

    @property
    def tc_url(self) -> str:
        address = endpoint(self.host, self.port).removesuffix(f":{_ALL_PORTS[self.scheme]}")
        return f"{self.scheme}://{address}/{self.app}"


def without_name(text: str) -> str:
    """A URL, or what was given as one, without what may be a secret: user, stream name, query."""
    scheme, slashes, rest = text.partition("://") if "://" in text else ("", "", text)
    host, *parts = rest.partition("?")[0].split("/")
    app = [*parts[:1], *["***"] * (len(parts) > 1)]
    return scheme + slashes + "/".join([host.rpartition("@")[2], *app]) + "?***" * ("?" in rest)


def parse_url(text: str, rtmpt: bool = False) -> RtmpUrl:
    """Parse an RTMP URL: the first part of the path is the app, the rest is the stream name. Raises UserError.

    `rtmpt`: accept `rtmpt` and `rtmpts` too.
    """
    remedy = "Write it as rtmp://host[:port]/app/name."
    parts = urlsplit(text)
    if parts.scheme not in (_ALL_PORTS if rtmpt else PORTS):
        raise UserError(f"{without_name(text)!r} is not an RTMP URL.", remedy)
    try:
        port = parts.port or _ALL_PORTS[parts.scheme]
    except ValueError:
        raise UserError(f"The port in {without_name(text)!r} is invalid.", remedy) from None
    app, _, name = parts.path.strip("/").partition("/")
    if not parts.hostname or not app or not name:
        raise UserError(f"{without_name(text)!r} lacks a host, an app or a stream name.", remedy)
    if parts.query:
        name = f"{name}?{parts.query}"
    return RtmpUrl(parts.scheme, parts.hostname, port, app, name)


def parse_endpoint(text: str) -> tuple[str, int]:
    """Parse `host:port`, `[v6]:port`, or `:port` for loopback. Raises UserError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise UserError(f"Invalid address {text!r}.", "Write it as host:port, for example 127.0.0.1:1935.")
    return host.strip("[]") or "127.0.0.1", int(port)


def endpoint(host: str, port: int) -> str:
    """Return `host:port` or `[v6]:port`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def why(error: OSError) -> str:
    """Return the system's reason for a failed connection; asyncio puts it inside a text about the addresses."""
    numbers = [int(number) for number in re.findall(r"\[Errno (\d+)\]", str(error))]
    return ", ".join(dict.fromkeys(os.strerror(number).lower() for number in numbers)) or error.strerror or str(error)
