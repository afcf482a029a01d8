"""The interface of a layer around RTMP: TLS (tls/) or HTTP (rtmpt/).

A wrapping takes the items of a connection and returns items of its content, so later steps work the same with and
without one. The conversation decides whether a connection is wrapped, and creates the wrapping.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from rtmp_spark.capture.tcp.stream_items import Item
from rtmp_spark.codec.errors import ViolationCode


class Noted(NamedTuple):
    """An observation about the wrapping itself, for a finding."""

    code: ViolationCode
    direction: int | None
    detail: str
    frame: int | None
    ts_ns: int | None

    def state(self) -> list[Any]:
        return [self.code.value, *self[1:]]

    @classmethod
    def resume(cls, state: list[Any]) -> Noted:
        return cls(ViolationCode[state[0]], *state[1:])


class WrappingFacts(NamedTuple):
    """Columns of `connections` that only a wrapping knows."""

    service: str | None = None
    session_id: str | None = None
    server_name: str | None = None
    tls_version: str | None = None
    tls_cipher: str | None = None
    goodbye_ns: int | None = None  # when the client closed the session by the protocol of the wrapping


class Wrapping(Protocol):
    refusal: str  # the reason why a connection without readable content has no rows

    @property
    def readable(self) -> bool | None:
        """Whether it has content that can be read; None while that is unknown."""

    @property
    def facts(self) -> WrappingFacts: ...

    @property
    def client_randoms(self) -> list[bytes]:
        """The client randoms under which a key log lists the secrets of the connection."""

    @property
    def carriers(self) -> list[Any]:
        """The TCP connections that carry it, if there may be several; else empty."""

    @property
    def joined(self) -> bool:
        """Whether its content began before the recording although the connection did not."""

    @property
    def held(self) -> list[tuple[int, int]]:
        """Packets and times from which bytes are held back that may become content."""

    def receive(self, item: Item) -> list[Item]: ...

    def finish(self) -> list[Item]:
        """No more items will come: returns the content that was held back."""

    def take_noted(self) -> list[Noted]: ...

    def end_notes(self) -> list[Noted]:
        """Observations that are only possible at the end."""

    def state(self) -> dict[str, Any]: ...


class Nested:
    """A wrapping inside another: HTTP inside TLS."""

    def __init__(self, outer: Wrapping, inner: Wrapping) -> None:
        self.outer, self.inner = outer, inner
        self.refusal = inner.refusal

    @property
    def readable(self) -> bool | None:
        return self.inner.readable

    @property
    def facts(self) -> WrappingFacts:
        outer, inner = self.outer.facts, self.inner.facts
        return inner._replace(server_name=outer.server_name, tls_version=outer.tls_version, tls_cipher=outer.tls_cipher)

    @property
    def client_randoms(self) -> list[bytes]:
        return self.outer.client_randoms

    @property
    def carriers(self) -> list[Any]:
        return self.inner.carriers

    @property
    def joined(self) -> bool:
        return self.inner.joined

    @property
    def held(self) -> list[tuple[int, int]]:
        return [*self.outer.held, *self.inner.held]

    def receive(self, item: Item) -> list[Item]:
        return [found for inside in self.outer.receive(item) for found in self.inner.receive(inside)]

    def finish(self) -> list[Item]:
        return [
            *(found for inside in self.outer.finish() for found in self.inner.receive(inside)), *self.inner.finish()
        ]  # fmt: skip

    def take_noted(self) -> list[Noted]:
        return [*self.outer.take_noted(), *self.inner.take_noted()]

    def end_notes(self) -> list[Noted]:
        return [*self.outer.end_notes(), *self.inner.end_notes()]

    def state(self) -> dict[str, Any]:
        return {"outer": self.outer.state(), "inner": self.inner.state()}
