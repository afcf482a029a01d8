"""The secrets of one connection: stream names that were seen are also hidden in later texts of the connection."""

from __future__ import annotations

import re
from typing import Final

from rtmp_spark.codec.json_value import Json
from rtmp_spark.conversation.facts import CommandFact, Facts, FaultFact, Notable, Row
from rtmp_spark.conversation.roles import FROM_CLIENT, FROM_SERVER
from rtmp_spark.known_secrets import KnownSecrets
from rtmp_spark.redact import Redactor, carries_credentials

_NAMES_OF_RTMP: Final = FROM_CLIENT | FROM_SERVER | {"onMetaData", "@setDataFrame", "@clearDataFrame"}
_TEXTS: Final = re.compile(rb"[ -~]{4,}")


class ConnectionSecrets:
    """`known` holds the stream names and other secrets seen so far."""

    __slots__ = ("known", "redactor")

    def __init__(self, redactor: Redactor, known: KnownSecrets | None = None) -> None:
        self.redactor = redactor
        self.known = known if known is not None else KnownSecrets()

    def learn(self, fact: CommandFact) -> None:
        """Remember the stream name that a command carries."""
        for secret in self.redactor.secrets_in(fact.name, fact.args):
            self.known.add(secret)

    def hide(self, text: str) -> str:
        """The text without URL parameters and known stream names."""
        return self.redactor.text(text, self.known)

    def hide_all(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """The same as `hide` of each."""
        return self.redactor.texts(texts, self.known)

    def address(self, text: str) -> str:
        """The name of an application or a URL without its secrets."""
        return self.hide(self.redactor.url(text, self.known))

    def command_name(self, name: str | None) -> str | None:
        """The name of a command or shared object, which a client chooses. RTMP's own names stay: they are no secrets,
        whatever a stream is called."""
        return name if name is None or name in _NAMES_OF_RTMP else self.hide(name)

    def arguments(self, fact: CommandFact) -> list[Json]:
        """The arguments of a command without its secrets."""
        return self.redactor.arguments(fact.name, fact.args, self.known)

    def payloads_without_secrets(self, facts: Facts) -> list[Row]:
        """The payloads of messages, without those that contain a known secret and those of commands that may carry
        credentials."""
        if self.redactor.keeps_secrets:
            return facts.payloads
        commands = {f.msg_no: f for f in facts.notable if isinstance(f, CommandFact)}
        for fact in commands.values():
            self.learn(fact)
        return [row for row in facts.payloads if not self._shows(commands.get(row[0]), row[1])]

    def _shows(self, fact: CommandFact | None, payload: bytes) -> bool:
        """Whether the payload of a message may contain a secret; `fact` if it is a command."""
        if fact is not None:
            if carries_credentials(fact.name) or self.arguments(fact) != fact.args:
                return True
            if self.command_name(fact.name) != fact.name:
                return True
        return self.is_known_in(payload)

    def is_known_in(self, payload: bytes | bytearray) -> bool:
        """Whether the payload contains a known secret."""
        if not self.known.tokens:
            return False
        for found in _TEXTS.findall(payload):
            text = found.decode()
            # The length before a string may be a printable character.
            if any(
                self.known.hidden(part, self.redactor.token, self.redactor.digest) != part for part in (text, text[1:])
            ):
                return True
        return False


class PendingFactRedaction:
    """Removes secrets from facts that are saved before a session has seen them; redacting them again later changes
    nothing. `stream_names` collects (name, redacted name) of publish and play."""

    def __init__(self, secrets: ConnectionSecrets) -> None:
        self._secrets = ConnectionSecrets(secrets.redactor, secrets.known.copy_for_pending())
        self.stream_names: list[tuple[str, str]] = []

    @property
    def secrets(self) -> KnownSecrets:
        return self._secrets.known

    def fact(self, fact: Notable) -> Notable:
        redactor = self._secrets.redactor
        if redactor.keeps_secrets:
            return fact
        if isinstance(fact, FaultFact):
            return fact._replace(detail=self._secrets.hide(fact.detail))
        if not isinstance(fact, CommandFact):
            return fact
        self._secrets.learn(fact)
        name = fact.args[1] if len(fact.args) > 1 else None
        if fact.name in ("publish", "play") and isinstance(name, str):
            self.stream_names.append((name, redactor.stream_name(name)))
        return fact._replace(name=self._secrets.command_name(fact.name), args=self._secrets.arguments(fact))

    def facts(self, facts: Facts) -> Facts:
        redacted = Facts()
        for name in Facts.__slots__:
            setattr(redacted, name, getattr(facts, name))
        redacted.notable = [self.fact(fact) for fact in facts.notable]
        redacted.payloads = self._secrets.payloads_without_secrets(facts)
        return redacted
