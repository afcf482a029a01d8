"""Decodes captures into lists of dicts, reads the FLV tags in oracle/, and builds captures of an RTMP connection."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from kit.capture_rewriting import Talk, build, pcap

from rtmp_spark.analysis.recording import ALL_TABLES, Recording
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.codec import handshake
from rtmp_spark.codec.command import dump_command
from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.message import Message
from rtmp_spark.redact import Redactor

Rows = list[dict[str, Any]]
KEY = b"a key for tests"


def redacting() -> Settings:
    """Return settings that redact secrets with a fixed key."""
    return Settings(redactor=Redactor(KEY))


def decode(*paths: Path, settings: Settings | None = None, tables: tuple[str, ...] = ALL_TABLES) -> dict[str, Rows]:
    """Return the rows of each table."""
    found: dict[str, Rows] = {name: [] for name in tables}
    for table, batch in Recording(paths, settings, tables).batches():
        batch.validate(full=True)
        found[table] += batch.to_pylist()
    return found


class Tag(NamedTuple):
    type_id: int
    timestamp: int
    size: int
    sha256: str
    head: str

    @property
    def is_media(self) -> bool:
        """True for coded frames. Configurations do not count, because servers repeat them (E-RTMP v2; FLV 10.1 E.4)."""
        if self.type_id not in (8, 9) or not self.size:
            return False
        first, second = self.head[:2], self.head[2:4]
        if self.type_id == 8:
            return not ((first[0] == "a" and second == "00") or first == "90")
        return not ((first[1] == "7" and second == "00") or (int(first[0], 16) >= 8 and first[1] == "0"))


def recorded_tags(path: Path) -> list[Tag]:
    """Return the tags that a server recorded or a player received, from a file of oracle/."""
    with path.open() as file:
        return [
            Tag(int(r["tag_type"]), int(r["timestamp_ms"]), int(r["body_size"]), r["body_sha256"], r["first_bytes_hex"])
            for r in csv.DictReader(file, delimiter="\t")
        ]


def types(rows: Rows) -> Counter[int]:
    return Counter(row["type_id"] for row in rows)


class RtmpTalk:
    """Builds the packets of an RTMP client and server over a synthetic TCP connection, one packet per call."""

    def __init__(self, talk: Talk | None = None, *, syn: bool = True) -> None:
        self.talk = talk or Talk()
        self.encoders = (RtmpEncoder(), RtmpEncoder())
        if syn:
            self.talk.open()

    def say(self, side: int, data: bytes) -> RtmpTalk:
        self.talk.say(side, data, size=60_000)
        return self

    def handshake(self, version: int = 3) -> RtmpTalk:
        c1 = handshake.dump_packet1("client", 1, 0, bytes(range(191)) * 8, "plain")
        s1 = handshake.dump_packet1("server", 2, 0, bytes(range(1, 192)) * 8, "plain")
        self.say(0, bytes((version,)) + c1)
        self.say(1, b"\x03" + s1 + handshake.dump_packet2("server", c1, "plain", 0, b""))
        return self.say(0, handshake.dump_packet2("client", s1, "plain", 0, b""))

    def send(self, side: int, type_id: int, payload: bytes, *, stream_id: int = 0, timestamp: int = 0) -> RtmpTalk:
        csid = {8: 4, 9: 6, 20: 3, 18: 5}.get(type_id, 2)
        return self.say(side, self.encoders[side].send(Message(csid, timestamp, type_id, stream_id, payload)))

    def command(self, side: int, name: str, tid: float | None, *args: object, stream_id: int = 0) -> RtmpTalk:
        type_id = 18 if tid is None else 20
        return self.send(side, type_id, dump_command(name, tid, *args), stream_id=stream_id)

    def wait(self, seconds: float) -> RtmpTalk:
        self.talk.now_ns += int(seconds * 1e9)
        return self

    def bye(self, side: int = 0) -> RtmpTalk:
        self.talk.close(side)
        return self

    def write(self, path: Path) -> Path:
        path.write_bytes(pcap(build(self.talk.packets)))
        return path
