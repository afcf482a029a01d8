"""Decodes vectors with our codec; the result has the shape of `expect`. Nothing is compared here.

Streams (layers chunk and handshake) are fed in many ways: whole, byte by byte, split in two at every position, and with
the decoder's state saved and resumed in between. All of them must give the same result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from rtmp_spark.codec import amf, amf0, amf3, command, flv, handshake, message
from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.errors import DecodeError, RtmpSparkError, Severity, ViolationCode
from rtmp_spark.codec.events import COMPLETE, Event, HandshakePart, MessageReceived, Violation
from rtmp_spark.codec.media.reader import TagReader

Result = dict[str, Any]
Piece = bytes | int  # an int is a gap of that many bytes
Findings = list[tuple[ViolationCode, Severity]]

EVERY_POSITION_UP_TO = 2048
SAMPLED_CUTS = 192
SAMPLED_RESUMES = 48


class BadVector(RtmpSparkError):
    """An invalid vector file."""


def pieces_of(described: Any) -> list[Piece]:
    """The pieces of `input`, `prelude` or `start.peer`; adjacent bytes are joined, gaps are kept."""
    joined: list[Piece] = []
    for item in [described] if isinstance(described, str) else described:
        piece = _piece(item)
        if isinstance(piece, bytes) and joined and isinstance(joined[-1], bytes):
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def _piece(item: Any) -> Piece:
    try:
        if isinstance(item, str):
            return bytes.fromhex(item)
        if set(item) == {"gap"}:
            return int(item["gap"])
        length = int(item["length"])
        if set(item) == {"fill", "length"}:
            return bytes.fromhex(item["fill"]) * length
        if set(item) == {"range", "length"}:
            low, high = (int(end, 16) for end in item["range"])
            count = (high - low) % 256 + 1  # ["90", "8f"] continues with 00 after ff
            return bytes((low + index % count) % 256 for index in range(length))
    except (TypeError, KeyError, ValueError, ZeroDivisionError) as error:
        raise BadVector(f"invalid piece {item!r}: {error}") from None
    raise BadVector(f"invalid piece {item!r}")


def bytes_of(described: Any) -> bytes:
    """The bytes of `input`, for layers without gaps."""
    pieces = pieces_of(described)
    if not all(isinstance(piece, bytes) for piece in pieces):
        raise BadVector("gaps are allowed only in vectors of layer chunk")
    return b"".join(piece for piece in pieces if isinstance(piece, bytes))


def _with_findings(result: Result, findings: Findings) -> Result:
    loud = [code.value for code, severity in findings if severity is not Severity.INFO]
    quiet = [code.value for code, severity in findings if severity is Severity.INFO]
    return {**result, "findings": list(dict.fromkeys(loud)), "infos": list(dict.fromkeys(quiet))}


# --- streams -------------------------------------------------------------------------------------------------


class Resume:
    """Between two pieces: save the decoder's state here and resume from it."""


Feed = list[bytes | int | Resume]


