"""Rules that need several connections: SESSION_PERIODIC, SESSION_BAD_NAME with the connection that holds the name, and
the links between the connections of an authentication (CMD_AUTH_ROUND).

They are functions over rows of `streams`, rows of `findings` and the ends of connections, so they run at the end of a
recording and over a whole lake alike. They keep nothing between calls.
"""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import NamedTuple

from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.conversation.facts import Row
from rtmp_spark.forensics.ended_connection import Ended
from rtmp_spark.forensics.findings import Finding, FindingFold
from rtmp_spark.forensics.median import median
from rtmp_spark.forensics.thresholds import (
    AUTH_ROUND_US,
    PERIODIC_ATTEMPTS,
    PERIODIC_SECONDS,
    PERIODIC_SPREAD,
    PERIODIC_SPREAD_SECONDS,
    SAME_MEDIA_US,
)
from rtmp_spark.schema import column_names


class _Attempt(NamedTuple):
    """One attempt to publish or play a stream: the columns of `streams` that the rules need."""

    uid: str
    stream_id: int
    direction: str | None
    app: str | None
    name: str | None
    role: str
    ts_start: int
    ts_end: int
    audio_messages: int
    video_messages: int
    media_bytes: int
    verdict_rule_id: str | None

    @property
    def seconds(self) -> float:
        return (self.ts_end - self.ts_start) / 1e6

    @property
    def amounts(self) -> tuple[int, int, int]:
        return self.audio_messages, self.video_messages, self.media_bytes

    @property
    def has_media(self) -> bool:
        return self.audio_messages + self.video_messages > 0


_STREAMS = column_names("streams")
_attempt_columns = itemgetter(*map(_STREAMS.index, _Attempt._fields))
_FINDINGS = column_names("findings")
_RULE, _UID, _DETAIL = (_FINDINGS.index(name) for name in ("rule_id", "uid", "detail"))
_PLACE = [_FINDINGS.index(name) for name in ("capture_id", "frame", "frame_last")]

# Texts that name another connection, and patterns that find them again.
_ALSO_PUBLISHES = "connection {} was already publishing this name"
_HOLDS_NAME, _NEXT_ROUND = "; connection {} holds the name", "; the authentication continues in connection {}"
_ANY_UID = r"C\w{20}"
_APPENDED = re.compile(f"({'|'.join(map(re.escape, (_HOLDS_NAME, _NEXT_ROUND)))})+$".replace(re.escape("{}"), _ANY_UID))
_ONLY_ACROSS = re.compile(_ALSO_PUBLISHES.format(_ANY_UID))
_start = attrgetter("ts_start")


def findings_across_connections(streams: Sequence[Row], ends: Sequence[Ended], findings: Sequence[Row]) -> list[Row]:
    """Return rows of `findings`: the given ones, some with another connection added to their detail, and new ones.

    Args:
        streams: Rows of `streams`, with their attempt numbers.
        ends: The ends of all connections.
        findings: Rows of `findings` of the single connections.
    """
    endings = {end.uid: end for end in ends}
    attempts = [_Attempt._make(_attempt_columns(row)) for row in streams]
    by_client: dict[object, list[_Attempt]] = {}  # attempts of one name; of one player where they are plays
    by_server: dict[object, list[_Attempt]] = {}  # publishes of one name at one server: two servers may both have it
    for attempt in sorted(attempts, key=lambda one: (one.ts_start, one.uid)):
        if attempt.name is None:
            continue
        key = (attempt.app, attempt.name, attempt.role)
        end = endings.get(attempt.uid)
        player = end.orig_h if end is not None and attempt.role == "play" else None
        by_client.setdefault((*key, player), []).append(attempt)
        if attempt.role == "publish":
            server = None if end is None else (end.resp_h, end.resp_p)
            by_server.setdefault((*key, server), []).append(attempt)
    refused = {row[_UID] for row in findings if row[_RULE] == ViolationCode.SESSION_BAD_NAME.value}
    closed = {row[_UID]: row for row in findings if row[_RULE] == ViolationCode.SESSION_END.value}
    holders: dict[str, list[str]] = {}
    for group in by_server.values():
        for uid, holder in _holders(group, refused):
            holders.setdefault(uid, []).append(holder)
    found = _with_next_rounds([_with_holders(row, holders) for row in findings], endings, ends)
    for group in by_client.values():
        found += _periodic(group, endings, closed)
    for group in by_server.values():
        found += _simultaneous_publishers(group, refused)
    return found


