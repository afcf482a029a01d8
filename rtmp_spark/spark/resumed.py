"""Which saved connections go on in an ingest: those whose endpoints the new captures hold, and with an RTMPT connection
all that were saved with RTMPT to its server.

A session of RTMPT lives on several TCP connections and its rows belong to the first, which may be silent from now on.
Saved connections that nothing can follow any more, by the time of the new captures, are let go: their rows are final.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from .flow_state import OpenFlow, SavedFlow, is_placeholder, newest, readable
from .lake import Writer
from .ledger import Superseded
from .passes import first_seen, tunnel_keys
from .scan import ends_of_key, group_of_key
from .tables import literal

LATE_NS = 1_000_000_000  # packets older than this against what was read before are not its continuation


@dataclass
class Resumed:
    """`tunnels` are the endpoints of connections with RTMPT, new and old, that the captures hold."""

    states: dict[int, list[bytes]] = field(default_factory=dict)  # by the index group with which they are decoded
    headers: list[OpenFlow] = field(default_factory=list)
    late: list[str] = field(default_factory=list)  # uids; the captures hold parts of them that cannot be joined
    over: list[str] = field(default_factory=list)  # uids
    outdated: list[str] = field(default_factory=list)  # saved by an older version: what follows counts as new
    tunnels: set[bytes] = field(default_factory=set)

    @property
    def superseded(self) -> list[Superseded]:
        """Rows that the new ones replace, and states that are of no use any more."""
        useless = [Superseded(uid, tables=("open_flows",)) for uid in (*self.over, *self.outdated)]
        return [*(header.superseded() for header in self.headers), *useless]

    @property
    def told(self) -> list[str]:
        """What will be missing in the rows, for a person."""
        told = [f"a part of {uid}; its rows stand apart until this is ingested again with --redo" for uid in self.late]
        uids = [uid for uid in self.outdated if not is_placeholder(uid)]
        if uids:
            some = f"{', '.join(uids[:3])}{' and others' if uids[3:] else ''}"
            told.append(f"what follows of {some}, left open by an older rtmp-spark; decode it again with --redo")
        return told

    def _add(self, group: int, header: OpenFlow, packed: bytes) -> None:
        self.states.setdefault(group, []).append(packed)
        self.headers.append(header)


def saved_flows(writer: Writer, sensor: str) -> list[SavedFlow]:
    """Rows of `open_flows` as `resumed` takes them."""
    if writer.is_new:
        return []
    columns = ("uid", "state_version", "state")
    rows = writer.table("open_flows").where(f"sensor = {literal(sensor)}").select(*columns).toArrow()
    return list(zip(*(rows[name].to_pylist() for name in columns)))


def resumed(saved: Iterable[SavedFlow], index: pa.Table, with_tls: bool, newest_ns: int = 0) -> Resumed:
    """`saved`: uid, version and state. `with_tls`: there are secrets, so RTMPT may come out of TLS."""
    found = Resumed(tunnels=tunnel_keys(index, with_tls))
    known, found.outdated = readable(saved)
    flows = newest(known)
    if not flows:
        return found
    seen = first_seen(index)
    late: set[bytes] = set()
    for key, (header, packed) in flows.items():
        if key not in seen:
            continue
        if seen[key] < header.ts_last_ns - LATE_NS:
            found.late.append(header.uid)
            late.add(key)
            continue
        found._add(group_of_key(key), header, packed)
        if header.tunnel or (with_tls and header.tls):
            found.tunnels.add(key)
    servers: dict[bytes, tuple[int, int]] = {}  # since when they are heard, and where
    for key in found.tunnels - late:
        for end in ends_of_key(key):
            servers[end] = max((seen[key], group_of_key(key)), servers.get(end, (0, 0)))
    for key, (header, packed) in flows.items():
        if key in seen or not header.tunnel:
            continue
        heard_ns, group = max(servers.get(end, (0, 0)) for end in ends_of_key(key))
        if heard_ns and heard_ns >= header.ts_last_ns - LATE_NS:
            found._add(group, header, packed)
    going_on = {header.uid for header in found.headers}.union(found.late)
    going_on |= {header.uid for header, _ in known if header.over_ns + LATE_NS >= newest_ns}
    found.over = sorted({header.uid for header, _ in known} - going_on)
    return found
