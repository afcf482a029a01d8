"""Runs golden vectors against our codec or another program, and reports differences.

Only the fields in `expect` are compared. Another program is started once per vector, gets the vector without `expect`
as JSON on standard input, and prints a result of the shape of `expect`. An invalid vector file is a failure with a
reason, never an exception.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rtmp_spark.codec.errors import UserError

from .layers import LAYERS, BadVector, Result, encoded, pieces_of

DECODER_TIMEOUT_S = 60
SHOWN_CHARACTERS = 100
_ABSENT = object()
# A gap causes these; where exactly depends on the reader.
_OF_A_GAP = {"TCP_GAP", "CHUNK_RESYNC"}
# How a message was sent: compared only if the result has it, because not every decoder keeps it.
_OF_SENDING = frozenset(
    "fmt chunks chunk_size ext_timestamp timestamp_rule timestamp_raw timestamp_delta missing_bytes".split()
)


class Skipped(Exception):
    """Another decoder does not support this vector."""


class Outcome(NamedTuple):
    """The outcome of one vector; `failures` is empty if it passed."""

    name: str
    failures: list[str]
    skipped: bool = False


def vector_files(directory: Path) -> list[Path]:
    """Every vector below a directory, or the given file."""
    if directory.is_file():
        return [directory]
    if not directory.is_dir():
        raise UserError(f"{directory}: no such directory.", "Give a directory with vectors, or none.")
    files = sorted(directory.rglob("*.json"))
    if not files:
        raise UserError(f"{directory} contains no vectors.", "Vectors are .json files in valid/ and invalid/.")
    return files


def run_directory(directory: Path, decoder: str | None = None) -> Iterator[Outcome]:
    """Run every vector of a directory, sorted by name."""
    program = _program(decoder)
    for path in vector_files(directory):
        name = path.name if path == directory else path.relative_to(directory).as_posix()
        try:
            yield Outcome(name, run_file(path, program))
        except Skipped:
            yield Outcome(name, [], skipped=True)


def _program(decoder: str | None) -> list[str] | None:
    if decoder is None:
        return None
    try:
        program = shlex.split(decoder)
    except ValueError as error:
        raise UserError(f"Invalid --decoder {decoder!r}: {error}.", "Check its quotes.") from None
    if not program:
        raise UserError("--decoder is empty.", "Give the program that reads a vector on standard input.")
    return program


def run_file(path: Path, program: list[str] | None = None) -> list[str]:
    """The differences found with one vector, at most one line for each way of feeding it."""
    try:
        vector = load(path)
        if program is not None:
            return differences(vector, _ask(program, vector))
        return run_vector(vector)
    except BadVector as error:
        return [str(error)]


def load(path: Path) -> dict[str, Any]:
    try:
        vector = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadVector(f"not valid JSON: {error}") from None
    if not isinstance(vector, dict):
        raise BadVector("not a JSON object")
    missing = [key for key in ("comment", "layer", "input", "expect") if key not in vector]
    if missing:
        raise BadVector(f"missing: {', '.join(missing)}")
    if vector["layer"] not in LAYERS:
        raise BadVector(f"layer {vector['layer']!r} is not one of {', '.join(LAYERS)}")
    return vector


def run_vector(vector: dict[str, Any]) -> list[str]:
    """Decode a vector with our codec in every way of feeding, and encode it if it asks for that."""
    failures: list[str] = []
    try:
        for label, result in LAYERS[vector["layer"]](vector):
            found = differences(vector, result)
            if found:
                failures.append(f"{found[0]} ({label})" if label else found[0])
            elif label not in ("", "fed whole"):
                failures.append(f"gives a different result when {label}")
        if vector.get("encode", False):
            wire, expected = encoded(vector), pieces_of(vector["input"])
            if [wire] != expected:
                failures.append(f"encoded: expected {_shown(expected[0])}, got {_shown(wire)}")
    except BadVector:
        raise
    except Exception as error:  # a decoder that raises fails this vector; the run continues
        failures.append(f"raised {type(error).__name__}: {error}")
    return failures


def _ask(program: list[str], vector: dict[str, Any]) -> Result:
    question = json.dumps({key: value for key, value in vector.items() if key != "expect"})
    try:
        answer = subprocess.run(program, input=question.encode(), capture_output=True, timeout=DECODER_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise BadVector(f"the decoder did not answer within {DECODER_TIMEOUT_S} s") from None
    except OSError as error:
        remedy = "Check the command after --decoder."
        raise UserError(f"{program[0]} cannot be started: {error.strerror}.", remedy) from None
    if answer.returncode != 0:
        last = answer.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise BadVector(f"the decoder exited with status {answer.returncode}: {''.join(last)}")
    try:
        result = json.loads(answer.stdout)
    except ValueError as error:
        raise BadVector(f"the decoder did not print JSON: {error}") from None
    if not isinstance(result, dict):
        raise BadVector("the decoder did not print a JSON object")
    if result.get("skip") is True:
        raise Skipped
    return result


def differences(vector: dict[str, Any], result: Result) -> list[str]:
    """The differences between a result and what the vector expects."""
    expect: dict[str, Any] = vector["expect"]
    left_out = _OF_A_GAP if any(isinstance(piece, int) for piece in pieces_of(vector["input"])) else set()
    found: list[str] = []
    for key, wanted in expect.items():
        if key in ("findings", "infos"):
            continue
        actual = result.get(key, _ABSENT)
        if key == "messages":
            found += _list_differences(key, [_with_status(item) for item in wanted], actual)
        elif key == "tags":
            found += _list_differences(key, wanted, actual)
        else:
            found += _value_differences(key, wanted, actual)
    for key in ("findings", "infos"):
        if key == "infos" and key not in expect:
            continue
        wanted_codes = [code for code in expect.get(key, []) if code not in left_out]
        actual_codes = [code for code in result.get(key, []) if code not in left_out]
        if wanted_codes != actual_codes:
            found.append(f"{key}: expected {_shown(wanted_codes)}, got {_shown(actual_codes)}")
    return found


def _with_status(message: dict[str, Any]) -> dict[str, Any]:
    return {"status": "complete", **message}


def _list_differences(name: str, wanted: list[dict[str, Any]], actual: Any) -> list[str]:
    if not isinstance(actual, list):
        return [f"{name}: expected a list, got {_shown(actual)}"]
    found: list[str] = []
    for index, (want, have) in enumerate(zip(wanted, actual)):
        for key, value in want.items():
            actual_value = _field(have, key)
            if actual_value is not _ABSENT or key not in _OF_SENDING:
                found += _value_differences(f"{name}[{index}].{key}", value, actual_value)
    if len(wanted) != len(actual):
        found.append(f"{name}: expected {len(wanted)}, got {len(actual)}: {_shown(actual[len(wanted) :])}")
    return found


def _field(item: Any, key: str) -> Any:
    if not isinstance(item, dict):
        return _ABSENT
    if key == "status":
        return item.get(key, "complete")
    if key == "payload_sha256" and key not in item and isinstance(item.get("payload"), str):
        return hashlib.sha256(bytes.fromhex(item["payload"])).hexdigest()
    return item.get(key, _ABSENT)


def _value_differences(name: str, wanted: Any, actual: Any) -> list[str]:
    if name.endswith("payload") and isinstance(wanted, str):
        wanted = wanted.replace(" ", "").lower()
    if _same(wanted, actual):
        return []
    return [f"{name}: expected {_shown(wanted)}, got {_shown(actual)}"]


def _same(wanted: Any, actual: Any) -> bool:
    """Equality of JSON values: true differs from 1, 1 equals 1.0, and the order of keys matters."""
    if isinstance(wanted, bool) or isinstance(actual, bool):
        return wanted is actual
    if isinstance(wanted, dict) and isinstance(actual, dict):
        return list(wanted) == list(actual) and all(_same(wanted[key], actual[key]) for key in wanted)
    if isinstance(wanted, (list, tuple)) and isinstance(actual, (list, tuple)):
        return len(wanted) == len(actual) and all(_same(a, b) for a, b in zip(wanted, actual))
    return bool(wanted == actual)


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}... ({len(text)} characters)"
