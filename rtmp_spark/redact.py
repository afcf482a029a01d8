"""Replace stream keys, tokens and passwords with a stable keyed hash.

The same secret gives the same hash under one key, so connections can still be joined by stream name. Without the key,
guesses cannot be checked against a hash. Application names, hosts and the names of query parameters stay. A secret
that was seen once (a stream name in `publish`) is also replaced in later texts of its connection (the server's
"Publishing NAME."). For that, hashes of words are compared; the secret itself is not kept. Values are the tagged JSON
of AMF.

To redact another field, add its lower-case name to `_SECRET_FIELDS` (a secret) or `_NAME_FIELDS` (a stream name), or
add a command whose first string is a stream name to `_NAMED_BY_FIRST_STRING`.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rtmp_spark.codec.limits import REDACT_CACHE_CHARACTERS, REDACT_CACHE_TEXTS, REDACT_CACHE_WORDS
from rtmp_spark.codec.shared_arguments import Arguments

Key = TypeVar("Key")
Value = TypeVar("Value")

KEY_VARIABLE = "RTMP_SPARK_REDACT_KEY"
PREFIX = "key-"
_TOKEN_CHARS = 16
_TOKEN = re.compile(PREFIX + f"[a-z2-7]{{{_TOKEN_CHARS}}}")

_NAMED_BY_FIRST_STRING = frozenset(
    "publish play play2 releaseStream FCPublish FCUnpublish FCSubscribe FCUnsubscribe deleteStream closeStream "
    "getStreamLength startTransmit stopTransmit".lower().split()
)
_SECRET_FIELDS = frozenset(
    "password passwd pass pwd secret token key streamkey stream_key auth authorization user username login "
    "response challenge salt opaque nonce cnonce signature sign".split()
)
# Names of fields that end like this are secrets, too: apikey, accessToken, user_password.
_SECRET_ENDING = re.compile(r"(?:keys?|secret|token|passw(?:or)?d|passphrase|pwd|credentials?|signature|auth)$")
_URL_FIELDS = frozenset("app tcurl swfurl pageurl".split())
_KEY_LIKE = re.compile(r"(?=[^/]*[0-9])(?=[^/]*[A-Za-z])[A-Za-z0-9_~-]{16,}")  # a generated part of a path
_PATH_PART = re.compile(r"[^/?#]+")
_NAME_FIELDS = frozenset({"details", "streamname", "stream"})
_ANSWERS_WITH_NAMES = frozenset(
    "onStatus _error onFCPublish onFCUnpublish onFCSubscribe onFCUnsubscribe onPlayStatus".lower().split()
)
_HARMLESS_PARAMETERS = frozenset({"authmod", "reason", "code", "vhost", "type", "mode"})
_PARAMETER = re.compile(r"(?<=[?&])([^=&?\s]+)=([^&\s\]\"']*)")
_USER_INFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_SUBWORD = re.compile(r"[^/.:?&=@#|]+")  # NAME in mp4:NAME.flv
_DEFAULT_INSTANCE = "_definst_"  # of Adobe's and Wowza's servers
_WORD = re.compile(r"(?P<unit>(?<=[0-9] )m?s\b)|[^\s\"'\[\](){}<>,;]+")  # "10 s" is a time, even if a stream is "s"
_NO_SECRETS: frozenset[str] = frozenset()


def load_key() -> bytes:
    """The key of this user: from the environment, else from the user's state directory, where it is created once."""
    given = os.environ.get(KEY_VARIABLE)
    if given:
        return given.encode()
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    path = Path(home) / "rtmp_spark" / "redact.key"
    try:
        return path.read_bytes()
    except OSError:
        key = os.urandom(32)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
    except FileExistsError:
        return path.read_bytes()
    except OSError:
        pass  # it cannot be saved: the hashes of this run match those of no other run
    return key


class _Text(NamedTuple):
    """A text without parameters, and hashes of parts of it."""

    plain: str
    hashes: frozenset[str]


