"""The file that a command writes: never one that it reads, and whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rtmp_spark.codec.errors import UserError


def output_path(name: str, inputs: Iterable[str]) -> Path:
    """`name` as a place where a file may be written; one sentence about why it is none."""
    if name == "-":
        raise UserError("- is no name for a file to write.", "Name one; /dev/stdout is standard output.")
    target = Path(name)
    if not target.parent.is_dir():
        raise UserError(f"The directory {target.parent} does not exist.", "Make it first.")
    if target.is_dir():
        raise UserError(f"{target} is a directory.", "Name the file to write.")
    if any(path != "-" and target.exists() and target.samefile(path) for path in inputs):
        raise UserError(f"{target} is one of the captures to read.", "Choose another name for what is written.")
    return target


@contextmanager
def whole_file(target: Path) -> Iterator[BinaryIO]:
    """A file that appears under its name when all is written: half of it would look like the whole."""
    special = target.exists() and not target.is_file()  # a pipe or a device has no half to hide
    special = special or str(target).startswith(("/dev/", "/proc/"))  # nor has /dev/stdout, wherever it leads
    target = target if special else target.resolve()
    beside = target if special else target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            yield file
        if not special:
            if target.exists():
                shutil.copymode(target, beside)
            beside.replace(target)
    except OSError as error:
        if error.filename in (None, str(beside)):
            error.filename = str(target)  # the name that a person knows
        raise
    finally:
        if not special:
            beside.unlink(missing_ok=True)
