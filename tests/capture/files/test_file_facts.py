"""FileFacts: merging the facts of byte ranges gives the facts of the whole file."""

from __future__ import annotations

import io
import itertools
import json
import random
from pathlib import Path

import pytest
from kit import capture_rewriting

from rtmp_spark.capture.files import pcap
from rtmp_spark.capture.files.byte_range import PcapRange
from rtmp_spark.capture.files.file_facts import FileFacts
from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.capture.packets.dissector import Dissector
from rtmp_spark.codec.errors import CaptureError, ViolationCode


def whole_facts(data: bytes) -> FileFacts:
    capture, dissector = open_capture(io.BytesIO(data)), Dissector()
    for block in capture:
        dissector.segments(block)
    capture.facts.undecoded = dissector.undecoded
    capture.facts.conclude()
    return capture.facts


def merged_facts(data: bytes, cuts: list[int]) -> FileFacts:
    header = pcap.parse_header(data[:24])
    merged = FileFacts(format="pcap", link_types=[header.link_type], snaplen=header.snaplen or None)
    for start, end in itertools.pairwise(cuts):
        reader, dissector = PcapRange(io.BytesIO(data), start, end, header), Dissector()
        for block in reader:
            dissector.segments(block)
        reader.facts.undecoded = dissector.undecoded
        merged.merge(FileFacts.from_dict(json.loads(json.dumps(reader.facts.as_dict()))))
    merged.conclude()
    return merged


def troubled(sample: Path) -> bytes:
    """A real publish with truncated packets, timestamps that go back and wrong IPv4 checksums."""
    frames = capture_rewriting.build(capture_rewriting.read(sample))
    dice = random.Random(11)
    for at in dice.sample(range(20, len(frames)), 30):
        ts_ns, frame = frames[at]
        frames[at] = ts_ns, frame[:24] + bytes([frame[24] ^ 1]) + frame[25:]
    for at in dice.sample(range(20, len(frames)), 30):
        frames[at] = frames[at][0] - 5_000_000, frames[at][1]
    file = io.BytesIO()
    pcap.write(file, frames, snaplen=1000)
    data = bytearray(file.getvalue())
    at = 24
    while at < len(data):  # the writer notes the length of what it was given
        incl = int.from_bytes(data[at + 8 : at + 12], "little")
        if incl == 1000:
            data[at + 12 : at + 16] = (1400).to_bytes(4, "little")
        at += 16 + incl
    return bytes(data)


@pytest.mark.parametrize("link_type", [1, 147], ids=["ethernet", "unknown link type"])
def test_merged_ranges_equal_the_whole_file(sample_pcaps: Path, link_type: int) -> None:
    data = troubled(sample_pcaps / "ffmpeg_publish_h264_aac.pcap")
    data = data[:20] + link_type.to_bytes(4, "little") + data[24:]
    whole = whole_facts(data)
    codes = {problem.code for problem in whole.problems}
    assert {ViolationCode.CAPTURE_SNAPLEN, ViolationCode.CAPTURE_TIME_BACKWARDS} < codes
    assert (whole.status, len(codes)) == ("ok" if link_type == 1 else "failed", 3)
    dice = random.Random(13)
    for _ in range(8):
        cuts = sorted({0, len(data), *(dice.randrange(24, len(data)) for _ in range(3))})
        assert merged_facts(data, cuts) == whole


def test_facts_pass_through_json(sample_pcaps: Path) -> None:
    facts = whole_facts(troubled(sample_pcaps / "ffmpeg_publish_h264_aac.pcap")[:-3])
    assert facts.status == "partial"
    assert FileFacts.from_dict(json.loads(json.dumps(facts.as_dict()))) == facts


def test_a_file_that_cannot_be_opened_has_failed() -> None:
    facts = FileFacts("a.pcap")
    facts.fail(CaptureError(None, "this is not a capture file", "give another one"))
    assert (facts.status, facts.error_code) == ("failed", "NOT_A_CAPTURE")
    assert facts.error_hint == "this is not a capture file; give another one"
