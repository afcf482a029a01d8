"""Which plays an ingest matches with which published streams, as batches of work for executors.

An ingest matches the plays it brought, and the plays of the lake that were running while a new or resumed publisher
published. The plan is made from rows of `streams` only. Its size grows with the number of streams, not of their pairs:
plays that may come from the same publishers are in one group, and `delivery_search` finds out which do.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace

import pyarrow.compute as pc

from rtmp_spark.forensics.deliveries.name_scopes import Periods, Scope, scopes
from rtmp_spark.forensics.thresholds import CACHE_US
from rtmp_spark.ingest.publish.lake_rows import PublishedTables, Row, one_of, read_tuples, to_tuples
from rtmp_spark.ingest.publish.neighbours import Neighbours, NewRows, of_sensor, overlapping
from rtmp_spark.schema import column_names

BATCH_MESSAGES = 1_000_000  # read at once; bounds the memory of one task to some 100 MB
BATCH_PLAYS = 1000  # of one task, about a second of work, so that all cores share it
SMALL_MESSAGES = 100_000  # matched on the driver in less time than a Spark job takes


_ADDED = ("alone", "open")


@dataclass(frozen=True)
class LakeStream:
    """The columns of `streams` that matching needs."""

    uid: str
    stream_id: int
    direction: str
    role: str
    name: str | None
    ts_start: int
    ts_end: int
    audio_messages: int
    video_messages: int
    alone: bool = False  # the only stream of its connection and direction
    open: bool = False  # a later ingest may resume its connection

    @property
    def messages(self) -> int:
        return self.audio_messages + self.video_messages


_PLACES = [column_names("streams").index(field.name) for field in fields(LakeStream) if field.name not in _ADDED]


@dataclass(frozen=True)
class Group:
    """Plays, and the published streams that they may come from by name; both in order of time."""

    played: list[LakeStream]
    published: list[LakeStream]

    @property
    def messages(self) -> int:
        return sum(span.messages for span in (*self.played, *self.published))


@dataclass
class Batch:
    """The work of one task: one group, or several small ones."""

    groups: list[Group] = field(default_factory=list)

    @property
    def messages(self) -> int:
        return sum(group.messages for group in self.groups)

    @property
    def plays(self) -> list[LakeStream]:
        return [play for group in self.groups for play in group.played]

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Batch:
        groups = json.loads(text)["groups"]
        return cls([Group(**{side: [LakeStream(**one) for one in spans] for side, spans in g.items()}) for g in groups])


@dataclass
class DeliveryPlan:
    batches: list[str] = field(default_factory=list)  # `Batch.dump`
    small: bool = True  # not worth a job of its own
    uids: list[str] = field(default_factory=list)  # of all streams in the batches
    matched_before: list[str] = field(default_factory=list)  # uids of plays whose older rows are replaced


def plan_deliveries(
    lake: PublishedTables, sensor: str, new: NewRows, known: Neighbours, open_uids: Collection[str], cores: int
) -> DeliveryPlan:
    own, old = (_with_media(rows) for rows in (to_tuples(new.streams), known.streams))
    published_at = Periods(new.times("publish"))
    old_plays = [s for s in old if s.role == "play" and published_at.any_during_play(s)]
    played = [s for s in (*own, *old_plays) if s.role == "play"]
    if old_plays:  # they may also have played streams that ended before the new ones began
        old = _published_during(lake, sensor, new, played)
    published = [s for s in (*own, *old) if s.role == "publish"]
    played, published = sorted(played, key=_order), sorted(published, key=_order)
    groups = [group for scope in scopes(published, played) for group in _groups(*_spans_of(scope, published, played))]
    used = {span.uid for group in groups for span in (*group.played, *group.published)}
    siblings = _streams_per_direction(lake, new, used)
    batches = list(_batches([_completed(group, siblings, open_uids) for group in groups], cores))
    return DeliveryPlan(
        [batch.dump() for batch in batches],
        len(batches) == 1 and batches[0].messages <= SMALL_MESSAGES,
        sorted(used),
        sorted({s.uid for s in old_plays} | {s.uid for s in played if s.uid in new.resumed}),
    )


def _with_media(rows: Iterable[Row]) -> list[LakeStream]:
    found = (LakeStream(*(row[place] for place in _PLACES)) for row in rows)
    return [s for s in found if s.messages]


def _order(span: LakeStream) -> tuple[int, str, int]:
    return span.ts_start, span.uid, span.stream_id


def _spans_of(
    scope: Scope, published: Sequence[LakeStream], played: Sequence[LakeStream]
) -> tuple[list[LakeStream], list[LakeStream]]:
    return [played[n] for n in scope.played], [published[n] for n in scope.published]


def _groups(played: Sequence[LakeStream], published: Sequence[LakeStream]) -> Iterator[Group]:
    """Parts of the plays, each with the streams that were published at its time.

    They have at least as many plays as there are published streams, so that the plan does not grow with the pairs.
    """
    most = max(BATCH_PLAYS, len(published))
    first = messages = 0
    for number, play in enumerate(played):
        if number > first and (messages + play.messages > BATCH_MESSAGES // 2 or number - first == most):
            yield from _group(played[first:number], published)
            first, messages = number, 0
        messages += play.messages
    yield from _group(played[first:], published)


def _group(played: Sequence[LakeStream], published: Sequence[LakeStream]) -> Iterator[Group]:
    times = Periods((play.ts_start - CACHE_US, play.ts_end) for play in played)
    sources = [span for span in published if times.any_at(span.ts_start, span.ts_end)]
    if sources:
        yield Group(list(played), sources)


def _batches(groups: Sequence[Group], cores: int) -> Iterator[Batch]:
    """A batch for each core, more if they become too large. The messages of a small plan are in one."""
    total = sum(group.messages for group in groups)
    share = max(total // cores, SMALL_MESSAGES // 2) if total > SMALL_MESSAGES else total
    batch, messages, plays = Batch(), 0, 0
    for group in groups:
        larger = messages + group.messages, plays + len(group.played)
        if batch.groups and (messages >= share or larger[0] > BATCH_MESSAGES or larger[1] > BATCH_PLAYS):
            yield batch
            batch, messages, plays = Batch(), 0, 0
        batch.groups.append(group)
        messages += group.messages
        plays += len(group.played)
    if batch.groups:
        yield batch


def _published_during(
    lake: PublishedTables, sensor: str, new: NewRows, played: Sequence[LakeStream]
) -> list[LakeStream]:
    """Streams of the lake that were published while these were played."""
    times = [(s.ts_start, s.ts_end) for s in played]
    rows = read_tuples(lake, "streams", (pc.field("role") == "publish") & overlapping(times))
    uids = {row[0] for row in rows} - new.replaced
    if not uids:
        return []
    of_this_sensor = lake.read("connections", ["uid"], of_sensor(sensor) & one_of("uid", uids))["uid"].to_pylist()
    return _with_media(row for row in rows if row[0] in uids.intersection(of_this_sensor))


def _streams_per_direction(lake: PublishedTables, new: NewRows, uids: set[str]) -> Counter[tuple[str, str]]:
    counts = Counter(zip(new.streams["uid"].to_pylist(), new.streams["direction"].to_pylist()))
    others = uids - {uid for uid, _ in counts}
    if others:
        rows = lake.read("streams", ["uid", "direction"], one_of("uid", others))
        counts.update(zip(rows["uid"].to_pylist(), rows["direction"].to_pylist()))
    return counts


def _completed(group: Group, siblings: Counter[tuple[str, str]], open_uids: Collection[str]) -> Group:
    def described(spans: Sequence[LakeStream]) -> list[LakeStream]:
        return [replace(s, alone=siblings[s.uid, s.direction] == 1, open=s.uid in open_uids) for s in spans]

    return Group(described(group.played), described(group.published))
