"""Which key a direction of a TLS connection uses, as a value without secrets.

An epoch names a key: the handshake it came from, its kind and how often it was updated. The key itself is derived
from the key log each time it is needed, so a saved state contains no secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from rtmp_spark.capture.unwrap.tls import keylog
from rtmp_spark.capture.unwrap.tls.cipher_suites import SUITES, SUITES_13, TLS12, TLS13
from rtmp_spark.capture.unwrap.tls.keylog import KeyLog
from rtmp_spark.capture.unwrap.tls.tls_handshake import ServerHello
from rtmp_spark.codec.limits import TLS_LOST_KEY_UPDATES

if TYPE_CHECKING:
    from rtmp_spark.capture.unwrap.tls.record_ciphers import RecordKey

CLIENT, SERVER = 0, 1
PLAIN, EARLY, HANDSHAKE, TRAFFIC, MASTER = "plain", "early", "handshake", "traffic", "master"


class Epoch(NamedTuple):
    """`role` is the sender that encrypts with this key: the TLS client (0) or server (1)."""

    kind: str
    role: int = CLIENT
    client_random: bytes = b""
    suite: int = 0
    generation: int = 0  # KeyUpdates since the handshake (TLS 1.3)
    server_random: bytes = b""
    encrypt_then_mac: bool = False

    def key(self, log: KeyLog) -> RecordKey | None:
        """None if the log does not have its secret or the cipher is not supported."""
        suite = SUITES.get(self.suite)
        secret = log.secret(_label(self.kind, self.role), self.client_random)
        if suite is None or secret is None:
            return None
        from rtmp_spark.capture.unwrap.tls.record_ciphers import Aead13, keys_12, next_secret

        if self.kind == MASTER:
            pair = keys_12(suite, secret, self.client_random, self.server_random, self.encrypt_then_mac)
            return pair[self.role]
        if len(secret) != suite.secret_bytes:
            return None
        for _ in range(self.generation):
            secret = next_secret(suite, secret)
        return Aead13(suite, secret)

    def updated(self) -> Epoch:
        return self._replace(generation=self.generation + 1)

    def traffic(self) -> Epoch:
        return self._replace(kind=TRAFFIC, generation=0)

    @property
    def carries_data(self) -> bool:
        return self.kind in (TRAFFIC, MASTER)

    def state(self) -> list[object]:
        return [v.hex() if isinstance(v, bytes) else v for v in self]

    @classmethod
    def resume(cls, state: list[object]) -> Epoch:
        kind, role, client_random, suite, generation, server_random, mac_last = state
        return cls(
            str(kind), int(str(role)), bytes.fromhex(str(client_random)), int(str(suite)), int(str(generation)),
            bytes.fromhex(str(server_random)), bool(mac_last),
        )  # fmt: skip


def _label(kind: str, role: int) -> str:
    if kind == MASTER:
        return keylog.MASTER
    if kind == EARLY:
        return keylog.EARLY
    return keylog.HANDSHAKE[role] if kind == HANDSHAKE else keylog.TRAFFIC[role]


def protected(role: int, client_random: bytes, hello: ServerHello) -> Epoch:
    """The first keyed epoch after these hellos."""
    if hello.version == TLS13:
        return Epoch(HANDSHAKE, role, client_random, hello.suite)
    return Epoch(MASTER, role, client_random, hello.suite, 0, hello.random, hello.encrypt_then_mac)


def after(epoch: Epoch) -> Iterator[Epoch]:
    """Epochs that may follow, nearest first, if a change of keys was lost."""
    if epoch.kind in (EARLY, HANDSHAKE):
        if epoch.kind == EARLY:
            yield epoch._replace(kind=HANDSHAKE)
        yield epoch.traffic()
    elif epoch.kind == TRAFFIC:
        for _ in range(TLS_LOST_KEY_UPDATES):
            epoch = epoch.updated()
            yield epoch


def guesses(log: KeyLog, roles: tuple[int, ...], known: bytes | None, hello: ServerHello | None) -> Iterator[Epoch]:
    """Epochs that the log offers for a direction whose hellos were not both recorded.

    `known` is the client random, if it was recorded. TLS 1.2 keys need the server's random, so without its hello
    only TLS 1.3 keys are tried.
    """
    randoms = (known,) if known is not None else tuple(log.client_randoms())
    for client_random in randoms:
        for role in roles:
            if hello is not None and hello.version == TLS12:
                if log.secret(keylog.MASTER, client_random) is not None:
                    yield protected(role, client_random, hello)
                continue
            secret = log.secret(keylog.TRAFFIC[role], client_random)
            if secret is None:
                continue
            for code in SUITES_13 if hello is None else (hello.suite,):
                if code in SUITES and SUITES[code].secret_bytes == len(secret):
                    yield Epoch(TRAFFIC, role, client_random, code)