def findings_of_single_connections(findings: Iterable[Row]) -> list[Row]:
    """Undo `findings_across_connections`: return the findings that it was given."""
    single = []
    for row in findings:
        detail = row[_DETAIL]
        if row[_RULE] == ViolationCode.SESSION_PERIODIC.value or (detail and _ONLY_ACROSS.fullmatch(detail)):
            continue
        single.append(row if detail is None else _with_detail(row, _APPENDED.sub("", detail)))
    return single


# -- SESSION_PERIODIC -------------------------------------------------------------------------------------------------


class _Run:
    """Consecutive attempts of nearly equal duration."""

    def __init__(self, first: _Attempt) -> None:
        self.attempts = [first]
        self._durations = [first.seconds]  # sorted

    def add(self, attempt: _Attempt) -> bool:
        """Add the next attempt; False if it is simultaneous, or if its duration differs: then the run is over."""
        last = self.attempts[-1]
        if attempt.ts_start < last.ts_end or attempt.uid == last.uid:
            return False
        durations = self._durations
        insort(durations, attempt.seconds)
        middle = len(durations) // 2
        usual = (durations[middle] + durations[~middle]) / 2
        spread = durations[-1] - durations[0]
        if usual < PERIODIC_SECONDS or spread > max(PERIODIC_SPREAD * usual, PERIODIC_SPREAD_SECONDS):
            return False
        self.attempts.append(attempt)
        return True


def _periodic(group: list[_Attempt], endings: Mapping[str, Ended], closed: Mapping[str, Row]) -> list[Row]:
    runs: list[_Run] = []
    for attempt in group:
        if not runs or not runs[-1].add(attempt):
            runs.append(_Run(attempt))
    return [_with_place_of(row, closed) for run in runs for row in _periodic_finding(run.attempts, endings)]


def _periodic_finding(attempts: list[_Attempt], endings: Mapping[str, Ended]) -> list[Row]:
    ends = [end for one in attempts if (end := endings.get(one.uid)) is not None]
    if any(end.close_kind == "open" for end in ends):  # the last attempt has no duration yet
        attempts = attempts[:-1]
        ends = [end for one in attempts if (end := endings.get(one.uid)) is not None]
    if len(attempts) < PERIODIC_ATTEMPTS:
        return []
    last = attempts[-1]
    usual = median(one.seconds for one in attempts)
    closers = {end.closed_by for end in ends}
    closer = closers.pop() if len(closers) == 1 else None
    who = f"always by the {closer}" if closer else "not always by the same side"
    fold = FindingFold()
    fold.add(
        Finding(
            ViolationCode.SESSION_PERIODIC,
            f"ended {len(attempts)} times in a row after {usual:.1f} s, {who}", None, closer, last.direction,
            last.stream_id, None, None, last.ts_end, len(attempts), "a stream that continues", f"{usual:.1f} s",
        )
    )  # fmt: skip
    return fold.rows(last.uid)


def _with_place_of(row: Row, closed: Mapping[str, Row]) -> Row:
    """The row with the packet at which the connection ended, from its SESSION_END."""
    end = closed.get(row[_UID])
    if end is None:
        return row
    values = list(row)
    for column in _PLACE:
        values[column] = end[column]
    return tuple(values)


# -- SESSION_BAD_NAME -------------------------------------------------------------------------------------------------


