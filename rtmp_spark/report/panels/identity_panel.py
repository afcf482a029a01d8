"""Who talked to whom: addresses, software, application, streams, how complete the recording is."""

from __future__ import annotations

from typing import Any

from rtmp_spark.forensics.thresholds import LOSS_PACKETS
from rtmp_spark.report import page_text, units, verdict
from rtmp_spark.report.connection_data import ConnectionData
from rtmp_spark.report.panels.elements import paste

Row = dict[str, Any]
_NAMED_CAPTURES = 8


def identity_panel(data: ConnectionData) -> str:
    row = data.connection
    client = units.endpoint(row["orig_h"], row["orig_p"])
    server = units.endpoint(row["resp_h"], row["resp_p"])
    left = len(data.captures) - _NAMED_CAPTURES
    more = f" and {left:,} more" if left > 0 else ""
    facts: list[tuple[str, str]] = [
        ("client → server", f"{page_text.untrusted(client)} → {page_text.untrusted(server)}"),
        ("uid", f"<code>{page_text.escape(row['uid'])}</code> {_sensor(row)}"),
        ("service", page_text.escape(row["service"]) + (", recording starts mid-stream" if row["midstream"] else "")),
        ("application", page_text.untrusted(row["app"])),
        ("streams", ", ".join(page_text.untrusted(name) for name in row["stream_names"][:8]) or units.MISSING),
        ("client software", _software(row, "client", row["software"])),
        ("server software", _software(row, "server", row.get("server_software"))),
        ("client version", page_text.untrusted(row["flash_ver"])),
        ("server version", page_text.untrusted(row["server_ver"])),
        ("time", f"{units.utc_time(row['ts_start'])} UTC for {units.duration(data.duration_ms)}"),
        ("bytes", f"{units.size(row['delivered_bytes_c2s'])} up, {units.size(row['delivered_bytes_s2c'])} down"),
        ("end", page_text.escape(verdict.ending(row))),
        ("recording", _quality(data)),
        ("capture", ", ".join(page_text.untrusted(row["path"]) for row in data.captures[:_NAMED_CAPTURES]) + more),
        ("Wireshark", paste(wireshark_filter(row))),
        ("Community ID", f"<code>{page_text.escape(row['community_id'])}</code>"),
    ]
    return "<dl class='facts'>" + "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts) + "</dl>"


def _software(row: Row, side: str, name: str | None) -> str:
    """The recognised software, and the evidence for it."""
    reasons = [
        page_text.untrusted(e.partition(": ")[2], 120) for e in row.get("software_evidence") or () if e.startswith(side)
    ]
    evidence = f" <span class='dim'>by {'; '.join(reasons[:6])}</span>" if reasons else ""
    return (f"<b>{page_text.untrusted(name)}</b>" if name else "not recognised") + evidence


def _sensor(row: Row) -> str:
    return f"at {page_text.untrusted(row['sensor'])}" if row["sensor"] else ""


def _quality(data: ConnectionData) -> str:
    """What is missing from the recording, and what TCP repaired."""
    row = data.connection
    lacks = []
    for direction, words in units.DIRECTION_LABELS.items():
        if row[f"missed_bytes_{direction}"]:
            lacks.append(f"{units.size(row[f'missed_bytes_{direction}'])} {words} missing")
        if not row[f"packets_{direction}"]:
            lacks.append(f"no packets {words}")
        lost = row.get(f"loss_pct_{direction}")  # absent in lakes of older versions
        if lost and row[f"packets_{direction}"] >= LOSS_PACKETS:
            lacks.append(f"{lost:.1f} % {words} lost")
    retransmitted = row["retransmitted_bytes_c2s"] + row["retransmitted_bytes_s2c"]
    if retransmitted:
        lacks.append(f"{units.size(retransmitted)} retransmitted")
    if row["out_of_order_packets_c2s"] + row["out_of_order_packets_s2c"]:
        lacks.append(f"{row['out_of_order_packets_c2s'] + row['out_of_order_packets_s2c']:,} packets out of order")
    cut = sum(capture["packets_truncated"] for capture in data.captures)
    if cut:
        lacks.append(f"{units.counted(cut, 'packet')} truncated at {data.captures[0]['snaplen'] or '?'} bytes")
    if row["midstream"]:
        lacks.append("the start was not recorded")
    if any(capture["status"] != "ok" for capture in data.captures):
        lacks.append("a capture file is damaged")
    return page_text.escape("; ".join(lacks)) if lacks else "complete, no loss, no retransmissions"


def wireshark_filter(row: Row) -> str:
    """A Wireshark display filter for the packets of a connection."""
    ip = "ipv6" if ":" in row["orig_h"] else "ip"
    ports = f"tcp.port == {row['orig_p']} && tcp.port == {row['resp_p']}"
    hosts = dict.fromkeys([row["orig_h"], row["resp_h"]])
    return " && ".join([*(f"{ip}.addr == {host}" for host in hosts), ports])
