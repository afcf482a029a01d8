"""The sequence ladder of one connection: handshake, commands and control messages in order, with response times.

Repeated messages in a row are one step with a count. Media messages are not steps: the ladder says how many were sent
between two steps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rtmp_spark.report import page_text, units
from rtmp_spark.report.media_summary import Event

Row = dict[str, Any]
MOST_STEPS = 240
_TAIL = 60  # of these, the number of last steps
_CONTROL_WORDS = {
    "set_chunk_size": "Set Chunk Size", "abort": "Abort", "acknowledgement": "Acknowledgement",
    "window_ack_size": "Window Acknowledgement Size", "set_peer_bandwidth": "Set Peer Bandwidth",
}  # fmt: skip
_LIMITS = {0: "hard", 1: "soft", 2: "dynamic"}


@dataclass
class Step:
    """One arrow of the ladder."""

    ts: int
    direction: str
    kind: str  # handshake, command, status, error, data, control
    name: str
    words: str
    frame: int | None
    msg_no: int | None
    response_ms: float | None = None
    stream_id: int = 0
    count: int = 1
    ts_last: int = 0


@dataclass
class Ladder:
    steps: list[Step]
    left_out: int
    start: int

    @property
    def events(self) -> list[Event]:
        return [(step.ts, step.direction, -1 if step.msg_no is None else step.msg_no) for step in self.steps]


def build(connection: Row, handshake: Row | None, commands: Sequence[Row], controls: Sequence[Row]) -> Ladder:
    steps = [_command(row) for row in commands] + [_control(row) for row in controls]
    steps.sort(key=lambda step: (step.ts, step.frame or 0, step.msg_no or 0))
    steps = _folded(steps)
    if handshake is not None:
        steps = [*_handshake(handshake, connection["ts_start"]), *steps]
    left_out = max(len(steps) - MOST_STEPS, 0)
    if left_out:
        steps = steps[: MOST_STEPS - _TAIL] + steps[-_TAIL:]
    return Ladder(steps, left_out, connection["ts_start"])


def _folded(steps: list[Step]) -> list[Step]:
    """Merge equal control and data messages in a row into one step."""
    out: list[Step] = []
    for step in steps:
        before = out[-1] if out else None
        same = before is not None and (before.direction, before.name, before.kind, before.stream_id) == (
            step.direction, step.name, step.kind, step.stream_id,
        )  # fmt: skip
        if before is not None and same and step.kind in ("control", "data") and step.response_ms is None:
            before.count += 1
            before.ts_last = step.ts
            if step.words != before.words:
                before.words = f"{before.words.split(' … ')[0]} … {step.words}" if step.words else before.words
        else:
            out.append(step)
    return out


def _handshake(row: Row, start: int) -> list[Step]:
    begun = row["ts_start"] or start
    client = "C0 C1" if row["c0_version"] is not None or row["c1_time"] is not None else ""
    client += " C2" if row["c2_kind"] else ""
    server = "S0 S1" if row["s0_version"] is not None or row["s1_time"] is not None else ""
    server += " S2" if row["s2_kind"] else ""
    schemes = {"digest0": "digest", "digest1": "digest", None: "not recorded"}
    steps = []
    for direction, parts, side, peer in (("c2s", client, "c", "c"), ("s2c", server, "s", "s")):
        if not parts.strip():
            continue
        scheme = schemes.get(row[f"{side}1_scheme"], row[f"{side}1_scheme"])
        words = f"version {row[f'{side}0_version']}, {scheme}"
        if row[f"{peer}2_kind"]:
            words += f", {side.upper()}2 {row[f'{peer}2_kind']}"
        took = row["duration_ms"] if direction == "s2c" else None
        steps.append(Step(begun, direction, "handshake", parts.strip(), words, None, None, took))
    return steps


def _command(row: Row) -> Step:
    args = parse_args(row["args"])
    kind, words = "command", _brief(row["name"], args)
    if row["type_id"] in (15, 18):
        kind = "data"
    if row["code"]:
        kind = "error" if row["level"] == "error" else "status"
        words = row["code"] + (f" “{row['description']}”" if row["description"] else "")
    if row["name"] == "_error":
        kind = "error"
    return Step(
        row["ts"], row["direction"], kind, row["name"] or "(no name)", words, row["frame"], row["msg_no"],
        row["response_ms"], row["stream_id"],
    )  # fmt: skip


def _control(row: Row) -> Step:
    kind, value = row["kind"], row["value"]
    name = _CONTROL_WORDS.get(kind, units.spaced(kind).title())
    words = "" if value is None else f"{value:,}"
    if kind == "set_peer_bandwidth":
        words += f", {_LIMITS.get(row['limit_type'], 'limit type ' + str(row['limit_type']))}"
    if row["event_stream_id"] is not None:
        words = f"stream {row['event_stream_id']}"
        if row["event_value"] is not None:
            words += f", {row['event_value']:,} ms"
    elif row["event_value"] is not None:
        words = f"timestamp {row['event_value']}"
    return Step(row["ts"], row["direction"], "control", name, words, row["frame"], row["msg_no"])


def parse_args(args: str | None) -> list[Any]:
    try:
        values = json.loads(args) if args else []
    except ValueError:
        return []
    return values if isinstance(values, list) else []


def pairs(value: Any) -> dict[str, Any]:
    """The properties of an AMF object or array in tagged JSON. The last of several equal names counts."""
    if not isinstance(value, dict):
        return {}
    if isinstance(value.get("$pairs"), list):
        return {str(k): v for k, v in value["$pairs"]}
    if "$ecma" in value:
        return pairs(value["$ecma"])
    if "$class" in value:
        return pairs(value.get("value"))
    return value


def _brief(name: str | None, args: list[Any]) -> str:
    """The strings and numbers among the arguments, and the `app` of connect."""
    shown = []
    for value in args[:5]:
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, (str, int, float)):
            shown.append(page_text.printable(f"{value:g}" if isinstance(value, float) else value, 80))
        elif name == "connect" and pairs(value).get("app") is not None:
            shown.append(f"app {page_text.printable(pairs(value)['app'], 80)}")
    return ", ".join(shown)


def as_text(ladder: Ladder, runs: Sequence[tuple[int, int, int]] = ()) -> str:
    """The ladder as lines for a terminal."""
    lines = []
    for index, step in enumerate(ladder.steps):
        if index < len(runs) and index and any(runs[index][:2]):
            lines.append(f"{'':11}  ·· {run_words(runs[index])}")
        arrow = "->" if step.direction == "c2s" else "<-"
        line = f"{(step.ts - ladder.start) / 1e6:9.3f} s  {arrow} {page_text.printable(step.name, 60)}"
        if step.stream_id:
            line += f" [{step.stream_id}]"
        if step.count > 1:
            line += f" ×{step.count}"
        if step.words:
            line += f"  {page_text.printable(step.words, 120)}"
        if step.response_ms is not None:
            line += f"  ({units.duration(step.response_ms)})"
        lines.append(line)
    if len(runs) > len(ladder.steps) and any(runs[-1][:2]):
        lines.append(f"{'':11}  ·· {run_words(runs[-1])}")
    return "\n".join(lines)


def run_words(run: tuple[int, int, int]) -> str:
    audio, video, size = run
    parts = [units.counted(n, w, w) for n, w in ((video, "video"), (audio, "audio")) if n]
    return f"{', '.join(parts)} messages, {units.size(size)}"
