"""What only several connections together show: SESSION_PERIODIC, SESSION_BAD_NAME with the holder of the name.

Functions over rows of `streams`, `findings` and how connections ended, so they run at the end of a recording and over a
whole lake alike. Nothing is kept between calls.
"""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
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
_AT_ONCE_US = 250_000  # by which one stream begins later on the other side of a router
_ROUND_US = 30_000_000  # within which the next connection of an authentication follows
_STREAMS = column_names("streams")
_ASKED = (
    "uid", "stream_id", "direction", "app", "name", "role", "ts_start", "ts_end", "audio_messages", "video_messages",
    "media_bytes", "verdict_rule_id",
)  # fmt: skip
_asked, _NAME = itemgetter(*map(_STREAMS.index, _ASKED)), _STREAMS.index("name")
_FINDINGS = column_names("findings")
_RULE, _UID, _DETAIL = (_FINDINGS.index(c) for c in ("rule_id", "uid", "detail"))
# What is told about another connection, and how it is found again.
_HELD, _HOLDS, _GOES_ON = "{} was publishing this name already", "; {} holds the name", "; it goes on in {}"
_ANY_UID = r"C\w{20}"
_ADDED = re.compile(f"({'|'.join(map(re.escape, (_HOLDS, _GOES_ON)))})+$".replace(re.escape("{}"), _ANY_UID))
_WHOLLY = re.compile(_HELD.format(_ANY_UID))


def judge_together(streams: Sequence[Row], ends: Sequence[Ended], findings: Sequence[Row]) -> list[Row]:
    """Rows of `findings`: the given ones, some with more to tell now, and new ones. `streams` are numbered."""
    endings = {end.uid: end for end in ends}
    named = [dict(zip(_ASKED, _asked(row))) for row in streams if row[_NAME] is not None]
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
    refused = {row[_UID] for row in findings if row[_RULE] == ViolationCode.SESSION_BAD_NAME.value}
    closed = {row[_UID]: row for row in findings if row[_RULE] == ViolationCode.SESSION_END.value}
    holders: dict[str, list[str]] = {}
    for group in rivals.values():
        _note_holders(group, refused, holders)
    told = _with_next_rounds([_with_holders(row, holders) for row in findings], endings, ends)
    for group in groups.values():
        told += _periodic(group, endings, closed)
    for group in rivals.values():
        told += _two_at_once(group, refused)
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


def _periodic(group: list[dict[str, Any]], endings: Mapping[str, Ended], closed: Mapping[str, Row]) -> list[Row]:
    """Runs of attempts, one after another, that lasted nearly equally long."""
    rows: list[Row] = []
    run: list[dict[str, Any]] = []
    lengths: list[float] = []  # of the run, sorted
    for stream in [*group, None]:
        if stream is not None and _goes_on(run, lengths, stream):
            run.append(stream)
            continue
        if len(run) >= _LEAST_ATTEMPTS:
            rows += [_with_end(row, closed) for row in _told(run, endings)]
        run = [] if stream is None else [stream]
        lengths = [] if stream is None else [_seconds(stream)]
    return rows


def _seconds(stream: dict[str, Any]) -> float:
    return float(stream["ts_end"] - stream["ts_start"]) / 1e6


def _goes_on(run: list[dict[str, Any]], lengths: list[float], stream: dict[str, Any]) -> bool:
    """Whether the stream lasted like those of the run; its length stands among theirs then."""
    if run and (stream["ts_start"] < run[-1]["ts_end"] or stream["uid"] == run[-1]["uid"]):
        return False
    insort(lengths, _seconds(stream))
    middle = len(lengths) // 2
    usual = (lengths[middle] + lengths[~middle]) / 2
    spread = lengths[-1] - lengths[0]
    return not run or (usual >= _LEAST_SECONDS and spread <= max(_SPREAD * usual, _SPREAD_SECONDS))


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


