"""The secrets of one connection: stream names that were seen are also hidden in later texts of the connection."""

from __future__ import annotations

import re

from rtmp_spark.codec.json_value import Json
from rtmp_spark.conversation.facts import CommandFact, Facts, FaultFact, Notable, Row
from rtmp_spark.conversation.roles import FROM_CLIENT, FROM_SERVER
from rtmp_spark.redact import Redactor, carries_credentials

_NAMES_OF_RTMP = FROM_CLIENT | FROM_SERVER | {"onMetaData", "@setDataFrame", "@clearDataFrame"}
_WORDS = re.compile(rb"[A-Za-z0-9_~%+-]{4,}")


class ConnectionSecrets:
    """`known` holds the hashes of the stream names seen so far."""

    __slots__ = ("known", "redactor")

    def __init__(self, redactor: Redactor, known: set[str] | None = None) -> None:
        self.redactor = redactor
        self.known = known if known is not None else set()

    def learn(self, fact: CommandFact) -> None:
        """Remember the stream name that a command carries."""
        self.known.update(self.redactor.secrets_in(fact.name, fact.args))

    def hide(self, text: str) -> str:
        """The text without URL parameters and known stream names."""
        return self.redactor.text(text, self.known)

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
        """The payloads of messages, without those of commands that may carry credentials."""
        if self.redactor.keeps_secrets:
            return facts.payloads
        commands = {f.msg_no: f for f in facts.notable if isinstance(f, CommandFact)}
        for fact in commands.values():
            self.learn(fact)
        return [row for row in facts.payloads if row[0] not in commands or not self._shows(commands[row[0]], row[1])]

    def _shows(self, fact: CommandFact, payload: bytes) -> bool:
        """Whether the payload of a command may contain a secret."""
        if carries_credentials(fact.name) or self.arguments(fact) != fact.args:
            return True
        if self.command_name(fact.name) != fact.name:
            return True
        return self.is_known_in(payload)

    def is_known_in(self, payload: bytes | bytearray) -> bool:
        """Whether a word of the payload is a known secret."""
        words = {word.decode() for word in _WORDS.findall(payload)}
        words |= {word[1:] for word in words}  # the length before a string may be a printable character
        return any(self.redactor.token(word) in self.known for word in words)


class PendingFactRedaction:
    """Removes secrets from facts that are saved before a session has seen them; redacting them again later changes
    nothing. `stream_names` collects (name, redacted name) of publish and play."""

    def __init__(self, secrets: ConnectionSecrets) -> None:
        self._secrets = ConnectionSecrets(secrets.redactor, set(secrets.known))
        self.stream_names: list[tuple[str, str]] = []

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
