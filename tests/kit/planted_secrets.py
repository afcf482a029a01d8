"""Captures of a connection whose peers show a stream key in many places."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kit.decoded_tables import RtmpTalk
from kit.rtmp_talks import CLIENT, SERVER

from rtmp_spark.codec.command import dump_command

KEY = "sk7f3aSECRETKEY99x"


def planted(path: Path, *, media: bool = False) -> Path:
    said = RtmpTalk().handshake()
    url = f"rtmp://user:{KEY}@h/live/{KEY}?token={KEY}"
    said.command(
        CLIENT, "connect", 1,
        {"app": f"live/{KEY}", "tcUrl": url, "swfUrl": f"http://h/{KEY}.swf?a={KEY}", "pageUrl": f"http://h/?s={KEY}",
         "flashVer": f"x {KEY}", "fourCcList": [KEY], "apikey": KEY, "accessToken": KEY, "pass": KEY}, KEY,
    )  # fmt: skip
    said.command(SERVER, "_result", 1, {"fmsVer": f"v {KEY}"}, {"code": "NetConnection.Connect.Success", "ex": KEY})
    names = "releaseStream FCPublish FCSubscribe getStreamLength DVRGetStreamInfo set_playlist"
    for name in (*names.split(), KEY):
        said.command(CLIENT, name, 2, None, KEY)
    said.command(CLIENT, "createStream", 4, None).command(SERVER, "_result", 4, None, 1.0)
    said.command(CLIENT, "publish", 0, None, f"mp4:{KEY}?k={KEY}", KEY, stream_id=1)
    about = {"description": f"{KEY} is already publishing /live/{KEY}.", "details": KEY, "clientid": KEY}
    said.command(SERVER, "onStatus", 0, None, {"level": "error", "code": "NetStream.Publish.BadName", **about})
    data = {"filename": f"{KEY}.flv", "title": KEY, KEY: KEY, "path": f"/rec/{KEY}.flv", "encoder": f"Lavf58 {KEY}",
            "videocodecid": KEY}  # fmt: skip
    said.command(CLIENT, "@setDataFrame", None, "onMetaData", data, stream_id=1)
    said.command(CLIENT, "onTextData", None, {"text": f"key={KEY}"}, stream_id=1)
    shared = len(KEY).to_bytes(2, "big") + KEY.encode() + bytes(12) + b"\x01\0\0\0\0"
    said.send(CLIENT, 19, shared)
    said.send(CLIENT, 20, b"\x02" + len(KEY).to_bytes(2, "big") + KEY.encode() + b"\x0d\x0e")  # broken: a finding
    if media:
        said.send(CLIENT, 8, b"\xaf\x00\x12\x10", stream_id=1).send(CLIENT, 8, b"\xaf\x01abcd", stream_id=1)
    return said.bye().write(path)


def connecting(**fields: object) -> RtmpTalk:
    said = RtmpTalk().handshake().command(CLIENT, "connect", 1, {"app": "live", "tcUrl": "rtmp://h/live", **fields})
    return said.command(SERVER, "_result", 1, {"fmsVer": "v"}, {"code": "NetConnection.Connect.Success"})


def publishing(said: RtmpTalk, key: str) -> None:
    said.command(CLIENT, "createStream", 4, None).command(SERVER, "_result", 4, None, 1.0)
    said.command(CLIENT, "publish", 0, None, key, "live", stream_id=1)


def _metadata(of: Callable[[str], object]) -> Callable[[RtmpTalk, str], object]:
    return lambda said, key: said.command(CLIENT, "@setDataFrame", None, "onMetaData", of(key), stream_id=1)


def _status(of: Callable[[str], dict[str, str]]) -> Callable[[RtmpTalk, str], object]:
    usual = {"level": "status", "code": "NetStream.Publish.Start"}
    return lambda said, key: said.command(SERVER, "onStatus", 0, None, {**usual, **of(key)}, stream_id=1)


def _call(*args: Callable[[str], object]) -> Callable[[RtmpTalk, str], object]:
    return lambda said, key: said.command(CLIENT, "call", 9, None, *(of(key) for of in args))


def _shared(kind: bytes, body: Callable[[bytes], bytes]) -> Callable[[RtmpTalk, str], object]:
    def show(said: RtmpTalk, key: str) -> None:
        event = body(key.encode())
        said.send(CLIENT, 19, b"\0\2so" + bytes(12) + kind + len(event).to_bytes(4, "big") + event)

    return show


def _amf(type_id: int, value: Callable[[bytes], bytes]) -> Callable[[RtmpTalk, str], object]:
    start = b"\0" * (type_id == 17) + dump_command("call", 5.0, None)
    return lambda said, key: said.send(CLIENT, type_id, start + value(key.encode()))


# Where a key may occur beside the command that names the stream.
PLACES: dict[str, Callable[[RtmpTalk, str], object]] = {
    "text": _metadata(lambda key: {"encoder": f"Lavf {key}"}),
    "inside a word": _metadata(lambda key: {"comment": f"rec_{key}-20240101.flv"}),
    "path": _metadata(lambda key: {"comment": f"/rec/{key}/1.flv"}),
    "path of Windows": _metadata(lambda key: {"comment": f"C:\\rec\\{key}.flv"}),
    "URL": _metadata(lambda key: {"comment": f"rtmp://h/live/{key}"}),
    "JSON": _metadata(lambda key: {"comment": f'{{"stream":"{key}"}}'}),
    "quotes": _metadata(lambda key: {"comment": f"'{key}'"}),
    "nested": _metadata(lambda key: {"a": {"b": [key, {"c": key}]}}),
    "name of a field": _metadata(lambda key: {f"x-{key}": 1.0}),
    "array": _metadata(lambda key: [key, [key]]),
    "description": _status(lambda key: {"description": f"stream=live_{key}:started"}),
    "code": _status(lambda key: {"code": f"NetStream.{key}"}),
    "level": _status(lambda key: {"level": key}),
    "details": _status(lambda key: {"details": key, "clientid": key}),
    "argument": _call(lambda key: key, lambda key: {"x": key}),
    "value of a shared object": _shared(b"\4", lambda key: b"\0\2ab\2" + len(key).to_bytes(2, "big") + key),
    "key of a shared object": _shared(b"\4", lambda key: len(key).to_bytes(2, "big") + key + b"\5"),
    "unknown event": _shared(b"\x2a", lambda key: key),
    "byte array": _amf(17, lambda key: b"\x11\x0c" + bytes((len(key) * 2 + 1,)) + key),
    "XML": _amf(20, lambda key: b"\x0f" + (len(key) + 7).to_bytes(4, "big") + b"<a>" + key + b"</a>"),
    "long string": _amf(20, lambda key: b"\x0c" + len(key).to_bytes(4, "big") + key),
    "class": _amf(20, lambda key: b"\x10" + len(key).to_bytes(2, "big") + key + b"\0\0\x09"),
    "truncated command": lambda said, key: said.send(CLIENT, 20, dump_command("publish", 5.0, None, key, "live")[:-9]),
    "unknown type": lambda said, key: said.send(CLIENT, 99, key.encode()),
    "video": lambda said, key: said.send(CLIENT, 9, b"\x17\1\0\0\0" + bytes(4) + key.encode(), stream_id=1),
}
# The same with letters beside the key.
GLUED: dict[str, Callable[[RtmpTalk, str], object]] = {
    "text": lambda said, key: PLACES["text"](said, f"rec{key}"),
    "argument": lambda said, key: PLACES["argument"](said, f"x{key}y"),
    "name of a field": lambda said, key: PLACES["name of a field"](said, f"{key}x"),
    "name of a command": lambda said, key: said.command(CLIENT, f"on{key}", 9, None),
    "video": lambda said, key: PLACES["video"](said, f"x{key}y"),
}
# Fields of connect that are secrets by their name or form; KEY is in each.
FIELDS: tuple[dict[str, object], ...] = (
    {"app": f"live?token={KEY}"}, {"app": f"live?{KEY}"}, {"app": f"live/{KEY}"}, {"tcUrl": f"rtmp://h/live/{KEY}"},
    {"tcUrl": f"rtmp://h/live;token={KEY}"}, {"tcUrl": f"rtmp://h/live?token=a {KEY}"},
    {"tcUrl": f"rtmp://h/live?token=a'{KEY}"}, {"tcUrl": f"rtmp://h/live?token%3D{KEY}"},
    {"tcUrl": f"rtmp://{KEY}@h/live"}, {"tcUrl": f"rtmp://bob:{KEY}@h/live"}, {"tcUrl": f"rtmp://bob:a@{KEY}@h/live"},
    {"tcUrl": f"rtmp://bob:a/{KEY}@h/live"}, {"pageUrl": f"https://h/#access_token={KEY}"},
    {"pageUrl": f"https://h/a;jsessionid={KEY}"}, {"swfUrl": f"http://h/x.swf?sig={KEY}"},
    {"flashVer": f"x?token={KEY}"}, {"x": f"a=1;token={KEY};b=2"}, {"x": f"token = {KEY}"}, {"x": f"password: {KEY}"},
    {"x": f'{{"token":"{KEY}"}}'}, {"x": f"Authorization: Bearer {KEY}"}, {"apiKeys": KEY}, {"tokens": [KEY]},
    {"auth": {"value": KEY}}, {"x": {"credentials": {"a": {"b": [KEY]}}}}, {"jwt": KEY}, {"session_id": KEY},
    {"Access-Code": KEY}, {"cookie": f"a={KEY}"}, {"hmac": KEY}, {"pin": KEY},
)  # fmt: skip
