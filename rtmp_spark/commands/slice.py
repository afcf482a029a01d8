"""`rtmp-spark slice`: copy the packets of one connection (or one RTMPT session), with findings as packet comments.

The captures are read twice: first to find the connection and its findings, then to copy its packets.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rtmp_spark import __version__
from rtmp_spark.analysis.connection_analysis import ConnectionAnalysis, ConnectionObserver
from rtmp_spark.analysis.connection_packets import Place, copy_packets
from rtmp_spark.analysis.recording import Recording
from rtmp_spark.capture.files.pcapng_writer import PcapngWriter
from rtmp_spark.capture.unwrap.tls.keylog import SECRETS_TYPE_TLS, KeyLog
from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.options.capture_options import add_filter_arguments, make_settings
from rtmp_spark.commands.options.captures_of_lake import (
    add_path_or_lake_arguments,
    chosen_captures,
    refuse_changed_captures,
)
from rtmp_spark.commands.output.capture_outcome import exit_code, print_file_problems
from rtmp_spark.commands.output.error_message import MOST_LISTED, listed
from rtmp_spark.commands.output.output_file import output_path, whole_file
from rtmp_spark.report.units import endpoint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_path_or_lake_arguments(parser, read_twice=True)
    parser.add_argument("-o", "--output", required=True, metavar="FILE.pcapng", help="pcapng file to write")
    parser.add_argument(
        "--with-secrets",
        action="store_true",
        help="embed the TLS secrets of the connection, so that Wireshark decrypts it",
    )
    add_filter_arguments(parser)


class _KeptConnections(ConnectionObserver):
    """Keeps the connections that have rows, as many as are listed if there are several."""

    def __init__(self) -> None:
        self.connections: list[ConnectionAnalysis] = []
        self.count = 0

    def closed(self, connection: ConnectionAnalysis) -> None:
        self.count += 1
        if self.count <= MOST_LISTED:
            self.connections.append(connection)


def run(args: argparse.Namespace) -> int:
    paths = chosen_captures(args)
    if "-" in paths:
        raise UserError("slice reads the captures twice and cannot read standard input.", "Save the capture to a file.")
    target = output_path(args.output, paths)
    settings = make_settings(args)
    observer = _KeptConnections()
    recording = Recording(paths, settings, ("findings", "captures"), observer=observer)
    findings = [row for table, batch in recording.batches() if table == "findings" for row in batch.to_pylist()]
    print_file_problems(recording.files)
    found = observer.connections
    if not found:
        refuse_changed_captures(args)
    code = exit_code(recording, args)
    if not found:
        return code
    if len(found) > 1:
        lines = listed((f"--uid {c.uid}  {_addresses(c)}" for c in found), observer.count)
        raise UserError(f"{observer.count} connections match:\n{lines}", "Choose one with --uid.")
    comments, general = _comments(findings, recording)
    carriers = _carriers(found[0])
    secrets = _secrets(carriers, settings.keylog) if args.with_secrets else b""
    with whole_file(target) as file:
        writer = PcapngWriter(file, f"rtmp-spark {__version__}", [f"connection {found[0].uid}", *general])
        if secrets:
            writer.write_secrets(SECRETS_TYPE_TLS, secrets)
        count, unreadable = copy_packets([file.path for file in recording.files], carriers, writer, comments)
    for path in unreadable:
        print(f"rtmp-spark: {path} changed while it was being read.", file=sys.stderr)
    over = f" over {len(carriers)} TCP connections" if len(carriers) > 1 else ""
    print(f"{args.output}: {count} packets of {found[0].uid}{over}")
    return code


def _comments(findings: list[dict[str, Any]], recording: Recording) -> tuple[dict[Place, list[str]], list[str]]:
    """Findings as comments on packets, and as comments on the whole file if they have no packet."""
    numbers = {file.capture_id: number for number, file in enumerate(recording.files)}
    on_packets: dict[Place, list[str]] = {}
    general: list[str] = []
    for row in findings:
        text = f"{row['severity']} {row['rule_id']}: {row['detail']}"
        if row["frame"] and row["capture_id"] in numbers and row["uid"] is not None:
            on_packets.setdefault((numbers[row["capture_id"]], row["frame"]), []).append(text)
        else:
            general.append(text)
    return on_packets, general


def _addresses(conversation: ConnectionAnalysis) -> str:
    a, b = conversation.connection.a, conversation.connection.b
    return f"{endpoint(*a)} - {endpoint(*b)}"


def _carriers(conversation: ConnectionAnalysis) -> list[Any]:
    """The TCP connections that carried it: its own, or all connections of an RTMPT session."""
    own = conversation.connection
    several = conversation.wrapping.carriers if conversation.wrapping is not None else []
    return [own if carrier.key == own.key else carrier for carrier in several] or [own]


def _secrets(carriers: list[Any], keylog: KeyLog) -> bytes:
    """The key log lines of these connections."""
    randoms = dict.fromkeys(random for carrier in carriers for random in carrier.client_randoms)
    secrets = b"".join(keylog.lines_for(random) for random in randoms)
    if not secrets:
        raise UserError("No TLS secrets are known for this connection.", "Give --keylog FILE.")
    return secrets
