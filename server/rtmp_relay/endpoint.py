"""One end of an RTMP connection, sans I/O: handshake, chunks, acknowledgements and pings, for either side.

Bytes go in by `receive_data`, whole messages come out; messages go in by `send`, bytes come out through the `write`
given. It is strict in what it sends, unless a `Fault` was asked for. It does not know commands, streams or time
beyond the milliseconds it is told.
"""

from __future__ import annotations

from collections.abc import Callable

from rtmp_spark.codec import handshake
from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.codec.events import COMPLETE, HandshakePart, MessageReceived, Skipped, Violation
from rtmp_spark.codec.limits import MIB, Limits
from rtmp_spark.codec.message import (
    ACKNOWLEDGEMENT,
    LIMIT_DYNAMIC,
    PING_REQUEST,
    PING_RESPONSE,
    SET_CHUNK_SIZE,
    SET_PEER_BANDWIDTH,
    USER_CONTROL,
    WINDOW_ACK_SIZE,
    Message,
    dump_acknowledgement,
    dump_ping_request,
    dump_ping_response,
    dump_set_chunk_size,
    dump_set_peer_bandwidth,
    dump_window_ack_size,
    parse_control,
)

from .fault import NO_FAULT, Fault

CONTROL_CSID = 2
LIVE_LIMITS = Limits(message_bytes=10 * MIB, partial_bytes=16 * MIB)
DEFAULT_WINDOW = 2_500_000
# What a live peer is not forgiven: after these nothing that follows can be trusted, or it would cost us memory.
_FATAL = frozenset(
    {
        ViolationCode.HS_ENCRYPTED,
        ViolationCode.CHUNK_SIZE_ZERO,
        ViolationCode.CHUNK_SIZE_BIT31,
        ViolationCode.CHUNK_LIMIT,
        ViolationCode.CHUNK_RESYNC,
    }
)


