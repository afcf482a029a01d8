"""Two taps with clocks of their own: answers recorded before their questions change nothing but times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rewrite
from rulekit import SAMPLES, command, recorded

from rtmp_spark.capture.causality import NEARBY_US, Placed, put_off_answers

TALKS = ("nginx_vod_rtmpdump_play.pcap", "ffmpeg_publish_bframes_rtmpdump_play.pcap", "denied_and_unknown_app.pcap")


def told(*paths: Path) -> dict[str, Any]:
    rows = recorded(paths, "connections", "commands", "streams", "findings")
    port = {row["uid"]: row["orig_p"] for row in rows["connections"]}  # a uid has the time of the first packet in it
    return {
        "answers": sorted(
            (port[row["uid"]], row["msg_no"], row["response_to_msg_no"])
            for row in rows["commands"]
            if row["direction"] == "s2c"
        ),
        "streams": sorted(
            (port[row["uid"]], row["role"], row["name"], row["audio_messages"], row["video_messages"], row["verdict"])
            for row in rows["streams"]
        ),
        "findings": sorted((port[row["uid"]], row["rule_id"]) for row in rows["findings"]),
    }


@pytest.mark.parametrize("milliseconds", [1, 40, 900])
@pytest.mark.parametrize("name", TALKS)
def test_a_server_whose_tap_is_ahead(name: str, milliseconds: int, tmp_path: Path) -> None:
    packets = rewrite.read(SAMPLES / name)
    ahead = [replace(p, ts_ns=p.ts_ns - milliseconds * 1_000_000) if p.sport == 1935 else p for p in packets]
    (tmp_path / "plain.pcap").write_bytes(rewrite.pcap(rewrite.build(packets)))
    (tmp_path / "ahead.pcap").write_bytes(rewrite.pcap(rewrite.build(sorted(ahead, key=lambda p: p.ts_ns))))
    assert told(tmp_path / "ahead.pcap") == told(tmp_path / "plain.pcap")


def test_wherever_the_recording_is_cut(tmp_path: Path) -> None:
    """Each file is a window of its own, so the question of an answer is many windows away."""
    packets = rewrite.read(SAMPLES / TALKS[0])
    ahead = [replace(p, ts_ns=p.ts_ns - 900_000_000) if p.sport == 1935 else p for p in packets]
    ahead.sort(key=lambda p: p.ts_ns)
    (tmp_path / "whole.pcap").write_bytes(rewrite.pcap(rewrite.build(ahead)))
    parts = [tmp_path / f"part{first:05}.pcap" for first in range(0, len(ahead), 5)]
    for number, part in enumerate(parts):
        part.write_bytes(rewrite.pcap(rewrite.build(ahead[5 * number : 5 * number + 5])))
    assert told(*parts) == told(tmp_path / "whole.pcap")


def ordered(*facts: Placed, media_at: list[int] | None = None, asked: bool = False) -> list[str | None]:
    placed = list(facts)
    put_off_answers(placed, [[], media_at if media_at is not None else []], lambda number, fact: not asked, 0)
    return [fact.name for _, _, _, fact in placed]  # type: ignore[union-attr]


def test_what_was_said_after_the_answer_comes_after_the_question_too() -> None:
    answer = (10, 1, 0, command("_result", 2.0, ts=10))
    onward = (11, 1, 1, command("onBWDone", 0.0, ts=11))
    question = (12, 0, 2, command("createStream", 2.0, ts=12))
    media_at = [9, 10, 11, 12, 13, 14]
    assert ordered(answer, onward, question, media_at=media_at) == ["createStream", "_result", "onBWDone"]
    assert media_at == [9, 13, 13, 13, 13, 14]


def test_nothing_else_moves() -> None:
    answer = (10, 1, 0, command("_result", 2.0, ts=10))
    later = (12, 0, 2, command("createStream", 2.0, ts=12))
    assert ordered(answer, later, asked=True) == ["_result", "createStream"]  # it answers an earlier question
    another = (12, 0, 2, command("createStream", 2.0, ts=11 + NEARBY_US))
    assert ordered(answer, another) == ["_result", "createStream"]
    of_itself = (12, 1, 2, command("createStream", 2.0, ts=12))
    assert ordered(answer, of_itself) == ["_result", "createStream"]
    question = (9, 0, 0, command("createStream", 2.0, ts=9))
    assert ordered(question, answer, later) == ["createStream", "_result", "createStream"]
