"""Finds and opens capture files by path, directory, glob or URI.

Local paths go through the operating system, URIs through `pyarrow.fs` (s3, gs, abfs, hdfs; `s3a` means s3), on the
driver and on executors alike. An existing file `a[x].pcap` is that file, not a pattern. Every object has one address,
however it was named; the lake stores it, so addresses with passwords are refused.
"""

from __future__ import annotations

import glob
import io
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os import fspath
from pathlib import Path
from typing import BinaryIO, Protocol, TypeAlias, cast
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from pyarrow import fs

from rtmp_spark.capture.files.capture_names import captures_below, is_capture_name
from rtmp_spark.codec.errors import UserError, path_remedy

QUIET_SECONDS = 2.0  # between two listings of a directory that is followed
_IN_PATH = "/!$&'()*+,;=:@"  # in addition to letters and digits (RFC 3986 3.3)
_SECRETS = frozenset(("client_secret", "sig", "account_key", "access_key", "secret_key", "password"))  # in a query
_PATTERN, _PATTERN_QUOTED = re.compile(r"[*[]"), re.compile(r"\*|%5B")


@dataclass(frozen=True)
class CaptureFile:
    path: str
    size_bytes: int
    modified_ns: int


class NothingThere(UserError):
    """No file or directory has this name, and it matches none as a pattern."""


class CaptureChanged(OSError):
    """A capture was deleted, truncated or rewritten while it was read."""


# One path or several; a string is never taken for a list of its characters.
CapturePaths: TypeAlias = "str | Path | Iterable[str | Path | CaptureFile]"


