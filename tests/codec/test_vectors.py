"""The golden vectors, the command that runs them, streams of an independent writer, and mutants of the codec."""

from __future__ import annotations

import json
import random
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from kit import codec_mutants
from kit.chunk_writer import random_stream

from rtmp_spark.cli import main
from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.codec.events import MessageReceived, Violation
from rtmp_spark.vectors import BUNDLED
from rtmp_spark.vectors.layers import BadVector, feeds_of, pieces_of
from rtmp_spark.vectors.run import run_file, vector_files

VECTORS = vector_files(BUNDLED)
EMPTY_AUDIO = {
    "comment": "an empty audio message",
    "layer": "chunk",
    "input": ["04 000014 000000 08 01000000"],
    "expect": {"messages": [{"csid": 4, "timestamp": 20, "type_id": 8, "stream_id": 1, "length": 0, "payload": ""}]},
}


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.relative_to(BUNDLED).with_suffix("").as_posix())
def test_vector(path: Path) -> None:
    assert run_file(path) == []


def test_every_vector_has_a_source() -> None:
    for path in VECTORS:
        vector = json.loads(path.read_text(encoding="utf-8"))
        assert vector["comment"] and vector["clause"] and vector["source"], path
        assert vector["layer"] == path.parent.name, path


def test_there_are_enough_vectors() -> None:
    amf = [path for path in VECTORS if path.parent.name in ("amf0", "amf3")]
    assert len(VECTORS) >= 250
    assert len(amf) < len(VECTORS) / 4


def test_an_invalid_vector_is_named_after_its_finding() -> None:
    for path in VECTORS:
        expect = json.loads(path.read_text(encoding="utf-8"))["expect"]
        if path.parent.parent.name == "invalid":
            codes = expect.get("findings", []) + expect.get("infos", [])
            assert any(path.stem.startswith(code) for code in codes), path


# These need both directions, or more bytes than a vector should have.
NOT_IN_VECTORS = {
    "CTRL_PING_UNANSWERED",  # needs the other direction
    "CHUNK_LIMIT",  # 64 MiB of unfinished messages
    # rules over many messages
    "MEDIA_START_NOT_KEY",
    "MEDIA_DECLARED",
    "MEDIA_GOP_LONG",
    "MEDIA_NOT_NEGOTIATED",
    "MEDIA_TRACK_ABSENT",
}


def test_every_rule_about_one_direction_has_a_vector() -> None:
    shown: set[str] = set()
    for path in VECTORS:
        expect = json.loads(path.read_text(encoding="utf-8"))["expect"]
        shown.update(expect.get("findings", []), expect.get("infos", []))
    layers = ("HS_", "CHUNK_", "MSG_", "CTRL_", "AMF_", "MEDIA_")
    wanted = {code.value for code in ViolationCode if code.value.startswith(layers)}
    assert wanted - shown == NOT_IN_VECTORS


# --- the runner ------------------------------------------------------------------------------------------------


def changed(**changes: Any) -> dict[str, Any]:
    return {**EMPTY_AUDIO, **changes}


def written(directory: Path, vector: object, name: str = "one") -> Path:
    path = directory / f"{name}.json"
    path.write_text(vector if isinstance(vector, str) else json.dumps(vector), encoding="utf-8")
    return path


def test_pieces() -> None:
    described = ["00 01", {"fill": "aa", "length": 2}, {"gap": 7}, {"range": ["fe", "ff"], "length": 3}, "10"]
    assert pieces_of(described) == [bytes.fromhex("0001aaaa"), 7, bytes.fromhex("fefffe10")]
    assert pieces_of([{"range": ["fe", "01"], "length": 6}]) == [bytes.fromhex("feff0001feff")]


@pytest.mark.parametrize("piece", ["0", "xy", {"fill": "aa"}, {"range": ["05"], "length": 2}, {}, 7, None])
def test_invalid_pieces(piece: object) -> None:
    with pytest.raises(BadVector):
        pieces_of([piece])


