"""`rtmp-spark slice`: the packets of one connection (all of an RTMPT session), with the findings as packet comments.

The captures are read twice: once to find the connection and its findings, once to copy its packets.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rtmp_spark import __version__
from rtmp_spark.capture.block import PacketBlock
from rtmp_spark.capture.conversation import Conversation
from rtmp_spark.capture.facts import FRAME_BITS
from rtmp_spark.capture.files import open_capture
from rtmp_spark.capture.keylog import SECRETS_TYPE_TLS
from rtmp_spark.capture.packet import Dissector, Segments
from rtmp_spark.capture.pcapng_writer import PcapngWriter
from rtmp_spark.capture.recording import Recording
from rtmp_spark.codec.errors import CaptureError, UserError
from rtmp_spark.commands.output_file import output_path, whole_file
from rtmp_spark.commands.recording_options import (
    add_filter_arguments,
    add_path_argument,
    check_paths,
    exit_code,
    make_settings,
    tell_problems,
)
from rtmp_spark.report.text import endpoint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_path_argument(parser, twice=True)
    parser.add_argument("-o", "--output", required=True, metavar="FILE.pcapng", help="where to write the packets")
    parser.add_argument(
        "--with-secrets", action="store_true", help="put the TLS secrets of the connection into the file, for Wireshark"
    )
    add_filter_arguments(parser)


def run(args: argparse.Namespace) -> int:
    paths = check_paths(args.paths)
    if "-" in paths:
        raise UserError("A slice reads its captures twice, and standard input comes once.", "Save it to a file first.")
    target = output_path(args.output, paths)
    found: list[Conversation] = []
    settings = make_settings(args)
    settings.closed = found.append
    recording = Recording(paths, settings, ("findings", "captures"))
    findings = [row for table, batch in recording.batches() if table == "findings" for row in batch.to_pylist()]
    tell_problems(recording.files)
    code = exit_code(recording, args)
    if not found:
        return code
    if len(found) > 1:
        lines = "\n".join(f"  --uid {c.uid}  {_ends(c)}" for c in found)
        raise UserError(f"{len(found)} connections match:\n{lines}\n", "Choose one with --uid.")
    numbers = {file.capture_id: number for number, file in enumerate(recording.files)}
    comments: dict[int, list[str]] = {}
    general: list[str] = []
    for row in findings:
        text = f"{row['severity']} {row['rule_id']}: {row['detail']}"
        if row["frame"] and row["capture_id"] in numbers and row["uid"] is not None:
            comments.setdefault(numbers[row["capture_id"]] << FRAME_BITS | row["frame"], []).append(text)
        else:
            general.append(text)
    carriers = _carriers(found[0])
    secrets = b""
    if args.with_secrets:
        randoms = {one: None for carrier in carriers for one in carrier.client_randoms}
        secrets = b"".join(settings.keylog.lines_for(one) for one in randoms)
        if not secrets:
            raise UserError("There are no TLS secrets of this connection to put into the slice.", "Give --keylog FILE.")
    with whole_file(target) as file:
        writer = PcapngWriter(file, f"rtmp-spark {__version__}", [f"connection {found[0].uid}", *general])
        if secrets:
            writer.write_secrets(SECRETS_TYPE_TLS, secrets)
        count = _copy(recording, carriers, writer, comments)
    over = f" over {len(carriers)} TCP connections" if len(carriers) > 1 else ""
    print(f"{args.output}: {count} packets of {found[0].uid}{over}")
    return code


def _ends(conversation: Conversation) -> str:
    a, b = conversation.connection.a, conversation.connection.b
    return f"{endpoint(*a)} - {endpoint(*b)}"


def _carriers(conversation: Conversation) -> list[Any]:
    """The TCP connections that it came over: its own, or all that an RTMPT session used."""
    own = conversation.connection
    several = conversation.wrapping.carriers if conversation.wrapping is not None else []
    return [own if carrier.key == own.key else carrier for carrier in several] or [own]


def _copy(
    recording: Recording, carriers: Sequence[Any], writer: PcapngWriter, comments: Mapping[int, list[str]]
) -> int:
    dissector = Dissector()
    count = 0
    for number, source in enumerate(recording.files):
        here = [c for c in carriers if number in c.files]
        if not here:
            continue
        try:
            capture = open_capture(source.path)
        except (CaptureError, OSError):
            print(f"rtmp-spark: {source.path} changed while it was read.", file=sys.stderr)
            continue
        with capture:
            for block in capture:
                for index in _wanted(block, dissector.segments(block), here):
                    at = number << FRAME_BITS | int(block.frame[index])
                    writer.write(
                        int(block.ts_ns[index]), block.packet(index), int(block.origlen[index]),
                        int(block.link_type[index]), comments.get(at),
                    )  # fmt: skip
                    count += 1
    return count


def _wanted(block: PacketBlock, segments: Segments, carriers: Sequence[Any]) -> list[int]:
    """Which packets of the block belong to one of these connections: by their times, as files may hold any order."""
    import numpy as np

    own = np.zeros(len(segments), bool)
    for connection in carriers:
        ends = [_packed(*connection.a), _packed(*connection.b)]
        within = (segments.ts_ns >= connection.ts_first_ns) & (segments.ts_ns <= connection.ts_last_ns)
        for (host, port), (peer, peer_port) in (ends, ends[::-1]):
            own |= (
                within
                & (segments.sport == port)
                & (segments.dport == peer_port)
                & (segments.src == host).all(axis=1)
                & (segments.dst == peer).all(axis=1)
            )
    return [int(index) for index in np.flatnonzero(np.isin(block.frame, segments.frame[own]))]


def _packed(host: str, port: int) -> tuple[object, int]:
    from ipaddress import ip_address

    import numpy as np

    address = ip_address(host)
    packed = address.packed if address.version == 6 else b"\0" * 10 + b"\xff\xff" + address.packed
    return np.frombuffer(packed, np.uint8), port
