"""`rtmp-spark extract`: write published or played streams as playable FLV or MP4 files, without Spark."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from rtmp_spark.analysis.flv_extraction import ExtractedStream, FlvExtraction, FlvTrack
from rtmp_spark.analysis.recording import Recording
from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.exit_codes import NO_RTMP
from rtmp_spark.commands.options.capture_options import add_filter_arguments, add_jobs_argument, make_settings
from rtmp_spark.commands.options.captures_of_lake import (
    add_path_or_lake_arguments,
    chosen_captures,
    refuse_changed_captures,
)
from rtmp_spark.commands.output.capture_outcome import exit_code, print_file_problems
from rtmp_spark.commands.output.error_message import listed
from rtmp_spark.commands.output.mp4_file import require_mp4_support, write_mp4
from rtmp_spark.commands.output.output_file import output_path, standard_output, whole_file
from rtmp_spark.commands.output.terminal_escape import escape_for_terminal

_MP4 = ".mp4"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_path_or_lake_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE.flv",
        help="a file (.flv or .mp4) for one stream, - for standard output, or a directory (DIR/) for all streams",
    )
    add_filter_arguments(parser)
    add_jobs_argument(parser)


def run(args: argparse.Namespace) -> int:
    paths = chosen_captures(args)
    settings = make_settings(args)
    into_directory = args.output.endswith("/") or Path(args.output).is_dir()
    target = Path(args.output) if into_directory or args.output == "-" else _output_file(args.output, paths)
    if into_directory:
        target.mkdir(parents=True, exist_ok=True)
    elif args.output == "-":
        standard_output()  # refuses a terminal before anything is read
    with TemporaryDirectory(prefix="rtmp-spark-") as scratch:
        extraction = FlvExtraction(Path(scratch), settings)
        recording = Recording(paths, settings, ("connections",), observer=extraction)
        for _ in recording.batches():
            pass
        print_file_problems(recording.files)
        if not recording.connections:
            refuse_changed_captures(args)
        code = exit_code(recording, args)
        found = sorted(extraction.streams, key=lambda pair: _order(pair[0]))
        if not found:
            if not code:
                why = "every media message is incomplete" if extraction.only_incomplete else "it carries no media"
                print(f"rtmp-spark: RTMP found, but {why}.", file=sys.stderr)
            return code or NO_RTMP
        if into_directory:
            for stream, track in found:
                _write(stream, track, target / stream.file_name)
        elif len(found) > 1:
            lines = listed((f"{_choice(s)}  ({s.role}, {s.tags} tags)" for s, _ in found), len(found))
            raise UserError(f"{len(found)} streams match:\n{lines}", "Choose one, or give a directory: -o DIR/")
        else:
            _write(*found[0], target)
        return code


def _order(stream: ExtractedStream) -> tuple[str, int, str, int]:
    return stream.uid, stream.stream_id, stream.role, stream.number


def _choice(stream: ExtractedStream) -> str:
    """The options that choose this stream. Its name may be any text, so it is quoted."""
    return f"--uid {stream.uid}" + (f" --stream {shlex.quote(stream.name)}" if stream.name else "")


def _output_file(name: str, inputs: list[str]) -> Path:
    """The path of the output file, whose suffix chooses the format. Without a suffix, as in /dev/stdout, it is FLV."""
    target = output_path(name, inputs)
    suffix = target.suffix.lower()
    if suffix not in ("", ".flv", _MP4):
        raise UserError(f"Unknown output format {target.suffix}.", "Use .flv or .mp4.")
    if suffix == _MP4:
        require_mp4_support()
    return target


def _write(stream: ExtractedStream, track: FlvTrack, target: Path) -> None:
    to_standard_output = str(target) == "-"
    notes = f", {stream.incomplete} incomplete messages left out" if stream.incomplete else ""
    if to_standard_output:
        track.write_to(standard_output())
    elif target.suffix.lower() == _MP4:
        with TemporaryFile() as flv, whole_file(target) as file:
            track.write_to(flv)
            flv.seek(0)
            changed = write_mp4(flv, file, target)
        notes += f", {changed} timestamps changed because they did not increase" if changed else ""
    else:
        with whole_file(target) as file:
            track.write_to(file)
    shown = "standard output" if to_standard_output else str(target)
    name = escape_for_terminal(stream.name or "(name not recorded)")
    summary = f"{shown}: {stream.role} {name}, {stream.tags} tags{notes}"
    print(summary, file=sys.stderr if to_standard_output else sys.stdout)
    if stream.shows_secret:
        print(
            f"rtmp-spark: {shown} keeps its metadata as sent, which contains a stream name or another secret.",
            file=sys.stderr,
        )
