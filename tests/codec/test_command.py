"""Commands and shared objects: the accessors that consumers use, and arbitrary bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rtmp_spark.vectors
from rtmp_spark.codec import command
from rtmp_spark.codec.amf import AmfObject, EcmaArray, to_json
from rtmp_spark.codec.command import Command, SharedObjectEvent, parse_command
from rtmp_spark.codec.errors import EncodeError, ViolationCode

VECTORS = Path(rtmp_spark.vectors.__file__).parent
TYPES = st.sampled_from([15, 16, 17, 18, 19, 20])


def captured(name: str) -> Command:
    """A command of a real peer, from the golden vectors."""
    vector = json.loads((VECTORS / "valid" / "command" / f"{name}.json").read_text(encoding="utf-8"))
    return parse_command(vector["start"]["type_id"], bytes.fromhex("".join(vector["input"])))


REAL = [
    bytes.fromhex("".join(json.loads(path.read_text(encoding="utf-8"))["input"]))
    for path in sorted((VECTORS / "valid" / "command").glob("*.json"))
]


@given(TYPES, st.binary(max_size=100))
def test_arbitrary_bytes_are_parsed_as_a_command(type_id: int, payload: bytes) -> None:
    parsed = parse_command(type_id, payload)
    assert parsed.amf_version == (3 if type_id in (15, 16, 17) else 0)
    json.dumps(to_json(parsed.args), allow_nan=False)


EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=3)


@given(TYPES, st.sampled_from(REAL), EDITS, st.floats(0, 1))
def test_damaged_commands_are_parsed(type_id: int, real: bytes, edits: list[tuple[float, int]], keep: float) -> None:
    payload = bytearray(real[: max(1, int(len(real) * keep))])
    for place, byte in edits:
        payload[int(place * (len(payload) - 1))] = byte
    parsed = parse_command(type_id, bytes(payload))
    json.dumps(to_json(parsed.args), allow_nan=False)
    for view in (command.connect_info, command.status_info, command.stream_name, command.play_info, command.metadata):
        view(parsed)


def test_connect_of_a_player() -> None:
    info = command.connect_info(captured("connect_ffmpeg_play"))
    assert info is not None
    assert (info.app, info.tc_url, info.flash_ver) == ("vod", "rtmp://127.0.0.1:1935/vod", "LNX 9,0,124,2")
    assert (info.audio_codecs, info.video_codecs, info.object_encoding) == (4071, 252, None)
    assert (info.four_cc_list, info.caps_ex) == ((), 0)


def test_connect_that_offers_enhanced_codecs() -> None:
    info = command.connect_info(captured("connect_fourcc_list"))
    assert info is not None
    assert info.four_cc_list == ("hvc1", "av01", "vp09")  # ffmpeg -rtmp_enhanced_codecs hvc1,av01,vp09


def test_connect_with_capabilities() -> None:
    # E-RTMP v2: flags 1 decode, 2 encode, 4 forward; capsEx 1 reconnect, 2 multitrack
    asked = {"app": 5, "videoFourCcInfoMap": {"*": 4, "hvc1": 3}, "audioFourCcInfoMap": {"Opus": "x"}, "capsEx": 3}
    info = command.connect_info(parse_command(20, command.dump_command("connect", 1, asked)))
    assert info is not None
    assert info.app is None  # a number is not a valid application name
    assert (info.video_four_cc_info_map, info.audio_four_cc_info_map) == ({"*": 4, "hvc1": 3}, {"Opus": 0})
    assert info.caps_ex == 3


def test_connect_without_an_object_has_no_connect_info() -> None:
    assert command.connect_info(parse_command(20, command.dump_command("connect", 1, "app"))) is None
    assert command.connect_info(captured("create_stream")) is None


def test_status_of_answers_and_notices() -> None:
    start = command.status_info(captured("on_status_publish_start"))
    assert start is not None
    assert (start.level, start.code) == ("status", "NetStream.Publish.Start")
    accepted = command.status_info(captured("result_connect_nginx"))
    assert accepted is not None
    assert (accepted.level, accepted.code) == ("status", "NetConnection.Connect.Success")
    refused = command.status_info(captured("on_status_error"))
    assert refused is not None
    assert refused.level == "error"
    assert command.status_info(captured("create_stream")) is None


def test_stream_id_and_stream_name_of_commands() -> None:
    assert command.created_stream_id(captured("result_create_stream")) == 1
    by_name = captured("delete_stream_name")  # GStreamer
    assert command.stream_name(by_name) == "d08"  # as published


def test_publish_and_play() -> None:
    assert "?" in (command.stream_name(captured("publish_query_string")) or "")
    played = command.play_info(parse_command(20, command.dump_command("play", 0, None, "name")))
    assert played == ("name", -2.0, -1.0, True)  # the defaults of RTMP 1.0 7.2.2.1
    assert command.stream_name(parse_command(20, command.dump_command("publish", 0, None, 7))) is None
    play2 = parse_command(20, command.dump_command("play2", 0, None, {"streamName": "b"}))
    assert command.stream_name(play2) == "b"


def test_metadata_with_and_without_set_data_frame() -> None:
    sent = captured("set_data_frame")
    declared = command.metadata(sent)
    assert isinstance(declared, EcmaArray)
    assert declared["videocodecid"] == 7
    payload = command.dump_command("@setDataFrame", None, "onMetaData", declared)
    relayed = parse_command(18, command.without_set_data_frame(payload))
    assert relayed.name == "onMetaData"
    assert command.metadata(relayed) == declared
    assert command.without_set_data_frame(b"\x02\x00\x01a") == b"\x02\x00\x01a"
    assert command.metadata(captured("rtmp_sample_access")) is None


@pytest.mark.parametrize(("type_id", "version"), [(20, 0), (17, 3)])
def test_dumped_commands_are_parsed_unchanged(type_id: int, version: int) -> None:
    payload = command.dump_command("_result", 4, None, {"code": "x"}, b"raw", amf_version=version)
    assert payload[0] == (0 if version == 3 else 2)
    parsed = parse_command(type_id, payload)
    assert (parsed.name, parsed.transaction_id, parsed.amf_version, parsed.violations) == ("_result", 4.0, version, ())
    assert parsed.args == [None, AmfObject([("code", "x")]), b"raw"]


def test_amf3_without_an_amf0_part() -> None:
    # Red5 and Flex: format byte 3, then AMF3 values
    parsed = parse_command(17, bytes.fromhex("03 06 09 63616c6c 0407 01"))
    assert (parsed.name, parsed.transaction_id, parsed.args) == ("call", 7.0, [None])


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\x05"])
def test_a_command_needs_a_name(payload: bytes) -> None:
    parsed = parse_command(20, payload)
    assert parsed.name == ""
    assert len(parsed.violations) == 1
    assert parse_command(18, b"\x05").violations == ()  # data may be anything


def test_a_name_that_is_not_utf8() -> None:
    parsed = parse_command(20, b"\x02\x00\x01\xff\x00" + bytes(8))
    assert parsed.name == ""
    assert [code for code, _, _ in parsed.violations] == [ViolationCode.AMF_UTF8]


EVENTS = [
    SharedObjectEvent("use", [], []),
    SharedObjectEvent("change", [("x", 1.0), ("y", AmfObject([("z", "a")]))], []),
    SharedObjectEvent("success", [], ["x"]),
    SharedObjectEvent("send_message", [], ["handler", 1.0, None]),
    SharedObjectEvent("status", [], ["SharedObject.BadPersistence", "error"]),
    SharedObjectEvent("clear", [], []),
]


@pytest.mark.parametrize(("type_id", "version"), [(19, 0), (16, 3)])
def test_shared_objects_are_parsed_and_dumped(type_id: int, version: int) -> None:
    payload = command.dump_shared_object("rooms", 3, True, EVENTS, version)
    parsed = command.parse_shared_object(type_id, payload)
    assert (parsed.name, parsed.version, parsed.persistent, parsed.amf_version) == ("rooms", 3, True, version)
    assert parsed.events == EVENTS
    assert parsed.violations == ()
    for cut in range(len(payload)):
        damaged = command.parse_shared_object(type_id, payload[:cut])
        ends_with_an_event = damaged.events == EVENTS[: len(damaged.events)] and not damaged.violations
        assert ends_with_an_event or damaged.violations[-1].code is ViolationCode.AMF_TRUNCATED


def test_an_unknown_shared_object_event_is_kept() -> None:
    payload = command.dump_shared_object("a", 0, False, []) + bytes.fromhex("63 00000002 beef")
    (event,) = command.parse_shared_object(19, payload).events
    assert (event.kind, event.raw) == ("unknown_99", b"\xbe\xef")
    assert parse_command(19, payload).args[2] == AmfObject([("event", "unknown_99"), ("bytes", b"\xbe\xef")])
    with pytest.raises(EncodeError):
        command.dump_shared_object("a", 0, False, [event])
