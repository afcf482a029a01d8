"""MEDIA_GOP_LONG: keyframes that are too far apart."""

from __future__ import annotations

from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.forensics.findings import Finding
from rtmp_spark.forensics.position import frame_with_file
from rtmp_spark.forensics.streams.stream_measure import StreamMeasure
from rtmp_spark.forensics.streams.track import Gop
from rtmp_spark.forensics.thresholds import GOP_INFO_MS, GOP_WARNING_MS


def long_gop_findings(measure: StreamMeasure) -> list[Finding]:
    track = measure.video
    if track is None or not track.keys:
        return []
    longest = track.longest_gop
    count = track.key_gaps.count_above(GOP_INFO_MS)
    open_gap = track.dts - track.key_dts if track.dts is not None and track.key_dts is not None else 0
    if open_gap > longest.length_ms:  # the last GOP, which no keyframe ended
        msg_no, frame, known_at = track.last
        longest = Gop(open_gap, msg_no, frame_with_file(frame, known_at), track.ts)
        count += 1
    if longest.length_ms <= GOP_INFO_MS:
        return []
    seconds = f"{longest.length_ms / 1000:.1f} s"
    severity = Severity.WARNING if longest.length_ms > GOP_WARNING_MS else Severity.INFO
    return [
        Finding(
            ViolationCode.MEDIA_GOP_LONG, f"keyframes up to {seconds} apart", severity, measure.author,
            measure.direction, measure.stream_id, longest.msg_no, longest.frame, longest.ts, max(count, 1),
            f"a keyframe at least every {GOP_INFO_MS // 1000} s", seconds,
        )
    ]  # fmt: skip