def test_the_runner_divides_a_stream_everywhere_without_loss() -> None:
    stream = [b"abc", 5, b"defg"]
    labels = []
    for label, feed in feeds_of(stream):
        labels.append(label)
        assert b"".join(piece for piece in feed if isinstance(piece, bytes)) == b"abcdefg"
        assert [piece for piece in feed if isinstance(piece, int)] == [5]
    assert labels[:2] == ["fed whole", "fed byte by byte"]
    assert [label for label in labels if label.startswith("split")] == [f"split at {n}" for n in range(1, 7)]
    assert "resumed at 2" in labels


@pytest.mark.parametrize(
    ("vector", "complaint"),
    [
        ({"expect": {"messages": []}}, "messages: expected 0, got 1"),
        ({"expect": {"messages": [{"timestamp": 21}]}}, "messages[0].timestamp: expected 21, got 20"),
        ({"expect": {"messages": [{"status": "gap"}]}}, "messages[0].status: expected gap, got complete"),
        ({"expect": {"messages": [{"payload": "00"}]}}, "messages[0].payload: expected 00"),
        ({"expect": {"messages": [{"no_such": 1}]}}, "messages[0].no_such: expected 1, got nothing"),
        ({"expect": {"messages": [{}, {}]}}, "messages: expected 2, got 1"),
        ({"expect": {"messages": [{}], "findings": ["CTRL_CSID"]}}, "findings: expected ['CTRL_CSID'], got []"),
        ({"expect": {"messages": [{}], "infos": ["CTRL_CSID"]}}, "infos: expected ['CTRL_CSID'], got []"),
        ({"expect": {"final_chunk_size": 1}}, "final_chunk_size: expected 1, got 128"),
        ({"input": ["0"]}, "invalid piece '0'"),
        ({"layer": "cheese"}, "layer 'cheese' is not one of"),
        ({"encode": True, "input": ["01 00 00 000014 000000 08 01000000"], "expect": {}}, "encoded: expected 010000"),
    ],
)
def test_differences_are_printed(tmp_path: Path, vector: dict[str, Any], complaint: str) -> None:
    assert complaint in run_file(written(tmp_path, changed(**vector)))[0]


@pytest.mark.parametrize(("text", "complaint"), [("{", "not valid"), ("[]", "not a JSON object"), ("{}", "missing")])
def test_files_that_are_not_vectors(tmp_path: Path, text: str, complaint: str) -> None:
    assert complaint in run_file(written(tmp_path, text))[0]


def test_true_does_not_equal_1(tmp_path: Path) -> None:
    vector = {"comment": "", "layer": "amf0", "input": ["0101"], "expect": {"values": [1]}}
    assert "values: expected [1], got [True]" in run_file(written(tmp_path, vector))[0]


def test_violations_caused_by_a_gap_are_not_compared(tmp_path: Path) -> None:
    gap = [*EMPTY_AUDIO["input"], {"gap": 3}]
    assert run_file(written(tmp_path, changed(input=gap, expect={"messages": [{}], "findings": ["TCP_GAP"]}))) == []


