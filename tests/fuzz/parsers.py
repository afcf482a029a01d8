"""One target for every parser of a whole value: the first byte of the input chooses the parser."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from rtmp_spark.capture.unwrap.rtmpt.http_reader import HttpReader
from rtmp_spark.capture.unwrap.tls.keylog import KeyLog
from rtmp_spark.capture.unwrap.tls.tls_handshake import HandshakeReader, parse_client_hello, parse_server_hello
from rtmp_spark.codec import amf, amf0, amf3, flv
from rtmp_spark.codec.command import parse_command, parse_shared_object
from rtmp_spark.codec.errors import DecodeError
from rtmp_spark.codec.handshake import PACKET_SIZE, parse_packet1
from rtmp_spark.codec.media.reader import TagReader
from rtmp_spark.codec.media.tag import parse_tag
from rtmp_spark.codec.message import parse_aggregate, parse_control
from rtmp_spark.known_secrets import KnownSecrets
from rtmp_spark.redact import Redactor


def amf0_values(data: bytes) -> None:
    """Reading never raises, parsing raises only DecodeError, and the tagged JSON names the same values again."""
    _check_values(amf0.read_values(data).values)
    with contextlib.suppress(DecodeError):
        amf0.parse_values(data)


def amf3_values(data: bytes) -> None:
    _check_values(amf3.read_values(data).values)
    with contextlib.suppress(DecodeError):
        amf3.parse_values(data)


def _check_values(values: list[amf.Value]) -> None:
    tagged = amf.to_json_values(values)
    again = [amf.from_json(one) for one in tagged]
    assert len(again) == len(values)


def command(data: bytes) -> None:
    """The first byte chooses the type of the message; its JSON is redacted."""
    if data:
        parsed = parse_command(15 + data[0] % 6, data[1:])
        name = parsed.name if isinstance(parsed.name, str) else None
        Redactor(b"fuzz").arguments(name, amf.to_json_values(parsed.args), KnownSecrets())


def shared_object(data: bytes) -> None:
    if data:
        parse_shared_object((16, 19)[data[0] % 2], data[1:]).to_json()


def tag(data: bytes) -> None:
    if data:
        with contextlib.suppress(DecodeError):
            parse_tag(8 + data[0] % 2, data[1:])


def tags(data: bytes) -> None:
    """A sequence of tags of one stream: the type and length in a byte each. A reader that is resumed before every tag
    reads the same."""
    reader, resumed = TagReader(), TagReader()
    at = 0
    while at + 2 <= len(data):
        kind, payload = 8 + (data[at] & 1), data[at + 2 : at + 2 + data[at + 1]]
        at += 2 + data[at + 1]
        resumed = TagReader.resume(resumed.state())
        if payload:
            assert repr(reader.read(kind, 1, at, payload)) == repr(resumed.read(kind, 1, at, payload))


def control(data: bytes) -> None:
    if data:
        with contextlib.suppress(DecodeError):
            parse_control(1 + data[0] % 6, data[1:])
        with contextlib.suppress(DecodeError):
            parse_aggregate(data[1:], 0)


def flv_file(data: bytes) -> None:
    with contextlib.suppress(DecodeError):
        flv.parse_file(data)


def handshake(data: bytes) -> None:
    for side in ("client", "server"):
        parse_packet1(data[:PACKET_SIZE].ljust(PACKET_SIZE, b"\0"), side)


def tls_handshake(data: bytes) -> None:
    for _, body in HandshakeReader().receive(data):
        parse_client_hello(body)
        parse_server_hello(body)


def http(data: bytes) -> None:
    """Requests or responses, whole and in pieces with a resumed reader between them: the same bytes in their bodies."""
    if len(data) < 2:
        return
    for requests in (True, False):
        for from_start in (True, False):
            whole, pieces = HttpReader(requests, from_start), HttpReader(requests, from_start)
            step = 1 + data[0]
            found: list[object] = []
            for at in range(1, len(data), step):
                found += pieces.receive(data[at : at + step], at - 1)
                pieces = HttpReader.resume(pieces.state())
            once = whole.receive(data[1:], 0)
            assert _bodies(once) == _bodies(found)


def _bodies(events: list[object]) -> bytes:
    return b"".join(event.data for event in events if hasattr(event, "data"))


def key_log(data: bytes) -> None:
    log, again = KeyLog(), KeyLog()
    log.add(data)
    again.add(log.dump())
    assert again.dump() == log.dump()


def texts(data: bytes) -> None:
    """Redaction of any text, of which the first word is a known secret."""
    redactor, known = Redactor(b"fuzz"), KnownSecrets()
    text = data.decode("utf-8", "replace")
    known.add(redactor.secret(text.partition(" ")[0]))
    redactor.url(text, known)
    redactor.value({"description": text, "tcUrl": text, "streamName": text}, known)


PARSERS: tuple[Callable[[bytes], None], ...] = (
    amf0_values, amf3_values, command, shared_object, tag, tags, control, flv_file, handshake, tls_handshake, http,
    key_log, texts,
)  # fmt: skip


def parser(data: bytes) -> None:
    if data and data[0] % 16 < len(PARSERS):
        PARSERS[data[0] % 16](data[1:])
