"""Decoding again: which connections and captures of a lake must be taken together to replace rows by better ones.

A connection is decoded from all captures that hold packets of it, so redoing one capture means redoing those that
share a connection with it, and so on. A late capture shares endpoints with connections that are there already. The
captures must still be where the ledger says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rtmp_spark.capture.connection import endpoint
from rtmp_spark.codec.errors import UserError

from .flow_state import SavedFlow, readable
from .lake import Writer
from .ledger import CAPTURES, Superseded
from .paths import CaptureFile, list_captures
from .plan import Scanned
from .tables import literal


@dataclass
class Redo:
    capture_ids: set[str] = field(default_factory=set)  # known ones that are decoded again
    more: list[CaptureFile] = field(default_factory=list)  # known files that nobody named
    paths: dict[str, str] = field(default_factory=dict)  # where the ledger says that each capture is
    superseded: list[Superseded] = field(default_factory=list)


def redo(
    writer: Writer,
    scanned: Sequence[Scanned],
    keys: Mapping[bytes, int],
    sensor: str,
    saved: Iterable[SavedFlow],
    held: Collection[str] = (),
) -> Redo:
    """What must be taken with these files. `held`: captures of the ledger that are the beginning of one of them."""
    here = f"sensor = {literal(sensor)}"
    ledger = writer.table("captures").where(here).select("capture_id", "path").toArrow().to_pylist()
    paths = {row["capture_id"]: row["path"] for row in ledger if row["capture_id"] is not None}
    columns = ("uid", "capture_ids", "orig_h", "orig_p", "resp_h", "resp_p")
    connections = writer.table("connections").where(here).select(*columns).toArrow().to_pylist()
    ends = {frozenset((endpoint(key[:18]), endpoint(key[18:]))) for key in keys}
    captures = {s.about.capture_id for s in scanned if s.about.capture_id in paths} | set(held)
    uids: set[str] = set()
    for row in connections:
        if frozenset(((row["orig_h"], row["orig_p"]), (row["resp_h"], row["resp_p"]))) in ends:
            uids.add(row["uid"])
            captures.update(row["capture_ids"])
    grown = True
    while grown:
        grown = False
        for row in connections:
            if row["uid"] not in uids and captures.intersection(row["capture_ids"]):
                uids.add(row["uid"])
                grown = True
            if row["uid"] in uids and not captures.issuperset(row["capture_ids"]):
                captures.update(row["capture_ids"])
                grown = True
    found = Redo({c for c in captures if c is not None}, paths=paths)
    named = {s.file.path for s in scanned}
    for capture_id in sorted(_absent(found, scanned, held)):
        path = paths.get(capture_id)
        if path is None:
            raise UserError(f"The capture {capture_id} is not in the ledger.", "Ingest into a new lake.")
        if path in named:  # by another recording: names are used again
            raise _gone(path)
        try:
            found.more += list_captures([path])
        except UserError:
            raise _gone(path) from None
    found.superseded = [Superseded(uid) for uid in sorted(uids)]
    found.superseded += [Superseded(c, tables=CAPTURES) for c in sorted(found.capture_ids)]
    for header, _ in readable(saved)[0]:
        if not header.has_rows and found.capture_ids.intersection(header.files.values()):
            found.superseded.append(Superseded(header.uid, tables=("open_flows",)))
    return found


def require_all(found: Redo, scanned: Sequence[Scanned], held: Collection[str]) -> None:
    """Once `found.more` is scanned too: whose rows are replaced must be there, or they would be lost."""
    for capture_id in sorted(_absent(found, scanned, held)):
        raise _gone(found.paths[capture_id])


def _absent(found: Redo, scanned: Sequence[Scanned], held: Collection[str]) -> set[str]:
    return found.capture_ids - {s.about.capture_id for s in scanned} - set(held)


def _gone(path: str) -> UserError:
    return UserError(
        f"{path} is needed to decode its connections again and is gone.", "Put it back, or ingest into a new lake."
    )
