"""What happened in one case: messages in both directions as lines of text, and the packets for a pcapng file."""

from __future__ import annotations

import time
from pathlib import Path

from rtmp_relay.tap.pcap_tap import TapConnection
from rtmp_spark import __version__
from rtmp_spark.capture.files.pcapng_writer import PcapngWriter
from rtmp_spark.codec.amf import AmfObject, Value, resolve
from rtmp_spark.codec.command import parse_command
from rtmp_spark.codec.message import (
    AUDIO,
    COMMANDS,
    CONTROL_TYPES,
    DATA_AMF0,
    DATA_AMF3,
    USER_CONTROL,
    VIDEO,
    parse_control,
    type_name,
)

_MOST_LINES = 40  # of one direction in a result
_MOST_CHARACTERS = 200  # of one line
_ETHERNET = 1


class Transcript:
    """Lines for the result, packets for the capture. `secrets` are replaced in every line."""

    def __init__(self, keep_packets: bool, secrets: tuple[str, ...] = ()) -> None:
        self.sent: list[str] = []
        self.received: list[str] = []
        self._packets: list[tuple[int, bytes]] | None = [] if keep_packets else None
        self._secrets = [secret for secret in secrets if secret]
        self._connections = 0

    def note(self, sent: bool, line: str) -> None:
        lines = self.sent if sent else self.received
        for secret in self._secrets:
            line = line.replace(secret, "***")
        if len(lines) < _MOST_LINES:
            lines.append(line[:_MOST_CHARACTERS])
        elif len(lines) == _MOST_LINES:
            lines.append("...")

    def write_packet(self, packet: bytes, time_ns: int) -> None:
        if self._packets is not None:
            self._packets.append((time_ns, packet))

    def new_connection(self, client: tuple[str, int], server: tuple[str, int]) -> TapConnection:
        self._connections += 1
        return TapConnection(self, client, server, time.time_ns(), self._connections)

    def save(self, path: Path, comments: list[str]) -> None:
        """Write the packets. Bytes inside TLS or HTTP are written as plain RTMP."""
        with path.open("wb") as file:
            writer = PcapngWriter(file, f"rtmp-spark probe {__version__}", comments)
            for time_ns, packet in self._packets or ():
                writer.write(time_ns, packet, len(packet), _ETHERNET)


def describe(type_id: int, stream_id: int, timestamp: int, payload: bytes) -> str:
    """One line about a message."""
    if type_id in COMMANDS or type_id in (DATA_AMF0, DATA_AMF3):
        parsed = parse_command(type_id, payload)
        values = [] if parsed.transaction_id is None else [f"{parsed.transaction_id:g}"]
        where = f" on stream {stream_id}" if stream_id else ""
        return f"{parsed.name or 'unreadable command'}({', '.join(values + [_short(a) for a in parsed.args])}){where}"
    if type_id in CONTROL_TYPES:
        control = parse_control(type_id, payload)
        if type_id == USER_CONTROL:
            numbers = [str(v) for v in (control.event_stream_id, control.event_value) if v is not None]
            return f"user control {control.kind} {' '.join(numbers)}".rstrip()
        return f"{control.kind.replace('_', ' ')} {control.value}"
    name = type_name(type_id) if type_id in (AUDIO, VIDEO) else f"message of type {type_id}"
    return f"{name}, {len(payload)} bytes at {timestamp} ms on stream {stream_id}"


def _short(value: Value) -> str:
    value = resolve(value)
    if isinstance(value, AmfObject):
        pairs = ", ".join(f"{key}: {_short(item)}" for key, item in value.pairs[:8])
        return "{" + pairs + (", ..." if len(value.pairs) > 8 else "") + "}"
    if isinstance(value, list):
        return f"[{len(value)} values]"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:60] + "...")
    return "null" if value is None else str(value)[:60]