class Redactor:
    """Replaces secrets with hashes under `key`; without a key it changes nothing.

    `asked_under` is the key of the hashes that a user may search for if `key` is None.
    """

    def __init__(self, key: bytes | None, asked_under: bytes | None = None) -> None:
        self._key = key
        self._asked = self if asked_under is None else Redactor(asked_under)
        self._hashes: dict[str, str] = {}  # a cache: the same few texts occur again and again
        self._urls: dict[str, _Text] = {}  # a cache, with the hashes of secrets
        self._texts: dict[str, _Text] = {}  # a cache, with the hashes of all words
        self._hidden: dict[tuple[str, frozenset[str]], str] = {}  # a cache: texts with these secrets hidden

    @property
    def keeps_secrets(self) -> bool:
        return self._key is None

    def token(self, secret: str) -> str:
        """The hash that replaces a secret; a hash is not hashed again."""
        if self._key is None or not secret or (secret.startswith(PREFIX) and _TOKEN.fullmatch(secret)):
            return secret
        return PREFIX + self.sealed(secret)

    def sealed(self, text: str) -> str:
        """The keyed hash of a text that is only compared, never shown; without a key, the text itself."""
        if self._key is None:
            return text
        hashed = self._hashes.get(text)
        if hashed is None:
            digest = hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256")
            hashed = base64.b32encode(digest).decode()[:_TOKEN_CHARS].lower()
            if len(text) <= REDACT_CACHE_CHARACTERS:
                _kept(self._hashes, text, hashed)
        return hashed

    def stream_name(self, name: str) -> str:
        """A stream name with the name and each value of its query hashed."""
        base, mark, query = name.partition("?")
        return self.token(base) + (self.parameters(mark + query) if mark else "")

    def parameters(self, text: str) -> str:
        """A text with the values of `?a=b&c=d` and the user part of URLs hashed."""
        if self._key is None or ("=" not in text and "@" not in text):
            return text
        text = _PARAMETER.sub(self._parameter, text)
        return _USER_INFO.sub(lambda found: self.token(found[0]), text)

    def _parameter(self, found: re.Match[str]) -> str:
        if found[1].lower() in _HARMLESS_PARAMETERS:
            return found[0]
        return f"{found[1]}={self.token(found[2])}"

    def url(self, text: str, known: set[str]) -> str:
        """The name of an application or a URL with its parameters, and the parts of its path that look like a key,
        hashed. These are added to `known`."""
        if self._key is None:
            return text
        found = self._urls.get(text)
        if found is None:
            secrets: set[str] = set()
            found = _Text(self._url(text, secrets), frozenset(secrets))
            if len(text) <= REDACT_CACHE_CHARACTERS:
                _kept(self._urls, text, found)
        known |= found.hashes
        return found.plain

    def _url(self, text: str, known: set[str]) -> str:
        address, mark, query = text.partition("?")
        scheme, slashes, path = address.rpartition("://")
        host, slash, path = path.partition("/") if slashes else ("", "", path)

        def part(found: re.Match[str]) -> str:
            if not _KEY_LIKE.fullmatch(found[0]) or _TOKEN.fullmatch(found[0]):
                return found[0]
            known.add(self.token(found[0]))
            return self.token(found[0])

        path = _PATH_PART.sub(part, path)
        return self.parameters(f"{scheme}{slashes}{host}{slash}{path}{mark}{query}")

    def text(self, text: str, known: set[str]) -> str:
        """Free text with parameters and known secrets hashed; `known` contains the hashes of these."""
        if self._key is None or not known:
            return self.parameters(text)
        if len(text) > REDACT_CACHE_CHARACTERS:
            return self._without_words(self.parameters(text), known)
        found = self._texts.get(text)
        if found is None:
            plain = self.parameters(text)
            words = set(_words(plain))
            if len(words) > REDACT_CACHE_WORDS:
                return self._without_words(plain, known)
            found = _kept(self._texts, text, _Text(plain, frozenset(map(self.token, words))))
        if found.hashes.isdisjoint(known):
            return found.plain
        asked = found.plain, found.hashes & known
        hidden = self._hidden.get(asked)
        if hidden is None:
            hidden = _kept(self._hidden, asked, self._without_words(found.plain, known))
        return hidden

    def _without_words(self, text: str, known: set[str]) -> str:
        return _WORD.sub(lambda found: self._word(found, known), text)

    def _word(self, found: re.Match[str], known: set[str]) -> str:
        word = found[0]
        if found["unit"]:
            return word
        for candidate in _candidates(word):
            if candidate and self.token(candidate) in known:
                return word.replace(candidate, self.token(candidate))
        return _SUBWORD.sub(lambda found: self._known_token(found[0], known), word)

    def _known_token(self, word: str, known: set[str]) -> str:
        """The hash of a word that is a known secret, any other word unchanged."""
        token = self.token(word)
        return token if token in known else word

    def arguments(self, name: str | None, args: list[Any], known: set[str]) -> list[Any]:
        """The arguments of a command with secrets hashed; the hash of a stream name in them is added to `known`."""
        if self._key is None:
            return args
        lowered = (name or "").lower()
        if lowered == "connect":
            self._learn_from_url(args[0] if args else None, known)
            # Arguments after the command object come from a script: often a user name and a password.
            texts = ((a, _text_of(a)) for a in args[1:])
            rest = [self.value(a, known) if text is None else self._learned(text, known) for a, text in texts]
            return [self.value(a, known) for a in args[:1]] + rest
        if lowered in _NAMED_BY_FIRST_STRING:
            return self._named(args, known)
        return [self.value(a, known) for a in args]

    def _learn_from_url(self, connect: Any, known: set[str]) -> None:
        """What follows the application in tcUrl names the stream (rtmp-go writes it so)."""
        app, url = (connect.get("app"), connect.get("tcUrl")) if isinstance(connect, dict) else (None, None)
        if isinstance(app, str) and isinstance(url, str) and app:
            following = url.partition("?")[0].partition(f"/{app}/")[2]
            known.update(self.token(part) for part in following.split("/") if part and part != _DEFAULT_INSTANCE)

    def _learned(self, secret: str, known: set[str]) -> str:
        token = self.token(secret)
        known.add(token)
        return token

    def secrets_in(self, name: str | None, args: list[Any]) -> frozenset[str]:
        """The hashes of the secrets in a command; commands of the same bytes share them."""
        if self._key is None:
            return _NO_SECRETS
        notes = args.notes if type(args) is Arguments else {}
        noted = notes.get(Redactor)
        if noted is None or noted[0] is not self:
            noted = notes[Redactor] = self, frozenset(self._secrets_in((name or "").lower(), args))
        found: frozenset[str] = noted[1]
        return found

    def _secrets_in(self, name: str, args: list[Any]) -> set[str]:
        found: set[str] = set()
        if name in _NAMED_BY_FIRST_STRING:
            stream = _stream_in(args)
            if stream is not None:
                found.add(self.token(stream))
                found.add(self.token(stream.rpartition(":")[2]))  # mp4:NAME
        elif name == "connect":
            self.arguments(name, args, found)
        return found

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
        """Any value of the tagged JSON with secrets hashed; `field` is the name of its property."""
        if isinstance(value, str):
            lowered = field.lower()
            if lowered in _SECRET_FIELDS or _SECRET_ENDING.search(lowered):
                known.add(self.token(value))
                return self.token(value)
            if lowered in _URL_FIELDS:
                return self.text(self.url(value, known), known)
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
            return {
                self.text(k, known): self.value(v, known, k if not k.startswith("$") else field)
                for k, v in value.items()
            }
        return value

    def matches(self, wanted: str, name: str | None) -> bool:
        """Whether `wanted` is this stream name, with or without its query, or the hash of it."""
        if name is None:
            return False
        base = name.partition("?")[0]
        return wanted in (name, base, self._asked.stream_name(name), self._asked.token(base))


