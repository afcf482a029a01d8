"""The interface of a fault: the points at which a sender can be made to break a rule, or a receiver to misunderstand.

`OnMessage` replaces the bytes of chosen messages, `MediaFault` changes the tags before they are sent. The faults are in
the `*_faults` modules, one per protocol layer; `fault_catalogue` combines them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from rtmp_relay.client.client_options import ClientOptions
from rtmp_relay.frames import Tag
from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.events import MessageReceived
from rtmp_spark.codec.message import Message

from .message_choice import Choice
from .replacement_bytes import Replacement

CLIENT, SERVER, EITHER = ("client",), ("server",), ("client", "server")
ALWAYS = 1 << 60  # for `times`: every chosen message


class Fault:
    """A sender's deviation from the protocol. This base class deviates in nothing."""

    closes_connection = False  # if set, the sender sends nothing more and closes the connection

    def client_options(self, options: ClientOptions) -> ClientOptions:
        """Return the options with which the faulty client runs."""
        return options

    def answer_scheme(self, scheme: str) -> str:
        """Return the handshake scheme with which the server answers."""
        return scheme

    def handshake_part(self, part: int, data: bytes) -> bytes:
        """Return the bytes to send for part 0, 1 or 2 of the handshake (C0/S0, C1/S1, C2/S2)."""
        return data

    def encode(self, encoder: RtmpEncoder, message: Message) -> bytes:
        """Return the bytes to send for a message; empty if it is not sent."""
        return encoder.send(message)

    def received_bytes(self, data: bytes) -> bytes:
        """Return what this side makes of received bytes. Empty: it does not see them."""
        return data

    def received_message(self, message: MessageReceived) -> MessageReceived | None:
        """Return what this side makes of a received message; None: it ignores it."""
        return message

    def changed_tags(self, tags: Iterable[Tag]) -> Iterable[Tag]:
        """Return the tags to publish."""
        return tags

    def due_ms(self, tag: Tag) -> int:
        """Return when a tag is due on the media's own clock, whatever timestamp the fault gave it."""
        return tag.timestamp

    def extra_delay_s(self, tag: Tag) -> float:
        """Return how long to wait before sending a tag that is due."""
        return 0.0


NO_FAULT = Fault()


class FaultEntry(NamedTuple):
    """A line of the catalogue."""

    sides: tuple[str, ...]  # which side can do it: client, server
    what: str  # what that side does
    make: Callable[[], Fault]  # returns a fault for one connection


class OnMessage(Fault):
    """Sends `replacement` for the chosen messages: after the first `after` of them, at most `times` times.

    After the first replacement every other message gets a full header, because the encoder's state does not include
    the replaced bytes.
    """

    def __init__(
        self,
        choice: Choice,
        replacement: Replacement,
        *,
        after: int = 0,
        times: int = 1,
        then_close: bool = False,
        full_headers: bool = False,
    ) -> None:
        self._choice = choice
        self._replacement = replacement
        self._after = after
        self._left = times
        self._full_headers = full_headers
        self._then_close = then_close

    def encode(self, encoder: RtmpEncoder, message: Message) -> bytes:
        if self._left and self._choice(encoder, message):
            if self._after:
                self._after -= 1
            else:
                self._left -= 1
                self._full_headers = True
                self.closes_connection = self._then_close
                return self._replacement(encoder, message)
        return encoder.send(message, fmt=0) if self._full_headers else encoder.send(message)


class MediaFault(Fault):
    """Changes the tags; they are then sent as usual."""

    def __init__(self, change: Callable[[Iterable[Tag]], Iterator[Tag]]) -> None:
        self._change = change

    def changed_tags(self, tags: Iterable[Tag]) -> Iterable[Tag]:
        return self._change(tags)
