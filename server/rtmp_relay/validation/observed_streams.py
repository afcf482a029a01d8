"""The streams of one live connection, from its commands and media: names, roles and recent measures.

Names are the same keyed hashes as in tables and reports.
"""

from __future__ import annotations

from collections.abc import Iterator

from rtmp_spark.codec.amf import AmfObject, to_json_values
from rtmp_spark.codec.command import Command, connect_info
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.codec.limits import STREAMS_PER_CONNECTION
from rtmp_spark.codec.media.tag import MediaTag
from rtmp_spark.conversation.connection_secrets import ConnectionSecrets
from rtmp_spark.redact import Redactor

from .recent_measures import RecentMeasures

PUBLISH, PLAY = "publish", "play"
_SHOWN_APP = 40  # characters
_KEPT_SECRETS = 1000  # of one connection; details of findings show only names of recent messages


class ObservedStream:
    """One publish or play; `name` is `app/name` with the name hashed."""

    def __init__(self, name: str, role: str) -> None:
        self.name = name
        self.role = role
        self.active = True
        self.measures = RecentMeasures()
        self.last_finding: tuple[ViolationCode, Severity] | None = None


class ConnectionStreams:
    """An ended stream is kept until its stream id is used again, for findings that come later."""

    def __init__(self, redactor: Redactor) -> None:
        self._secrets = ConnectionSecrets(redactor)
        self._app = ""
        self._streams: dict[int, ObservedStream] = {}  # by stream id

    def active(self) -> Iterator[ObservedStream]:
        return (stream for stream in self._streams.values() if stream.active)

    def hide_secrets(self, text: str) -> str:
        return self._secrets.hide(text)

    def find(self, stream_id: int | None, from_client: bool) -> ObservedStream | None:
        """The stream with this id, or the only one. Some servers send the media of stream 1 on stream 0."""
        stream = None if stream_id is None else self._streams.get(stream_id)
        if stream is not None:
            return stream
        if len(self._streams) > 1:
            role = PUBLISH if from_client else PLAY
            fitting = [stream for stream in self._streams.values() if stream.role == role]
        else:
            fitting = list(self._streams.values())
        return fitting[0] if len(fitting) == 1 else None

    def media(self, from_client: bool, tag: MediaTag, time_ns: int) -> None:
        stream = self.find(tag.stream_id, from_client)
        if stream is None or stream.role != (PUBLISH if from_client else PLAY):
            return
        if tag.packet_type == "frame" and tag.track_id == 0:
            stream.measures.add(time_ns, tag.kind, tag.dts, tag.size, tag.is_key)

    def command(self, from_client: bool, stream_id: int, command: Command) -> None:
        if from_client:
            self._client_command(stream_id, command)
        elif command.name == "onStatus":
            status = command.arg(1)
            if isinstance(status, AmfObject) and status.get("level") == "error":
                self._end(stream_id)

    def _client_command(self, stream_id: int, command: Command) -> None:
        name, first = command.name, command.arg(1)
        if len(self._secrets.known.tokens) > _KEPT_SECRETS:
            self._secrets.known.clear()
        for secret in self._secrets.redactor.secrets_in(name, to_json_values(command.args)):
            self._secrets.known.add(secret)
        if name == "connect":
            given = connect_info(command)
            app = (given.app or "") if given is not None else ""
            self._app = self._secrets.address(app.partition("?")[0].strip("/"))[:_SHOWN_APP]
        elif name in (PUBLISH, PLAY) and isinstance(first, str):
            self._begin(stream_id, self._label(first), name)
        elif name in (PUBLISH, "closeStream"):  # publish with False ends a publication
            self._end(stream_id)
        elif name == "deleteStream" and isinstance(first, (int, float)):
            self._end(first)
        elif name in ("deleteStream", "FCUnpublish") and isinstance(first, str):  # GStreamer deletes by name
            for number, stream in self._streams.items():
                if stream.role == PUBLISH and stream.name == self._label(first):
                    self._end(number)

    def _label(self, name: str) -> str:
        return f"{self._app}/{self._secrets.redactor.stream_name(name.partition('?')[0])}"

    def _begin(self, stream_id: int, name: str, role: str) -> None:
        if stream_id in self._streams or len(self._streams) < STREAMS_PER_CONNECTION:
            self._streams[stream_id] = ObservedStream(name, role)

    def _end(self, stream_id: float) -> None:
        stream = self._streams.get(stream_id)  # type: ignore[call-overload]  # 1.0 finds 1
        if stream is not None:
            stream.active = False
