"""`rtmp_spark.codec`: RTMP, AMF and FLV as bytes and values, with the standard library only."""

from rtmp_spark.codec import (
    Command,
    DecodeError,
    HandshakePart,
    Limits,
    MediaTag,
    Message,
    MessageReceived,
    RtmpDecoder,
    RtmpEncoder,
    Skipped,
    TagReader,
    Violation,
    ViolationCode,
    amf0,
    amf3,
    dump_command,
    flv,
    parse_command,
    parse_control,
)

# A command as chunks, and back
payload = dump_command("connect", 1.0, {"app": "live"})
wire = RtmpEncoder(chunk_size=128).send(Message(csid=3, timestamp=0, type_id=20, stream_id=0, payload=payload))
decoder = RtmpDecoder(Limits(), phase="chunks")  # after the handshake; the default expects C0 or S0 first
events = decoder.receive_data(wire[:9])
decoder = RtmpDecoder.resume(decoder.state())  # the state is bytes: another process can resume it
(message,) = events + decoder.receive_data(wire[9:])
assert isinstance(message, MessageReceived)
command: Command = parse_command(message.type_id, message.payload)
assert (command.name, command.arg(0)["app"]) == ("connect", "live")

# Damage becomes events
decoder = RtmpDecoder()
events = decoder.receive_data(b"\x03" + bytes(3072) + b"\x05") + decoder.receive_gap(1000) + decoder.receive_eof()
assert [type(event) for event in events[:3]] == [HandshakePart] * 3
assert all(isinstance(event, Violation | Skipped | MessageReceived) for event in events[3:])
assert ViolationCode.TCP_GAP.severity

# Control messages, AMF values, media tags, FLV files
assert parse_control(1, bytes.fromhex("00001000")).value == 4096
assert amf0.parse_values(amf0.dump_values(["live", 1.0])) == ["live", 1.0]
assert amf3.parse_values(b"\x04\x07") == [7]
tags, faults = TagReader().read(8, 1, 0, bytes.fromhex("af00119056e500"))
tag: MediaTag = tags[0]
assert (tag.codec, tag.sample_rate, faults) == ("aac", 48000, [])
file = flv.parse_file(flv.header() + flv.dump_tag(8, 0, b"\xaf\x01\x00"))
assert file.tags[0].type_id == 8
try:
    flv.parse_file(b"RIFF")
except DecodeError as error:
    assert error.offset == 0
