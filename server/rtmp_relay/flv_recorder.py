"""Records a stream as an FLV file that is readable at any time, even after a crash or on a full disk.

A tag that could not be written completely is removed again. The audio and video flags in the header are set with the
first tag of each kind. A failed write ends the recording but never the stream.
"""

from __future__ import annotations

import logging
from io import FileIO
from pathlib import Path

from rtmp_spark.codec import flv
from rtmp_spark.codec.message import AUDIO, VIDEO

from .frames import Frame

log = logging.getLogger(__name__)

_FLAGS = {AUDIO: 4, VIDEO: 1}
_FLAGS_OFFSET = 4


class Recorder:
    """One FLV file; `written` and `tags` count its content. Replaces an existing file only if `replace` is set."""

    def __init__(self, path: Path, replace: bool = False, path_for_log: Path | None = None) -> None:
        self.path = path
        self._path_for_log = path_for_log or path
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
        while count < len(data):  # a short write; the next write raises the reason
            count += self._file.write(data[count:])
        self.written += len(data)

    def _give_up(self, error: OSError) -> None:
        self.failed = error.strerror or str(error)
        log.error("%s: recording stopped, the stream continues: %s", self._path_for_log, self.failed)
        self.close()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        try:
            file.truncate(self.written)  # removes a tag that was written in part
        except OSError:
            pass
        file.close()
        counts = f"{self.tags[VIDEO]} video and {self.tags[AUDIO]} audio tags"
        log.info("recorded %s: %d bytes, %s", self._path_for_log, self.written, counts)
