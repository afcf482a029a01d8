"""Faults of control messages and of flow control (CTRL_ and FLOW_ rules)."""

from __future__ import annotations

from collections.abc import Callable

from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.message import (
    ABORT,
    ACKNOWLEDGEMENT,
    SET_PEER_BANDWIDTH,
    USER_CONTROL,
    WINDOW_ACK_SIZE,
    Message,
)

from .fault import ALWAYS, CLIENT, EITHER, Fault, FaultEntry, OnMessage
from .message_choice import during_stream, of_type
from .replacement_bytes import nothing, preceded_by


def _control(type_id: int, payload: str, csid: int = 2, stream_id: int = 0) -> Callable[[], Fault]:
    """Return a factory of faults that send this control message once; `payload` is hexadecimal."""
    message = Message(csid, 0, type_id, stream_id, bytes.fromhex(payload))
    return lambda: OnMessage(during_stream, preceded_by(message), after=1)


def _ping_response(_: RtmpEncoder, message: Message) -> bool:
    return message.type_id == USER_CONTROL and message.payload[:2] == b"\0\7"


def _acknowledgements(*counts: int) -> Callable[[], Fault]:
    messages = [Message(2, 0, ACKNOWLEDGEMENT, 0, count.to_bytes(4, "big")) for count in counts]
    return lambda: OnMessage(during_stream, preceded_by(*messages), after=1)


CONTROL_FAULTS = {
    "CTRL_CSID": FaultEntry(
        EITHER, "sends Window Acknowledgement Size on csid 9", _control(WINDOW_ACK_SIZE, "002625a0", csid=9)
    ),
    "CTRL_STREAM_ID": FaultEntry(
        EITHER, "sends Window Acknowledgement Size on stream 1", _control(WINDOW_ACK_SIZE, "002625a0", stream_id=1)
    ),
    "CTRL_LENGTH": FaultEntry(
        EITHER, "sends Window Acknowledgement Size with 6 bytes", _control(WINDOW_ACK_SIZE, "002625a00000")
    ),
    "CTRL_VALUE": FaultEntry(EITHER, "sends Set Peer Bandwidth 0", _control(SET_PEER_BANDWIDTH, "0000000002")),
    "CTRL_EVENT_UNKNOWN": FaultEntry(EITHER, "sends user control event 99", _control(USER_CONTROL, "006300000001")),
    "CTRL_LIMIT_TYPE": FaultEntry(
        EITHER, "sends Set Peer Bandwidth with limit type 7", _control(SET_PEER_BANDWIDTH, "002625a007")
    ),
    "CTRL_ABORT_IDLE": FaultEntry(
        EITHER, "sends Abort for a csid without a partial message", _control(ABORT, "00000032")
    ),
    "CTRL_PING_UNANSWERED": FaultEntry(
        CLIENT,
        "does not answer pings; the relay pings clients that send nothing for 10 s",
        lambda: OnMessage(_ping_response, nothing, times=ALWAYS),
    ),
    "FLOW_ACK_STARVED": FaultEntry(
        EITHER,
        "sends no acknowledgements; needs a player, or a publisher with a small --window",
        lambda: OnMessage(of_type(ACKNOWLEDGEMENT), nothing, times=ALWAYS),
    ),
    "FLOW_ACK_EARLY": FaultEntry(
        EITHER, "acknowledges 1,000,000,000 bytes, more than it received", _acknowledgements(1_000_000_000)
    ),
    "FLOW_ACK_BACKWARDS": FaultEntry(EITHER, "acknowledges 3000 bytes, then 1000", _acknowledgements(3000, 1000)),
}
