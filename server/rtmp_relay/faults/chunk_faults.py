"""Faults of chunks and of whole messages (CHUNK_ and MSG_ rules)."""

from __future__ import annotations

from dataclasses import replace

from rtmp_spark.codec.chunk.header import EXTENDED
from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.message import (
    ABORT,
    AGGREGATE,
    AUDIO,
    SET_CHUNK_SIZE,
    VIDEO,
    Message,
    dump_aggregate,
    dump_set_chunk_size,
)

from .fault import ALWAYS, CLIENT, EITHER, FaultEntry, OnMessage
from .message_choice import (
    coded_audio,
    coded_video,
    control_message,
    during_stream,
    is_coded,
    video_of_several_chunks,
)
from .replacement_bytes import Replacement, chunks, first_chunk, header, preceded_by

LATE_MS = 20_000_000  # added to timestamps so that they need the extended field


def _fresh_fmt1(encoder: RtmpEncoder, message: Message) -> bytes:
    encoder.send(message)  # for its effect on the encoder; the bytes are not used
    return header(message, fmt=1) + message.payload


def _interrupted(encoder: RtmpEncoder, message: Message) -> bytes:
    return first_chunk(encoder, message) + encoder.send(message, fmt=0)


def _continued_by_fmt1(encoder: RtmpEncoder, message: Message) -> bytes:
    encoder.send(message)
    return chunks(message.payload, encoder.chunk_size, header(message), header(message, fmt=1, field=0))


class _EarlierConfiguration(OnMessage):
    """Sends the audio configuration again with a negative delta: time goes back, but not for a coded frame."""

    def __init__(self) -> None:
        super().__init__(coded_audio, self._with_configuration, after=20)
        self._config: Message | None = None

    def encode(self, encoder: RtmpEncoder, message: Message) -> bytes:
        if message.type_id == AUDIO and not is_coded(message.payload) and self._config is None:
            self._config = message
        return super().encode(encoder, message)

    def _with_configuration(self, encoder: RtmpEncoder, message: Message) -> bytes:
        config = message if self._config is None else self._config
        return encoder.send(message, fmt=0) + header(config, 1, EXTENDED, 0xFFFFFFD8) + config.payload


class _LateTimestamps(OnMessage):
    """Shifts media timestamps so far that they need the extended field."""

    def encode(self, encoder: RtmpEncoder, message: Message) -> bytes:
        if message.type_id in (AUDIO, VIDEO):
            message = replace(message, timestamp=message.timestamp + LATE_MS)
        return super().encode(encoder, message)


def _continued_without_extension(encoder: RtmpEncoder, message: Message) -> bytes:
    encoder.send(message)
    first = header(message, 0, EXTENDED, message.timestamp)
    return chunks(message.payload, encoder.chunk_size, first, header(message, 3))


def _needless_extension(encoder: RtmpEncoder, message: Message) -> bytes:
    encoder.send(message)
    first = header(message, 0, EXTENDED, message.timestamp)
    return chunks(message.payload, encoder.chunk_size, first, header(message, 3, extended=message.timestamp))


def _absolute_delta(encoder: RtmpEncoder, message: Message) -> bytes:
    encoder.send(message)
    return header(message, 1, EXTENDED, message.timestamp) + message.payload


def _long_csid_form(encoder: RtmpEncoder, message: Message) -> bytes:
    return encoder.send(replace(message, csid=100), csid_form=3)


def _short_continuation(encoder: RtmpEncoder, message: Message) -> bytes:
    other = replace(message, csid=70)
    return chunks(message.payload, encoder.chunk_size, header(other), bytes(((0xC0 | 70) & 0xFF,)))


def _chunk_size_not_applied(size: int) -> Replacement:
    """Send Set Chunk Size and continue with the old chunk size."""
    announcement = Message(2, 0, SET_CHUNK_SIZE, 0, size.to_bytes(4, "big"))
    return lambda encoder, message: header(announcement) + announcement.payload + encoder.send(message, fmt=0)


def _chunk_size_applied(size: int) -> Replacement:
    return preceded_by(Message(2, 0, SET_CHUNK_SIZE, 0, dump_set_chunk_size(size)))


def _huge_announcements(encoder: RtmpEncoder, message: Message) -> bytes:
    """Return the first chunks of sixteen messages of 16 MB."""
    piece = bytes(encoder.chunk_size)
    return b"".join(header(message, length=0xFFFFFF, csid=csid) + piece for csid in range(20, 36))