def _simultaneous_publishers(group: list[_Attempt], refused: Collection[str]) -> list[Row]:
    """Findings for publishers of a name in use whom the server accepted."""
    rows: list[Row] = []
    publishing: list[_Attempt] = []  # by start; attempts that ended before the newest began are removed from its end
    for attempt in group:
        while publishing and publishing[-1].ts_end <= attempt.ts_start:
            publishing.pop()
        holder = publishing[-1] if publishing else None
        if not attempt.has_media:
            continue
        publishing.append(attempt)
        if holder is None or holder.uid == attempt.uid or attempt.uid in refused or _same_media(holder, attempt):
            continue
        fold = FindingFold()
        fold.add(
            Finding(
                ViolationCode.SESSION_BAD_NAME, _ALSO_PUBLISHES.format(holder.uid), None, "client",
                attempt.direction, attempt.stream_id, None, None, attempt.ts_start,
            )
        )  # fmt: skip
        rows += fold.rows(attempt.uid)
    return rows


def _same_media(one: _Attempt, other: _Attempt) -> bool:
    """True if both are one stream, captured on both sides of a router that changes addresses."""
    if abs(other.ts_start - one.ts_start) > SAME_MEDIA_US or abs(other.ts_end - one.ts_end) > SAME_MEDIA_US:
        return False
    return one.media_bytes > 0 and one.amounts == other.amounts


def _holders(group: list[_Attempt], refused: Collection[str]) -> list[tuple[str, str]]:
    """Pairs (connection that was refused this name, connection that published it last before)."""
    first: dict[str, _Attempt] = {}
    for attempt in group:
        first.setdefault(attempt.uid, attempt)
    pairs = []
    publishing: list[_Attempt] = []  # by start; attempts that ended before the newest began are removed from its end
    begun = 0
    for uid, own in first.items():
        if uid not in refused or own.verdict_rule_id != ViolationCode.SESSION_BAD_NAME.value:
            continue
        while begun < len(group) and group[begun].ts_start <= own.ts_start:
            if group[begun].has_media:
                publishing.append(group[begun])
            begun += 1
        while publishing and publishing[-1].ts_end <= own.ts_start:
            publishing.pop()
        holder = next((one for one in reversed(publishing) if one.uid != uid and one.ts_end > own.ts_start), None)
        if holder is not None:
            pairs.append((uid, holder.uid))
    return pairs


def _with_holders(row: Row, holders: Mapping[str, list[str]]) -> Row:
    """A refusal for a name in use, with the connections that hold the name."""
    if row[_RULE] != ViolationCode.SESSION_BAD_NAME.value or row[_UID] not in holders:
        return row
    return _with_detail(row, row[_DETAIL] + "".join(_HOLDS_NAME.format(uid) for uid in holders[row[_UID]]))


# -- CMD_AUTH_ROUND ---------------------------------------------------------------------------------------------------


def _with_next_rounds(findings: list[Row], endings: Mapping[str, Ended], ends: Sequence[Ended]) -> list[Row]:
    """The findings, those of authentication rounds with the connection in which the authentication continues."""
    rounds = [number for number, row in enumerate(findings) if row[_RULE] == ViolationCode.CMD_AUTH_ROUND.value]
    by_peers: dict[tuple[str, str, int], list[Ended]] = {}
    for end in sorted(ends, key=_start) if rounds else ():
        by_peers.setdefault((end.orig_h, end.resp_h, end.resp_p), []).append(end)
    for number in rounds:
        row = findings[number]
        own = endings.get(row[_UID])
        if own is None:
            continue
        connections = by_peers[own.orig_h, own.resp_h, own.resp_p]
        after = bisect_right(connections, own.ts_start, key=_start)
        if after < len(connections) and connections[after].ts_start <= own.ts_start + AUTH_ROUND_US:
            findings[number] = _with_detail(row, row[_DETAIL] + _NEXT_ROUND.format(connections[after].uid))
    return findings


def _with_detail(row: Row, detail: str) -> Row:
    return (*row[:_DETAIL], detail, *row[_DETAIL + 1 :])
