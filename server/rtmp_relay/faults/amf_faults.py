"""Faults of AMF values (AMF_ rules): each sends one data message with damaged values."""

from __future__ import annotations

from collections.abc import Callable

from rtmp_spark.codec.message import DATA_AMF0, Message

from .fault import CLIENT, Fault, FaultEntry, OnMessage
from .message_choice import coded_audio
from .replacement_bytes import preceded_by

_ON_TEXT_DATA = "02000a6f6e5465787444617461"  # the string "onTextData"


def _data(values: str) -> Callable[[], Fault]:
    """Return a factory of faults that send onTextData with these values, in hexadecimal."""
    message = Message(9, 0, DATA_AMF0, 1, bytes.fromhex(_ON_TEXT_DATA + values))
    return lambda: OnMessage(coded_audio, preceded_by(message), after=5)


AMF_FAULTS = {
    "AMF_TRUNCATED": FaultEntry(CLIENT, "sends a data message that ends inside a number", _data("003ff0")),
    "AMF_MARKER": FaultEntry(CLIENT, "sends an object property with marker 0x1f", _data("030001611f")),
    "AMF_DEPTH": FaultEntry(CLIENT, "sends a hundred nested objects", _data("03" + "00016103" * 100 + "000009" * 101)),
    "AMF_LIMIT": FaultEntry(CLIENT, "sends a strict array that claims 4294967295 values", _data("0affffffff0500")),
    "AMF_REFERENCE": FaultEntry(CLIENT, "sends a reference to an object that does not exist", _data("070063")),
    "AMF_UTF8": FaultEntry(CLIENT, "sends a string that is not valid UTF-8", _data("020004fffe4142")),
    "AMF_OBJECT_END": FaultEntry(CLIENT, "sends an object without its end marker", _data("03000161003ff0000000000000")),
    "AMF_DATE": FaultEntry(CLIENT, "sends a date that is NaN", _data("0b7ff80000000000000000")),
    "AMF_TRAILING": FaultEntry(CLIENT, "sends bytes after the last value", _data("05fffefd")),
}
