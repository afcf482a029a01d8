"""Capture files by path, directory, glob or URI: what is there, and open files to read from.

Local paths go through the operating system; URIs through `pyarrow.fs` (s3, gs, abfs, hdfs; `s3a` is understood),
on the driver and on executors alike. A name is data: a file called `a[x].pcap` is that file, never a pattern.
"""

from __future__ import annotations

import glob
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import quote

from pyarrow import fs

from rtmp_spark.codec.errors import UserError

_SAFE = "%/:@[]"  # a given address may be quoted already; spaces and the like in it are meant
_CAPTURE_NAME = re.compile(r"\.(pcap|pcapng|cap|dmp|ntar)(\d*|[._-].*)?(\.(gz|zst))?$", re.IGNORECASE)


@dataclass(frozen=True)
class CaptureFile:
    path: str
    size_bytes: int
    modified_ns: int


def is_uri(path: str) -> bool:
    return "://" in path and not path.startswith("file://")


def _filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    address, mark, query = re.sub(r"^s3a:", "s3:", uri).partition("?")
    try:
        found = fs.FileSystem.from_uri(quote(address, safe=_SAFE) + mark + query)
        return cast("tuple[fs.FileSystem, str]", found)
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
        files = _list_uri(path) if is_uri(path) else _list_local(_plain(path))
        for file in files:
            found.setdefault(file.path, file)
    return list(found.values())


def _list_local(path: str) -> list[CaptureFile]:
    given = Path(path)
    if given.is_dir():
        inside = sorted(p for p in given.rglob("*") if p.is_file() and _CAPTURE_NAME.search(p.name))
        return [_local(p) for p in inside if not p.name.startswith((".", "_"))]
    if given.exists():
        return [_local(given)]
    matches = [Path(p) for p in sorted(glob.glob(path, recursive=True))]  # noqa: PTH207 - patterns may be absolute
    if not matches:
        raise UserError(f"There is no {path!r}.", "Check the path.")
    return [_local(p) for p in matches if p.is_file()]


def _local(path: Path) -> CaptureFile:
    try:
        status = path.stat()
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read: {error.strerror}.", "Check the path.") from error
    return CaptureFile(str(path.absolute()), status.st_size, status.st_mtime_ns)


def _list_uri(uri: str) -> list[CaptureFile]:
    filesystem, inner = _filesystem(uri)
    scheme = uri.split("://", 1)[0]
    try:
        info = filesystem.get_file_info(inner)
        if info.type == fs.FileType.NotFound:
            raise UserError(f"There is no {uri!r}.", "Check the address.")
        infos = [info]
        if info.type == fs.FileType.Directory:
            infos = filesystem.get_file_info(fs.FileSelector(inner, recursive=True))
            infos = sorted((i for i in infos if _CAPTURE_NAME.search(i.base_name)), key=lambda i: str(i.path))
    except OSError as error:
        raise UserError(f"{uri!r} cannot be read: {error}.", "Check the address and the credentials.") from error
    files = [i for i in infos if i.type == fs.FileType.File]
    if len(files) == 1 and info.type == fs.FileType.File:
        return [CaptureFile(uri, files[0].size, files[0].mtime_ns or 0)]
    query = uri.partition("?")[2]
    tail = f"?{query}" if query else ""
    return [CaptureFile(f"{scheme}://{quote(i.path)}{tail}", i.size, i.mtime_ns or 0) for i in files]
