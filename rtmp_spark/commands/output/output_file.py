"""The output file of a command: never one of its inputs, and complete or not there at all."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rtmp_spark.codec.errors import UserError


def output_path(name: str, inputs: Iterable[str]) -> Path:
    """`name` as the path of a file that may be written; a UserError says why it may not."""
    if name == "-":
        raise UserError("- is not a valid output file.", "Name a file; /dev/stdout is standard output.")
    target = Path(name)
    if not target.parent.is_dir():
        raise UserError(f"The directory {target.parent} does not exist.", "Create it first.")
    if target.is_dir():
        raise UserError(f"{target} is a directory.", "Name the file to write.")
    if any(path != "-" and target.exists() and target.samefile(path) for path in inputs):
        raise UserError(f"{target} is one of the input captures.", "Choose another output file.")
    return target


def standard_output() -> BinaryIO:
    """Standard output for binary data; a UserError if it is a terminal."""
    if sys.stdout.isatty():
        remedy = "Name a file, or write to a pipe: ... -o - | ffprobe -"
        raise UserError("FLV cannot be shown on a terminal.", remedy)
    return sys.stdout.buffer


@contextmanager
def whole_file(target: Path) -> Iterator[BinaryIO]:
    """A file that gets its name only when it is complete, so that a partial file is never mistaken for the result."""
    special = target.exists() and not target.is_file()  # pipes and devices are written directly
    special = special or str(target).startswith(("/dev/", "/proc/"))  # so is /dev/stdout if it leads to a file
    target = target if special else target.resolve()
    partial = target if special else target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            yield file
        if not special:
            if target.exists():
                shutil.copymode(target, partial)
            partial.replace(target)
    except OSError as error:
        if error.filename in (None, str(partial)):
            error.filename = str(target)  # the name that the user gave
        raise
    finally:
        if not special:
            partial.unlink(missing_ok=True)
