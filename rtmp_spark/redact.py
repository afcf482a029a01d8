"""Stream keys, tokens and passwords replaced by a stable keyed hash.

The same secret gives the same hash under one key, so that connections can still be joined by stream name, and nobody
without the key can try guesses. Application names, hosts and the names of query parameters stay. What was recognised
once as a secret (a stream name in `publish`) is recognised in later texts of its connection (the server's "Publishing
NAME."): the hashes of the words are compared, so no secret has to be remembered. Values are the tagged JSON of AMF.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
import secrets
from pathlib import Path
from typing import Any

from rtmp_spark.capture.facts import noted

KEY_VARIABLE = "RTMP_SPARK_REDACT_KEY"
PREFIX = "key-"
_TOKEN_CHARS = 16
_MOST_SEALED = 4096
_LONGEST_SEALED = 1024  # characters of a text that is remembered
_TOKEN = re.compile(PREFIX + f"[a-z2-7]{{{_TOKEN_CHARS}}}")

_NAMED_BY_FIRST_STRING = frozenset(
    "publish play play2 releaseStream FCPublish FCUnpublish FCSubscribe FCUnsubscribe deleteStream closeStream "
    "getStreamLength startTransmit stopTransmit".lower().split()
)
_SECRET_FIELDS = frozenset(
    "password passwd pass pwd secret token key streamkey stream_key auth authorization user username login "
    "response challenge salt opaque nonce cnonce signature sign".split()
)
_NAME_FIELDS = frozenset({"details", "streamname", "stream"})
_ANSWERS_WITH_NAMES = frozenset(
    "onStatus _error onFCPublish onFCUnpublish onFCSubscribe onFCUnsubscribe onPlayStatus".lower().split()
)
_HARMLESS_PARAMETERS = frozenset({"authmod", "reason", "code", "vhost", "type", "mode"})
_PARAMETER = re.compile(r"(?<=[?&])([^=&?\s]+)=([^&\s\]\"']*)")
_USER_INFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_WORD = re.compile(r"[^\s\"'\[\](){}<>,;]+")


def load_key() -> bytes:
    """The key of this user: from the environment, or made once and kept in the user's state directory."""
    given = os.environ.get(KEY_VARIABLE)
    if given:
        return given.encode()
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    path = Path(home) / "rtmp_spark" / "redact.key"
    try:
        return path.read_bytes()
    except OSError:
        key = secrets.token_bytes(32)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
    except FileExistsError:
        return path.read_bytes()
    except OSError:
        pass  # nowhere to keep it: this run's hashes stand for themselves
    return key


