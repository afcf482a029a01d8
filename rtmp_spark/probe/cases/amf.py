"""Cases of AMF: every AMF0 type, odd keys, nesting, AMF3 commands (AMF 0, AMF 3, RTMP 1.0 7.1.1)."""

from __future__ import annotations

import struct

from rtmp_spark.codec import amf0
from rtmp_spark.codec.message import COMMAND_AMF0, COMMAND_AMF3, Message

from ..case import PRACTICE, Section
from ..case_connections import Probe
from ..outcome import Closed, Failed, Result, unimplemented
from ..peer import Peer
from ..received import Received

case = Section("amf", "every AMF0 type, long strings, nesting, AMF3 commands")


def key(text: str) -> bytes:
    return struct.pack(">H", len(text.encode())) + text.encode()


def connect_payload(peer: Peer, before: bytes = b"", marker: bytes = b"\x03") -> bytes:
    """connect with raw properties before `app`, so that a server must read through them to find it."""
    properties = b"".join(key(name) + amf0.dump_values([value]) for name, value in peer.connect_properties().items())
    return amf0.dump_values(["connect", peer.next_transaction()]) + marker + before + properties + b"\0\0\x09"


async def connects(p: Probe, before: bytes, marker: bytes = b"\x03") -> Received:
    """Send connect with raw properties first. Raises Failed if it is not accepted."""
    with p.precondition("handshake"):
        peer = await p.peer()
    payload = connect_payload(peer, before, marker)
    await peer.send(Message(3, 0, COMMAND_AMF0, 0, payload))
    found = await peer.answer(1.0, "connect")
    if found.name == "_error":
        raise Failed(f"connect was refused: {found.code}")
    await peer.create_stream()
    return found


_NUMBER = b"\0" + struct.pack(">d", 1.5)
_TYPES = (
    (1, "Number", _NUMBER),
    (2, "Boolean", b"\1\1"),
    (3, "String", b"\2" + key("text")),
    (4, "Object", b"\3" + key("a") + _NUMBER + b"\0\0\x09"),
    (5, "Null", b"\5"),
    (6, "Undefined", b"\6"),
    (7, "ECMA Array", b"\x08" + struct.pack(">I", 1) + key("a") + _NUMBER + b"\0\0\x09"),
    (8, "Strict Array", b"\x0a" + struct.pack(">I", 2) + _NUMBER + b"\2" + key("b")),
    (9, "Date", b"\x0b" + struct.pack(">dh", 1.7e12, 0)),
    (10, "Long String", b"\x0c" + struct.pack(">I", 70_000) + b"s" * 70_000),
    (11, "XML Document", b"\x0f" + struct.pack(">I", 4) + b"<a/>"),
    (12, "Typed Object", b"\x10" + key("Class") + key("a") + _NUMBER + b"\0\0\x09"),
    (13, "Reference to an object", b"\3" + key("a") + _NUMBER + b"\0\0\x09" + key("again") + b"\x07\0\1"),
    (14, "AMF3 value (avmplus marker)", b"\x11\x04\x05"),
    (15, "Unsupported", b"\x0d"),
    (16, "Empty object", b"\3\0\0\x09"),
    (17, "Empty string", b"\2\0\0"),
    (18, "NaN and infinity", b"\0\x7f\xf8" + bytes(6) + key("infinite") + b"\0\x7f\xf0" + bytes(6)),
    (19, "Strict Array of length 0", b"\x0a\0\0\0\0"),
    (20, "ECMA Array with a wrong count", b"\x08" + struct.pack(">I", 99) + key("a") + _NUMBER + b"\0\0\x09"),
    (21, "String that is not UTF-8", b"\2\0\3\xff\xfe\x80"),
    (22, "Objects nested 30 deep", (b"\3" + key("n")) * 30 + b"\5" + b"\0\0\x09" * 30),
)
for _number, _name, _bytes in _TYPES:

    @case(_number, f"{_name} in connect", PRACTICE, "AMF 0 2.1")
    async def amf0_type(p: Probe, value: bytes = _bytes) -> Result:
        """connect is accepted although a property of this type precedes `app`.

        New clients add properties of any type (E-RTMP did); a parser that cannot skip one loses those behind it."""
        await connects(p, key("extra") + value)
        return None


