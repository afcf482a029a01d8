"""Rules that need several connections."""

from __future__ import annotations

from typing import Any

from rtmp_spark.forensics.ended_connection import Ended
from rtmp_spark.forensics.rules_across_connections import findings_across_connections, findings_of_single_connections
from rtmp_spark.schema import column_names

SECOND = 1_000_000
_STREAMS = column_names("streams")[:-1]
_FINDINGS = column_names("findings")[:-1]


def stream(
    uid: str, start: float, seconds: float, *, name: str = "cam", role: str = "publish", **other: Any
) -> tuple[Any, ...]:
    known = {
        "uid": uid, "stream_id": 1, "direction": "c2s", "app": "live", "name": name, "role": role, "attempt_no": 1,
        "ts_start": int(start * SECOND), "ts_end": int((start + seconds) * SECOND), "audio_messages": 9,
        "video_messages": 9, "media_bytes": 9, "verdict": "ok",
    }  # fmt: skip
    known |= other
    return tuple(known.get(column) for column in _STREAMS)


def ended(uid: str, by: str | None = "server", kind: str = "fin", start: float = 0, host: str = "10.0.0.1") -> Ended:
    return Ended(uid, host, "10.0.0.2", 1935, int(start * SECOND), by, kind, "unknown")


def finding(uid: str, rule_id: str) -> tuple[Any, ...]:
    known = {"uid": uid, "rule_id": rule_id, "severity": "warning", "count": 1, "title": "t", "detail": "refused"}
    return tuple(known.get(column) for column in _FINDINGS)


def judged(streams: list[tuple[Any, ...]], ends: list[Ended], findings: Any = ()) -> list[dict[str, Any]]:
    return [dict(zip(_FINDINGS, row)) for row in findings_across_connections(streams, ends, findings)]


def test_a_stream_that_drops_every_ten_minutes() -> None:
    lengths = (600.2, 599.8, 600.0, 600.4)
    streams = [stream(f"C{i}", i * 605, length) for i, length in enumerate(lengths)]
    (found,) = judged(streams, [ended(f"C{i}") for i in range(4)])
    assert found["rule_id"] == "SESSION_PERIODIC" and found["count"] == 4
    assert found["at_fault"] == "server" and found["uid"] == "C3"
    assert "600.1 s" in found["detail"]


def test_a_periodic_drop_is_reported_at_the_end_of_the_last_attempt() -> None:
    ends = [
        dict(zip(_FINDINGS, finding(f"C{i}", "SESSION_END"))) | {"frame": 10 + i, "capture_id": 0} for i in range(4)
    ]
    streams = [stream(f"C{i}", i * 70, 60) for i in range(4)]
    closed = [*(ended(f"C{i}") for i in range(3)), ended("C3", None, "open")]  # the fourth is still open
    rows = judged(streams, closed, [tuple(end.values()) for end in ends])
    (found,) = [row for row in rows if row["rule_id"] == "SESSION_PERIODIC"]
    assert (found["uid"], found["frame"], found["capture_id"], found["count"]) == ("C2", 12, 0, 3)


def test_two_attempts_or_different_durations_are_not_periodic() -> None:
    ends = [ended(f"C{i}") for i in range(4)]
    assert judged([stream("C0", 0, 60), stream("C1", 70, 60)], ends) == []
    assert judged([stream(f"C{i}", i * 100, 20 + 15 * i) for i in range(4)], ends) == []


def test_simultaneous_attempts_are_not_periodic() -> None:
    players = [stream(f"C{i}", i, 60, role="play") for i in range(4)]
    assert judged(players, [ended(f"C{i}") for i in range(4)]) == []


def test_an_open_attempt_does_not_count() -> None:
    streams = [stream(f"C{i}", i * 70, 60) for i in range(3)]
    ends = [ended("C0"), ended("C1"), ended("C2", None, "open")]
    assert judged(streams, ends) == []


def test_the_connection_that_holds_a_name() -> None:
    streams = [
        stream("C0", 0, 60),
        stream("C1", 5, 0.1, audio_messages=0, video_messages=0, verdict_rule_id="SESSION_BAD_NAME"),
    ]
    (found,) = judged(streams, [ended("C0"), ended("C1")], [finding("C1", "SESSION_BAD_NAME")])
    assert found["detail"] == "refused; connection C0 holds the name"


def test_two_publishers_that_were_both_accepted() -> None:
    streams = [stream("C0", 0, 60), stream("C1", 5, 60), stream("C2", 5, 60, name="other")]
    (found,) = judged(streams, [ended(u) for u in ("C0", "C1", "C2")])
    assert found["rule_id"] == "SESSION_BAD_NAME" and found["uid"] == "C1" and "C0" in found["detail"]


def test_one_publisher_captured_on_both_sides_of_a_router() -> None:
    ends = [ended("C0"), ended("C1", host="203.0.113.9")]
    assert judged([stream("C0", 0, 60), stream("C1", 0.01, 60)], ends) == []
    for other in (stream("C1", 0.01, 60, media_bytes=10), stream("C1", 0.01, 50), stream("C1", 1, 60)):
        (found,) = judged([stream("C0", 0, 60), other], ends)
        assert found["rule_id"] == "SESSION_BAD_NAME"


def test_the_rounds_of_an_authentication_are_linked() -> None:
    ends = [ended("C0", start=0), ended("C1", start=1), ended("C2", start=2), ended("C9", start=1.5, host="10.9.9.9")]
    found = judged([], ends, [finding("C0", "CMD_AUTH_ROUND"), finding("C1", "CMD_AUTH_ROUND")])
    assert [row["detail"] for row in found] == [
        f"refused; the authentication continues in connection {uid}" for uid in ("C1", "C2")
    ]


def test_one_name_at_two_servers_is_a_relay() -> None:
    streams = [stream("C0", 0, 60), stream("C1", 1, 60)]
    elsewhere = ended("C1", host="10.0.0.2")._replace(resp_h="10.0.0.3")
    assert judged(streams, [ended("C0"), elsewhere]) == []


def test_two_players_that_alternate_are_not_periodic() -> None:
    """Two players with two plays of ten seconds each; but four such plays of one player are periodic."""
    streams = [stream(f"C{i}", i * 12, 10, role="play") for i in range(4)]
    assert judged(streams, [ended(f"C{i}", host=f"10.0.1.{i % 2}") for i in range(4)]) == []
    assert len(judged(streams, [ended(f"C{i}", host="10.0.1.1") for i in range(4)])) == 1


def test_findings_across_connections_can_be_undone() -> None:
    """A later ingest applies the rules again, to the findings of the single connections."""
    one, two, three, four = (f"C{letter * 20}" for letter in "abcd")
    streams = [
        stream(one, 0, 60),
        stream(two, 5, 0.1, audio_messages=0, video_messages=0, verdict_rule_id="SESSION_BAD_NAME"),
        stream(three, 10, 60),
        *(stream(f"C{number}{'e' * 19}", number * 20, 10, name="again") for number in range(3)),
    ]
    given = [finding(two, "SESSION_BAD_NAME"), finding(two, "CMD_AUTH_ROUND"), finding(one, "TCP_GAP")]
    ends = [ended(one), ended(two, start=5), ended(three, start=10), ended(four, start=6)]
    rows = findings_across_connections(streams, ends, given)
    assert len(rows) == 5 and {row for row in rows if row in given} == {given[2]}
    assert findings_of_single_connections(rows) == given
