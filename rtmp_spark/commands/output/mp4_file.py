"""Converts an FLV file to MP4 with PyAV. The packets are copied, not encoded again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.exit_codes import ENVIRONMENT, FILE_FAILED
from rtmp_spark.install_command import install_command

if TYPE_CHECKING:
    import av

_REMEDY = "Write FLV instead: -o {}"


def require_mp4_support() -> None:
    """Raise a UserError if PyAV is not installed."""
    try:
        import av  # noqa: F401
    except ImportError:
        remedy = f"Install it: {install_command('av')}"
        raise UserError("Writing MP4 needs PyAV, which is not installed.", remedy, ENVIRONMENT) from None


def write_mp4(flv: BinaryIO, out: BinaryIO, target: Path) -> int:
    """Write the audio and video of an FLV file as MP4. Returns the number of changed timestamps.

    `target` is for error messages. MP4 needs increasing timestamps: one that does not increase becomes the previous
    one plus 1 ms, as in FFmpeg.
    """
    import av

    remedy = _REMEDY.format(target.with_suffix(".flv").name)
    try:
        with av.open(flv, "r", format="flv") as source, av.open(out, "w", format="mp4") as mp4:
            streams = [stream for stream in source.streams if stream.type in ("audio", "video")]
            outputs = {}
            for stream in streams:
                name = stream.codec_context.name
                if name not in mp4.supported_codecs:
                    raise UserError(f"MP4 cannot hold {name}.", remedy)
                outputs[stream.index] = mp4.add_stream_from_template(stream)
            return _copy(source, mp4, outputs)
    except av.FFmpegError as error:
        text = f"The stream cannot be written as MP4 ({error.strerror or error})."
        raise UserError(text, remedy, FILE_FAILED) from None


def _copy(
    source: av.container.InputContainer, mp4: av.container.OutputContainer, outputs: dict[int, av.stream.Stream]
) -> int:
    changed = 0
    last: dict[int, int] = {}
    for packet in source.demux([source.streams[index] for index in outputs]):
        if packet.dts is None:  # the end of a stream
            continue
        index = packet.stream.index
        earliest = last.get(index, packet.dts - 1) + 1
        if packet.dts < earliest:
            changed += 1
            packet.dts = earliest
            packet.pts = max(packet.pts or earliest, earliest)
        last[index] = packet.dts
        packet.stream = outputs[index]
        mp4.mux(packet)
    return changed
