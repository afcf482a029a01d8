"""The messages that the relay sends to one client: command replies, onStatus and stream events.

Replies use the AMF version of the client's last command.
"""

from __future__ import annotations

from collections.abc import Callable

from rtmp_relay.endpoint import CONNECTION_CSID, CONTROL_CSID, STREAM_CSID
from rtmp_spark.codec.command import Command, dump_command
from rtmp_spark.codec.message import COMMAND_AMF0, COMMAND_AMF3, USER_CONTROL, Message, dump_stream_event


class ServerReplies:
    """Encodes replies and passes them to `send` in order."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self.amf_version = 0
        self._send = send

    def command(self, name: str, transaction_id: float, *args: object, stream_id: int = 0) -> None:
        payload = dump_command(name, transaction_id, *args, amf_version=self.amf_version)
        type_id = COMMAND_AMF3 if self.amf_version == 3 else COMMAND_AMF0
        csid = STREAM_CSID if stream_id else CONNECTION_CSID
        self._send(Message(csid, 0, type_id, stream_id, payload))

    def status(self, stream_id: int, level: str, code: str, description: str) -> None:
        """Send onStatus."""
        info = {"level": level, "code": code, "description": description}
        self.command("onStatus", 0.0, None, info, stream_id=stream_id)

    def event(self, event_type: int, stream_id: int) -> None:
        """Send a user control event."""
        self._send(Message(CONTROL_CSID, 0, USER_CONTROL, 0, dump_stream_event(event_type, stream_id)))

    def result(self, received: Command, *args: object) -> None:
        """Send `_result`, unless the command has no transaction id and so expects no response."""
        if received.transaction_id:
            self.command("_result", received.transaction_id, *args)

    def call_failed(self, received: Command, reason: str) -> None:
        """Send `_error`, unless the command has no transaction id and so expects no response."""
        if received.transaction_id:
            info = {"level": "error", "code": "NetConnection.Call.Failed", "description": f"{reason}."}
            self.command("_error", received.transaction_id, None, info)

    def fc_status(self, name: str, code: str, stream_name: object) -> None:
        """Send `onFCPublish`, `onFCUnpublish` or `onFCSubscribe`."""
        if isinstance(stream_name, str) and len(stream_name) <= 255:
            self.command(name, 0.0, None, {"level": "status", "code": code, "description": stream_name})
