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
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from rtmp_spark.codec.limits import (
    REDACT_CACHE_CHARACTERS,
    REDACT_CACHE_HASHES,
    REDACT_CACHE_LENGTHS,
    REDACT_CACHE_TEXTS,
)
from rtmp_spark.codec.shared_arguments import Arguments
from rtmp_spark.known_secrets import PREFIX, TOKEN, TOKEN_BYTES, AddedSecrets, KnownSecrets, Secret, Words, secret_of

Key = TypeVar("Key")
Value = TypeVar("Value")

KEY_VARIABLE: Final = "RTMP_SPARK_REDACT_KEY"

_NAMED_BY_FIRST_STRING: Final = frozenset(
    "publish play play2 releaseStream FCPublish FCUnpublish FCSubscribe FCUnsubscribe deleteStream closeStream "
    "getStreamLength startTransmit stopTransmit".lower().split()
)
_SECRET_FIELDS: Final = frozenset(
    "pass pw authorization user username login response challenge salt opaque nonce cnonce sign sig jwt hmac otp pin "
    "cookie sid session sessionid accesscode".split()
)
# Names of fields that end like this are secrets, too: apikey, accessToken, user_password.
_SECRET_ENDING: Final = (
    r"(?:keys?|secrets?|tokens?|passw(?:or)?d|passphrase|pwd|credentials?|signature|auth|authorization)"
)
_SECRET_NAME: Final = re.compile(rf"(?:.*{_SECRET_ENDING}|{'|'.join(sorted(_SECRET_FIELDS))})", re.DOTALL)
_URL_FIELDS: Final = frozenset("app tcurl swfurl pageurl".split())
_KEY_LIKE: Final = re.compile(r"(?=[^/]*[0-9])(?=[^/]*[A-Za-z])[A-Za-z0-9_~-]{16,}")  # a generated part of a path
_PATH_PART: Final = re.compile(r"[^/?#]+")
_NAME_FIELDS: Final = frozenset({"details", "streamname", "stream", "oldstreamname"})
_ANSWERS_WITH_NAMES: Final = frozenset(
    "onStatus _error onFCPublish onFCUnpublish onFCSubscribe onFCUnsubscribe onPlayStatus".lower().split()
)
_HARMLESS_PARAMETERS: Final = frozenset({"authmod", "reason", "code", "vhost", "type", "mode"})
_PARAMETER: Final = re.compile(
    r"(?P<mark>[?&#;]|%(?:3[FB]|2[36]))(?P<name>[^=&?#;%\s]+)(?P<equals>=|%3D)(?P<value>[^&\s\]\"']*)", re.IGNORECASE
)
_QUERY_PART: Final = re.compile(r"(?P<name>[^=&%]*)(?:(?P<equals>=|%3D)(?P<value>.*))?", re.IGNORECASE | re.DOTALL)
# token=VALUE, "token": VALUE, Authorization: Bearer VALUE
_ASSIGNED: Final = re.compile(
    rf"(?<![\w-])(?P<name>[\w-]*{_SECRET_ENDING}(?:[\"']?\s*=\s*[\"']?|[\"']\s*:\s*[\"']?|:\s+)(?:Bearer |Basic )?)"
    r"(?P<value>[^\s&\"',;{}]+)",
    re.IGNORECASE,
)
_USER_INFO: Final = re.compile(r"(?<=://)(?:[^/\s@:]*:(?!\d{1,5}(?:/|$))[^\s?#]{0,256}|[^/\s]{1,256})(?=@)")
_MARK: Final = re.compile(r"[?#;]|%3F", re.IGNORECASE)
_DEFAULT_INSTANCE: Final = "_definst_"  # of Adobe's and Wowza's servers
_LONG_NUMBER: Final = 1000
_LONG_VALUE: Final = 8  # a parameter of at least this many characters is also hidden in other texts


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
    """A text without parameters, and by length the hashes of its parts that could be a secret."""

    plain: str
    parts: dict[int, frozenset[str]]


class _Texts(NamedTuple):
    """Texts without parameters, and the hashes of all their parts that could be a secret of some lengths."""

    plain: tuple[str, ...]
    parts: frozenset[str]


