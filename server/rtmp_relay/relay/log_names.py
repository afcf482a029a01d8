"""Stream names and texts of clients as the relay's log shows them: names are replaced by the same keyed hash as in
tables and reports."""

from __future__ import annotations

from functools import cache

from rtmp_spark.known_secrets import KnownSecrets
from rtmp_spark.redact import Redactor, load_key


@cache
def _redactor() -> Redactor:
    return Redactor(load_key())


def key_for_log(key: str) -> str:
    """Return `app/name` with the name hashed. The app is not a secret, unless it looks like a key."""
    app, slash, name = key.partition("/")
    return _redactor().url(app, KnownSecrets()) + slash + _redactor().stream_name(name)


def text_for_log(text: str, key: str) -> str:
    """Return a text of a client with the name of its stream `app/name` hashed."""
    known = KnownSecrets()
    known.add(_redactor().secret(key.partition("/")[2]))
    return _redactor().text(text, known)