class ListedFile(Protocol):
    """Path, size and modification time of a file when it was listed."""

    @property
    def path(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def modified_ns(self) -> int: ...


def is_uri(path: str) -> bool:
    return "://" in path and not path.startswith("file://")


def _address(uri: str) -> tuple[str, str]:
    """A URI in its canonical spelling, and its query. The URI may be quoted already."""
    scheme, _, rest = uri.partition("://")
    rest, mark, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    if ":" in authority.rpartition("@")[0] or _SECRETS.intersection(name.lower() for name, _ in parse_qsl(query)):
        raise UserError(
            f"The address of {authority.rpartition('@')[2]} contains a password, which the lake would store.",
            "Remove it; for S3 set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, for Azure AZURE_CLIENT_SECRET.",
        )
    plain = quote(unquote_to_bytes(path), safe=_IN_PATH)
    return f"{'s3' if scheme == 's3a' else scheme}://{authority}{slash}{plain}", mark + query


def _filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    try:
        return cast("tuple[fs.FileSystem, str]", fs.FileSystem.from_uri("".join(_address(uri))))
    except (ValueError, OSError, TypeError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0].removesuffix(".")  # others say where libraries were looked for
        raise UserError(f"{uri} cannot be reached: {reason}.", "Check the address and the credentials.") from error


def open_file(path: str) -> BinaryIO:
    """The bytes of a capture, seekable; OSError when it cannot be read."""
    if is_uri(path):
        filesystem, inner = _filesystem(path)
        return cast(BinaryIO, io.BufferedReader(filesystem.open_input_file(inner), 1 << 20))
    return open(_plain(path), "rb")


class FirstBytes:
    """A file that ends where it ended when it was listed, also if it has grown since: `capture_id` must be the hash of
    as many bytes as the lake records, or the longer file is not recognised later."""

    def __init__(self, file: BinaryIO, size_bytes: int) -> None:
        self._file = file
        self._size = size_bytes
        self.seek, self.tell, self.seekable, self.close = file.seek, file.tell, file.seekable, file.close

    def read(self, size: int = -1) -> bytes:
        left = max(self._size - self._file.tell(), 0)
        return self._file.read(left if size < 0 else min(size, left))


def require_unchanged(file: ListedFile) -> None:
    """Raises CaptureChanged unless the file still holds what it held when it was listed. A local
    one may have grown; in an object store another size is another object."""
    try:
        now = _state(file.path)
    except OSError as error:
        raise CaptureChanged(f"{file.path} cannot be read any more: {error.strerror or error}") from error
    if now.size_bytes < file.size_bytes:
        raise CaptureChanged(f"{file.path} was truncated from {file.size_bytes} to {now.size_bytes} bytes")
    if now.modified_ns != file.modified_ns and (now.size_bytes == file.size_bytes or is_uri(file.path)):
        raise CaptureChanged(f"{file.path} was rewritten")


def _state(path: str) -> CaptureFile:
    if is_uri(path):
        filesystem, inner = _filesystem(path)
        info = filesystem.get_file_info(inner)
        if info.type != fs.FileType.File:
            raise FileNotFoundError(2, "No such file", path)
        return CaptureFile(path, info.size, info.mtime_ns or 0)
    return _local(Path(_plain(path)))


def _plain(path: str) -> str:
    return path.removeprefix("file://") if path.startswith("file://") else path


def list_captures(paths: CapturePaths) -> list[CaptureFile]:
    """The files at these paths, each once, in the order given (directories sorted). Files that were listed before are
    not looked at again."""
    found: dict[str, CaptureFile] = {}
    for given in [paths] if isinstance(paths, (str, Path)) else paths:
        if isinstance(given, CaptureFile):
            found.setdefault(given.path, given)
            continue
        path = fspath(given)
        if not path:  # elsewhere an empty name means the working directory
            raise UserError("The name of a capture is empty.", "Check that the shell variable is set.")
        files = _list_uri(path) if is_uri(path) else _list_local(_plain(path))
        for file in files:
            found.setdefault(file.path, file)
    return list(found.values())


def closed_files(files: Sequence[CaptureFile], settle_seconds: float, now: float) -> list[CaptureFile]:
    """Files that are no longer written: unchanged for `settle_seconds`, or for less if a newer file exists.

    The shorter time is needed because two capture tools may write into one directory.
    """
    newest: dict[Path, int] = {}
    for file in files:
        parent = Path(file.path).parent
        newest[parent] = max(newest.get(parent, 0), file.modified_ns)
    settled, quiet = ((now - seconds) * 1e9 for seconds in (settle_seconds, min(settle_seconds, QUIET_SECONDS)))
    return [f for f in files if f.modified_ns <= (quiet if f.modified_ns < newest[Path(f.path).parent] else settled)]


def _list_local(path: str) -> list[CaptureFile]:
    given = Path(path)
    if given.is_dir():
        found = []
        for file in captures_below(given):
            with suppress(FileNotFoundError):  # the capture tool may delete files meanwhile
                found.append(_local(file))
        return found
    if given.exists():
        if not given.is_file():
            raise UserError(f"{path!r} is not a file.", "Copy a pipe or device to a file first.")
        return _readable([given])
    matches = [Path(p) for p in sorted(glob.glob(path, recursive=True))]  # noqa: PTH207 - patterns may be absolute
    if not any(match.exists() for match in matches):  # a broken link matches too
        raise NothingThere(f"{path!r} does not exist.", "Check the path.")
    return _readable([p for p in matches if p.is_file()])


def _readable(paths: list[Path]) -> list[CaptureFile]:
    try:
        return [_local(path) for path in paths]
    except OSError as error:
        raise UserError(f"{error.filename!r} cannot be read: {error.strerror}.", path_remedy(error)) from error


def _local(path: Path) -> CaptureFile:
    status = path.stat()
    return CaptureFile(str(path.absolute()), status.st_size, status.st_mtime_ns)


def _list_uri(uri: str) -> list[CaptureFile]:
    filesystem, inner = _filesystem(uri)
    address, query = _address(uri)
    try:
        info = filesystem.get_file_info(inner)
        if info.type == fs.FileType.File:
            return [CaptureFile(address + query, info.size, info.mtime_ns or 0)]
        if info.type == fs.FileType.Directory:
            infos = filesystem.get_file_info(fs.FileSelector(inner, recursive=True))
            infos = [i for i in infos if is_capture_name(i.base_name)]
        else:
            infos = _matching(filesystem, inner) if _PATTERN.search(inner) else []
            address, inner = _above(address, _PATTERN_QUOTED), _above(inner, _PATTERN)
            if not infos:
                raise NothingThere(f"{uri!r} does not exist.", "Check the address.")
    except OSError as error:
        raise UserError(f"{uri!r} cannot be read: {error}.", "Check the address and the credentials.") from error
    return [
        CaptureFile(f"{address.rstrip('/')}/{_inside(inner, i.path)}{query}", i.size, i.mtime_ns or 0)
        for i in sorted(infos, key=lambda i: str(i.path))
        if i.type == fs.FileType.File
    ]


def _inside(directory: str, path: str) -> str:
    return quote(path.removeprefix(directory).lstrip("/"), safe=_IN_PATH)


def _matching(filesystem: fs.FileSystem, pattern: str) -> list[fs.FileInfo]:
    """The files that match a pattern."""
    above = _above(pattern, _PATTERN)
    words = pattern.split("/")
    deep = len(words) > above.count("/") + 2
    infos = filesystem.get_file_info(fs.FileSelector(above, allow_not_found=True, recursive=deep))
    parts = [(i, i.path.split("/")) for i in infos]
    return [i for i, part in parts if len(part) == len(words) and all(map(fnmatchcase, part, words))]


def _above(path: str, pattern: re.Pattern[str]) -> str:
    """The directory above the first path component that contains a pattern."""
    return pattern.split(path, maxsplit=1)[0].rpartition("/")[0]
