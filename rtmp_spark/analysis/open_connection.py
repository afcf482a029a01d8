"""Connections that continue in a later file: what is saved of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypedDict

from rtmp_spark.analysis.connection_analysis import AnalysisState
from rtmp_spark.analysis.rows.interval_rows import TcpSecond
from rtmp_spark.capture.tcp.tcp_connection import Connection
from rtmp_spark.codec.json_value import Json, SavedFields


class EarlySecond(NamedTuple):
    side: int
    second: int
    figures: TcpSecond


class ConnectionState(TypedDict):
    connection: list[Json]
    analysis: AnalysisState | None
    unacknowledged: list[list[int]]
    early: Sequence[SavedFields]  # of an `EarlySecond`


class OpenConnection(NamedTuple):
    """A connection that may continue in a later file.

    `over_ns`: later packets between its endpoints belong to another connection. `wrapping`: "tls", "rtmpt" or "nested"
    (RTMPT inside TLS). `state` shares its lists with the connection: save it before more packets are fed.
    """

    connection: Connection
    over_ns: int
    provisional_second: int
    wrapping: str | None
    state: ConnectionState


def wrapping_kind(analysis_state: AnalysisState | None) -> str | None:
    """ "tls", "rtmpt", or "nested" (RTMPT inside TLS)."""
    wrapping = None if analysis_state is None else analysis_state["conversation"]["probe"]["wrapping"]
    return None if wrapping is None else wrapping["kind"]


def begins_tunnels(state: ConnectionState) -> bool:
    """Whether an RTMPT session began on a saved connection."""
    analysis = state["analysis"]
    wrapping = None if analysis is None else analysis["conversation"]["probe"]["wrapping"]
    inside = wrapping["state"] if wrapping is not None else {}
    inner = inside.get("inner", inside)
    return isinstance(inner, dict) and bool(inner.get("sessions"))