def _with_end(row: Row, closed: Mapping[str, Row]) -> Row:
    """With the packet at which the connection ended, which its SESSION_END has."""
    known = dict(zip(_FINDINGS, row))
    end = closed.get(row[_UID])
    if end is not None:
        known |= {name: end[_FINDINGS.index(name)] for name in ("capture_id", "frame", "frame_last")}
    return tuple(known[name] for name in _FINDINGS[: len(row)])


def _two_at_once(group: list[dict[str, Any]], refused: Collection[str]) -> list[Row]:
    """Publishers of one name at the same time that the server let in both."""
    rows: list[Row] = []
    holding: list[dict[str, Any]] = []  # in the order of time; who ended before the newest began can hold no more
    for stream in group:
        while holding and holding[-1]["ts_end"] <= stream["ts_start"]:
            holding.pop()
        held = holding[-1] if holding else None
        frames = stream["audio_messages"] + stream["video_messages"]
        if frames:
            holding.append(stream)
        if held is None or held["uid"] == stream["uid"] or stream["uid"] in refused or not frames:
            continue
        if _heard_twice(held, stream):
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


def _heard_twice(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Recorded before and behind a router that changes addresses: the same media at the same time."""
    numbers = ("audio_messages", "video_messages", "media_bytes")
    near = all(abs(other[name] - one[name]) <= _AT_ONCE_US for name in ("ts_start", "ts_end"))
    return near and one["media_bytes"] > 0 and all(one[name] == other[name] for name in numbers)


def _note_holders(group: list[dict[str, Any]], refused: Collection[str], holders: dict[str, list[str]]) -> None:
    """For each connection that was refused this name: who was publishing it, the last to begin."""
    first: dict[str, dict[str, Any]] = {}
    for stream in group:
        first.setdefault(stream["uid"], stream)
    holding: list[dict[str, Any]] = []  # in the order of time; who ended before the newest began can hold no more
    begun = 0
    for uid, own in first.items():
        if uid not in refused or own["verdict_rule_id"] != ViolationCode.SESSION_BAD_NAME.value:
            continue
        while begun < len(group) and group[begun]["ts_start"] <= own["ts_start"]:
            if group[begun]["audio_messages"] + group[begun]["video_messages"]:
                holding.append(group[begun])
            begun += 1
        while holding and holding[-1]["ts_end"] <= own["ts_start"]:
            holding.pop()
        held = next((s for s in reversed(holding) if s["uid"] != uid and s["ts_end"] > own["ts_start"]), None)
        if held is not None:
            holders.setdefault(uid, []).append(held["uid"])


def _with_holders(row: Row, holders: Mapping[str, list[str]]) -> Row:
    """A refusal for a taken name, with the connection that holds it."""
    if row[_RULE] != ViolationCode.SESSION_BAD_NAME.value:
        return row
    return _with_more(row, "".join(_HOLDS.format(uid) for uid in holders.get(row[_UID], ())))


def _with_next_rounds(findings: list[Row], endings: Mapping[str, Ended], ends: Sequence[Ended]) -> list[Row]:
    """Rounds of an authentication, with the connections in which they go on."""
    rounds = [number for number, row in enumerate(findings) if row[_RULE] == ViolationCode.CMD_AUTH_ROUND.value]
    between: dict[tuple[Any, ...], list[Ended]] = {}
    for end in sorted(ends, key=_start) if rounds else ():
        between.setdefault((end.orig_h, end.resp_h, end.resp_p), []).append(end)
    for number in rounds:
        own = endings.get(findings[number][_UID])
        if own is not None:
            known = between[own.orig_h, own.resp_h, own.resp_p]
            after = bisect_right(known, own.ts_start, key=_start)
            if after < len(known) and known[after].ts_start <= own.ts_start + _ROUND_US:
                findings[number] = _with_more(findings[number], _GOES_ON.format(known[after].uid))
    return findings


def _start(end: Ended) -> int:
    return end.ts_start


def _with_more(row: Row, text: str) -> Row:
    return (*row[:_DETAIL], row[_DETAIL] + text, *row[_DETAIL + 1 :]) if text else row