class Redactor:
    """Replaces secrets with hashes under `key`; without a key it changes nothing.

    `asked_under` is the key of the hashes that a user may search for if `key` is None.
    """

    def __init__(self, key: bytes | None, asked_under: bytes | None = None) -> None:
        self._key = key
        self._asked = self if asked_under is None else Redactor(asked_under)
        self._hashes: dict[str, str] = {}  # a cache: the same few texts occur again and again
        self._secrets: dict[str, Secret] = {}  # a cache
        self._urls: dict[str, tuple[str, list[Secret]]] = {}  # a cache: URLs without their secrets, and these
        self._texts: dict[str, _Text] = {}  # a cache
        self._groups: dict[tuple[tuple[str, ...], tuple[int, ...]], _Texts] = {}  # a cache: with lengths of secrets
        self._part_hashes = 0  # in both, at most

    @property
    def keeps_secrets(self) -> bool:
        return self._key is None

    def token(self, secret: str) -> str:
        """The hash that replaces a secret; a hash is not hashed again."""
        if self._key is None or not secret or (secret.startswith(PREFIX) and TOKEN.fullmatch(secret)):
            return secret
        return PREFIX + self.sealed(secret)

    def secret(self, text: str) -> Secret:
        """A secret as `KnownSecrets` keeps it."""
        found = self._secrets.get(text)
        if found is None:
            found = secret_of(text, self.token)
            if len(text) <= REDACT_CACHE_CHARACTERS:
                _kept(self._secrets, text, found)
        return found

    def sealed(self, text: str) -> str:
        """The keyed hash of a text that is only compared, never shown; without a key, the text itself."""
        if self._key is None:
            return text
        hashed = self._hashes.get(text)
        if hashed is None:
            hashed = base64.b32encode(self.digest(text)).decode().lower()
            if len(text) <= REDACT_CACHE_CHARACTERS:
                _kept(self._hashes, text, hashed)
        return hashed

    def digest(self, text: str) -> bytes:
        """The bytes that `sealed` writes as characters; empty without a key."""
        if self._key is None:
            return b""
        return hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256")[:TOKEN_BYTES]

    def stream_name(self, name: str, known: KnownSecrets | None = None) -> str:
        """A stream name with the name and each value of its query hashed; long values are added to `known`."""
        base, mark, query = name.partition("?")
        if not mark:
            return self.token(base)
        secrets: list[Secret] = []
        shown = self.token(base) + mark + self._query(query, secrets, bare=True)
        if known is not None:
            for secret in secrets:
                known.add(secret)
        return shown

    def _query(self, query: str, secrets: list[Secret], *, bare: bool) -> str:
        """A query with its values hashed, and with `bare` also the parts without a name. Long values are added to
        `secrets`."""

        def hashed(secret: str) -> str:
            if len(secret) >= _LONG_VALUE:
                secrets.append(self.secret(secret))
            return self.token(secret)

        def part(text: str) -> str:
            found = _QUERY_PART.fullmatch(text)
            if found is None or found["equals"] is None:
                return hashed(text) if bare else self.parameters(text)
            if found["name"].lower() in _HARMLESS_PARAMETERS:
                return text
            return found["name"] + found["equals"] + hashed(found["value"])

        return "&".join(map(part, query.split("&"))) if query and self._key is not None else query

    def parameters(self, text: str) -> str:
        """A text with the values of `?a=b&c=d`, values with the name of a secret, and the user part of URLs hashed."""
        if self._key is None or ("=" not in text and "@" not in text and ":" not in text and "%3" not in text):
            return text
        text = _PARAMETER.sub(self._parameter, text)
        text = _ASSIGNED.sub(lambda found: found["name"] + self.token(found["value"]), text)
        return _USER_INFO.sub(lambda found: self.token(found[0]), text)

    def _parameter(self, found: re.Match[str]) -> str:
        if found["name"].lower() in _HARMLESS_PARAMETERS:
            return found[0]
        return found["mark"] + found["name"] + found["equals"] + self.token(found["value"])

    def url(self, text: str, known: KnownSecrets) -> str:
        """The name of an application or a URL with its parameters, and the parts of its path that look like a key,
        hashed. These are added to `known`."""
        if self._key is None:
            return text
        cached = self._urls.get(text)
        if cached is None:
            secrets: list[Secret] = []
            cached = self._url(text, secrets), secrets
            if len(text) <= REDACT_CACHE_CHARACTERS:
                _kept(self._urls, text, cached)
        for secret in cached[1]:
            known.add(secret)
        return cached[0]

    def _url(self, text: str, secrets: list[Secret]) -> str:
        address, mark, query = _partition_url(text)
        scheme, slashes, path = address.rpartition("://")
        host, slash, path = path.partition("/") if slashes else ("", "", path)

        def part(found: re.Match[str]) -> str:
            if not _KEY_LIKE.fullmatch(found[0]):
                return found[0]
            secrets.append(self.secret(found[0]))
            return self.token(found[0])

        path = _PATH_PART.sub(part, path)
        address = self.parameters(f"{scheme}{slashes}{host}{slash}{path}")
        return address + mark + self._query(query, secrets, bare=mark == "?")

    def text(self, text: str, known: KnownSecrets) -> str:
        """Free text with parameters and known secrets hashed."""
        if self._key is None:
            return text
        plain, parts = found = self._texts.get(text) or self._searched(text)
        lengths = known.lengths
        if lengths and known.has_many_lengths:
            return known.hidden(plain, self.token, self.digest)
        for length in lengths:
            if length > len(plain):
                continue
            hashes = parts.get(length)
            if hashes is None:
                hashes = self._parts(found, length)
            if hashes is None or not hashes.isdisjoint(known.tokens):
                return known.hidden(plain, self.token, self.digest)
        return plain

    def texts(self, texts: tuple[str, ...], known: KnownSecrets) -> tuple[str, ...]:
        """The same as `text` of each; the same few groups of texts occur again and again."""
        if self._key is None:
            return texts
        lengths = tuple(known.lengths)
        found = self._groups.get((texts, lengths)) or self._group(texts, lengths)
        if found is None or not found.parts.isdisjoint(known.tokens):
            return tuple([self.text(text, known) for text in texts])
        return found.plain

    def _group(self, texts: tuple[str, ...], lengths: tuple[int, ...]) -> _Texts | None:
        """The texts, searched once; None if they are too long to keep, or the secrets have too many lengths."""
        if sum(map(len, texts)) > REDACT_CACHE_CHARACTERS or len(lengths) > REDACT_CACHE_LENGTHS:
            return None
        plain = tuple([self.parameters(text) for text in texts])
        parts = [part for text in plain for length in lengths for part in Words(text).parts(length)]
        found = _Texts(plain, frozenset(map(self.token, parts)))
        self._count_parts(len(found.parts))
        return _kept(self._groups, (texts, lengths), found)

    def _searched(self, text: str) -> _Text:
        found = _Text(self.parameters(text), {})
        if len(text) <= REDACT_CACHE_CHARACTERS:
            _kept(self._texts, text, found)
        return found

    def _parts(self, text: _Text, length: int) -> frozenset[str] | None:
        """The hashes of the parts of this length; None if the text is long or has been searched for many lengths, so
        that searching once for all secrets is faster."""
        if len(text.plain) > REDACT_CACHE_CHARACTERS or len(text.parts) >= REDACT_CACHE_LENGTHS:
            return None
        hashes = text.parts[length] = frozenset(map(self.token, Words(text.plain).parts(length)))
        self._count_parts(len(hashes))
        return hashes

    def _count_parts(self, count: int) -> None:
        self._part_hashes += count
        if self._part_hashes > REDACT_CACHE_HASHES:
            self._texts.clear()
            self._groups.clear()
            self._part_hashes = 0

    def arguments(self, name: str | None, args: list[Any], known: KnownSecrets) -> list[Any]:
        """The arguments of a command with secrets hashed; the hash of a stream name in them is added to `known`."""
        if self._key is None:
            return args
        lowered = (name or "").lower()
        if lowered == "connect":
            self._learn_from_url(args[0] if args else None, known)
            # Arguments after the command object come from a script: often a user name and a password.
            texts = ((a, _text_of(a)) for a in args[1:])
            rest = [self.value(a, known) if text is None else self._remembered(text, known) for a, text in texts]
            return [self.value(a, known) for a in args[:1]] + rest
        if lowered in _NAMED_BY_FIRST_STRING:
            return self._named(args, known)
        return [self.value(a, known) for a in args]

    def _learn_from_url(self, connect: Any, known: KnownSecrets) -> None:
        """What follows the application in tcUrl names the stream (rtmp-go writes it so)."""
        app, url = (connect.get("app"), connect.get("tcUrl")) if isinstance(connect, dict) else (None, None)
        if isinstance(app, str) and isinstance(url, str) and app:
            following = url.partition("?")[0].partition(f"/{app}/")[2]
            for part in following.split("/"):
                if part and part != _DEFAULT_INSTANCE:
                    known.add(self.secret(part))

    def _remembered(self, secret: str, known: KnownSecrets) -> str:
        known.add(self.secret(secret))
        return self.token(secret)

    def secrets_in(self, name: str | None, args: list[Any]) -> list[Secret]:
        """The secrets in a command; commands of the same bytes share them."""
        if self._key is None or not may_have_secrets(name):
            return []
        notes = args.notes if type(args) is Arguments else {}
        noted = notes.get(Redactor)
        if noted is None or noted[0] is not self:
            noted = notes[Redactor] = self, self._secrets_in(name, args)
        found: list[Secret] = noted[1]
        return found

    def _secrets_in(self, name: str | None, args: list[Any]) -> list[Secret]:
        found = AddedSecrets()
        self.arguments(name, args, found)
        return found.added

    def _named(self, args: list[Any], known: KnownSecrets) -> list[Any]:
        redacted: list[Any] = []
        found = False
        for value in args:
            text = None if found else _text_of(value)
            if text is not None:
                found = True
                known.add(self.secret(text.partition("?")[0]))
                redacted.append(_tagged(self.stream_name(text, known)))
            else:
                redacted.append(self.value(value, known))
        return redacted

    def value(self, value: Any, known: KnownSecrets, field: str = "") -> Any:
        """Any value of the tagged JSON with secrets hashed; `field` is the name of its property."""
        if isinstance(value, str):
            lowered = field.lower()
            if _is_secret(field):
                return self._remembered(value, known)
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
            within = field if _is_secret(field) else ""
            for pairs in ("$pairs", "$dictionary"):
                if isinstance(value.get(pairs), list):
                    named = ((k, v, within or (k if isinstance(k, str) else "")) for k, v in value[pairs])
                    return {pairs: [[self.value(k, known), self.value(v, known, name)] for k, v, name in named]}
            raw = "$bytes" if "$bytes" in value else "bytes" if "$external" in value else ""
            if raw and isinstance(value[raw], str):
                return {**value, raw: self._bytes(bytes.fromhex(value[raw]), known, within).hex()}
            return {
                self.text(k, known): self.value(v, known, within or (field if k.startswith("$") else k))
                for k, v in value.items()
            }
        if isinstance(value, (int, float)) and abs(value) >= _LONG_NUMBER and _is_secret(field):
            return self._remembered(f"{value:.15g}", known)
        return value

    def _bytes(self, data: bytes, known: KnownSecrets, field: str) -> bytes:
        """Bytes inside a command, in which a text may be."""
        hidden = self.value(data.decode("utf-8", "surrogateescape"), known, field)
        return str(hidden).encode("utf-8", "surrogateescape")

    def matches(self, wanted: str, name: str | None) -> bool:
        """Whether `wanted` is this stream name, with or without its query, or the hash of it."""
        if name is None:
            return False
        base = name.partition("?")[0]
        return wanted in (name, base, self._asked.stream_name(name), self._asked.token(base))


