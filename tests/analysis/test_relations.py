"""The tables do not depend on how a conversation was captured, except for columns that must differ.

The columns that may differ under each relation are listed in `tests/expectations/relations.tsv`, for people to review.
All tables are compared, with all rules applied; the file that a row came from always differs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit import capture_rewriting
from kit.capture_rewriting import Packet
from kit.decoded_tables import RtmpTalk, decode
from kit.handmade_facts import recorded, table

from rtmp_spark.analysis.settings import Settings

TABLES = (
    "connections", "handshakes", "messages", "controls", "commands", "media_tags", "streams", "deliveries",
    "intervals", "findings",
)  # fmt: skip
CAPTURES = [
    "ffmpeg_publish_bframes_rtmpdump_play.pcap",
    "denied_and_unknown_app.pcap",
    "capture_gap_lost_packets.pcap",
    "midstream_publish_and_play.pcap",
    "rtmps_tls13_ffmpeg_publish.pcap",
    "p1980_rtmpt_pyrtmp_ffmpeg_publish.pcap",
]
ONLY_IN = {"every packet twice": "CAPTURE_DUPLICATES"}  # the finding that this relation adds
FILE_ONLY = {"capture_id", "capture_id_last", "capture_ids"}
MAY_DIFFER = {row["relation"]: set(row["columns"].split()) | FILE_ONLY for row in table("relations.tsv")}

Files = list[bytes]


def _three_files(packets: list[Packet]) -> Files:
    frames = capture_rewriting.build(packets)
    third = len(frames) // 3
    return [capture_rewriting.pcap(part) for part in (frames[2 * third :], frames[:third], frames[third : 2 * third])]


def _overlapping_files(packets: list[Packet]) -> Files:
    """Two files with one half of the packets in both."""
    frames = capture_rewriting.build(packets)
    part = len(frames) // 4
    return [capture_rewriting.pcap(frames[: 3 * part]), capture_rewriting.pcap(frames[part:])]


WAYS: dict[str, tuple[str, Callable[[list[Packet]], Files]]] = {
    "pcapng": ("another file format", lambda p: [capture_rewriting.pcapng(capture_rewriting.build(p))]),
    "nanoseconds, big endian": (
        "another file format",
        lambda p: [capture_rewriting.pcap(capture_rewriting.build(p), order=">", nano=True)],
    ),
    "gzip, two members": (
        "another file format",
        lambda p: [capture_rewriting.gzipped(capture_rewriting.pcap(capture_rewriting.build(p)), 2)],
    ),
    "wrapped": (
        "sequence numbers that wrap",
        lambda p: [capture_rewriting.pcap(capture_rewriting.build(capture_rewriting.wrap_soon(p, 20_000)))],
    ),
    "vlan": (
        "another link layer",
        lambda p: [capture_rewriting.pcap(capture_rewriting.build(p, "vlan"), capture_rewriting.LINKS["vlan"][0])],
    ),
    "cooked": (
        "another link layer",
        lambda p: [capture_rewriting.pcap(capture_rewriting.build(p, "sll2"), capture_rewriting.LINKS["sll2"][0])],
    ),
    "six": ("IPv6", lambda p: [capture_rewriting.pcap(capture_rewriting.build(p, ip=capture_rewriting.as_ipv6))]),
    "rotated": ("three files", _three_files),
    "doubled": (
        "every packet twice",
        lambda p: [capture_rewriting.pcap(capture_rewriting.build(capture_rewriting.duplicate(p)))],
    ),
    "a copy of the file": (
        "every packet twice",
        lambda p: [capture_rewriting.pcap(capture_rewriting.build(p))] * 2,
    ),
    "overlapping files": ("every packet twice", _overlapping_files),
    "segments of 300": (
        "smaller segments",
        lambda p: [capture_rewriting.pcap(capture_rewriting.build(capture_rewriting.resegment(p, 300)))],
    ),
    "shuffled": (
        "packets out of order",
        lambda p: [capture_rewriting.pcap(capture_rewriting.build(capture_rewriting.shuffle(p, 7, reach=20)))],
    ),
}


def test_every_relation_is_tried() -> None:
    elsewhere = {"other chunk sizes", "several ingests"}
    assert {relation for relation, _ in WAYS.values()} | elsewhere == set(MAY_DIFFER)


Tables = dict[str, list[dict[str, Any]]]


def without_expected_differences(rows: Tables, relation: str) -> Tables:
    """Every table without the columns that may differ, in an order that does not depend on them."""
    exempt = MAY_DIFFER[relation]
    exempt = exempt | {f"{name}_{way}" for name in exempt for way in ("c2s", "s2c")}
    return {
        name: sorted(
            (
                {k: v for k, v in row.items() if k not in exempt}
                for row in found
                if row.get("rule_id", "") not in ("CAPTURE_TIME_BACKWARDS", ONLY_IN.get(relation))
            ),
            key=str,
        )
        for name, found in rows.items()
    }


def assert_same(ours: Tables, theirs: Tables) -> None:
    for name in TABLES:
        assert len(theirs[name]) == len(ours[name]), name
        unlike = [
            {k: (mine[k], other[k]) for k in mine if mine[k] != other[k]}
            for mine, other in zip(ours[name], theirs[name])
            if mine != other
        ]
        assert unlike[:1] == [], f"{name}: {len(unlike)} rows"


@pytest.fixture(scope="module", params=CAPTURES)
def capture(request: pytest.FixtureRequest, sample_pcaps: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The packets of a capture, its tables as Ethernet in one pcap, and how to read it."""
    packets = capture_rewriting.read(sample_pcaps / request.param)
    plain = tmp_path_factory.mktemp("relations") / "plain.pcap"
    plain.write_bytes(capture_rewriting.pcap(capture_rewriting.build(packets)))
    keys = (sample_pcaps / request.param).with_suffix(".keylog")
    arguments = ["--keylog", str(keys)] if keys.exists() else []
    return packets, recorded(plain, *TABLES, arguments=arguments), arguments


