"""TCP_LOSS: segments that the network lost, in one direction of a connection."""

from __future__ import annotations

from rtmp_spark.capture.tcp.half_stream import Stream
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.conversation.facts import SENDER
from rtmp_spark.forensics.findings import NETWORK, Finding
from rtmp_spark.forensics.thresholds import LOSS_INFO, LOSS_PACKETS, LOSS_SECOND, LOSS_SEGMENTS, LOSS_WARNING


def loss_findings(direction: str, stream: Stream) -> list[Finding]:
    """At most one."""
    severity = _severity(stream)
    if severity is None:
        return []
    loss = stream.loss
    worst = f", worst second {100 * loss.worst_second:.0f} %" if loss.worst_second else ""
    share = f"{100 * (loss.share or 0):.1f} %"
    detail = f"{share} of the bytes from the {SENDER[direction]} were lost and retransmitted{worst}"
    frame, ts_ns = loss.first or (None, None)
    return [
        Finding(
            ViolationCode.TCP_LOSS, detail, severity, NETWORK, direction, frame=frame,
            ts=None if ts_ns is None else ts_ns // 1000, times=loss.segments,
        )
    ]  # fmt: skip


def loss_pct(stream: Stream) -> float | None:
    """The columns `loss_pct`: lost bytes in percent of those that were sent; None without data."""
    share = stream.loss.share
    return None if share is None else round(100 * share, 3)


def _severity(stream: Stream) -> Severity | None:
    loss = stream.loss
    if loss.segments < LOSS_SEGMENTS or loss.data_packets < LOSS_PACKETS or loss.share is None:
        return None
    if loss.share >= LOSS_WARNING or loss.worst_second > LOSS_SECOND:
        return Severity.WARNING
    return Severity.INFO if loss.share >= LOSS_INFO else None
