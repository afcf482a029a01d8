"""The tables do not change with how the same conversation was recorded, but for the columns that must.

Which columns may differ under which relation stands in `tests/expectations/relations.tsv`, for people to review. All
tables are compared, with all rules at work; which file a row came from is never the same.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rewrite
from decoded import RtmpTalk, decode
from rewrite import Packet
from rulekit import recorded, table

from rtmp_spark.capture.settings import Settings

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
FILE_ONLY = {"capture_id", "capture_id_last", "capture_ids"}
MAY_DIFFER = {row["relation"]: set(row["columns"].split()) | FILE_ONLY for row in table("relations.tsv")}

Files = list[bytes]


def _three_files(packets: list[Packet]) -> Files:
    frames = rewrite.build(packets)
    third = len(frames) // 3
    return [rewrite.pcap(part) for part in (frames[2 * third :], frames[:third], frames[third : 2 * third])]


WAYS: dict[str, tuple[str, Callable[[list[Packet]], Files]]] = {
    "pcapng": ("another file format", lambda p: [rewrite.pcapng(rewrite.build(p))]),
    "nanoseconds, big endian": (
        "another file format",
        lambda p: [rewrite.pcap(rewrite.build(p), order=">", nano=True)],
    ),
    "gzip, two members": ("another file format", lambda p: [rewrite.gzipped(rewrite.pcap(rewrite.build(p)), 2)]),
    "wrapped": ("sequence numbers that wrap", lambda p: [rewrite.pcap(rewrite.build(rewrite.wrap_soon(p, 20_000)))]),
    "vlan": ("another link layer", lambda p: [rewrite.pcap(rewrite.build(p, "vlan"), rewrite.LINKS["vlan"][0])]),
    "cooked": ("another link layer", lambda p: [rewrite.pcap(rewrite.build(p, "sll2"), rewrite.LINKS["sll2"][0])]),
    "six": ("IPv6", lambda p: [rewrite.pcap(rewrite.build(p, ip=rewrite.as_ipv6))]),
    "rotated": ("three files", _three_files),
    "doubled": ("every packet twice", lambda p: [rewrite.pcap(rewrite.build(rewrite.duplicate(p)))]),
    "segments of 300": ("smaller segments", lambda p: [rewrite.pcap(rewrite.build(rewrite.resegment(p, 300)))]),
    "shuffled": ("packets out of order", lambda p: [rewrite.pcap(rewrite.build(rewrite.shuffle(p, 7, reach=20)))]),
}


def test_every_relation_is_tried() -> None:
    assert {relation for relation, _ in WAYS.values()} | {"other chunk sizes"} == set(MAY_DIFFER)


Tables = dict[str, list[dict[str, Any]]]


def told(rows: Tables, relation: str) -> Tables:
    """Every table without what may differ, in an order that does not depend on it."""
    exempt = MAY_DIFFER[relation]
    exempt = exempt | {f"{name}_{way}" for name in exempt for way in ("c2s", "s2c")}
    return {
        name: sorted(
            (
                {k: v for k, v in row.items() if k not in exempt}
                for row in found
                if row.get("rule_id") != "CAPTURE_TIME_BACKWARDS"
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
    packets = rewrite.read(sample_pcaps / request.param)
    plain = tmp_path_factory.mktemp("relations") / "plain.pcap"
    plain.write_bytes(rewrite.pcap(rewrite.build(packets)))
    keys = (sample_pcaps / request.param).with_suffix(".keylog")
    arguments = ["--keylog", str(keys)] if keys.exists() else []
    return packets, recorded(plain, *TABLES, arguments=arguments), arguments


@pytest.mark.parametrize("way", WAYS)
def test_the_same_rows_on_another_way(
    capture: tuple[list[Packet], Tables, list[str]], tmp_path: Path, way: str
) -> None:
    packets, ours, arguments = capture
    relation, make = WAYS[way]
    others = []
    for number, data in enumerate(make(packets)):
        others.append(tmp_path / f"other-{number}")
        others[-1].write_bytes(data)
    assert_same(told(ours, relation), told(recorded(others, *TABLES, arguments=arguments), relation))


def _with_chunks_of(size: int, capture: Path, target: Path) -> Path:
    """The conversation of a capture, said again message by message in chunks of this size."""
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
        rows = told(recorded(path, *TABLES), "other chunk sizes")
        rows["messages"] = [row for row in rows["messages"] if row["type_id"] != 1]
        rows["controls"] = [row for row in rows["controls"] if row["kind"] != "set_chunk_size"]
        said.append(rows)
    assert len(said[0]["media_tags"]) == 345, "as many as the server recorded"
    assert_same(*said)


def test_a_handshake_recorded_last(sample_pcaps: Path, tmp_path: Path) -> None:
    """Then one packet makes the handshake, publish and all media known at once: they keep their order."""
    packets = rewrite.read(sample_pcaps / "publisher_killed_midstream.pcap")
    first = next(packet for packet in packets if packet.payload)
    rows = []
    for number, order in enumerate((packets, [p for p in packets if p is not first] + [first])):
        path = tmp_path / f"{number}.pcap"
        path.write_bytes(rewrite.pcap(rewrite.build(order)))
        rows.append(told(recorded(path, *TABLES), "packets out of order"))
    assert_same(*rows)
