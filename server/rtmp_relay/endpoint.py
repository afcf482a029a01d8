"""One end of an RTMP connection, client or server, without I/O: handshake, chunks, acknowledgements and pings.

`receive_data` takes bytes and returns complete messages; `send` takes a message and passes bytes to `write`. It sends
only valid RTMP unless it is given a `Fault`. It knows no commands and no streams, and its only clock is the `time_ms`
argument.
"""

from __future__ import annotations

from collections.abc import Callable

from rtmp_relay.faults.fault import NO_FAULT, Fault
from rtmp_spark.codec import handshake
from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.codec.events import COMPLETE, HandshakePart, MessageReceived, Skipped, Violation
from rtmp_spark.codec.limits import RELAY_LIMITS, Limits
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

CONTROL_CSID = 2  # RTMP 1.0 5.4
CONNECTION_CSID = 3  # commands of the connection; any csid above 2 is allowed
STREAM_CSID = 5  # commands of a stream
DEFAULT_WINDOW = 2_500_000
# Violations that close a live connection: the bytes after them cannot be trusted, or would cost memory.
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
        limits: Limits = RELAY_LIMITS,
        fault: Fault = NO_FAULT,
    ) -> None:
        self.side = side
        self.failure: str | None = None  # why this connection must be closed
        self.violations: list[Violation] = []  # found by the last receive_data
        self.handshake_done = False
        self.bytes_received = 0
        self.peer_acknowledged = 0
        self.ping_answered_ms: int | None = None
        self.ack_window = DEFAULT_WINDOW  # until the peer announces another
        self.own_window: int | None = None  # the last one that this side announced
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
        if self._fault.closes_connection:
            return
        data = self._fault.encode(self.encoder, message)
        if data:
            self._write(data)
        self._fail_if_closing()

    def _fail_if_closing(self) -> None:
        if self._fault.closes_connection:
            self.failure = self.failure or "closed on purpose by a fault"

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
        """Send C0 and C1."""
        self._send_handshake_part(0, bytes((handshake.PLAIN_VERSION,)))
        self._send_part1(time_ms, self._scheme)

    def skip_handshake(self) -> None:
        """Start with chunks, because the caller has done the handshake itself."""
        self.handshake_done = True
        self._decoder = RtmpDecoder(self._decoder.limits, phase="chunks")

    def _send_handshake_part(self, part: int, data: bytes) -> None:
        data = self._fault.handshake_part(part, data)
        if data:
            self._write(data)
        self._fail_if_closing()

    def _send_part1(self, time_ms: int, scheme: str) -> None:
        version = 0 if scheme == handshake.PLAIN else 0x0A000100  # digest peers expect a version of 3 or more
        random = self._entropy(handshake.RANDOM_SIZE)
        self._packet1 = handshake.dump_packet1(self.side, time_ms, version, random, scheme)
        self._send_handshake_part(1, self._packet1)

    def _receive_handshake_part(self, event: HandshakePart, time_ms: int) -> None:
        if event.part == 0:
            version = event.data[0]
            if version in handshake.RTMPE_VERSIONS or version >= 32:
                self.failure = f"handshake version {version} is not plain RTMP"  # RTMP 1.0 5.2.2: others get 3
        elif event.part == 1:
            peer = handshake.CLIENT if self.side == handshake.SERVER else handshake.SERVER
            scheme = handshake.parse_packet1(event.data, peer).scheme
            if self.side == handshake.SERVER:
                scheme = self._fault.answer_scheme(scheme)
                self._send_handshake_part(0, bytes((handshake.PLAIN_VERSION,)))
                self._send_part1(time_ms, scheme)
            elif self._scheme == handshake.PLAIN:
                scheme = handshake.PLAIN
            random = self._entropy(handshake.PACKET_SIZE)
            self._send_handshake_part(2, handshake.dump_packet2(self.side, event.data, scheme, time_ms, random))
        elif event.part == 2:
            self.handshake_done = True  # packet 2 is not verified: many working clients send a wrong one

    # -- receiving -------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes, time_ms: int) -> list[MessageReceived]:
        """Return complete messages in order. Control messages among them have already been applied and answered."""
        self.violations = []
        self._fail_if_closing()
        if self.failure is not None:
            return []
        data = self._fault.received_bytes(data)
        self.bytes_received += len(data)
        messages: list[MessageReceived] = []
        for event in self._decoder.receive_data(data):
            if isinstance(event, MessageReceived):
                message = self._fault.received_message(event)
                if message is not None and message.status == COMPLETE:
                    self._apply_control(message)
                    messages.append(message)
                self._fail_if_closing()
            elif isinstance(event, HandshakePart):
                self._receive_handshake_part(event, time_ms)
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
        if self._decoder.phase in ("search", "opaque"):  # the relay does not resynchronise a live peer
            self.failure = self.failure or "lost synchronisation"
        if self.handshake_done:
            self._acknowledge()
        return messages

    def _acknowledge(self) -> None:
        if self.bytes_received - self._acknowledged >= self.ack_window:
            self._acknowledged = self.bytes_received
            self.send_control(ACKNOWLEDGEMENT, dump_acknowledgement(self.bytes_received))

    def _apply_control(self, message: MessageReceived) -> None:
        type_id = message.type_id
        if type_id == WINDOW_ACK_SIZE:
            value = parse_control(type_id, message.payload).value
            if value:
                self.ack_window = value
        elif type_id == ACKNOWLEDGEMENT:
            self.peer_acknowledged = parse_control(type_id, message.payload).value or 0
        elif type_id == SET_PEER_BANDWIDTH:
            # RTMP 1.0 5.4.5: answered with Window Acknowledgement Size if it differs from the last one sent
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
