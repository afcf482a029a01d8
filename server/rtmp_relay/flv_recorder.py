"""A stream as an FLV file that is readable at every moment, whatever happens to the disk or the process.

Each tag is written whole or taken back; the flags in the header become true as soon as the first tag of a kind is
written. A write that fails ends the record and never the stream.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path

from rtmp_spark.codec import flv
from rtmp_spark.codec.message import AUDIO, VIDEO

from .frames import Frame
from .names import BadName, record_path

log = logging.getLogger(__name__)

_FLAGS = {AUDIO: 4, VIDEO: 1}
_FLAGS_OFFSET = 4


class Recorder:
    """One FLV file; `written` and `tags` count what it holds. An existing file is only replaced when asked to."""

    def __init__(self, path: Path, replace: bool = False) -> None:
        self.path = path
        self.written = 0
        self.tags = {AUDIO: 0, VIDEO: 0}
        self.failed: str | None = None
        self._flags = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: FileIO | None = FileIO(path, "wb" if replace else "xb")
        self._append(flv.header(False, False))

    def write(self, frame: Frame) -> None:
        if self._file is None or frame.clears_metadata:
            return
        try:
            flag = _FLAGS.get(frame.type_id, 0)
            self._append(flv.dump_tag(frame.type_id, frame.timestamp, frame.payload))
            if flag & ~self._flags:
                self._flags |= flag
                self._file.seek(_FLAGS_OFFSET)
                self._file.write(bytes((self._flags,)))
                self._file.seek(self.written)
            if flag:
                self.tags[frame.type_id] += 1
        except OSError as error:
            self._give_up(error)

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        count = self._file.write(data)
        while count < len(data):  # a short write; the next one says why
            count += self._file.write(data[count:])
        self.written += len(data)

    def _give_up(self, error: OSError) -> None:
        self.failed = error.strerror or str(error)
        log.error("%s: the record stops, the stream goes on: %s", self.path, self.failed)
        self.close()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        try:
            file.truncate(self.written)  # takes back a tag of which only a part fitted
        except OSError:
            pass
        file.close()
        counts = f"{self.tags[VIDEO]} video and {self.tags[AUDIO]} audio tags"
        log.info("%s: %d bytes, %s", self.path, self.written, counts)


def recorder_factory(root: Path) -> Callable[[str], Recorder | None]:
    """Records named `root/app/name-TIME-N.flv`; None (and a word in the log) when no file can be made."""
    counter = itertools.count()

    def open_recorder(key: str) -> Recorder | None:
        suffix = time.strftime("-%Y%m%dT%H%M%SZ", time.gmtime()) + f"-{next(counter)}.flv"
        try:
            return Recorder(record_path(root, key, suffix))
        except (OSError, BadName) as error:
            log.error("%s is not recorded: %s", key, error)
            return None

    return open_recorder
