"""Capture files by path, directory, glob or URI: what is there, which nobody writes to, and open files to read from.

Local paths go through the operating system; URIs through `pyarrow.fs` (s3, gs, abfs, hdfs; `s3a` is understood),
on the driver and on executors alike. A name is data: a file called `a[x].pcap` is that file, never a pattern. However
an object was named, it has one address here, which the ledger keeps; so passwords in addresses are refused.
"""

from __future__ import annotations

import glob
import io
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import quote, unquote_to_bytes

from pyarrow import fs

from rtmp_spark.codec.errors import UserError

QUIET_SECONDS = 2.0  # between two looks at a directory that is followed
_IN_PATH = "/!$&'()*+,;=:@"  # besides letters and numbers (RFC 3986 3.3)
_PATTERN, _PATTERN_QUOTED = re.compile(r"[*[]"), re.compile(r"\*|%5B")
_CAPTURE_NAME = re.compile(r"\.(pcap|pcapng|cap|dmp|ntar)(\d*|[._-].*)?(\.(gz|zst))?$", re.IGNORECASE)


@dataclass(frozen=True)
class CaptureFile:
    path: str
    size_bytes: int
    modified_ns: int


class NothingThere(UserError):
    """No file or directory has this name, and as a pattern it fits none."""


def is_uri(path: str) -> bool:
    return "://" in path and not path.startswith("file://")


def _address(uri: str) -> tuple[str, str]:
    """A URI in its one spelling, and its query. It may be quoted already; spaces and the like in it are meant."""
    scheme, _, rest = uri.partition("://")
    rest, mark, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    if ":" in authority.rpartition("@")[0]:
        raise UserError(
            f"The address of {authority.rpartition('@')[2]} holds a password, which the lake would keep.",
            "Leave it out; for S3 set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    plain = quote(unquote_to_bytes(path), safe=_IN_PATH)
    return f"{'s3' if scheme == 's3a' else scheme}://{authority}{slash}{plain}", mark + query


def _filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    try:
        return cast("tuple[fs.FileSystem, str]", fs.FileSystem.from_uri("".join(_address(uri))))
    except (ValueError, OSError, TypeError, NotImplementedError) as error:
        raise UserError(f"{uri} cannot be reached: {error}.", "Check the address and the credentials.") from error


def open_file(path: str) -> BinaryIO:
    """The bytes of a capture, seekable; OSError when it cannot be read."""
    if is_uri(path):
        filesystem, inner = _filesystem(path)
        return cast(BinaryIO, io.BufferedReader(filesystem.open_input_file(inner), 1 << 20))
    return open(_plain(path), "rb")


def _plain(path: str) -> str:
    return path.removeprefix("file://") if path.startswith("file://") else path


def list_captures(paths: Iterable[str]) -> list[CaptureFile]:
    """The files that these paths mean, each once, in the order given (directories sorted)."""
    found: dict[str, CaptureFile] = {}
    for path in paths:
        if not path:  # not the working directory, which is what an empty name means elsewhere
            raise UserError("The name of a capture is empty.", "Is a variable of the shell not set?")
        files = _list_uri(path) if is_uri(path) else _list_local(_plain(path))
        for file in files:
            found.setdefault(file.path, file)
    return list(found.values())


def closed_files(files: Sequence[CaptureFile], settle_seconds: float, now: float) -> list[CaptureFile]:
    """Those that nobody writes to any more: long unchanged, or for a moment and with a newer sibling.

    For a moment: two recorders may write into one directory.
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
        inside = sorted(p for p in given.rglob("*") if p.is_file() and _CAPTURE_NAME.search(p.name))
        found = []
        for file in (p for p in inside if not p.name.startswith((".", "_"))):
            with suppress(FileNotFoundError):  # recorders delete, too
                found.append(_local(file))
        return found
    if given.exists():
        return _readable([given])
    matches = [Path(p) for p in sorted(glob.glob(path, recursive=True))]  # noqa: PTH207 - patterns may be absolute
    if not matches:
        raise NothingThere(f"There is no {path!r}.", "Check the path.")
    return _readable([p for p in matches if p.is_file()])


def _readable(paths: list[Path]) -> list[CaptureFile]:
    try:
        return [_local(path) for path in paths]
    except OSError as error:
        raise UserError(f"{error.filename!r} cannot be read: {error.strerror}.", "Check the path.") from error


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
            infos = [i for i in infos if _CAPTURE_NAME.search(i.base_name)]
        else:
            infos = _matching(filesystem, inner) if _PATTERN.search(inner) else []
            address, inner = _above(address, _PATTERN_QUOTED), _above(inner, _PATTERN)
            if not infos:
                raise NothingThere(f"There is no {uri!r}.", "Check the address.")
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
    """What a pattern means where nothing has it for its name."""
    above = _above(pattern, _PATTERN)
    words = pattern.split("/")
    deep = len(words) > above.count("/") + 2
    infos = filesystem.get_file_info(fs.FileSelector(above, allow_not_found=True, recursive=deep))
    parts = [(i, i.path.split("/")) for i in infos]
    return [i for i, part in parts if len(part) == len(words) and all(map(fnmatchcase, part, words))]


def _above(path: str, pattern: re.Pattern[str]) -> str:
    """The directory in which the first part with a pattern stands."""
    return pattern.split(path, maxsplit=1)[0].rpartition("/")[0]
