"""RTMP, AMF and FLV: bytes in, events out.

Standard library only; no I/O, no clock, no threads, no randomness. The public names are loaded when they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "Command": "command",
    "DecodeError": "errors",
    "HandshakePart": "events",
    "Limits": "limits",
    "MediaTag": "media.tag",
    "Message": "message",
    "MessageReceived": "events",
    "RtmpDecoder": "decoder",
    "RtmpEncoder": "encoder",
    "Skipped": "events",
    "TagReader": "media.reader",
    "Violation": "events",
    "ViolationCode": "errors",
    "amf0": "",
    "amf3": "",
    "dump_command": "command",
    "flv": "",
    "parse_command": "command",
    "parse_control": "message",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _MODULES[name]
    return getattr(import_module(f"{__name__}.{home}"), name) if home else import_module(f"{__name__}.{name}")
