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
    goodbye_ns: int | None = None  # when the client said in the wrapping's own words that it is done


class Wrapping(Protocol):
    refusal: str  # why a connection gives no rows when there is nothing to read in it

    @property
    def readable(self) -> bool | None:
        """Whether there is something inside that can be read; None while that is open."""

    @property
    def facts(self) -> WrappingFacts: ...

    @property
    def client_randoms(self) -> list[bytes]:
        """Under these the secrets of the connection stand in a key log."""

    @property
    def carriers(self) -> list[Any]:
        """The TCP connections that it came over, where these may be several; empty where it is the one it is in."""

    @property
    def joined(self) -> bool:
        """Whether what is inside began before the recording, though the connection did not."""

    def receive(self, item: Item) -> list[Item]: ...

    def finish(self) -> list[Item]:
        """No more items come: what was held back."""

    def take_noted(self) -> list[Noted]: ...

    def end_notes(self) -> list[Noted]:
        """What only the end shows."""

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
