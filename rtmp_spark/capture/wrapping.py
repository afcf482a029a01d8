"""What a layer around RTMP looks like to the conversation inside it: TLS (tls.py), HTTP (rtmpt.py).

A wrapping takes the items of a connection and gives items of what was inside, so nothing above knows that there was
one. Shapes only; whoever decides that a connection is wrapped makes the wrapping.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from rtmp_spark.capture.items import Item
from rtmp_spark.codec.errors import ViolationCode


class Noted(NamedTuple):
    """Something worth telling about the wrapping itself, for a finding."""

    code: ViolationCode
    direction: int | None
    detail: str
    frame: int | None
    ts_ns: int | None


class WrappingFacts(NamedTuple):
    """Columns of `connections` that only a wrapping knows."""

    service: str | None = None
    session_id: str | None = None
    server_name: str | None = None
    tls_version: str | None = None
    tls_cipher: str | None = None


class Wrapping(Protocol):
    @property
    def readable(self) -> bool | None:
        """Whether there is something inside that can be read; None while that is open."""

    @property
    def facts(self) -> WrappingFacts: ...

    def receive(self, item: Item) -> list[Item]: ...

    def finish(self) -> list[Item]:
        """No more items come: what was held back."""

    def take_noted(self) -> list[Noted]: ...

    def end_notes(self) -> list[Noted]:
        """What only the end shows."""

    def state(self) -> dict[str, Any]: ...
