"""docs/questions.md: the outputs are current, and the answers are correct.

Expected answers come from outside this project: how the captures were made (sample_pcaps/README.md), what the servers
recorded (oracle/), what tshark counts. The outputs on the page are only compared with what the blocks print now.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("duckdb", reason="the queries need DuckDB: pip install 'rtmp-spark[test]'")

from kit import question_page
from kit.decoded_tables import recorded_tags
from kit.question_page import Question, run_query
from kit.relay_process import read_flv

from rtmp_spark.report.view import Recording, read_captures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = {question.number: question for question in question_page.questions()}


def sql(number: int) -> list[dict[str, Any]]:
    """The rows of a question's query."""
    question = ALL[number]
    names, rows = run_query(question.blocks["sql"][0], question.captures)
    return [dict(zip(names, row)) for row in rows]


@pytest.fixture(scope="module")
def read(sample_pcaps: Path) -> Any:
    known: dict[str, Recording] = {}

    def once(name: str) -> Recording:
        if name not in known:
            known[name] = read_captures(sample_pcaps / f"{name}.pcap", keep_secrets=True)
        return known[name]

    return once


def test_each_of_fifteen_questions_has_command_query_and_cell() -> None:
    assert list(ALL) == list(range(1, 16))
    assert all(set(question.blocks) == {"sh", "sql", "python"} for question in ALL.values())


@pytest.mark.slow
@pytest.mark.parametrize("language", ["sh", "sql", "python"])
@pytest.mark.parametrize("question", ALL.values(), ids=lambda question: str(question.number))
def test_output_is_current(question: Question, language: str, tmp_path: Path) -> None:
    """If this fails, run `python tests/kit/question_page.py` and review the diff."""
    assert question_page.run(question, language, tmp_path) == question.blocks[language][1]


def test_1_flv_has_the_tags_that_the_server_recorded(read: Any, tmp_path: Path, oracle: Path) -> None:
    (written,) = read("ffmpeg_publish_h264_aac").connections[0].export_flv(tmp_path / "stream.flv")
    tags = [t for t in read_flv(Path(written)) if t.type_id in (8, 9)]
    recorded = recorded_tags(oracle / "ffmpeg_publish_h264_aac.server_record.flvtags.tsv")
    assert sum(t.is_media for t in recorded) == len(tags) - 2  # without our two codec configurations
    (row,) = sql(1)
    assert (row["video_messages"], row["audio_messages"]) == (127, 218)  # tshark


def test_2_only_messages_in_gaps_are_lost() -> None:
    whole = sum(row["messages"] for row in sql(2) if row["status"] == "complete")
    assert 361 - 5 <= whole < 361  # tshark counts 361 in the complete capture; five packets are missing


def test_3_one_header_per_chunk() -> None:
    for row in sql(3):
        assert row["headers_inside"] == (row["length"] - 1) // row["chunk_size"]


def test_4_messages_after_a_midstream_start_are_decoded(read: Any) -> None:
    rows = {(row["orig_p"], row["type_name"]): row for row in sql(4)}
    assert all(row["midstream"] for row in rows.values())
    assert rows[54660, "video"]["messages"] == 77  # all of the player's messages, counted by tshark
    whole = read("ffmpeg_publish_bframes_rtmpdump_play").connections[0].table("messages").to_pylist()
    later = [r for r in whole if r["type_name"] == "video" and r["direction"] == "c2s" and r["frame_first"] >= 300]
    assert len(later) - 1 <= rows[44878, "video"]["messages"] <= len(later)


def test_5_killed_publisher_is_peer_vanished() -> None:
    (row,) = sql(5)
    assert (row["closed_by"], row["close_kind"], row["close_cause"]) == ("client", "fin", "peer_vanished")


def test_6_refusals_have_the_server_response() -> None:
    rows = sql(6)
    assert [row["app"] for row in rows] == ["closed", "nosuchapp", "closed", "vod"]
    assert {row["close_cause"] for row in rows} == {"refused"}
    assert [row["code"] for row in rows] == [None, None, *["NetStream.Play.StreamNotFound"] * 2]


def test_7_extended_timestamps_without_findings(read: Any) -> None:
    published = [row for row in sql(7) if row["direction"] == "c2s"]
    assert max(row["highest"] for row in published) > 1 << 24
    assert {row["timestamp_rule"] for row in published} >= {"ext_delta"}  # "an extended delta on fmt 1"
    views = read("extended_timestamps_ffmpeg_publish_rtmpdump_play").connections
    assert not [f for v in views for f in v.findings if f["rule_id"] in ("TIME_EXT_BREAK", "CHUNK_EXT_TS_MISSING")]


