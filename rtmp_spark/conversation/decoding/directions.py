"""The decoders of both directions of one connection, in this process or in a helper process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rtmp_spark.capture.tcp.stream_items import Item, Run
from rtmp_spark.capture.tcp.tcp_connection import Connection
from rtmp_spark.codec.json_value import SavedFields
from rtmp_spark.codec.limits import LONG_RUN_BYTES
from rtmp_spark.conversation.decoding.decode_options import DecodeOptions
from rtmp_spark.conversation.decoding.direction_decoder import DirectionDecoder
from rtmp_spark.conversation.decoding.helper_process import HelperPool, RemoteDirection
from rtmp_spark.conversation.decoding.message_facts import MessageHook
from rtmp_spark.conversation.fact_json import facts_from_json, facts_to_json
from rtmp_spark.conversation.facts import Facts, HandshakeFact, Unread

# Gives the hook that sees every message of one direction of a connection.
HookFactory = Callable[[Connection, int], MessageHook | None]
SavedDirection = SavedFields | None  # its state, and the facts that were not taken yet


class Directions:
    """`decoders[n]` is None until the phase in which direction n begins is known."""

    __slots__ = ("_connection", "_helpers", "_hook", "_options", "_remote", "decoders", "may_leave")

    def __init__(
        self, connection: Connection, options: DecodeOptions, helpers: HelperPool | None, hook: HookFactory | None
    ) -> None:
        self._connection = connection
        self._options = options
        self._helpers = helpers
        self._hook = hook
        self._remote: dict[int, RemoteDirection] = {}  # those in a helper process
        self.decoders: list[DirectionDecoder | None] = [None, None]
        self.may_leave = False  # whether the connection is known well enough to use a helper process

    def begin(self, number: int, phase: str, held: Sequence[Item]) -> None:
        """Decode a direction from `phase` on; `held` are its items so far."""
        hook = self._hook(self._connection, number) if self._hook is not None else None
        decoder = self.decoders[number] = DirectionDecoder(phase, self._options, hook=hook)
        for item in held:
            decoder.receive(item)

    def receive(self, item: Item, *, wrapped: bool) -> None:
        """An item of a direction that has begun."""
        number = item.direction
        if self._helpers is None or not self._receive_remotely(item, self._helpers, wrapped):
            decoder = self.decoders[number]
            assert decoder is not None
            decoder.receive(item)

    def _receive_remotely(self, item: Item, helpers: HelperPool, wrapped: bool) -> bool:
        """Long runs are decoded in a helper process if there is one; anything else brings the direction back."""
        number = item.direction
        if not isinstance(item, Run) or len(item.data) < LONG_RUN_BYTES:
            self.bring_back(number)
            return False
        if number not in self._remote:
            decoder = self.decoders[number]
            if not self.may_leave or wrapped or decoder is None or decoder.phase != "chunks":
                return False
            if self._hook is not None or self._options.keep_payloads:
                return False
            helper = helpers.take()
            if helper is None:
                return False
            self._remote[number] = RemoteDirection(decoder, helper, helpers)
        self._remote[number].receive_run(item)
        return True

    @property
    def any_remote(self) -> bool:
        return bool(self._remote)

    def bring_back(self, *numbers: int) -> None:
        """Finish decoding these directions (without arguments: both) in the helper and continue here."""
        for number in numbers or (0, 1):
            remote = self._remote.pop(number, None)
            if remote is not None:
                self.decoders[number] = remote.bring_back()

    def catch_up(self, since_us: int) -> None:
        """Wait for helpers that may still give facts older than `since_us`."""
        for remote in self._remote.values():
            remote.catch_up(since_us)

    def clear(self) -> None:
        self.bring_back()
        self.decoders = [None, None]

    def settle(self) -> None:
        for decoder in self.decoders:
            if decoder is not None:
                decoder.settle()

    def take_facts(self) -> list[tuple[int, Facts]]:
        """(direction, its facts since the last call), of directions that have any."""
        taken = []
        for number, decoder in enumerate(self.decoders):
            if decoder is not None:
                facts = decoder.facts
                if facts.passed or facts.notable:
                    taken.append((number, decoder.take_facts()))
        return taken

    @property
    def unread(self) -> list[Unread]:
        """Of each direction that has bytes which are not decoded."""
        return [unread for reader in self._readers if (unread := reader.unread) is not None]

    @property
    def buffered_since_us(self) -> list[int]:
        """Of each direction that has bytes which wait for more bytes: the time of the oldest packet with such bytes."""
        return [since for reader in self._readers if (since := reader.buffered_since_us) is not None]

    @property
    def _readers(self) -> list[DirectionDecoder | RemoteDirection]:
        readers: list[DirectionDecoder | RemoteDirection | None] = [*self.decoders]
        for number, remote in self._remote.items():
            readers[number] = remote
        return [reader for reader in readers if reader is not None]

    @property
    def messages_seen(self) -> int:
        """The larger number of both directions."""
        return max((decoder.messages_seen for decoder in self.decoders if decoder is not None), default=0)

    def handshake_parts(self, number: int) -> dict[int, bytes]:
        """C0, C1, C2 (or S0, S1, S2) among the facts that were not taken yet."""
        decoder = self.decoders[number]
        if decoder is None:
            return {}
        return {f.part: f.data for f in decoder.facts.notable if isinstance(f, HandshakeFact)}

    def state(self, redacted: Callable[[Facts], Facts]) -> list[SavedDirection]:
        """`redacted` removes the secrets of facts that were not taken yet."""
        return [None if d is None else (d.state(), facts_to_json(redacted(d.facts))) for d in self.decoders]

    def resume(self, state: list[SavedDirection]) -> None:
        for number, saved in enumerate(state):
            if saved is not None:
                hook = self._hook(self._connection, number) if self._hook is not None else None
                decoder = self.decoders[number] = DirectionDecoder.resume(saved[0], self._options, hook=hook)
                decoder.facts = facts_from_json(saved[1])
