"""The hellos of a TLS connection, from both directions: what they say about it and which keys follow from them."""

from __future__ import annotations

from typing import Any

from rtmp_spark.capture.unwrap.tls.cipher_suites import SUITES, TLS12, TLS13, VERSION_NAMES, suite_name
from rtmp_spark.capture.unwrap.tls.key_epochs import CLIENT, SERVER, Epoch, protected
from rtmp_spark.capture.unwrap.tls.keylog import KeyLog
from rtmp_spark.capture.unwrap.tls.tls_handshake import (
    CLIENT_HELLO,
    SERVER_HELLO,
    ClientHello,
    ServerHello,
    parse_client_hello,
    parse_server_hello,
)
from rtmp_spark.codec.limits import TLS_HANDSHAKES


class TlsHellos:
    """One pair of hellos per handshake; a renegotiation is another handshake."""

    def __init__(self) -> None:
        self._client: list[ClientHello] = []
        self._server: list[ServerHello] = []
        self.retried = False  # the server asked for another ClientHello and has not answered that one yet

    def __bool__(self) -> bool:
        return bool(self._client or self._server)

    @property
    def server_name(self) -> str | None:
        return next((hello.server_name for hello in self._client if hello.server_name), None)

    @property
    def version(self) -> str | None:
        hello = self.server
        return None if hello is None else VERSION_NAMES.get(hello.version, f"0x{hello.version:04X}")

    @property
    def cipher(self) -> str | None:
        return suite_name(self._server[-1].suite) if self._server else None

    @property
    def early_data(self) -> bool:
        """Whether the client sends data with its first flight (0-RTT, RFC 8446 2.3)."""
        return any(hello.early_data for hello in self._client)

    @property
    def client_random(self) -> bytes | None:
        return self._client[0].random if self._client else None

    @property
    def client_randoms(self) -> set[bytes]:
        return {hello.random for hello in self._client}

    @property
    def server(self) -> ServerHello | None:
        return self._server[0] if self._server else None

    def add(self, kind: int, body: bytes) -> int | None:
        """Take a handshake message; returns the role of its sender if it is a new hello."""
        if kind == CLIENT_HELLO and len(self._client) < TLS_HANDSHAKES:
            hello = parse_client_hello(body)
            repeated = bool(self._client) and hello is not None and hello.random == self._client[-1].random
            if hello is not None and not repeated:
                self._client.append(hello)
                return CLIENT
        elif kind == SERVER_HELLO and len(self._server) < TLS_HANDSHAKES:
            answer = parse_server_hello(body)
            if answer is not None:
                self.retried = answer.retry
                if not answer.retry:
                    self._server.append(answer)
                return SERVER
        return None

    def protected(self, role: int, handshake: int) -> Epoch | None:
        """The first keyed epoch of this handshake; None while one of its hellos is missing."""
        if not self._client or handshake >= len(self._server):
            return None
        hello = self._server[handshake]
        if hello.version == TLS13:
            return protected(role, self._client[0].random, hello)
        if handshake >= len(self._client):
            return None
        return protected(role, self._client[handshake].random, hello)

    def why_unreadable(self, log: KeyLog) -> str:
        """One clause: what is known about the connection, and what is missing to decrypt it."""
        about = ", ".join(x for x in (self.version, self.cipher, self.server_name and f"to {self.server_name}") if x)
        about = f"{about}: " if about else ""
        hello = self.server
        if hello is not None and hello.version not in (TLS12, TLS13):
            return f"{about}only TLS 1.2 and 1.3 can be decrypted"
        if hello is not None and hello.suite not in SUITES:
            return f"{about}this cipher is not supported"
        # The text must not depend on keys of other connections: these depend on which files are read together.
        if not self._client or hello is None:
            return f"{about}the capture does not contain the whole handshake, and no key decrypts a record"
        if not any(log.knows(hello.random) for hello in self._client):
            return f"{about}there is no key for this connection"
        return f"{about}the keys given for this connection do not decrypt its records"

    def state(self) -> dict[str, Any]:
        return {
            "retried": self.retried,
            "client_hellos": [[h.random.hex(), h.server_name, h.early_data] for h in self._client],
            "server_hellos": [[h.random.hex(), h.version, h.suite, h.encrypt_then_mac] for h in self._server],
        }

    @classmethod
    def resume(cls, state: dict[str, Any]) -> TlsHellos:
        own = cls()
        own.retried = state["retried"]
        own._client = [ClientHello(bytes.fromhex(r), *rest) for r, *rest in state["client_hellos"]]
        own._server = [ServerHello(bytes.fromhex(r), *rest) for r, *rest in state["server_hellos"]]
        return own
