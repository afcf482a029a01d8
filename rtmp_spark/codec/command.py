"""Commands, data messages and shared objects: AMF payloads with a name in front.

`parse_command` takes any bytes and never raises: parsed values are in the command, problems in `violations`. Unknown
commands are parsed like known ones. The functions below it extract what callers need, and return None if the peer sent
something else. Nothing here answers, remembers or checks a command.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from . import amf0, amf3
from .amf import AmfObject, AmfViolation, BadString, Reading, Text, Value, resolve, to_json_values
from .errors import EncodeError, ViolationCode
from .limits import DEFAULT_LIMITS, Limits
from .message import (
    COMMAND_AMF3,
    COMMANDS,
    DATA_AMF3,
    SHARED_OBJECT_AMF0,
    SHARED_OBJECT_AMF3,
)

SET_DATA_FRAME = "@setDataFrame"

_SHARED_OBJECTS = (SHARED_OBJECT_AMF0, SHARED_OBJECT_AMF3)
_WITH_FORMAT_BYTE = (DATA_AMF3, SHARED_OBJECT_AMF3, COMMAND_AMF3)
_AMF0_STRINGS = (0x02, 0x0C, 0x11)  # markers that a name can have
_COMMANDS_WITH_STREAM_NAME = frozenset(
    ("publish", "play", "play2", "releaseStream", "FCPublish", "FCUnpublish", "FCSubscribe", "getStreamLength",
     "deleteStream")
)  # fmt: skip


class Command(NamedTuple):
    """`args` holds everything after the transaction id, the command object first; in a data message, after the name."""

    name: str
    transaction_id: float | None
    args: list[Value]
    amf_version: int
    violations: tuple[AmfViolation, ...] = ()

    def arg(self, index: int) -> Value:
        return resolve(self.args[index]) if index < len(self.args) else None


def parse_command(type_id: int, payload: bytes, limits: Limits = DEFAULT_LIMITS) -> Command:
    """The command, data or shared-object message in a payload of type 15 to 20."""
    if type_id in _SHARED_OBJECTS:
        return parse_shared_object(type_id, payload, limits).as_command()
    is_command = type_id in COMMANDS
    reading = _read(type_id, payload, limits, 2 if is_command else 1)
    version = 3 if type_id in _WITH_FORMAT_BYTE else 0
    values, violations = reading.values, reading.violations
    name = resolve(values[0]) if values else None
    if not isinstance(name, str):
        if not isinstance(name, BadString) and is_command and not violations:
            what = "the command name is not a string" if values else "the command has no name"
            code = ViolationCode.AMF_MARKER if payload else ViolationCode.AMF_TRUNCATED
            violations.append(AmfViolation(code, 0, what))
        return Command("", None, values, version, tuple(violations))
    transaction_id = values[1] if is_command and len(values) > 1 else None
    if isinstance(transaction_id, (int, float)) and not isinstance(transaction_id, bool):
        return Command(name, float(transaction_id), values[2:], version, tuple(violations))
    return Command(name, None, values[1:], version, tuple(violations))


def _read(type_id: int, payload: bytes, limits: Limits, needed: int) -> Reading:
    """Types 15 and 17 begin with a format byte: 0 for AMF0 with AMF3 by marker; Flex also uses 3 for AMF3."""
    if type_id in _WITH_FORMAT_BYTE and payload and payload[0] not in _AMF0_STRINGS:
        if payload[0] == 3:
            return amf3.read_values(payload, limits, 1)
        if payload[0] == 0:
            return amf0.read_values(payload, limits, 1, needed)
    return amf0.read_values(payload, limits, 0, needed)


def dump_command(name: str, transaction_id: float | None, *args: object, amf_version: int = 0) -> bytes:
    """The payload of a command, or of a data message if there is no transaction id."""
    head: list[object] = [name] if transaction_id is None else [name, transaction_id]
    payload = amf0.dump_values([*head, *args])
    return b"\x00" + payload if amf_version == 3 else payload


def without_set_data_frame(payload: bytes) -> bytes:
    """A data message of type 18 as players and FLV files get it: `@setDataFrame` is meant for the server only."""
    prefix = amf0.dump_values([SET_DATA_FRAME])
    return payload[len(prefix) :] if payload.startswith(prefix) else payload


class ConnectInfo(NamedTuple):
    app: str | None
    tc_url: str | None
    flash_ver: str | None
    swf_url: str | None
    page_url: str | None
    type: str | None
    object_encoding: float | None
    audio_codecs: float | None
    video_codecs: float | None
    four_cc_list: tuple[str, ...]
    audio_four_cc_info_map: dict[str, int]  # FourCC or "*" -> 1 decode, 2 encode, 4 forward
    video_four_cc_info_map: dict[str, int]
    caps_ex: int  # 1 reconnect, 2 multitrack, 4 ModEx, 8 nanosecond timestamps


def connect_info(command: Command) -> ConnectInfo | None:
    """What a client declares in connect, with E-RTMP capabilities (E-RTMP v2, "Enhancing NetConnection connect")."""
    asked = command.arg(0)
    if command.name != "connect" or not isinstance(asked, AmfObject):
        return None
    return ConnectInfo(
        app=_string(asked, "app"),
        tc_url=_string(asked, "tcUrl"),
        flash_ver=_string(asked, "flashVer"),
        swf_url=_string(asked, "swfUrl"),
        page_url=_string(asked, "pageUrl"),
        type=_string(asked, "type"),
        object_encoding=_float(asked.get("objectEncoding")),
        audio_codecs=_float(asked.get("audioCodecs")),
        video_codecs=_float(asked.get("videoCodecs")),
        four_cc_list=_four_ccs(asked.get("fourCcList")),
        audio_four_cc_info_map=_four_cc_map(asked.get("audioFourCcInfoMap")),
        video_four_cc_info_map=_four_cc_map(asked.get("videoFourCcInfoMap")),
        caps_ex=_flags(asked.get("capsEx")),
    )


class StatusInfo(NamedTuple):
    level: str | None
    code: str | None
    description: str | None


def status_info(command: Command) -> StatusInfo | None:
    """Level, code and description of an onStatus, onPlayStatus, _result or _error, from the object with a code."""
    for argument in map(resolve, command.args):
        if isinstance(argument, AmfObject) and ("code" in argument or "level" in argument):
            return StatusInfo(*(_string(argument, name) for name in ("level", "code", "description")))
    return None


def stream_name(command: Command) -> str | None:
    """The stream name in a command, if it has one (GStreamer's deleteStream does)."""
    if command.name not in _COMMANDS_WITH_STREAM_NAME:
        return None
    name = command.arg(1)
    if command.name == "play2" and isinstance(name, AmfObject):  # NetStreamPlayOptions
        return _string(name, "streamName")
    return name if isinstance(name, str) else None


class PlayInfo(NamedTuple):
    name: str | None
    start: float  # seconds; -2: live, else recorded; -1: live only
    duration: float  # seconds; -1: to the end
    reset: bool


def play_info(command: Command) -> PlayInfo | None:
    if command.name != "play":
        return None
    start, duration, reset = _float(command.arg(2)), _float(command.arg(3)), command.arg(4)
    return PlayInfo(
        stream_name(command),
        -2.0 if start is None else start,  # defaults: RTMP 1.0 7.2.2.1
        -1.0 if duration is None else duration,
        reset is not False and reset != 0,
    )


def created_stream_id(command: Command) -> int | None:
    """The stream id in the response to createStream."""
    return _integer(command.arg(1)) if command.name == "_result" else None


def metadata(command: Command) -> AmfObject | None:
    """The object of onMetaData, with or without a preceding @setDataFrame."""
    args = [resolve(argument) for argument in command.args]
    if command.name == SET_DATA_FRAME and args[:1] == ["onMetaData"]:
        del args[0]
    elif command.name != "onMetaData":
        return None
    return next((argument for argument in args if isinstance(argument, AmfObject)), None)


def _string(asked: AmfObject, name: str) -> str | None:
    value = asked.get(name)
    return value if isinstance(value, str) else None


def _float(value: Value) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _integer(value: Value) -> int | None:
    number = _float(value)
    return int(number) if number is not None and number.is_integer() else None


def _flags(value: Value) -> int:
    number = _integer(value)
    return number if number is not None and 0 <= number < 1 << 32 else 0


def _four_ccs(value: Value) -> tuple[str, ...]:
    items = [item for _, item in value.pairs] if isinstance(value, AmfObject) else value
    return tuple(item for item in map(resolve, items) if isinstance(item, str)) if isinstance(items, list) else ()


def _four_cc_map(value: Value) -> dict[str, int]:
    if not isinstance(value, AmfObject):
        return {}
    return {key: _flags(resolve(item)) for key, item in value.pairs if isinstance(key, str)}


# Shared objects (RTMP 1.0 7.1.3): event names by number, and the form of their bodies.
_EVENT_NAMES = (
    "", "use", "release", "request_change", "change", "success", "send_message", "status", "clear", "remove",
    "request_remove", "use_success",
)  # fmt: skip
_NAMED_VALUES = ("request_change", "change")
_NAMES = ("success", "remove", "request_remove", "status")
_PERSISTENT = 2


class SharedObjectEvent(NamedTuple):
    """`pairs`: names and values of changes. `values`: names of success, remove and status, or values of a message."""

    kind: str  # of _EVENT_NAMES, or unknown_N
    pairs: list[tuple[Text, Value]]
    values: list[Value]
    raw: bytes = b""  # body of an unknown event


class SharedObject(NamedTuple):
    name: str
    version: int
    persistent: bool
    events: list[SharedObjectEvent]
    amf_version: int
    violations: tuple[AmfViolation, ...] = ()

    def as_command(self) -> Command:
        """As a command, for the table `commands`: version, persistence, and each event as an object."""
        args: list[Value] = [self.version, self.persistent]
        for event in self.events:
            fields: list[tuple[Text, Value]] = [("event", event.kind)]
            if event.pairs:
                fields.append(("changes", AmfObject(event.pairs)))
            if event.values:
                fields.append(("values", event.values))
            if event.raw:
                fields.append(("bytes", event.raw))
            args.append(AmfObject(fields))
        return Command(self.name, None, args, self.amf_version, self.violations)

    def to_json(self) -> list[Any]:
        """The value of `commands.args`."""
        return to_json_values(self.as_command().args)


def parse_shared_object(type_id: int, payload: bytes, limits: Limits = DEFAULT_LIMITS) -> SharedObject:
    """The shared-object message in a payload of type 16 or 19; never raises."""
    version = 3 if type_id == SHARED_OBJECT_AMF3 else 0
    violations: list[AmfViolation] = []
    events: list[SharedObjectEvent] = []
    pos = 1 if version == 3 and payload[:1] == b"\x00" else 0
    name, number, persistent, whole = "", 0, False, False
    try:
        text, pos = _name_at(payload, pos, violations)
        name = text if isinstance(text, str) else ""
        number, flags, _ = struct.unpack_from(">III", payload, pos)
        persistent = flags == _PERSISTENT
        pos += 12
        while pos < len(payload):
            kind, length = struct.unpack_from(">BI", payload, pos)
            end = pos + 5 + length
            if end > len(payload):
                break
            events.append(_event(kind, payload, pos + 5, end, violations, limits))
            pos = end
        whole = pos == len(payload)
    except (struct.error, IndexError):
        pass
    if not whole:
        violations.append(AmfViolation(ViolationCode.AMF_TRUNCATED, pos, "the data ends inside a shared object"))
    return SharedObject(name, number, persistent, events, version, tuple(violations))


def _event(
    number: int, payload: bytes, pos: int, end: int, violations: list[AmfViolation], limits: Limits
) -> SharedObjectEvent:
    kind = _EVENT_NAMES[number] if 0 < number < len(_EVENT_NAMES) else f"unknown_{number}"
    event = SharedObjectEvent(kind, [], [])
    start, body, pos, end = pos, payload[pos:end], 0, end - pos  # a message may have an event per five bytes
    before = len(violations)
    try:
        if kind in _NAMED_VALUES:
            while pos < end:
                key, pos = _name_at(body, pos, violations)
                reading = amf0.read_value(body, pos, limits)
                violations += reading.violations
                event.pairs.append((key, reading.values[0] if reading.values else None))
                pos = reading.end
        elif kind in _NAMES:
            while pos < end:
                text, pos = _name_at(body, pos, violations)
                event.values.append(text)
        elif kind == "send_message":
            reading = amf0.read_values(body, limits, pos)
            violations += reading.violations
            event.values.extend(reading.values)
        elif pos < end:
            return event._replace(raw=body[pos:])
    except (struct.error, IndexError):
        violations.append(AmfViolation(ViolationCode.AMF_TRUNCATED, pos, f"the {kind} event ends inside a name"))
    violations[before:] = [found._replace(offset=start + found.offset) for found in violations[before:]]
    return event


def _name_at(data: bytes, pos: int, violations: list[AmfViolation]) -> tuple[Text, int]:
    end = pos + 2 + struct.unpack_from(">H", data, pos)[0]
    if end > len(data):
        raise IndexError
    raw = data[pos + 2 : end]
    try:
        return raw.decode(), end
    except UnicodeDecodeError as error:
        detail = f"string is not UTF-8: {error.reason}"
        violations.append(AmfViolation(ViolationCode.AMF_UTF8, pos + 2 + error.start, detail))
        return BadString(raw), end


def dump_shared_object(
    name: str, version: int, persistent: bool, events: Iterable[SharedObjectEvent], amf_version: int = 0
) -> bytes:
    out = bytearray(b"\x00" if amf_version == 3 else b"")
    out += _short(name)
    if not 0 <= version < 1 << 32:
        raise EncodeError(f"shared object version {version} does not fit in 32 bits")
    out += struct.pack(">III", version, _PERSISTENT if persistent else 0, 0)
    for event in events:
        if event.kind not in _EVENT_NAMES[1:]:
            raise EncodeError(f"unknown shared-object event {event.kind}")
        body = b"".join(_short(key) + amf0.dump_values([value]) for key, value in event.pairs)
        if event.kind in _NAMES:
            body += b"".join(_short(text) for text in event.values if isinstance(text, (str, BadString)))
        else:
            body += amf0.dump_values(event.values)
        out += struct.pack(">BI", _EVENT_NAMES.index(event.kind), len(body)) + body + event.raw
    return bytes(out)


def _short(text: Text) -> bytes:
    raw = amf3.encoded(text)
    if len(raw) > 0xFFFF:
        raise EncodeError(f"a name of {len(raw)} bytes is too long")
    return struct.pack(">H", len(raw)) + raw
