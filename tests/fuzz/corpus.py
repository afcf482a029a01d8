"""The saved inputs of a target: `corpus/TARGET.zip` holds one input for every piece of code that fuzzing reached, and
the files in `corpus/TARGET/` are inputs that once failed."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

_DIRECTORY = Path(__file__).parent / "corpus"
_TIME = (1980, 1, 1, 0, 0, 0)  # of every member, so that equal inputs give an equal archive


def saved(target: str) -> Iterator[bytes]:
    archive = _DIRECTORY / f"{target}.zip"
    if archive.exists():
        with zipfile.ZipFile(archive) as members:
            for name in members.namelist():
                yield members.read(name)
    for path in sorted((_DIRECTORY / target).glob("*")):
        yield path.read_bytes()


def save(target: str, inputs: Iterable[bytes]) -> Path:
    """Replace the archive of a target; its size in bytes matters more than the time to write it."""
    archive = _DIRECTORY / f"{target}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_LZMA) as members:
        for data in sorted(set(inputs), key=lambda data: (len(data), data)):
            name = zipfile.ZipInfo(hashlib.sha1(data).hexdigest()[:12], _TIME)
            members.writestr(name, data, zipfile.ZIP_LZMA)
    return archive