def test_8_encoder_without_acknowledgements_stalls(read: Any) -> None:
    """The capture was made with windows of 50,000 bytes and without Acknowledgements in the first attempt."""
    starved, acknowledged = sql(8)
    assert (starved["close_cause"], acknowledged["close_cause"]) == ("ack_stall", "teardown")
    assert starved["announced_window"] == acknowledged["announced_window"] == 50_000
    assert starved["acknowledgements"] == 0 < acknowledged["acknowledgements"]
    assert 2 * 50_000 < starved["sent"] < acknowledged["sent"]
    views = read("encoder_waits_for_acknowledgements").connections
    severities = [[f["severity"] for f in view.findings if f["rule_id"] == "FLOW_ACK_STARVED"] for view in views]
    assert severities == [["error"], []]


def test_9_seek_is_not_a_jump(read: Any) -> None:
    (row,) = sql(9)
    assert abs(row["av_skew_ms"]) < 40 and row["stalls"] == 0
    findings = [f["rule_id"] for f in read("ffmpeg_vod_seek").connections[0].findings]
    assert not [rule for rule in findings if rule.startswith("TIME_")]


def test_10_keyframe_every_two_seconds(oracle: Path) -> None:
    tags = recorded_tags(oracle / "ffmpeg_publish_bframes_rtmpdump_play.server_record.flvtags.tsv")
    keys = [t.timestamp for t in tags if t.type_id == 9 and t.is_media and t.head[0] == "1"]
    for row in sql(10):
        assert row["typical_ms"] == keys[1] - keys[0] == 2000
        assert row["first_is_key"]


def test_11_published_frames_are_played_unchanged(oracle: Path) -> None:
    (row,) = sql(11)
    name = "p1950_enhanced_hevc_aac_ffmpeg7_nms_play.server_record.flvtags.tsv"
    assert 0 < row["frames_published"] <= sum(t.is_media for t in recorded_tags(oracle / name))
    assert row["frames_changed"] == 0
    assert 0 <= row["latency_p50"] < 100  # loopback


def test_12_frame_rate_is_kept_despite_packet_loss(oracle: Path) -> None:
    rows = {row["role"]: row for row in sql(12)}
    assert rows["publish"]["fps"] == rows["publish"]["declared_fps"] == 25
    assert rows["publish"]["retransmitted"] > 0
    assert rows["publish"]["gaps"] == 0
    video = [t for t in recorded_tags(oracle / "lossy_mtu1500_server_side.server_record.flvtags.tsv") if t.type_id == 9]
    coded = [t for t in video if t.is_media and t.head[2:4] == "01"]
    seconds = (coded[-1].timestamp - coded[0].timestamp) / 1000
    assert rows["publish"]["video_kbps"] == pytest.approx(sum(t.size - 5 for t in coded) * 8 / seconds / 1000, rel=0.02)


def test_13_resolution_changes_after_two_seconds(oracle: Path) -> None:
    small, large = [row for row in sql(13) if row["kind"] == "video"]
    assert [(row["width"], row["height"]) for row in (small, large)] == [(320, 240), (640, 360)]
    name = "p1955_resolution_change_ffmpeg_publish.server_record.flvtags.tsv"
    video = [t for t in recorded_tags(oracle / name) if t.type_id == 9]
    (_, second) = [i for i, t in enumerate(video) if t.head.startswith("1700")]
    assert small["configurations"] == large["configurations"] == 1
    assert small["frames"] == sum(t.head[2:4] == "01" for t in video[:second])
    assert large["frames"] == sum(t.head[2:4] == "01" for t in video[second:])


def test_14_codec_signalling_of_enhanced_captures() -> None:
    found = {(row["codec"], row["enhanced"]) for row in sql(14)}
    assert found >= {("hvc1", True), ("av01", True), ("vp09", True), ("Opus", True), ("avc", False), ("aac", False)}
    assert {row["track_id"] for row in sql(14) if row["codec"] == "mp4a"} == {1}  # the second track


def test_15_software_of_client_and_server() -> None:
    (row,) = sql(15)
    assert row["software"].startswith("GStreamer")
    assert row["server_software"].startswith("nginx-rtmp")


@pytest.mark.slow
def test_queries_give_the_same_rows_in_spark(spark: SparkSession) -> None:
    from rtmp_spark.spark.arrow_types import spark_schema

    for question in ALL.values():
        for name, table in question_page.tables_of(question.captures).items():
            frame = spark.createDataFrame(table) if table.num_rows else None
            empty = spark.createDataFrame([], spark_schema(table.schema))
            (frame if frame is not None else empty).createOrReplaceTempView(name)
        query = question.blocks["sql"][0]
        found = [tuple(row) for row in spark.sql(query).collect()]
        expected = run_query(query, question.captures)[1]
        assert sorted(map(str, found)) == sorted(map(str, expected)), question.title