def _candidates(word: str) -> list[str]:
    """A word and its parts, each of which may be a stream name."""
    bare = word.rstrip(".:!?")
    plain = bare.partition("?")[0]
    return [word, bare, *word.split("/"), *bare.split("/"), *plain.split("/")]


def _words(text: str) -> Iterator[str]:
    """Every part of a text that is compared with known secrets."""
    for found in _WORD.finditer(text):
        if not found["unit"]:
            yield from filter(None, _candidates(found[0]))
            yield from _SUBWORD.findall(found[0])


def _kept(cache: dict[Key, Value], key: Key, value: Value) -> Value:
    """The value, added to a cache of a limited size."""
    if len(cache) >= REDACT_CACHE_TEXTS:
        cache.clear()
    cache[key] = value
    return value


def _text_of(value: Any) -> str | None:
    """A string value, including one that is not UTF-8: a secret may be in Latin-1."""
    if isinstance(value, dict) and len(value) == 1 and isinstance(value.get("$badstring"), str):
        return bytes.fromhex(value["$badstring"]).decode("utf-8", "surrogateescape")
    return value if isinstance(value, str) else None


def _stream_in(args: list[Any]) -> str | None:
    """The stream that a command is about: the first string among its arguments, without a query."""
    text = next((text for text in map(_text_of, args) if text is not None), None)
    return None if text is None else text.partition("?")[0]


def _tagged(text: str) -> Any:
    """The tagged JSON of a string: the reverse of `_text_of`."""
    if text.isascii():
        return text
    data = text.encode("utf-8", "surrogateescape")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"$badstring": data.hex()}


def carries_credentials(name: str | None) -> bool:
    """Whether the payload of this command may contain a secret, so that redacted tables must not keep it. A command
    without a readable name may."""
    lowered = (name or "").lower()
    return not lowered or lowered == "connect" or lowered in _NAMED_BY_FIRST_STRING or lowered in _ANSWERS_WITH_NAMES
