"""Mutation tests of the golden vectors: each listed small error in the codec must make at least one vector fail.

`python tests/kit/codec_mutants.py` tries all mutants and prints the vector that caught each; the test suite tries some
of them. A mutant replaces all occurrences of a text in one module of a copy of the package. If the code changes so that
the text no longer occurs, update the mutant here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[2] / "rtmp_spark"

# Runs in the copy, stops at the first vector that fails.
SCRIPT = """
import sys
from pathlib import Path
import rtmp_spark
assert Path(rtmp_spark.__file__).parent.parent == Path.cwd(), rtmp_spark.__file__
from rtmp_spark.vectors import BUNDLED
from rtmp_spark.vectors.run import run_file, vector_files
layers = sys.argv[1].split(",")
files = vector_files(BUNDLED)
for path in sorted(files, key=lambda path: path.parent.name not in layers):
    failures = run_file(path)
    if failures:
        print(path.relative_to(BUNDLED).as_posix() + ": " + failures[0])
        break
"""


class Mutant(NamedTuple):
    why: str
    module: str  # or several, separated by spaces
    old: str
    new: str
    layers: str = "chunk"  # where to look first

    def sources(self, package: Path) -> list[Path]:
        return [package / "codec" / f"{module}.py" for module in self.module.split()]


MUTANTS = [
    # chunk/
    Mutant(
        "csid of two bytes without its 64",
        "chunk/header",
        "return 64 + buf[pos + 1] + (buf[pos + 2] << 8 if buf[pos] & 63 else 0)",
        "return buf[pos + 1] + (buf[pos + 2] << 8 if buf[pos] & 63 else 0)",
    ),
    Mutant(
        "csid of three bytes high byte first",
        "chunk/header",
        "return 64 + buf[pos + 1] + (buf[pos + 2] << 8 if buf[pos] & 63 else 0)",
        "return 64 + (buf[pos + 1] << 8 | buf[pos + 2] if buf[pos] & 63 else buf[pos + 1])",
    ),
    Mutant(
        "stream id big-endian",
        "chunk/header",
        '_STREAM_ID: Final = Struct("<I")',
        '_STREAM_ID: Final = Struct(">I")',
    ),
    Mutant(
        "length of 16 bits",
        "chunk/header",
        "header.length = word >> 8",
        "header.length = word >> 8 & 0xFFFF",
    ),
    Mutant(
        "timestamp field of 16 bits",
        "chunk/header",
        "field = word & 0xFFFFFF",
        "field = word & 0xFFFF",
    ),
    Mutant(
        "extended timestamp from 0xFFFFFE on",
        "chunk/header chunk/dechunker",
        "field == EXTENDED",
        "field >= EXTENDED - 1",
    ),
    Mutant("fast path takes extended timestamps", "chunk/dechunker", "or field == EXTENDED", "or field > EXTENDED"),
    Mutant(
        "extended timestamp little-endian",
        "chunk/header",
        "ext = _U32(buf, data - 4)[0]",
        "ext = _STREAM_ID(buf, data - 4)[0]",
    ),
    Mutant(
        "extended delta taken as absolute",
        "chunk/stream",
        "        self.timestamp += value\n",
        "        self.timestamp = value if ext else self.timestamp + value\n",
    ),
    Mutant(
        "delta not repeated by fmt 3",
        "chunk/stream",
        'return "repeat_delta", self.delta',
        'return "repeat_delta", 0',
    ),
    Mutant("fmt 3 after fmt 0 always adds", "chunk/stream", "<= REPEAT_MS", "<= 1 << 40"),
    Mutant("fmt 3 after fmt 0 up to 999 only", "chunk/stream", "<= REPEAT_MS", "< REPEAT_MS"),
    Mutant(
        "extended flag never cleared",
        "chunk/stream",
        "        self.field = field\n        self.ext = ext\n        if self.drifted",
        "        self.field = field\n        self.ext = ext if ext is not None else self.ext\n        if self.drifted",
    ),
    Mutant(
        "continuations never repeat the extended timestamp",
        "chunk/one_chunk",
        "        if present:\n            data += 4\n        else:",
        "        if False:\n            data += 4\n        else:",
    ),
    Mutant("omitted extended timestamp not reported", "chunk/one_chunk", "if omitted and not cs.flagged:", "if False:"),
    Mutant(
        "clock wraps to zero",
        "chunk/stream",
        "            self.timestamp += step\n",
        "            self.timestamp = value\n",
    ),
    Mutant("no wrap of 31 bits", "chunk/stream", "if step <= WRAP31_MS - 0x80000000:", "if False:"),
    Mutant("negative delta added as it is", "chunk/stream", "value = ext - 0x100000000", "value = ext"),
    Mutant("negative delta from 2^32 on", "chunk/stream", "if ext >= 0x80000000:", "if ext > 0xFFFFFFFF:"),
    Mutant(
        "needless extended timestamp not reported",
        "chunk/stream",
        "if ext is not None and ext < EXTENDED and fmt != 3:",
        "if False:",
    ),
    Mutant("fresh csid of fmt 1 not reported", "chunk/one_chunk", "if fmt == 1 and not state.inferred:", "if False:"),
    Mutant(
        "fmt 1 inside a message restarts",
        "chunk/lookahead",
        "if header.fmt == 1 and header.length == cs.length and header.type_id == cs.type_id:",
        "if False:",
    ),
    Mutant(
        "abort of another csid",
        "chunk/assembly",
        "cs = state.streams.get(csid)",
        "cs = state.streams.get(csid + 1)",
    ),
    Mutant(
        "interrupted message not reported",
        "chunk/assembly",
        "    close_partial(state, cs, TRUNCATED, offset, out)",
        "    cs.active = False; cs.payload = bytearray(); cs.got = 0",
    ),
    Mutant("control on another csid not reported", "chunk/control", "if message.csid != 2:", "if False:"),
    Mutant("control on a stream not reported", "chunk/control", "if message.stream_id:", "if False:"),
    Mutant("three-byte csid form not reported", "chunk/one_chunk", "if form == 1 and cs.csid < 320:", "if False:"),
    Mutant(
        "last chunk as long as the others",
        "chunk/one_chunk",
        "    count = min(state.chunk_size, cs.length - cs.got)\n    repeats",
        "    count = state.chunk_size\n    repeats",
    ),
    # message.py
    Mutant("top bit of the chunk size kept", "message", "size = raw & 0x7FFFFFFF", "size = raw", "control"),
    Mutant(
        "chunk size little-endian",
        "message",
        '_U32: Final = struct.Struct(">I")',
        '_U32: Final = struct.Struct("<I")',
        "control",
    ),
    Mutant(
        "window of 0 accepted",
        "message",
        "elif type_id in (WINDOW_ACK_SIZE, SET_PEER_BANDWIDTH) and value == 0:",
        "elif type_id == SET_PEER_BANDWIDTH and value == 0:",
        "control",
    ),
    Mutant("limit type 3 accepted", "message", "if limit_type > LIMIT_DYNAMIC:", "if limit_type > 3:", "control"),
    Mutant(
        "SWF verification of 6 bytes",
        "message",
        '"swf_verify_request", BYTE, 3',
        '"swf_verify_request", BYTE, 6',
        "control",
    ),
    Mutant(
        "ping value as a stream id",
        "message",
        'UserControlEvent("ping_response", VALUE, 6)',
        'UserControlEvent("ping_response", STREAM, 6)',
        "control",
    ),
    Mutant(
        "aggregate times not shifted",
        "message",
        "AggregatePart(type_id, timestamp + shift,",
        "AggregatePart(type_id, time,",
    ),
    Mutant("upper byte of an aggregate's timestamp dropped", "message", " | payload[position + 7] << 24", ""),
    Mutant("back pointers not checked", "message", "if back != _PART_HEADER + size:", "if False:"),
    # handshake.py
    Mutant("digest place modulo 729", "handshake", "% 728", "% 729", "handshake"),
    Mutant(
        "first digest scheme only",
        "handshake",
        "_POINTERS = {DIGEST0: 772, DIGEST1: 8}",
        "_POINTERS = {DIGEST0: 772}",
        "handshake",
    ),
    Mutant(
        "keys swapped",
        "handshake",
        "_KEYED[side].copy()",
        "_KEYED[_PEER[side]].copy()",
        "handshake",
    ),
    Mutant(
        "signature without the tail of the key",
        "handshake",
        "_KEY_TEXTS[side] + _KEY_TAIL",
        "_KEY_TEXTS[side]",
        "handshake",
    ),
    Mutant(
        "echo compared with its times",
        "handshake",
        "if data[8:] == peer_packet1[8:]:",
        "if data == peer_packet1:",
        "handshake",
    ),
    Mutant(
        "echo compared from byte 9",
        "handshake",
        "if data[8:] == peer_packet1[8:]:",
        "if data[9:] == peer_packet1[9:]:",
        "handshake",
    ),
    # encoder.py
    Mutant(
        "extended timestamp not repeated when sent",
        "encoder",
        "again = basic_header(3, csid, csid_form) + extension",
        "again = basic_header(3, csid, csid_form)",
    ),
    Mutant("fmt 2 where fmt 3 would do", "encoder", "return 3 if delta == last.delta else 2", "return 2"),
    # amf0.py, amf3.py, media/, flv.py
    Mutant("AMF0 date little-endian", "amf0", 'struct.Struct(">dh")', 'struct.Struct("<dh")', "amf0"),
    Mutant("strict array with keys", "amf0", "marker != _STRICT_ARRAY", "True", "amf0"),
    Mutant(
        "fourth byte of an AMF3 integer with 7 bits",
        "amf3",
        "number << 8 | data[pos + 3]",
        "number << 7 | data[pos + 3]",
        "amf3",
    ),
    Mutant("empty AMF3 string in the reference table", "amf3", 'if text != "":', "if True:", "amf3"),
    Mutant(
        "composition time unsigned",
        "media/tag",
        "return value - 0x1000000 if value & 0x800000 else value",
        "return value",
        "tag",
    ),
    Mutant(
        "ModEx size one too small",
        "media/tag",
        "size, pos = _byte(payload, pos) + 1, pos + 1",
        "size, pos = _byte(payload, pos), pos + 1",
        "tag",
    ),
    Mutant(
        "upper byte of an FLV timestamp dropped",
        "flv",
        "timestamp = time >> 8 | (time & 255) << 24",
        "timestamp = time >> 8",
        "flv",
    ),
    Mutant("enhanced audio not recognised", "media/tag", "if payload[0] >> 4 == 9:", "if False:", "tag"),
    Mutant(
        "no composition time for vvc1",
        "media/codecs",
        '"vvc1": FourCc("video", "vvc", composition_time=True)',
        '"vvc1": FourCc("video", "vvc")',
        "tag",
    ),
    Mutant("sizes of tracks not read", "media/tag", "if mode != _ONE_TRACK:", "if False:", "tag"),
]


def killer(mutant: Mutant, directory: Path) -> str | None:
    """The first vector that a mutated copy of the package fails, or None if none fails."""
    copy = directory / "rtmp_spark"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for source in mutant.sources(copy):
        text = source.read_text(encoding="utf-8")
        if mutant.old not in text:
            raise LookupError(f"{mutant.why}: {source.name} no longer contains {mutant.old!r}")
        source.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, mutant.layers], cwd=directory, env=environment, capture_output=True, text=True
    )
    if run.returncode:
        raise RuntimeError(f"{mutant.why}: the mutated package does not run: {run.stderr}")
    return run.stdout.strip() or None


def main() -> int:
    """Try all mutants, or those whose description contains one of the words given."""
    survivors = 0
    chosen = [mutant for mutant in MUTANTS if not sys.argv[1:] or any(word in mutant.why for word in sys.argv[1:])]
    for mutant in chosen:
        with tempfile.TemporaryDirectory() as directory:
            caught = killer(mutant, Path(directory).resolve())
        survivors += caught is None
        print(f"{'caught' if caught else 'SURVIVED'}: {mutant.why} ({mutant.module}): {caught or 'no vector fails'}")
    print(f"{len(chosen) - survivors} caught, {survivors} survived")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