class Endpoint:
    def __init__(
        self,
        side: str,
        write: Callable[[bytes], None],
        entropy: Callable[[int], bytes],
        *,
        scheme: str = handshake.PLAIN,
        limits: Limits = LIVE_LIMITS,
        fault: Fault = NO_FAULT,
    ) -> None:
        self.side = side
        self.failure: str | None = None  # why this connection must not go on
        self.violations: list[Violation] = []  # since the last receive_data
        self.handshake_done = False
        self.bytes_received = 0
        self.peer_acknowledged = 0
        self.ping_answered_ms: int | None = None
        self.ack_window = DEFAULT_WINDOW  # until the peer announces another
        self.own_window: int | None = None  # as announced by us
        self.encoder = RtmpEncoder()
        self._decoder = RtmpDecoder(limits)
        self._write = write
        self._entropy = entropy
        self._scheme = scheme
        self._fault = fault
        self._packet1 = b""
        self._acknowledged = 0

    # -- sending ---------------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        if self._fault.hangs_up:
            return
        data = self._fault.encode(self.encoder, message)
        if data:
            self._write(data)
        self._notice_hang_up()

    def _notice_hang_up(self) -> None:
        if self._fault.hangs_up:
            self.failure = self.failure or "hung up on purpose"

    def send_control(self, type_id: int, payload: bytes) -> None:
        self.send(Message(CONTROL_CSID, 0, type_id, 0, payload))

    def announce_window(self, window: int) -> None:
        self.own_window = window
        self.send_control(WINDOW_ACK_SIZE, dump_window_ack_size(window))

    def announce_bandwidth(self, window: int, limit_type: int = LIMIT_DYNAMIC) -> None:
        self.send_control(SET_PEER_BANDWIDTH, dump_set_peer_bandwidth(window, limit_type))

    def announce_chunk_size(self, size: int) -> None:
        self.send_control(SET_CHUNK_SIZE, dump_set_chunk_size(size))

    def ping(self, time_ms: int) -> None:
        self.send_control(USER_CONTROL, dump_ping_request(time_ms))

    # -- handshake -------------------------------------------------------------------------------------------

    def begin(self, time_ms: int) -> None:
        """The client's first word: C0 and C1."""
        self._send_packet(0, bytes((handshake.PLAIN_VERSION,)))
        self._send_packet1(time_ms, self._scheme)

    def _send_packet(self, part: int, data: bytes) -> None:
        data = self._fault.packet(part, data)
        if data:
            self._write(data)
        self._notice_hang_up()

    def _send_packet1(self, time_ms: int, scheme: str) -> None:
        version = 0 if scheme == handshake.PLAIN else 0x0A000100  # digest peers look for a version from 3 up
        random = self._entropy(handshake.RANDOM_SIZE)
        self._packet1 = handshake.dump_packet1(self.side, time_ms, version, random, scheme)
        self._send_packet(1, self._packet1)

    def _handshake_part(self, event: HandshakePart, time_ms: int) -> None:
        if event.part == 0:
            version = event.data[0]
            if version in handshake.RTMPE_VERSIONS or version >= 32:
                self.failure = f"version {version} is not plain RTMP"  # others are answered with 3 (RTMP 1.0 5.2.2)
        elif event.part == 1:
            peer = handshake.CLIENT if self.side == handshake.SERVER else handshake.SERVER
            scheme = handshake.parse_packet1(event.data, peer).scheme
            if self.side == handshake.SERVER:
                scheme = self._fault.answer_scheme(scheme)
                self._send_packet(0, bytes((handshake.PLAIN_VERSION,)))
                self._send_packet1(time_ms, scheme)
            elif self._scheme == handshake.PLAIN:
                scheme = handshake.PLAIN
            random = self._entropy(handshake.PACKET_SIZE)
            self._send_packet(2, handshake.dump_packet2(self.side, event.data, scheme, time_ms, random))
        elif event.part == 2:
            self.handshake_done = True  # packet 2 is not verified: many peers get it wrong and mean no harm

    # -- receiving -------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes, time_ms: int) -> list[MessageReceived]:
        """Whole messages, in order; control messages have been obeyed and answered already."""
        self.violations = []
        if self.failure is not None:
            return []
        self.bytes_received += len(data)
        messages: list[MessageReceived] = []
        for event in self._decoder.receive_data(data):
            if isinstance(event, MessageReceived):
                if event.status == COMPLETE:
                    self._obey(event)
                    messages.append(event)
            elif isinstance(event, HandshakePart):
                self._handshake_part(event, time_ms)
            elif isinstance(event, Violation):
                self.violations.append(event)
                if event.code in _FATAL or (
                    event.code is ViolationCode.CHUNK_FRESH_CSID and event.severity is Severity.ERROR
                ):
                    self.failure = f"{event.code.value}: {event.detail}"
            elif isinstance(event, Skipped):
                self.failure = f"lost synchronisation: {event.reason}"
            if self.failure is not None:
                break
        if self._decoder.phase in ("search", "opaque"):  # a live peer gets no second chance
            self.failure = self.failure or "lost synchronisation"
        if self.handshake_done:
            self._acknowledge()
        return messages

    def _acknowledge(self) -> None:
        if self.bytes_received - self._acknowledged >= self.ack_window:
            self._acknowledged = self.bytes_received
            self.send_control(ACKNOWLEDGEMENT, dump_acknowledgement(self.bytes_received))

    def _obey(self, message: MessageReceived) -> None:
        type_id = message.type_id
        if type_id == WINDOW_ACK_SIZE:
            value = parse_control(type_id, message.payload).value
            if value:
                self.ack_window = value
        elif type_id == ACKNOWLEDGEMENT:
            self.peer_acknowledged = parse_control(type_id, message.payload).value or 0
        elif type_id == SET_PEER_BANDWIDTH:
            # RTMP 1.0 5.4.5: answered by a Window Acknowledgement Size when ours was another
            window = parse_control(type_id, message.payload).value
            if window and window != self.own_window:
                self.announce_window(window)
        elif type_id == USER_CONTROL:
            control = parse_control(type_id, message.payload)
            if control.event_value is not None:
                if control.event_type == PING_REQUEST:
                    self.send_control(USER_CONTROL, dump_ping_response(control.event_value))
                elif control.event_type == PING_RESPONSE:
                    self.ping_answered_ms = control.event_value
