"""`--redo`: which captures and connections of a lake must be decoded again together.

A connection is decoded from all captures that hold packets of it. Redoing one capture therefore means redoing every
capture that shares a connection with it, also one that has no rows yet, and so on. A late capture shares endpoints with
connections that are already in the lake. All of these captures must still be at the paths that the lake recorded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rtmp_spark.analysis.settings import ConnectionFilter
from rtmp_spark.capture.tcp.tcp_connection import endpoint
from rtmp_spark.codec.errors import UserError
from rtmp_spark.ingest.captures.capture_paths import CaptureFile, list_captures
from rtmp_spark.ingest.decode.connection_state import SavedFlow, readable
from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.ingest.publish.lake_rows import PublishedTables, one_of
from rtmp_spark.ingest.publish.neighbours import of_sensor
from rtmp_spark.ingest.scan.plan import Scanned

Ends = frozenset[tuple[str, int]]  # of a connection


def ends_of_keys(keys: Iterable[bytes]) -> set[Ends]:
    return {frozenset((endpoint(key[:18]), endpoint(key[18:]))) for key in keys}


@dataclass
class Redo:
    capture_ids: set[str] = field(default_factory=set)  # captures of the lake that are decoded again
    more: list[CaptureFile] = field(default_factory=list)  # files of the lake that the user did not name
    paths: dict[str, str] = field(default_factory=dict)  # path of each capture of the lake
    held: set[str] = field(default_factory=set)  # captures of the lake that a longer file contains
    uids: dict[str, Ends] = field(default_factory=dict)  # connections that are decoded again
    states: set[str] = field(default_factory=set)  # uids in `open_flows` of connections without rows


def redo(
    lake: PublishedTables,
    scanned: Sequence[Scanned],
    keys: Mapping[bytes, int],
    sensor: str,
    saved: Iterable[SavedFlow],
    held: Collection[str] = (),
) -> Redo:
    """What must be decoded together with these files. `held`: known captures that one of them begins with."""
    captured = lake.read("captures", ["capture_id", "path"], of_sensor(sensor)).to_pylist()
    paths = {row["capture_id"]: row["path"] for row in captured if row["capture_id"] is not None}
    columns = ("uid", "capture_ids", "orig_h", "orig_p", "resp_h", "resp_p")
    connections = lake.read("connections", columns, of_sensor(sensor)).to_pylist()
    ends = ends_of_keys(keys)
    captures = {s.about.capture_id for s in scanned if s.about.capture_id in paths} | set(held)
    ends_of = {r["uid"]: frozenset(((r["orig_h"], r["orig_p"]), (r["resp_h"], r["resp_p"]))) for r in connections}
    uids: set[str] = set()
    for row in connections:
        if ends_of[row["uid"]] in ends:
            uids.add(row["uid"])
            captures.update(row["capture_ids"])
    without_rows = [header for header, _ in readable(saved)[0] if not header.has_rows]
    changed = True
    while changed:
        changed = False
        for header in without_rows:
            if captures.intersection(header.files.values()) and not captures.issuperset(header.files.values()):
                captures.update(header.files.values())
                changed = True
        for row in connections:
            if row["uid"] not in uids and captures.intersection(row["capture_ids"]):
                uids.add(row["uid"])
                changed = True
            if row["uid"] in uids and not captures.issuperset(row["capture_ids"]):
                captures.update(row["capture_ids"])
                changed = True
    found = Redo({c for c in captures if c is not None}, paths=paths, held=set(held))
    named = {s.file.path for s in scanned}
    for capture_id in sorted(_absent(found, scanned, held)):
        path = paths.get(capture_id)
        if path is None:
            raise UserError(f"The lake does not know capture {capture_id}.", "Ingest into a new lake.")
        if path in named:  # another recording has this path now
            raise _gone(path)
        try:
            found.more += list_captures([path])
        except UserError:
            raise _gone(path) from None
    found.uids = {uid: ends_of[uid] for uid in uids}
    found.states = {h.uid for h in without_rows if found.capture_ids.intersection(h.files.values())}
    return found


def require_all_rows(lake: PublishedTables, found: Redo, options: IngestOptions) -> None:
    """Raises if these options give fewer rows of the connections than the lake has: the others would be lost."""
    wanted = ConnectionFilter(host=options.host, port=options.port)
    of_some_time = (options.since, options.until) != (None, None)
    fewer = ""
    if found.uids and (of_some_time or not all(wanted.admits_ends(_pair(ends)) for ends in found.uids.values())):
        fewer = "The options select only some of the rows that are decoded again"
    elif (
        found.uids and not options.keep_payloads and lake.read("payloads", ["uid"], one_of("uid", found.uids)).num_rows
    ):
        fewer = "The lake has payloads of connections that are decoded again, and --keep-payloads is not given"
    if fewer:
        remedy = "Run it again without --host, --port, --since and --until, and with --keep-payloads"
        raise UserError(f"{fewer}; rows would be lost.", f"{remedy}, or ingest into a new lake.")


def _pair(ends: Ends) -> tuple[tuple[str, int], tuple[str, int]]:
    return min(ends), max(ends)


def require_all(found: Redo, scanned: Sequence[Scanned], held: Collection[str]) -> None:
    """Raises unless every capture whose rows will be replaced was scanned: its rows would be lost."""
    for capture_id in sorted(_absent(found, scanned, held)):
        raise _gone(found.paths[capture_id])


def _absent(found: Redo, scanned: Sequence[Scanned], held: Collection[str]) -> set[str]:
    return found.capture_ids - {s.about.capture_id for s in scanned} - set(held)


def _gone(path: str) -> UserError:
    return UserError(
        f"{path} is needed to decode its connections again, but it is missing.",
        "Restore it, or ingest into a new lake.",
    )