def feeds_of(pieces: list[Piece]) -> Iterator[tuple[str, Feed]]:
    """The ways to feed a stream, each with its description."""
    yield "fed whole", list(pieces)
    bytewise: Feed = []
    for piece in pieces:
        bytewise.extend([piece] if isinstance(piece, int) else [piece[i : i + 1] for i in range(len(piece))])
    yield "fed byte by byte", bytewise
    length = sum(len(piece) for piece in pieces if isinstance(piece, bytes))
    if length <= EVERY_POSITION_UP_TO:
        cuts = list(range(1, length))
    else:
        cuts = sorted({*range(1, 33), *(length * n // SAMPLED_CUTS for n in range(1, SAMPLED_CUTS))})
    for cut in cuts:
        yield f"split at {cut}", _cut(pieces, cut, resume=False)
    for cut in cuts[:: max(1, len(cuts) // SAMPLED_RESUMES)]:
        yield f"resumed at {cut}", _cut(pieces, cut, resume=True)


def _cut(pieces: list[Piece], cut: int, resume: bool) -> Feed:
    feed: Feed = []
    left = cut
    for piece in pieces:
        if isinstance(piece, int) or not 0 < left < len(piece):
            feed.append(piece)
        else:
            feed += [piece[:left], Resume(), piece[left:]] if resume else [piece[:left], piece[left:]]
        if isinstance(piece, bytes):
            left -= len(piece)
    return feed


def _phase(start: dict[str, Any]) -> str:
    if start.get("midstream", False):
        return "midstream"
    return "chunks" if start.get("after_handshake", True) else "handshake"


def _decode(decoder: RtmpDecoder, feed: Feed) -> tuple[list[Event], RtmpDecoder]:
    events: list[Event] = []
    for piece in feed:
        if isinstance(piece, Resume):
            decoder = RtmpDecoder.resume(decoder.state())
        elif isinstance(piece, int):
            events += decoder.receive_gap(piece)
        else:
            events += decoder.receive_data(piece)
    return events + decoder.receive_eof(), decoder


def _stream_results(
    vector: dict[str, Any], make: Callable[[], RtmpDecoder], result_of: Callable[[list[Event], RtmpDecoder], Result]
) -> Iterator[tuple[str, Result]]:
    """One result, and one more for each way of feeding that gives a different result."""
    first: tuple[list[Event], Result] | None = None
    for label, feed in feeds_of(pieces_of(vector["input"])):
        events, decoder = _decode(make(), feed)
        if first is not None and events == first[0]:
            continue
        result = result_of(events, decoder)
        if first is None:
            first = events, result
        elif result == first[1]:
            continue
        yield label, result


def _chunk(vector: dict[str, Any]) -> Iterator[tuple[str, Result]]:
    start = vector.get("start", {})

    def make() -> RtmpDecoder:
        decoder = RtmpDecoder(phase=_phase(start), chunk_size=start.get("chunk_size", 128))
        for piece in pieces_of(vector.get("prelude", [])):
            if isinstance(piece, int):
                decoder.receive_gap(piece)
            else:
                decoder.receive_data(piece)
        return decoder

    return _stream_results(vector, make, _chunk_result)


def _chunk_result(events: list[Event], decoder: RtmpDecoder) -> Result:
    messages: list[Result] = []
    findings: Findings = []
    for event in events:
        if isinstance(event, Violation):
            findings.append((event.code, event.severity))
        elif isinstance(event, MessageReceived):
            messages.append(_message_result(event))
            if event.type_id == message.AGGREGATE and event.status == COMPLETE:
                violations = message.parse_aggregate(event.payload, event.timestamp).violations
                findings += [(code, code.severity) for code, _, _ in violations]
    return _with_findings({"messages": messages, "final_chunk_size": decoder.chunk_size}, findings)


def _message_result(event: MessageReceived) -> Result:
    result = event._asdict()
    del result["start"], result["end"]
    result["payload"] = event.payload.hex()
    result["payload_sha256"] = hashlib.sha256(event.payload).hexdigest()
    if event.type_id == message.AGGREGATE:
        result["parts"] = [
            {"type_id": part.type_id, "timestamp": part.timestamp, "payload": part.payload.hex()}
            for part in message.parse_aggregate(event.payload, event.timestamp).parts
        ]
    return result


def _handshake(vector: dict[str, Any]) -> Iterator[tuple[str, Result]]:
    start = vector.get("start", {})
    side = start.get("side", handshake.CLIENT)
    peer_bytes = bytes_of(start["peer"]) if "peer" in start else b""
    peer = peer_bytes[1 : 1 + handshake.PACKET_SIZE] if len(peer_bytes) > handshake.PACKET_SIZE else None

    def result_of(events: list[Event], decoder: RtmpDecoder) -> Result:
        parts = {event.part: event.data for event in events if isinstance(event, HandshakePart)}
        version = parts[0][0] if 0 in parts else None
        verdict = handshake.examine(side, version, parts.get(1), parts.get(2), peer)
        findings = [(event.code, event.severity) for event in events if isinstance(event, Violation)]
        findings += [(code, code.severity) for code, _ in verdict.violations]
        result = {"version": verdict.version, "scheme": verdict.scheme, "kind": verdict.kind, "time": verdict.time}
        return _with_findings(result, findings)

    return _stream_results(vector, lambda: RtmpDecoder(phase="handshake"), result_of)


# --- whole bodies --------------------------------------------------------------------------------------------


def _control(vector: dict[str, Any]) -> Iterator[tuple[str, Result]]:
    control = message.parse_control(vector["start"]["type_id"], bytes_of(vector["input"]))
    result = control._asdict()
    del result["violations"]
    yield "", _with_findings(result, [(code, code.severity) for code, _ in control.violations])


def _amf0(vector: dict[str, Any]) -> Iterator[tuple[str, Result]]:
    yield "", _amf_result(amf0.read_values(bytes_of(vector["input"])))


def _amf3(vector: dict[str, Any]) -> Iterator[tuple[str, Result]]:
    yield "", _amf_result(amf3.read_values(bytes_of(vector["input"])))


def _amf_result(reading: amf.Reading) -> Result:
    values = amf.to_json_values(reading.values)
    return _with_findings({"values": values}, [(code, code.severity) for code, _, _ in reading.violations])


def _command(vector: dict[str, Any]) -> Iterator[tuple[str, Result]]:
    type_id = vector.get("start", {}).get("type_id", message.COMMAND_AMF0)
    parsed = command.parse_command(type_id, bytes_of(vector["input"]))
    result = {
        "name": parsed.name,
        "transaction_id": parsed.transaction_id,
        "args": amf.to_json_values(parsed.args),
        "amf_version": parsed.amf_version,
    }
    yield "", _with_findings(result, [(code, code.severity) for code, _, _ in parsed.violations])


def _tag(vector: dict[str, Any]) -> Iterator[tuple[str, Result]]:
    start = vector["start"]
    reader = TagReader(midstream=start.get("midstream", False))
    type_id, stream_id, timestamp = start["type_id"], start.get("stream_id", 1), start.get("timestamp", 0)
    if "prelude" in vector:
        reader.read(type_id, stream_id, timestamp, bytes_of(vector["prelude"]))
    tags, faults = reader.read(type_id, stream_id, timestamp, bytes_of(vector["input"]))
    findings = [(code, severity) for code, severity, _ in faults]
    yield "", _with_findings({"tags": [tag._asdict() for tag in tags]}, findings)


def _flv(vector: dict[str, Any]) -> Iterator[tuple[str, Result]]:
    try:
        file = flv.parse_file(bytes_of(vector["input"]))
    except DecodeError as error:
        yield "", _with_findings({"tags": []}, [(error.code, error.code.severity)])
        return
    reader = TagReader()
    tags: list[Result] = []
    findings: Findings = [(code, severity) for code, severity, _ in file.violations]
    for tag in file.tags:
        if tag.type_id in (message.AUDIO, message.VIDEO) and not tag.filtered:
            media_tags, faults = reader.read(tag.type_id, 1, tag.timestamp, tag.payload)
            tags += [media_tag._asdict() for media_tag in media_tags]
            findings += [(code, severity) for code, severity, _ in faults]
    yield "", _with_findings({"tags": tags, "has_audio": file.has_audio, "has_video": file.has_video}, findings)


LAYERS: dict[str, Callable[[dict[str, Any]], Iterator[tuple[str, Result]]]] = {
    "chunk": _chunk,
    "handshake": _handshake,
    "amf0": _amf0,
    "amf3": _amf3,
    "control": _control,
    "command": _command,
    "tag": _tag,
    "flv": _flv,
}


# --- encoding ---------------------------------------------------------------------------------------


def encoded(vector: dict[str, Any]) -> bytes:
    """The bytes that our encoder writes for the expected result (for chunks, for the decoded messages)."""
    layer, expect = vector["layer"], vector["expect"]
    if layer == "chunk":
        return _encoded_chunks(vector)
    if layer == "control":
        return _encoded_control(vector["start"]["type_id"], expect)
    if layer in ("amf0", "amf3"):
        values = [amf.from_json(value) for value in expect["values"]]
        return amf0.dump_values(values) if layer == "amf0" else amf3.dump_values(values)
    if layer == "command":
        args = [amf.from_json(value) for value in expect["args"]]
        version = expect.get("amf_version", 0)
        return command.dump_command(expect["name"], expect["transaction_id"], *args, amf_version=version)
    if layer == "flv":
        file = flv.parse_file(bytes_of(vector["input"]))
        tags = [flv.dump_tag(tag.type_id, tag.timestamp, tag.payload) for tag in file.tags]
        return flv.header(file.has_audio, file.has_video) + b"".join(tags)
    raise BadVector(f"vectors of layer {layer} cannot be encoded")


def _encoded_chunks(vector: dict[str, Any]) -> bytes:
    encoder = RtmpEncoder(vector.get("start", {}).get("chunk_size", 128))
    decoder = RtmpDecoder(phase="chunks", chunk_size=encoder.chunk_size)
    for event in decoder.receive_data(bytes_of(vector.get("prelude", []))):
        if isinstance(event, MessageReceived):
            encoder.send(_sent(event))
    events = decoder.receive_data(bytes_of(vector["input"])) + decoder.receive_eof()
    return b"".join(encoder.send(_sent(event)) for event in events if isinstance(event, MessageReceived))


def _sent(event: MessageReceived) -> message.Message:
    return message.Message(event.csid, event.timestamp, event.type_id, event.stream_id, event.payload)


def _encoded_control(type_id: int, expect: dict[str, Any]) -> bytes:
    value: Any = expect.get("value")
    event_type: Any = expect.get("event_type")
    stream_id: Any = expect.get("event_stream_id")
    event_value: Any = expect.get("event_value")
    if type_id == message.SET_PEER_BANDWIDTH:
        return message.dump_set_peer_bandwidth(value, expect["limit_type"])
    if type_id != message.USER_CONTROL:
        dumps = {
            message.SET_CHUNK_SIZE: message.dump_set_chunk_size,
            message.ABORT: message.dump_abort,
            message.ACKNOWLEDGEMENT: message.dump_acknowledgement,
            message.WINDOW_ACK_SIZE: message.dump_window_ack_size,
        }
        return dumps[type_id](value)
    if event_type == message.SET_BUFFER_LENGTH:
        return message.dump_set_buffer_length(stream_id, event_value)
    if event_type == message.PING_REQUEST:
        return message.dump_ping_request(event_value)
    if event_type == message.PING_RESPONSE:
        return message.dump_ping_response(event_value)
    if event_type == message.SWF_VERIFY_REQUEST:
        return message.dump_swf_verify_request(event_value)
    return message.dump_stream_event(event_type, stream_id)
