"""The options of our data sources. Spark passes their names in lower case or as they were written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from types import TracebackType

from rtmp_spark.analysis.filter_values import parse_host, parse_port, parse_time
from rtmp_spark.capture.unwrap.tls import keylog
from rtmp_spark.codec.errors import UserError, path_remedy
from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.redact import load_key

_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_FROM_SPARK = ("path", "paths", "serialization.format")  # `load` and the catalog add them
_SPARK_PREFIXES = ("spark.", "__")


def refuse_unknown(given: Iterable[str], known: Iterable[str], source: str) -> None:
    """A mistyped option would otherwise be ignored, and the rows would be those of another question."""
    names = {name.lower(): name for name in known}
    for name in given:
        lower = name.lower()
        if lower in names or lower in _FROM_SPARK or lower.startswith(_SPARK_PREFIXES):
            continue
        near = get_close_matches(lower, names, 1)
        remedy = f"Did you mean {names[near[0]]}? " if near else ""
        raise UserError(
            f'format("{source}") has no option {name!r}.', f"{remedy}Its options are {', '.join(names.values())}."
        )


class InOneSentence:
    """Removes frames and causes from errors of the user: Spark would print them before the sentence."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, UserError):
            raise error.with_traceback(None) from None
        if isinstance(error, OSError):
            raise UserError(f"A capture cannot be read: {error}.", path_remedy(error)) from None


class SourceOptions:
    """The options of one `load`; names are not case-sensitive."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower()) or None

    def is_on(self, name: str) -> bool:
        given = self.text(name) or "false"
        if given.lower() not in _BOOLEANS:
            raise UserError(f"Invalid value {given!r} of the option {name}.", "Use true or false.")
        return _BOOLEANS[given.lower()]

    def number(self, name: str, default: int, remedy: str) -> int:
        given = self.text(name) or str(default)
        if not given.isdecimal():
            raise UserError(f"Invalid value {given!r} of the option {name}.", remedy)
        return int(given)

    def paths(self, source: str) -> list[str]:
        """`load([...])` passes a JSON list in `paths`, `load("...")` and SQL pass `path`."""
        several, one = self.text("paths"), self.text("path")
        given: list[str] = json.loads(several) if several else [one] if one else []
        if not given:
            raise UserError("No capture was given.", f'Give one: spark.read.format("{source}").load(path).')
        return given

    def decoding(self) -> IngestOptions:
        """How captures are decoded: the options of `ingest` that select and show rows."""
        host, port, since, until = map(self.text, ("host", "port", "since", "until"))
        keys = self.text("keylog")
        secrets = keylog.load([keys]) if keys else None
        if secrets:
            keylog.require_cryptography()
        return without_lake(
            IngestOptions(
                sensor=self.text("sensor") or "",
                keep_payloads=self.text("table") == "payloads",
                keep_secrets=self.is_on("keepSecrets"),
                host=None if host is None else parse_host(host),
                port=None if port is None else parse_port(port),
                since=None if since is None else parse_time(since),
                until=None if until is None else parse_time(until),
                keylog=secrets.dump() if secrets else b"",
            )
        )


def without_lake(options: IngestOptions) -> IngestOptions:
    """The options with this user's key for hashing secrets, as `inspect` uses it; a lake has a key of its own."""
    return replace(options, redact_key=None if options.keep_secrets else load_key().hex())
