"""Saved connections that continue in an ingest: those whose endpoints occur in the new captures.

An RTMPT session uses several TCP connections and its rows belong to the first, which may be silent from now on. So with
an RTMPT connection every saved connection with RTMPT to the same server is resumed. Saved connections that no later
packet can belong to are dropped: their rows are final.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.ingest.decode.connection_state import (
    STATE_VERSION,
    OpenFlow,
    SavedFlow,
    header_of,
    is_placeholder,
    newest,
    readable,
)
from rtmp_spark.ingest.publish.neighbours import of_sensor
from rtmp_spark.ingest.scan.flow_index import ends_of_key
from rtmp_spark.ingest.scan.flow_tables import first_seen, of_keys, tunnel_keys
from rtmp_spark.lake.reader import Lake

LATE_NS = 1_000_000_000  # packets older than the last one by more than this do not continue a connection


@dataclass
class Resumed:
    """Saved connections and what becomes of them."""

    states: list[tuple[bytes, bytes]] = field(default_factory=list)  # endpoints with whose group each is decoded
    headers: list[OpenFlow] = field(default_factory=list)
    late: list[str] = field(default_factory=list)  # uids: the captures hold older packets of these
    over: list[str] = field(default_factory=list)  # uids: no later packet can belong to these
    outdated: list[str] = field(default_factory=list)  # uids: saved by an older version; later packets start new rows
    tunnels: set[bytes] = field(default_factory=set)  # endpoints of RTMPT connections in the captures

    @property
    def uids(self) -> set[str]:
        """Connections that continue: the new rows replace those that were provisional."""
        return {header.uid for header in self.headers}

    @property
    def dropped(self) -> set[str]:
        """States that can be deleted."""
        return {*self.over, *self.outdated}

    def warnings(self) -> list[str]:
        """What the rows will lack, and the remedy."""
        texts = [late_part(uid) for uid in self.late]
        uids = [uid for uid in self.outdated if not is_placeholder(uid)]
        if uids:
            some = f"{', '.join(uids[:3])}{' and others' if uids[3:] else ''}"
            texts.append(f"the rest of {some}, left open by an older rtmp-spark; decode it again with --redo")
        return texts

    def add(self, key: bytes, header: OpenFlow, packed: bytes) -> None:
        self.states.append((key, packed))
        self.headers.append(header)


def late_part(uid: str) -> str:
    return f"a part of {uid}; it gets rows of its own until it is ingested again with --redo"


def saved_flows(lake: Lake, sensor: str, new: pa.Table | None = None) -> list[SavedFlow]:
    """Rows of `open_flows` as `resumed` takes them.

    States that no connection of `new` can continue are cut after their headers: a lake may have many open connections.
    """
    if lake.is_new:
        return []
    new_keys = pa.array([], pa.binary(36)) if new is None else pc.unique(new["key"])
    found: list[SavedFlow] = []
    columns = ("uid", "state_version", "state", "sensor")
    for piece in lake.pieces("open_flows", columns, of_sensor(sensor)):
        rows = list(zip(*(piece[name].to_pylist() for name in columns[:3])))
        headers = [header_of(packed) if version == STATE_VERSION else None for _, version, packed in rows]
        keys = pa.array([header and bytes.fromhex(header.key) for header in headers], pa.binary(36))
        for (uid, version, packed), header, seen in zip(rows, headers, pc.is_in(keys, new_keys).to_pylist()):
            if header is not None and not (seen or header.tunnel):
                packed = packed[: packed.index(b"\n") + 1]
            found.append((uid, version, packed))
    return found


def resumed(
    saved: Iterable[SavedFlow], new: pa.Table, with_tls: bool, newest_ns: int = 0, *, in_order: bool = False
) -> Resumed:
    """`saved`: uid, version and state; `new`: the connections of the new captures. `with_tls`: there are secrets, so
    RTMPT may come out of TLS.

    `in_order`: the new captures begin after all earlier ones, so the sequential analysis also reads them last. Packets
    that are older than the last one of their connection (two taps, a clock that was set back) are no reason not to
    continue it.
    """
    late_ns = -1 << 62 if in_order else -LATE_NS
    found = Resumed(tunnels=tunnel_keys(new, with_tls))
    known, found.outdated = readable(saved)
    flows = newest(known)
    if not flows:
        return found
    seen = first_seen(of_keys(new, flows.keys() | found.tunnels))
    late: set[bytes] = set()
    for key, (header, packed) in flows.items():
        if key not in seen:
            continue
        if seen[key] < header.ts_last_ns + late_ns:
            found.late.append(header.uid)
            late.add(key)
            continue
        found.add(key, header, packed)
        if header.tunnel or (with_tls and header.tls):
            found.tunnels.add(key)
    servers: dict[bytes, tuple[int, bytes]] = {}  # time and endpoints of the latest connection to each server
    for key in found.tunnels - late:
        for end in ends_of_key(key):
            servers[end] = max((seen[key], key), servers.get(end, (0, b"")))
    for key, (header, packed) in flows.items():
        if key in seen or not header.tunnel:
            continue
        heard_ns, other = max(servers.get(end, (0, b"")) for end in ends_of_key(key))
        if heard_ns and heard_ns >= header.ts_last_ns + late_ns:
            found.add(other, header, packed)
    continued = {header.uid for header in found.headers}.union(found.late)
    continued |= {header.uid for header, _ in known if header.over_ns + LATE_NS >= newest_ns}
    found.over = sorted({header.uid for header, _ in known} - continued)
    return found