def test_the_command_prints_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, EMPTY_AUDIO, "good")
    assert main(["check", "--vectors", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "1 passed, 0 failed\n"
    written(tmp_path, changed(expect={"messages": []}), "wrong")
    assert main(["check", "--vectors", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("FAIL wrong.json: messages: expected 0, got 1")
    assert lines[1:] == ["1 passed, 1 failed"]


@pytest.mark.parametrize(
    ("terminal", "words", "printed"),
    [(True, [], "\r1 of 1 vectors \r              \r"), (True, ["--quiet"], ""), (False, [], "")],
)
def test_progress_is_printed_on_a_terminal_only(
    terminal: bool,
    words: list[str],
    printed: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written(tmp_path, EMPTY_AUDIO, "good")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    assert main(["check", "--vectors", str(tmp_path), *words]) == 0
    assert capsys.readouterr() == ("1 passed, 0 failed\n", printed)


@pytest.mark.parametrize(
    "arguments",
    [
        ["check"],
        ["check", "--decoder", "true"],
        ["check", "--vectors", "no/such/directory"],
        ["check", "--vectors", "--decoder", ""],
        ["check", "--vectors", "--decoder", "'"],
        ["check", "--vectors", "--decoder", "/no/such/program"],
    ],
)
def test_wrong_usage_is_reported(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1


OTHER_DECODER = """
import json, sys
vector = json.load(sys.stdin)
assert "expect" not in vector
payload = bytes.fromhex(vector["input"][0])
print(json.dumps({"kind": "acknowledgement", "value": int.from_bytes(payload, vector["start"]["order"])}))
"""


def test_another_decoder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "decoder.py"
    script.write_text(OTHER_DECODER)
    vectors = tmp_path / "vectors"
    vectors.mkdir()
    for order in ("big", "little"):
        start = {"type_id": 3, "order": order}
        vector = {"comment": "", "layer": "control", "start": start, "input": ["00000005"], "expect": {"value": 5}}
        written(vectors, vector, order)
    assert main(["check", "--vectors", str(vectors), "--decoder", f"{sys.executable} {script}"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "FAIL little.json: value: expected 5, got 83886080",
        "1 passed, 1 failed",
    ]


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        ("print('{')", "print JSON"),
        ("print('[]')", "print a JSON object"),
        ("raise SystemExit(3)", "with status 3"),
    ],
)
def test_a_decoder_that_fails(tmp_path: Path, program: str, complaint: str) -> None:
    failures = run_file(written(tmp_path, EMPTY_AUDIO), [sys.executable, "-c", program])
    assert complaint in failures[0]


def test_a_decoder_may_omit_a_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, EMPTY_AUDIO)
    command = shlex.join([sys.executable, "-c", "print('{\"skip\": true}')"])
    assert main(["check", "--vectors", str(tmp_path), "--decoder", command]) == 0
    assert capsys.readouterr().out.splitlines() == ["1 skipped: not supported by the decoder", "0 passed, 0 failed"]


def test_chunk_headers_are_compared_only_if_the_vector_has_them(tmp_path: Path) -> None:
    path = written(tmp_path, changed(expect={"messages": [{"type_id": 8, "fmt": 0, "chunks": 1}]}))
    for more, complaints in (("", 0), (', "fmt": 0', 0), (', "fmt": 3', 1)):
        answer = f'{{"messages": [{{"type_id": 8{more}}}]}}'
        assert len(run_file(path, [sys.executable, "-c", f"print('{answer}')"])) == complaints


# --- streams of an independent writer, and mutants -------------------------------------------------------------


@pytest.mark.parametrize("extended", [False, True], ids=["short_times", "extended_times"])
def test_messages_of_an_independent_writer_are_decoded(extended: bool) -> None:
    for seed in range(150):
        rng = random.Random(seed)
        writer = random_stream(rng, rng.randint(1, 25), extended=extended)
        decoder = RtmpDecoder(phase="chunks")
        wire = bytes(writer.wire)
        cut = rng.randint(0, len(wire))
        events = decoder.receive_data(wire[:cut]) + decoder.receive_data(wire[cut:]) + decoder.receive_eof()
        read = [
            (event.csid, event.timestamp, event.type_id, event.stream_id, event.payload)
            for event in events
            if isinstance(event, MessageReceived)
        ]
        sent = [(sent.csid, sent.timestamp, sent.type_id, sent.stream_id, sent.payload) for sent in writer.sent]
        assert read == sent, f"seed {seed}"
        assert not [
            event for event in events if isinstance(event, Violation) and event.severity is not Severity.INFO
        ], f"seed {seed}"


def test_forty_mutants_replace_text_that_the_code_contains() -> None:
    assert len(codec_mutants.MUTANTS) >= 40
    assert len({(mutant.module, mutant.old, mutant.new) for mutant in codec_mutants.MUTANTS}) == len(
        codec_mutants.MUTANTS
    )
    gone = [
        m.why
        for m in codec_mutants.MUTANTS
        if any(m.old not in source.read_text() for source in m.sources(codec_mutants.PACKAGE))
    ]
    assert gone == []


@pytest.mark.slow
@pytest.mark.parametrize("mutant", codec_mutants.MUTANTS[::7], ids=lambda mutant: mutant.why.replace(" ", "_"))
def test_a_broken_codec_fails_a_vector(mutant: codec_mutants.Mutant, tmp_path: Path) -> None:
    assert codec_mutants.killer(mutant, tmp_path) is not None
