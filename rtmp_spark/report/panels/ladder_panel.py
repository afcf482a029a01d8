"""The sequence of handshake, commands and control messages, drawn as a ladder between client and server."""

from __future__ import annotations

from rtmp_spark.report import page_text, units, verdict
from rtmp_spark.report.connection_data import ConnectionData
from rtmp_spark.report.ladder import Step, run_words


def ladder_panel(data: ConnectionData) -> str:
    steps, runs = data.ladder.steps, data.media.runs
    if not steps:
        return "<p class='missing'>No handshake, command or control message was recorded.</p>"
    rows = [
        "<div class='rung heads'><span></span><span class='client'>client</span><span class='server'>server</span>"
        "<span></span></div>"
    ]
    for index, step in enumerate(steps):
        if index and index < len(runs):
            rows.append(_run(runs[index]))
        rows.append(_rung(step, data.start))
    if len(runs) > len(steps):
        rows.append(_run(runs[len(steps)]))
    end = page_text.escape(verdict.ending(data.connection))
    rows.append(f"<div class='rung run'><span></span><span class='band end'>{end}</span></div>")
    left = data.ladder.left_out
    note = f"<p class='note'>{left:,} steps in the middle are not shown.</p>" if left else ""
    return f"<div class='ladder'>{''.join(rows)}</div>{note}"


def _rung(step: Step, start: int) -> str:
    count = f" <span class='dim'>×{step.count:,}</span>" if step.count > 1 else ""
    on = f" <span class='dim'>[{step.stream_id}]</span>" if step.stream_id else ""
    words = f" <span class='words'>{page_text.untrusted(step.words, 160)}</span>" if step.words else ""
    answer = f"<span class='ms'>{units.duration(step.response_ms)}</span>" if step.response_ms is not None else ""
    frame = f"<span class='frame' title='packet number in the capture'>#{step.frame}</span>" if step.frame else ""
    return (
        f"<div class='rung {step.direction} {step.kind}'><span class='at'>{(step.ts - start) / 1e6:.3f} s</span>"
        f"<span class='arrow'><span class='what'><b>{page_text.untrusted(step.name, 80)}</b>{on}{count}{words}"
        "</span></span>"
        f"<span class='meta'>{answer}{frame}</span></div>"
    )


def _run(run: tuple[int, int, int]) -> str:
    if not run[0] + run[1]:
        return ""
    return f"<div class='rung run'><span></span><span class='band'>{page_text.escape(run_words(run))}</span></div>"
