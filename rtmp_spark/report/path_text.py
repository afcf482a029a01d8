"""A row of `paths` as a sentence: what the network did between two sensors, and where the trouble is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtmp_spark.report import units

_ANSWERS = {
    "network": "The network between the sensors is the cause",
    "client": "The network between the sensors is not the cause: it is the client",
    "server": "The network between the sensors is not the cause: it is the server",
    "unknown": "The cause is not between the sensors, or the recordings do not show it",
}
_WAYS = (("c2s", "from the client"), ("s2c", "from the server"))


def path_sentence(row: Mapping[str, Any]) -> str:
    """Two sentences; the first names the sensors and the loss between them, the second answers whose fault it is."""
    lost = " and ".join(f"{_amount(row, way)} {words}" for way, words in _WAYS)
    known = row["bytes_lost_c2s"] is not None or row["bytes_lost_s2c"] is not None
    parts = [f"lost {lost}" if known else "the loss is unknown because the recordings cover different times"]
    if row["delay_ms_p50"] is not None:
        parts.append(f"delay {units.duration(row['delay_ms_p50'])}, p95 {units.duration(row['delay_ms_p95'])}")
        parts.append(f"clocks {units.duration(abs(row['clock_offset_ms']))} apart")
    return f"Between {row['sensor_a']} and {row['sensor_b']}: {'; '.join(parts)}. {_ANSWERS[row['verdict']]}."


def _amount(row: Mapping[str, Any], way: str) -> str:
    packets, size = row[f"packets_lost_{way}"], row[f"bytes_lost_{way}"]
    if size is None:
        return "an unknown amount"
    if packets is None:
        return units.size(size)
    return f"{units.counted(packets, 'packet')} ({units.size(size)})"
