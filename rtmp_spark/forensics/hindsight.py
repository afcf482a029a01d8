"""What only several connections together show: SESSION_PERIODIC, SESSION_BAD_NAME with the holder of the name.

Functions over rows of `streams`, `findings` and how connections ended, so they run at the end of a recording and over a
whole lake alike. Nothing is kept between calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from rtmp_spark.capture.facts import Row
from rtmp_spark.capture.findings import Finding, FindingFold
from rtmp_spark.capture.judging import Ended
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.forensics.catalogue import entry
from rtmp_spark.schema import column_names

_LEAST_ATTEMPTS = 3
_LEAST_SECONDS = 2.0
_SPREAD, _SPREAD_SECONDS = 0.05, 1.0
_ROUND_US = 30_000_000  # within which the next connection of an authentication follows
_STREAMS = column_names("streams")
_FINDINGS = column_names("findings")
_RULE, _DETAIL = _FINDINGS.index("rule_id"), _FINDINGS.index("detail")
# What is told about another connection, and how it is found again.
_HELD, _HOLDS, _GOES_ON = "{} was publishing this name already", "; {} holds the name", "; it goes on in {}"
_UID = r"C\w{20}"
_ADDED = re.compile(f"({'|'.join(map(re.escape, (_HOLDS, _GOES_ON)))})+$".replace(re.escape("{}"), _UID))
_WHOLLY = re.compile(_HELD.format(_UID))


def judge_together(streams: Sequence[Row], ends: Sequence[Ended], findings: Sequence[Row]) -> list[Row]:
    """Rows of `findings`: the given ones, some with more to tell now, and new ones. `streams` are numbered."""
    endings = {end.uid: end for end in ends}
    named = [dict(zip(_STREAMS, row)) for row in streams if row[_STREAMS.index("name")] is not None]
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    rivals: dict[tuple[Any, ...], list[dict[str, Any]]] = {}  # for one name at one server: two may have the same one
    for stream in sorted(named, key=lambda s: (s["ts_start"], s["uid"])):
        key = (stream["app"], stream["name"], stream["role"])
        end = endings.get(stream["uid"])
        player = end.orig_h if end is not None and stream["role"] == "play" else None
        groups.setdefault((*key, player), []).append(stream)
        if stream["role"] == "publish":
            server = None if end is None else (end.resp_h, end.resp_p)
            rivals.setdefault((*key, server), []).append(stream)
    told = [_with_next_round(_with_holder(row, rivals.values()), ends) for row in findings]
    for group in groups.values():
        told += _periodic(group, endings, findings)
    for group in rivals.values():
        told += _two_at_once(group, findings)
    return told


def told_alone(findings: Iterable[Row]) -> list[Row]:
    """The findings that `judge_together` was given, from those it gave: what the connections alone told."""
    alone = []
    for row in findings:
        detail = row[_DETAIL]
        if row[_RULE] == ViolationCode.SESSION_PERIODIC.value or (detail is not None and _WHOLLY.fullmatch(detail)):
            continue
        alone.append(row if detail is None else (*row[:_DETAIL], _ADDED.sub("", detail), *row[_DETAIL + 1 :]))
    return alone


def _periodic(group: list[dict[str, Any]], endings: Mapping[str, Ended], findings: Sequence[Row]) -> list[Row]:
    """Runs of attempts, one after another, that lasted nearly equally long."""
    rows: list[Row] = []
    run: list[dict[str, Any]] = []
    for stream in [*group, None]:
        if stream is not None and _goes_on(run, stream):
            run.append(stream)
            continue
        if len(run) >= _LEAST_ATTEMPTS:
            rows += [_with_end(row, findings) for row in _told(run, endings)]
        run = [] if stream is None else [stream]
    return rows


def _seconds(stream: dict[str, Any]) -> float:
    return float(stream["ts_end"] - stream["ts_start"]) / 1e6


def _goes_on(run: list[dict[str, Any]], stream: dict[str, Any]) -> bool:
    if not run:
        return True
    if stream["ts_start"] < run[-1]["ts_end"] or stream["uid"] == run[-1]["uid"]:
        return False
    lengths = [_seconds(one) for one in (*run, stream)]
    usual = median(lengths)
    return usual >= _LEAST_SECONDS and max(lengths) - min(lengths) <= max(_SPREAD * usual, _SPREAD_SECONDS)


def _told(run: list[dict[str, Any]], endings: Mapping[str, Ended]) -> list[Row]:
    if any(ended.close_kind == "open" for one in run if (ended := endings.get(one["uid"])) is not None):
        run = run[:-1]
        if len(run) < _LEAST_ATTEMPTS:
            return []
    last = run[-1]
    usual = median(_seconds(one) for one in run)
    closers = {ended.closed_by for one in run if (ended := endings.get(one["uid"])) is not None}
    closer = closers.pop() if len(closers) == 1 else None
    who = f"the {closer} ends it" if closer else "not always the same side ends it"
    fold = FindingFold()
    fold.add(
        Finding(
            ViolationCode.SESSION_PERIODIC,
            f"{len(run)} times in a row it ended after {usual:.1f} s; {who}", None, closer, last["direction"],
            last["stream_id"], None, None, last["ts_end"], len(run), "a stream that goes on", f"{usual:.1f} s",
        )
    )  # fmt: skip
    return fold.rows(last["uid"], entry)


def _with_end(row: Row, findings: Sequence[Row]) -> Row:
    """With the packet at which the connection ended, which its SESSION_END has."""
    known = dict(zip(_FINDINGS, row))
    for other in findings:
        if other[0] == ViolationCode.SESSION_END.value and other[_FINDINGS.index("uid")] == known["uid"]:
            known |= {name: other[_FINDINGS.index(name)] for name in ("capture_id", "frame", "frame_last")}
    return tuple(known[name] for name in _FINDINGS[: len(row)])


def _two_at_once(group: list[dict[str, Any]], findings: Sequence[Row]) -> list[Row]:
    """Publishers of one name at the same time that the server let in both."""
    rows: list[Row] = []
    told = {row[_FINDINGS.index("uid")] for row in findings if row[0] == ViolationCode.SESSION_BAD_NAME.value}
    holding: list[dict[str, Any]] = []  # in the order of time; who ended before the newest began can hold no more
    for stream in group:
        while holding and holding[-1]["ts_end"] <= stream["ts_start"]:
            holding.pop()
        held = holding[-1] if holding else None
        frames = stream["audio_messages"] + stream["video_messages"]
        if frames:
            holding.append(stream)
        if held is None or held["uid"] == stream["uid"] or stream["uid"] in told or not frames:
            continue
        fold = FindingFold()
        fold.add(
            Finding(
                ViolationCode.SESSION_BAD_NAME, _HELD.format(held["uid"]), None, "client",
                stream["direction"], stream["stream_id"], None, None, stream["ts_start"],
            )
        )  # fmt: skip
        rows += fold.rows(stream["uid"], entry)
    return rows


def _holder(earlier: Sequence[dict[str, Any]], ts: int) -> dict[str, Any] | None:
    holding = [s for s in earlier if s["ts_start"] <= ts < s["ts_end"] and s["audio_messages"] + s["video_messages"]]
    return holding[-1] if holding else None


def _with_holder(row: Row, rivals: Iterable[list[dict[str, Any]]]) -> Row:
    """A refusal for a taken name, with the connection that holds it."""
    if row[0] != ViolationCode.SESSION_BAD_NAME.value:
        return row
    known = dict(zip(_FINDINGS, row))
    for group in rivals:
        own = next((s for s in group if s["uid"] == known["uid"]), None)
        if own is None or own["verdict_rule_id"] != ViolationCode.SESSION_BAD_NAME.value:
            continue
        held = _holder([s for s in group if s["uid"] != known["uid"]], own["ts_start"])
        if held is not None:
            known["detail"] = known["detail"] + _HOLDS.format(held["uid"])
    return tuple(known[name] for name in _FINDINGS[: len(row)])


def _with_next_round(row: Row, ends: Sequence[Ended]) -> Row:
    """A round of an authentication, with the connection in which it goes on."""
    if row[0] != ViolationCode.CMD_AUTH_ROUND.value:
        return row
    known = dict(zip(_FINDINGS, row))
    own = next((end for end in ends if end.uid == known["uid"]), None)
    if own is None:
        return row
    later = [
        end
        for end in ends
        if (end.orig_h, end.resp_h, end.resp_p) == (own.orig_h, own.resp_h, own.resp_p)
        and own.ts_start < end.ts_start <= own.ts_start + _ROUND_US
    ]
    if later:
        known["detail"] = known["detail"] + _GOES_ON.format(min(later, key=lambda end: end.ts_start).uid)
    return tuple(known[name] for name in _FINDINGS[: len(row)])
