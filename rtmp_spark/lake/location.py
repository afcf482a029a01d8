"""Where a lake is: one place, named so that Python and Spark mean the same one, or refused.

A lake path is a local path, a `file:` URI, or a URI of a store that both sides can write: s3 (and s3a), gs, abfs(s),
hdfs. Hadoop resolves a path without a scheme against `fs.defaultFS`; so does `locate`, if it is given that setting.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from rtmp_spark.codec.errors import UserError

from .storage_options import from_environment, from_hadoop

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfss", "hdfs": "hdfs"}
_ELSEWHERE = {  # schemes that only one of the two sides understands, and what to write instead
    "dbfs": "Use the path of a volume (/Volumes/...) or the URI of the store below it.",
    "wasb": "Use abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH.",
    "wasbs": "Use abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH.",
    "az": "Use abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH.",
    "adl": "Use abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH.",
}
_SAME_ON_HDFS = "/:=@"  # in addition to letters, digits and "_.-~"
_KNOWN = "Use a local path, or a URI with file, s3, s3a, gs, abfs, abfss or hdfs."


@dataclass(frozen=True)
class Location:
    """The place of a lake. It can be pickled and sent to an executor; `options` may hold credentials."""

    uri: str  # as delta-rs takes it: an absolute path for a local lake
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.uri

    @property
    def is_local(self) -> bool:
        return self.uri.startswith("/")

    @property
    def for_spark(self) -> str:
        """The same place as Hadoop names it, whatever its default file system is."""
        if self.is_local:
            return f"file://{self.uri}"
        return f"s3a{self.uri[2:]}" if self.uri.startswith("s3:") else self.uri

    def table(self, name: str) -> str:
        """The URI of a table."""
        return f"{self.uri.rstrip('/')}/{name}"

    def inside(self, directory: str) -> Location:
        """A directory of this place, as a place of its own."""
        return Location(self.table(directory), self.options)

    @property
    def storage_options(self) -> dict[str, str] | None:
        return dict(self.options) or None

    @cached_property
    def _root(self) -> fs.FileSystem:
        return self.files_of("")

    def files_of(self, directory: str, sizes: Mapping[str, int] | None = None) -> fs.FileSystem:
        """The file system whose root is a directory of the lake. `sizes` of files save a request for each."""
        if self.is_local:
            return fs.SubTreeFileSystem(self.table(directory), fs.LocalFileSystem())
        handler = DeltaStorageHandler(self.table(directory), self.storage_options, dict(sizes or {}) or None)
        return fs.PyFileSystem(handler)

    def read(self, path: str) -> bytes | None:
        """The bytes of a small file, None if it does not exist."""
        if self._root.get_file_info(path).type != fs.FileType.File:
            return None
        with self._root.open_input_file(path) as file:
            return bytes(file.read())

    def write(self, path: str, content: bytes) -> None:
        """Create or replace a small file."""
        if self.is_local:
            Path(self.table(path)).parent.mkdir(parents=True, exist_ok=True)
        with self._root.open_output_stream(path) as raw, pa.BufferedOutputStream(raw, 1 << 16) as file:
            file.write(content)

    def delete(self, path: str) -> None:
        self._root.delete_file(path)

    def delete_directory(self, directory: str) -> None:
        """Delete a directory with all that is in it, if it exists."""
        if self._root.get_file_info(directory).type == fs.FileType.Directory:
            self._root.delete_dir(directory)

    def list(self, directory: str) -> list[fs.FileInfo]:
        """Files and directories directly in a directory of the lake; none if it does not exist."""
        return list(self._root.get_file_info(fs.FileSelector(directory, allow_not_found=True)))

    def __getstate__(self) -> dict[str, object]:
        return {"uri": self.uri, "options": dict(self.options)}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)


def locate(
    path: str | os.PathLike[str],
    options: Mapping[str, str] | None = None,
    *,
    hadoop: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Location:
    """The place that a path or URI names.

    `options` are delta-rs storage options. `hadoop` are the settings of a Spark session (`fs.defaultFS`,
    `fs.s3a.access.key`, ...): they resolve paths without a scheme and give credentials that `options` does not.
    """
    text = os.fspath(path)
    hadoop = hadoop or {}
    default = hadoop.get("fs.defaultFS", "file:///")
    uri = _resolved(text, default)
    if unquote(uri) != uri:  # Hadoop takes a percent sign as it is, delta-rs decodes it: two directories
        raise UserError(
            f"{text} contains a percent escape, which Spark and Python read differently.",
            "Write the plain path; if the directory is really called that, rename it.",
        )
    if uri.startswith("hdfs:") and quote(uri, safe=_SAME_ON_HDFS) != uri:  # delta-rs stores the escapes
        raise UserError(
            f"{text} contains a character that Python and Spark spell differently on HDFS.",
            "Use letters, digits, '-', '_', '.' and '=' in the path of the lake.",
        )
    if uri.startswith("/"):
        return Location(uri, dict(options or {}))
    found = {**from_environment(uri, os.environ if environment is None else environment), **from_hadoop(uri, hadoop)}
    return Location(uri, {**found, **(options or {})})


def _resolved(text: str, default: str) -> str:
    if not text.strip() or "\0" in text:
        raise UserError("The path of the lake is empty.", "Name a directory or a URI with --lake.")
    parts = _SCHEME.fullmatch(text)
    if parts is None:
        return _bare(text, default)
    scheme, rest = parts[1].lower(), parts[2]
    if scheme == "file":
        return _file(text, rest)
    if scheme in _ELSEWHERE:
        raise UserError(f"A lake cannot be at {text}: Python and Spark read {scheme}: differently.", _ELSEWHERE[scheme])
    if scheme not in _STORES:
        raise UserError(f"A lake cannot be at {text}: unknown scheme {scheme!r}.", _KNOWN)
    host, _, inside = rest.removeprefix("//").partition("/") if rest.startswith("//") else ("", "", rest.lstrip("/"))
    if not host:
        host = _default_host(text, scheme, default)
    if scheme in ("s3", "s3a", "s3n") and "@" in host:
        raise UserError(f"The URI of the lake holds credentials ({scheme}://...@{host.rpartition('@')[2]}).",
                        "Give them in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.")  # fmt: skip
    if scheme.startswith("abfs") and not re.fullmatch(r"[^@]+@[^@]+", host):
        raise UserError(f"{text} lacks the container or the account.", _ELSEWHERE["az"])
    return f"{_STORES[scheme]}://{host}/{inside}".rstrip("/")


def _bare(text: str, default: str) -> str:
    if default.lower().startswith("file:"):
        return str(Path(text).absolute())
    if not text.startswith("/"):
        raise UserError(
            f"The relative lake path {text!r} is ambiguous: the default file system of this Spark is {default}.",
            f"Write {default.rstrip('/')}/PATH, or file:///PATH for a local directory.",
        )
    return _resolved(default.rstrip("/") + text, default)


def _file(text: str, rest: str) -> str:
    host, path = "", rest
    if rest.startswith("//"):
        host, slash, inside = rest[2:].partition("/")
        path = slash + inside
    if host not in ("", "localhost") or not path.startswith("/"):
        raise UserError(f"{text} does not name a directory of this machine.", "Write file:///PATH.")
    return str(Path(path))


def _default_host(text: str, scheme: str, default: str) -> str:
    parts = re.match(r"([a-z0-9]+)://([^/]+)", default.lower())
    if parts is None or _STORES.get(parts[1]) != _STORES[scheme]:
        raise UserError(
            f"{text} names no {'namenode' if scheme == 'hdfs' else 'bucket'}.", f"Write {scheme}://HOST/PATH."
        )
    return default.partition("://")[2].partition("/")[0]