def _kept(cache: dict[Key, Value], key: Key, value: Value) -> Value:
    """The value, added to a cache of a limited size."""
    if len(cache) >= REDACT_CACHE_TEXTS:
        cache.clear()
    cache[key] = value
    return value


@lru_cache(1024)
def may_have_secrets(command: str | None) -> bool:
    """Whether the arguments of a command may name a stream or contain other secrets that later texts may repeat."""
    lowered = (command or "").lower()
    return lowered == "connect" or lowered in _NAMED_BY_FIRST_STRING


@lru_cache(1024)
def _is_secret(field: str) -> bool:
    return _SECRET_NAME.fullmatch(field.lower().replace("-", "").replace("_", "")) is not None


def _partition_url(text: str) -> tuple[str, str, str]:
    """A URL before its parameters, what separates them, and the parameters."""
    found = _MARK.search(text)
    return (text, "", "") if found is None else (text[: found.start()], found[0], text[found.end() :])


def _text_of(value: Any) -> str | None:
    """A string value, including one that is not UTF-8: a secret may be in Latin-1."""
    if isinstance(value, dict) and len(value) == 1 and isinstance(value.get("$badstring"), str):
        return bytes.fromhex(value["$badstring"]).decode("utf-8", "surrogateescape")
    return value if isinstance(value, str) else None


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
