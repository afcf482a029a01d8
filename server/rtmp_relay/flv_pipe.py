"""Writes a stream as FLV to a pipe, each tag as soon as it arrives."""

from __future__ import annotations

from typing import BinaryIO

from rtmp_spark.codec import flv

from .frames import Frame


class FlvPipe:
    """The header promises audio and video, because a pipe cannot be corrected later; readers accept a missing track."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._write(flv.header())

    def write(self, frame: Frame) -> None:
        if not frame.clears_metadata:
            self._write(flv.dump_tag(frame.type_id, frame.timestamp, frame.payload))

    def _write(self, data: bytes) -> None:
        self._out.write(data)
        self._out.flush()
