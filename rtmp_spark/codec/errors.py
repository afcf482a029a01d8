"""The exceptions of this project, and the code of every problem that a capture can show.

::

    RtmpSparkError
    ├─ DecodeError(code, offset, detail)   peer bytes break a rule; never leaves the codec
    ├─ EncodeError                         a caller asked for something the protocol does not allow
    ├─ CaptureError(code, detail, hint)    not a capture, or a damaged one
    └─ UserError(text, remedy, exit_code)  wrong path, no Java, no jar: what is wrong and what to do

`ViolationCode` is closed: the `findings.rule_id` column, the `invalid/` vectors, `rtmp-spark explain` and
`rtmp-spark publish --fault` all use these names unchanged. Each code has its usual severity; a few rules raise or
lower it case by case.
"""

from __future__ import annotations

from enum import Enum


class RtmpSparkError(Exception):
    """Base class of every exception this project raises."""


class Severity(str, Enum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    __hash__ = str.__hash__  # that of Enum is ten times slower


_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO


class ViolationCode(str, Enum):
    """One code per rule; the value is the name, `severity` the usual severity."""

    severity: Severity
    __hash__ = str.__hash__  # that of Enum is ten times slower

    def __new__(cls, value: str, severity: Severity) -> ViolationCode:
        member = str.__new__(cls, value)
        member._value_ = value
        member.severity = severity
        return member

    CAPTURE_TRUNCATED = "CAPTURE_TRUNCATED", _W
    CAPTURE_BAD_RECORD = "CAPTURE_BAD_RECORD", _E
    CAPTURE_SNAPLEN = "CAPTURE_SNAPLEN", _W
    CAPTURE_LINK_TYPE = "CAPTURE_LINK_TYPE", _W
    CAPTURE_TIME_BACKWARDS = "CAPTURE_TIME_BACKWARDS", _I
    CAPTURE_LIMIT = "CAPTURE_LIMIT", _W
    CAPTURE_DUPLICATES = "CAPTURE_DUPLICATES", _I
    TCP_GAP = "TCP_GAP", _W
    TCP_CONFLICT = "TCP_CONFLICT", _W
    TCP_MIDSTREAM = "TCP_MIDSTREAM", _I
    TCP_ONE_DIRECTION = "TCP_ONE_DIRECTION", _I
    TCP_RESET = "TCP_RESET", _W
    TCP_ZERO_WINDOW = "TCP_ZERO_WINDOW", _W
    TCP_LOSS = "TCP_LOSS", _W
    TLS_NO_KEY = "TLS_NO_KEY", _I
    TLS_ALERT = "TLS_ALERT", _W
    TLS_RECORD_LOST = "TLS_RECORD_LOST", _W
    RTMPT_SEQUENCE = "RTMPT_SEQUENCE", _W
    RTMPT_HTTP_STATUS = "RTMPT_HTTP_STATUS", _W
    HS_VERSION = "HS_VERSION", _E
    HS_INCOMPLETE = "HS_INCOMPLETE", _E
    HS_ECHO = "HS_ECHO", _W
    HS_DIGEST = "HS_DIGEST", _W
    HS_ENCRYPTED = "HS_ENCRYPTED", _I
    CHUNK_FRESH_CSID = "CHUNK_FRESH_CSID", _W
    CHUNK_INTERRUPTED = "CHUNK_INTERRUPTED", _E
    CHUNK_CONTINUATION_FMT = "CHUNK_CONTINUATION_FMT", _I
    CHUNK_DELTA_NEGATIVE = "CHUNK_DELTA_NEGATIVE", _W
    CHUNK_EXT_TS_MISSING = "CHUNK_EXT_TS_MISSING", _W
    CHUNK_EXT_TS_NEEDLESS = "CHUNK_EXT_TS_NEEDLESS", _I
    CHUNK_EXT_DELTA_ABSOLUTE = "CHUNK_EXT_DELTA_ABSOLUTE", _W
    CHUNK_CSID_FORM = "CHUNK_CSID_FORM", _I
    CHUNK_CSID_SHORT_CONTINUATION = "CHUNK_CSID_SHORT_CONTINUATION", _E
    CHUNK_SIZE_ZERO = "CHUNK_SIZE_ZERO", _E
    CHUNK_SIZE_BIT31 = "CHUNK_SIZE_BIT31", _E
    CHUNK_SIZE_CLAMPED = "CHUNK_SIZE_CLAMPED", _I
    CHUNK_SIZE_SMALL = "CHUNK_SIZE_SMALL", _I
    CHUNK_SIZE_NOT_APPLIED = "CHUNK_SIZE_NOT_APPLIED", _E
    CHUNK_LIMIT = "CHUNK_LIMIT", _E
    CHUNK_RESYNC = "CHUNK_RESYNC", _W
    MSG_TRUNCATED = "MSG_TRUNCATED", _W
    MSG_ABORTED = "MSG_ABORTED", _I
    MSG_TYPE_UNKNOWN = "MSG_TYPE_UNKNOWN", _W
    MSG_AGGREGATE = "MSG_AGGREGATE", _E
    CTRL_CSID = "CTRL_CSID", _W
    CTRL_STREAM_ID = "CTRL_STREAM_ID", _W
    CTRL_LENGTH = "CTRL_LENGTH", _E
    CTRL_VALUE = "CTRL_VALUE", _E
    CTRL_EVENT_UNKNOWN = "CTRL_EVENT_UNKNOWN", _I
    CTRL_LIMIT_TYPE = "CTRL_LIMIT_TYPE", _W
    CTRL_ABORT_IDLE = "CTRL_ABORT_IDLE", _W
    CTRL_PING_UNANSWERED = "CTRL_PING_UNANSWERED", _W
    FLOW_ACK_STARVED = "FLOW_ACK_STARVED", _W
    FLOW_ACK_EARLY = "FLOW_ACK_EARLY", _I
    FLOW_ACK_BACKWARDS = "FLOW_ACK_BACKWARDS", _W
    AMF_TRUNCATED = "AMF_TRUNCATED", _E
    AMF_MARKER = "AMF_MARKER", _E
    AMF_DEPTH = "AMF_DEPTH", _E
    AMF_LIMIT = "AMF_LIMIT", _E
    AMF_REFERENCE = "AMF_REFERENCE", _E
    AMF_UTF8 = "AMF_UTF8", _W
    AMF_OBJECT_END = "AMF_OBJECT_END", _W
    AMF_TRAILING = "AMF_TRAILING", _I
    AMF_DATE = "AMF_DATE", _I
    CMD_BEFORE_CONNECT = "CMD_BEFORE_CONNECT", _E
    CMD_TRANSACTION_REUSED = "CMD_TRANSACTION_REUSED", _W
    CMD_NO_RESPONSE = "CMD_NO_RESPONSE", _W
    CMD_RESPONSE_UNEXPECTED = "CMD_RESPONSE_UNEXPECTED", _W
    CMD_STREAM_ID = "CMD_STREAM_ID", _W
    CMD_STREAM_NAME = "CMD_STREAM_NAME", _E
    CMD_REFUSED = "CMD_REFUSED", _E
    CMD_AUTH_ROUND = "CMD_AUTH_ROUND", _I
    MEDIA_TAG = "MEDIA_TAG", _E
    MEDIA_RESERVED = "MEDIA_RESERVED", _W
    MEDIA_CODEC_UNKNOWN = "MEDIA_CODEC_UNKNOWN", _W
    MEDIA_CONFIG_MISSING = "MEDIA_CONFIG_MISSING", _E
    MEDIA_KEY_FLAG = "MEDIA_KEY_FLAG", _W
    MEDIA_ANNEXB = "MEDIA_ANNEXB", _E
    MEDIA_ADTS = "MEDIA_ADTS", _E
    MEDIA_CONFIG_CHANGED = "MEDIA_CONFIG_CHANGED", _I
    MEDIA_NAL = "MEDIA_NAL", _E
    MEDIA_START_NOT_KEY = "MEDIA_START_NOT_KEY", _W
    MEDIA_DECLARED = "MEDIA_DECLARED", _W
    MEDIA_GOP_LONG = "MEDIA_GOP_LONG", _I
    MEDIA_NOT_NEGOTIATED = "MEDIA_NOT_NEGOTIATED", _I
    MEDIA_HEVC_ID12 = "MEDIA_HEVC_ID12", _I
    MEDIA_TRACK_ABSENT = "MEDIA_TRACK_ABSENT", _W
    TIME_BACKWARDS = "TIME_BACKWARDS", _W
    TIME_JUMP = "TIME_JUMP", _W
    TIME_EXT_BREAK = "TIME_EXT_BREAK", _W
    TIME_WRAP = "TIME_WRAP", _I
    TIME_SKEW = "TIME_SKEW", _W
    TIME_STALL = "TIME_STALL", _W
    TIME_SLOW = "TIME_SLOW", _W
    TIME_FAST = "TIME_FAST", _I
    TIME_PTS_BEFORE_DTS = "TIME_PTS_BEFORE_DTS", _W
    SESSION_END = "SESSION_END", _I
    SESSION_PERIODIC = "SESSION_PERIODIC", _W
    SESSION_NO_MEDIA = "SESSION_NO_MEDIA", _W
    SESSION_BAD_NAME = "SESSION_BAD_NAME", _W


Fault = tuple[ViolationCode, Severity, str]  # code, severity, detail

# Ordered from packets to sessions: of two findings at one place, the lower one is the cause.
LAYER: dict[str, int] = {code.value: number for number, code in enumerate(ViolationCode)}


class DecodeError(RtmpSparkError):
    """Peer bytes break a rule. `offset` counts from the start of the parsed bytes."""

    def __init__(self, code: ViolationCode, offset: int, detail: str) -> None:
        super().__init__(f"{code.value} at {offset}: {detail}")
        self.code = code
        self.offset = offset
        self.detail = detail


class EncodeError(RtmpSparkError):
    """A caller asked to send something that the protocol cannot express."""


class CaptureError(RtmpSparkError):
    """Not a capture, or a damaged one; `hint` says what to do."""

    def __init__(self, code: ViolationCode | None, detail: str, hint: str = "") -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.hint = hint


class UserError(RtmpSparkError):
    """A problem the user can fix: what is wrong, what to do, and the exit code."""

    def __init__(self, text: str, remedy: str = "", exit_code: int = 2) -> None:
        super().__init__(f"{text} {remedy}".strip())
        self.text = text
        self.remedy = remedy
        self.exit_code = exit_code


_PATH_REMEDIES = {
    FileNotFoundError: "Check the path.",
    NotADirectoryError: "Check the path.",
    IsADirectoryError: "Name a file.",
    FileExistsError: "Choose another name.",
    PermissionError: "Check the permissions of the file and of its directories.",
}


def path_remedy(error: OSError) -> str:
    """What to do about a file that cannot be opened, by the reason that the system gave."""
    return next((remedy for kind, remedy in _PATH_REMEDIES.items() if isinstance(error, kind)), "")