def _aborted(encoder: RtmpEncoder, message: Message) -> bytes:
    first = first_chunk(encoder, message)
    abort = encoder.send(Message(2, 0, ABORT, 0, message.csid.to_bytes(4, "big")), fmt=0)
    return first + abort + encoder.send(message, fmt=0)


def _bad_back_pointer(encoder: RtmpEncoder, message: Message) -> bytes:
    body = dump_aggregate([(message.type_id, message.timestamp, message.payload)])
    return encoder.send(replace(message, type_id=AGGREGATE, payload=body[:-4] + b"\0\0\0\7"), fmt=0)


CHUNK_FAULTS = {
    "CHUNK_FRESH_CSID": FaultEntry(
        CLIENT,
        "sends the first control message with an fmt 1 header",
        lambda: OnMessage(control_message, _fresh_fmt1),
    ),
    "CHUNK_INTERRUPTED": FaultEntry(
        CLIENT,
        "stops a video frame after its first chunk and starts it again",
        lambda: OnMessage(video_of_several_chunks, _interrupted, after=1),
    ),
    "CHUNK_CONTINUATION_FMT": FaultEntry(
        CLIENT,
        "continues a video frame with fmt 1 headers",
        lambda: OnMessage(video_of_several_chunks, _continued_by_fmt1, after=1),
    ),
    "CHUNK_DELTA_NEGATIVE": FaultEntry(CLIENT, "sends a timestamp delta of -40 ms", _EarlierConfiguration),
    "CHUNK_EXT_TS_MISSING": FaultEntry(
        CLIENT,
        "omits the extended timestamp in continuation chunks",
        lambda: _LateTimestamps(video_of_several_chunks, _continued_without_extension, times=ALWAYS),
    ),
    "CHUNK_EXT_TS_NEEDLESS": FaultEntry(
        CLIENT,
        "sends an extended timestamp for a value that needs none",
        lambda: OnMessage(coded_video, _needless_extension, after=5),
    ),
    "CHUNK_EXT_DELTA_ABSOLUTE": FaultEntry(
        CLIENT,
        "sends an absolute timestamp as an extended delta",
        lambda: _LateTimestamps(coded_audio, _absolute_delta, after=20, full_headers=True),
    ),
    "CHUNK_CSID_FORM": FaultEntry(
        CLIENT, "sends csid 100 in three bytes instead of two", lambda: OnMessage(coded_audio, _long_csid_form, after=5)
    ),
    "CHUNK_CSID_SHORT_CONTINUATION": FaultEntry(
        CLIENT,
        "continues csid 70 with a one-byte header",
        lambda: OnMessage(video_of_several_chunks, _short_continuation, after=1),
    ),
    "CHUNK_SIZE_ZERO": FaultEntry(
        CLIENT, "sends Set Chunk Size 0", lambda: OnMessage(coded_video, _chunk_size_not_applied(0), after=5)
    ),
    "CHUNK_SIZE_BIT31": FaultEntry(
        CLIENT,
        "sends Set Chunk Size with the top bit set",
        lambda: OnMessage(coded_video, _chunk_size_not_applied(0x80001000), after=5),
    ),
    "CHUNK_SIZE_CLAMPED": FaultEntry(
        CLIENT, "sends Set Chunk Size 128 MB", lambda: OnMessage(coded_video, _chunk_size_applied(1 << 27), after=5)
    ),
    "CHUNK_SIZE_SMALL": FaultEntry(
        CLIENT, "sends Set Chunk Size 64", lambda: OnMessage(coded_video, _chunk_size_applied(64), after=5)
    ),
    "CHUNK_SIZE_NOT_APPLIED": FaultEntry(
        CLIENT,
        "announces chunk size 65536 and keeps using the old one",
        lambda: OnMessage(coded_video, _chunk_size_not_applied(65536), after=5),
    ),
    "CHUNK_LIMIT": FaultEntry(
        CLIENT,
        "starts sixteen messages of 16 MB and closes the connection",
        lambda: OnMessage(coded_video, _huge_announcements, after=5, then_close=True),
    ),
    "MSG_ABORTED": FaultEntry(
        CLIENT,
        "cancels a video frame with Abort and sends it again",
        lambda: OnMessage(video_of_several_chunks, _aborted, after=1),
    ),
    "MSG_TYPE_UNKNOWN": FaultEntry(
        EITHER,
        "sends a message of type 99",
        lambda: OnMessage(during_stream, preceded_by(Message(9, 0, 99, 1, b"\0\1\2\3")), after=1),
    ),
    "MSG_AGGREGATE": FaultEntry(
        CLIENT,
        "sends an aggregate with a wrong back pointer",
        lambda: OnMessage(coded_audio, _bad_back_pointer, after=5),
    ),
}