@pytest.mark.parametrize("way", WAYS)
def test_the_same_rows_from_another_capture_format(
    capture: tuple[list[Packet], Tables, list[str]], tmp_path: Path, way: str
) -> None:
    packets, ours, arguments = capture
    relation, make = WAYS[way]
    others = []
    for number, data in enumerate(make(packets)):
        others.append(tmp_path / f"other-{number}")
        others[-1].write_bytes(data)
    theirs = recorded(others, *TABLES, arguments=arguments)
    assert_same(without_expected_differences(ours, relation), without_expected_differences(theirs, relation))
    if relation in ONLY_IN:
        assert ONLY_IN[relation] in {row["rule_id"] for row in theirs["findings"]}


def _with_chunks_of(size: int, capture: Path, target: Path) -> Path:
    """The conversation of a capture, sent again message by message in chunks of this size."""
    rows = decode(capture, settings=Settings(keep_payloads=True), tables=("messages", "payloads"))
    bodies = {(row["direction"], row["msg_no"]): row["payload"] for row in rows["payloads"]}
    talk = RtmpTalk().handshake()
    for side in (0, 1):
        talk.send(side, 1, size.to_bytes(4, "big"))
    for row in sorted(rows["messages"], key=lambda row: (row["ts_last"], row["frame_last"], row["msg_no"])):
        if row["type_id"] != 1:
            body = bodies[row["direction"], row["msg_no"]]
            side = 0 if row["direction"] == "c2s" else 1
            talk.send(side, row["type_id"], body, stream_id=row["stream_id"], timestamp=row["timestamp"])
    return talk.bye().write(target)


def test_the_same_rows_in_other_chunks(sample_pcaps: Path, tmp_path: Path) -> None:
    said = []
    for size in (128, 4096):
        path = _with_chunks_of(size, sample_pcaps / "ffmpeg_publish_h264_aac.pcap", tmp_path / f"{size}.pcap")
        rows = without_expected_differences(recorded(path, *TABLES), "other chunk sizes")
        rows["messages"] = [row for row in rows["messages"] if row["type_id"] != 1]
        rows["controls"] = [row for row in rows["controls"] if row["kind"] != "set_chunk_size"]
        said.append(rows)
    assert len(said[0]["media_tags"]) == 345, "as many as the server recorded"
    assert_same(*said)


def test_a_handshake_recorded_last(sample_pcaps: Path, tmp_path: Path) -> None:
    """The handshake packet is captured last and releases publish and all media at once; they keep their order."""
    packets = capture_rewriting.read(sample_pcaps / "publisher_killed_midstream.pcap")
    first = next(packet for packet in packets if packet.payload)
    rows = []
    for number, order in enumerate((packets, [p for p in packets if p is not first] + [first])):
        path = tmp_path / f"{number}.pcap"
        path.write_bytes(capture_rewriting.pcap(capture_rewriting.build(order)))
        rows.append(without_expected_differences(recorded(path, *TABLES), "packets out of order"))
    assert_same(*rows)
