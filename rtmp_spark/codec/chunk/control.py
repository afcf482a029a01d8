"""Rules for control messages: the body has the right form, the message is on csid 2 and stream 0 (RTMP 1.0 5.4, 6.2).

This module only reports. The effects of Set Chunk Size and Abort are in size.py and assembly.py.
"""

from __future__ import annotations

from ..errors import Severity, ViolationCode
from ..events import Event, MessageReceived, Violation
from ..message import USER_CONTROL, parse_control


def check_control(message: MessageReceived, out: list[Event]) -> None:
    """Append a violation for each rule that this control message breaks."""
    start, type_id = message.start, message.type_id
    for code, detail in parse_control(type_id, message.payload).violations:
        out.append(Violation(code, code.severity, start, detail, start))
    if message.csid == 2 and not message.stream_id:
        return
    severity = Severity.INFO if type_id == USER_CONTROL else Severity.WARNING
    if message.csid != 2:
        detail = f"control message on csid {message.csid} instead of 2"
        out.append(Violation(ViolationCode.CTRL_CSID, severity, start, detail, start))
    if message.stream_id:
        detail = f"control message on stream {message.stream_id} instead of 0"
        out.append(Violation(ViolationCode.CTRL_STREAM_ID, severity, start, detail, start))