_KEYS = (
    (23, "A key twice", key("flashVer") + b"\2" + key("old") + key("flashVer") + b"\2" + key("new")),
    (24, "A key of 1000 characters", key("k" * 1000) + b"\5"),
    (25, "Keys that are not ASCII", key("schlüssel") + b"\2" + key("wért")),
    (26, "200 unknown keys", b"".join(key(f"extra{n}") + _NUMBER for n in range(200))),
)
for _number, _title, _bytes in _KEYS:

    @case(_number, _title, PRACTICE, "AMF 0 2.5")
    async def odd_keys(p: Probe, before: bytes = _bytes) -> Result:
        """connect is accepted.

        Keys are any text; only the known ones matter."""
        await connects(p, before)
        return None


@case(27, "connect with an ECMA Array", PRACTICE, "AMF 0 2.10")
async def ecma_connect(p: Probe) -> Result:
    """connect is accepted if its command object is an ECMA Array.

    Encoders in scripting languages send their dictionaries this way."""
    await connects(p, b"", b"\x08" + struct.pack(">I", 3))
    return None


@case(28, "AMF3 command message", PRACTICE, "RTMP 1.0 7.1.1")
async def amf3_command(p: Probe) -> Result:
    """connect and createStream in messages of type 17 are answered, or the connection is closed.

    Clients with objectEncoding 3 send AMF0 values after a zero byte."""
    with p.precondition("handshake"):
        peer = await p.peer()
    try:
        first = peer.command_message("connect", peer.next_transaction(), peer.connect_properties(objectEncoding=3.0),
                                     amf_version=3)  # fmt: skip
        await peer.send(first)
        found = await peer.answer(1.0, "connect")
        if found.name == "_error":
            return unimplemented(f"refused: {found.code}")
        number = peer.next_transaction()
        await peer.send(peer.command_message("createStream", number, None, amf_version=3))
        await peer.answer(number, "createStream")
    except Closed as error:
        return unimplemented(str(error))
    return None


@case(29, "AMF3 command in an AMF0 session", PRACTICE, "RTMP 1.0 7.1.1")
async def one_amf3_command(p: Probe) -> Result:
    """A createStream of type 17 is answered, ignored or refused; later AMF0 commands are answered.

    Clients mix both types."""
    peer = await p.connected()
    number = peer.next_transaction()
    await peer.send(peer.command_message("createStream", number, None, amf_version=3))
    if not await peer.is_open():
        return unimplemented("the server closed the connection")
    answers = peer.find(lambda one: one.command is not None and one.command.transaction_id == number)
    return None if answers else unimplemented("the command was ignored")


_DAMAGED = (
    (30, "A command that ends inside a string", COMMAND_AMF0, b"\2\0\x10short"),
    (31, "A command without a name", COMMAND_AMF0, _NUMBER),
    (32, "An empty command", COMMAND_AMF0, b""),
    (33, "An unknown AMF marker", COMMAND_AMF0, amf0.dump_values(["call", 9.0]) + b"\x7f"),
    (34, "AMF3 with a reference to nothing", COMMAND_AMF3, b"\0" + amf0.dump_values(["call", 9.0]) + b"\x11\x0a\x04"),
    (35, "A strict array that announces 4 billion values", COMMAND_AMF0,
     amf0.dump_values(["call", 9.0]) + b"\x0a\xff\xff\xff\xff"),
    (36, "Objects nested 5,000 deep", COMMAND_AMF0,
     amf0.dump_values(["call", 9.0]) + (b"\3\0\1n") * 5_000 + b"\5" + b"\0\0\x09" * 5_000),
)  # fmt: skip
for _number, _title, _type, _bytes in _DAMAGED:

    @case(_number, _title, PRACTICE, "RTMP 1.0 7.1.1")
    async def damaged(p: Probe, type_id: int = _type, payload: bytes = _bytes) -> Result:
        """The command is refused, ignored, or the connection is closed; other connections work.

        One damaged command must not end a server."""
        peer = await p.connected()
        await peer.send(Message(3, 0, type_id, 0, payload))
        await peer.is_open()
        await p.survives()
        return None


@case(37, "The answers of the server are valid AMF", PRACTICE, "RTMP 1.0 7.1.1")
async def answers_parse(p: Probe) -> Result:
    """Every command of the server can be parsed.

    A client that cannot read the answer to connect cannot go on."""
    peer = await p.connected()
    publish = await peer.publish(p.name())
    if publish.is_error:
        raise Failed(f"publish was refused: {publish.code}")
    for one in peer.inbox:
        if one.command is not None and one.command.violations:
            first = one.command.violations[0]
            raise Failed(f"{one.command.name or 'a command'}: {first.code.value}, {first.detail}")
    return None