class Redactor:
    """Replaces secrets under one key; without a key it leaves everything as it is.

    `asked_under` is the key of the hashes that a person may ask for where secrets are kept.
    """

    def __init__(self, key: bytes | None, asked_under: bytes | None = None) -> None:
        self._key = key
        self._asked = self if asked_under is None else Redactor(asked_under)
        self._sealed: dict[str, str] = {}  # the same few texts come again and again

    @property
    def keeps_secrets(self) -> bool:
        return self._key is None

    def token(self, secret: str) -> str:
        if self._key is None or not secret or (secret.startswith(PREFIX) and _TOKEN.fullmatch(secret)):
            return secret
        return PREFIX + self.sealed(secret)

    def sealed(self, text: str) -> str:
        """A text to be recognised by later, in a state that others may read."""
        if self._key is None:
            return text
        sealed = self._sealed.get(text)
        if sealed is None:
            digest = hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256")
            sealed = base64.b32encode(digest).decode()[:_TOKEN_CHARS].lower()
            if len(self._sealed) >= _MOST_SEALED:
                self._sealed.clear()
            if len(text) <= _LONGEST_SEALED:
                self._sealed[text] = sealed
        return sealed

    def stream_name(self, name: str) -> str:
        """A stream name: the name and the values of its query, each by its hash."""
        base, mark, query = name.partition("?")
        return self.token(base) + (self.parameters(mark + query) if mark else "")

    def parameters(self, text: str) -> str:
        """A text with the values of `?a=b&c=d` and the user part of URLs replaced."""
        if self._key is None or ("=" not in text and "@" not in text):
            return text
        text = _PARAMETER.sub(self._parameter, text)
        return _USER_INFO.sub(lambda found: self.token(found[0]), text)

    def _parameter(self, found: re.Match[str]) -> str:
        if found[1].lower() in _HARMLESS_PARAMETERS:
            return found[0]
        return f"{found[1]}={self.token(found[2])}"

    def text(self, text: str, known: set[str]) -> str:
        """Free text: parameters, and words that are known secrets (`known` holds their hashes)."""
        text = self.parameters(text)
        if self._key is None or not known:
            return text
        return _WORD.sub(lambda found: self._word(found[0], known), text)

    def _word(self, word: str, known: set[str]) -> str:
        bare = word.rstrip(".:!?")
        plain = bare.partition("?")[0]
        for candidate in (word, bare, *word.split("/"), *bare.split("/"), *plain.split("/")):
            if candidate and self.token(candidate) in known:
                return word.replace(candidate, self.token(candidate))
        return word

    def arguments(self, name: str | None, args: list[Any], known: set[str]) -> list[Any]:
        """The arguments of a command without its secrets; hashes of the stream names it carries join `known`."""
        if self._key is None:
            return args
        lowered = (name or "").lower()
        if lowered == "connect":
            # What follows the command object is what a script passed: often a user and a password.
            texts = ((a, _text_of(a)) for a in args[1:])
            rest = [self.value(a, known) if text is None else self.token(text) for a, text in texts]
            return [self.value(a, known) for a in args[:1]] + rest
        if lowered in _NAMED_BY_FIRST_STRING:
            return self._named(args, known)
        return [self.value(a, known) for a in args]

    def learn(self, name: str | None, args: list[Any], known: set[str]) -> None:
        """Remember the hash of the stream name that a command carries."""
        if self._key is not None and (name or "").lower() in _NAMED_BY_FIRST_STRING:
            stream = _stream_in(args)
            if stream is not None:
                known.add(self.token(stream))

    def _named(self, args: list[Any], known: set[str]) -> list[Any]:
        redacted: list[Any] = []
        found = False
        for value in args:
            text = None if found else _text_of(value)
            if text is not None:
                found = True
                known.add(self.token(text.partition("?")[0]))
                redacted.append(_tagged(self.stream_name(text)))
            else:
                redacted.append(self.value(value, known))
        return redacted

    def value(self, value: Any, known: set[str], field: str = "") -> Any:
        """Any value of the tagged JSON; `field` is the name it stands under."""
        if isinstance(value, str):
            lowered = field.lower()
            if lowered in _SECRET_FIELDS:
                return self.token(value)
            if lowered in _NAME_FIELDS:
                return self.stream_name(value)
            return self.text(value, known)
        if isinstance(value, list):
            return [self.value(v, known, field) for v in value]
        if isinstance(value, dict):
            text = _text_of(value)
            if text is not None:
                return _tagged(self.value(text, known, field))
            if "$pairs" in value and isinstance(value["$pairs"], list):
                return {"$pairs": [[k, self.value(v, known, str(k))] for k, v in value["$pairs"]]}
            return {k: self.value(v, known, k if not k.startswith("$") else field) for k, v in value.items()}
        return value

    def matches(self, wanted: str, name: str | None) -> bool:
        """Whether a stream name is the one a person asked for, by the plain name or by its hash."""
        if name is None:
            return False
        base = name.partition("?")[0]
        return wanted in (name, base, self._asked.stream_name(name), self._asked.token(base))


def _text_of(value: Any) -> str | None:
    """What is a text to its receiver, also one that is not UTF-8: a secret may be in Latin-1."""
    if isinstance(value, dict) and len(value) == 1 and isinstance(value.get("$badstring"), str):
        return bytes.fromhex(value["$badstring"]).decode("utf-8", "surrogateescape")
    return value if isinstance(value, str) else None


@noted
def _stream_in(args: list[Any]) -> str | None:
    """The first text among arguments, without a query: the stream that a command is about."""
    text = next((text for text in map(_text_of, args) if text is not None), None)
    return None if text is None else text.partition("?")[0]


def _tagged(text: str) -> Any:
    """The way back."""
    if text.isascii():
        return text
    data = text.encode("utf-8", "surrogateescape")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"$badstring": data.hex()}


def carries_credentials(name: str | None) -> bool:
    """Whether the payload of this command must not be kept together with redacted tables; of one without a name
    nobody can tell."""
    lowered = (name or "").lower()
    return not lowered or lowered == "connect" or lowered in _NAMED_BY_FIRST_STRING or lowered in _ANSWERS_WITH_NAMES
