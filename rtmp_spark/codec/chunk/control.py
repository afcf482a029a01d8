"""What a control message must be: a body of its own form, on csid 2 and stream 0 (RTMP 1.0 5.4, 6.2).

It only reports. What Set Chunk Size and Abort do to the chunks that follow is not decided here.
"""

from __future__ import annotations

from ..errors import Severity, ViolationCode
from ..events import Event, MessageReceived, Violation
from ..message import USER_CONTROL, parse_control


def check_control(message: MessageReceived, out: list[Event]) -> None:
    start, type_id = message.start, message.type_id
    for code, detail in parse_control(type_id, message.payload).violations:
        out.append(Violation(code, code.severity, start, detail, start))
    if message.csid == 2 and not message.stream_id:
        return
    weight = Severity.INFO if type_id == USER_CONTROL else Severity.WARNING
    if message.csid != 2:
        detail = f"a control message on csid {message.csid}, not 2"
        out.append(Violation(ViolationCode.CTRL_CSID, weight, start, detail, start))
    if message.stream_id:
        detail = f"a control message on stream {message.stream_id}, not 0"
        out.append(Violation(ViolationCode.CTRL_STREAM_ID, weight, start, detail, start))
