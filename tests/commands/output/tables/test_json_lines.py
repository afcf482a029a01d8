"""JSON Lines are safe to print on a terminal, and are still the same values."""

from __future__ import annotations

import io
import json

import pyarrow as pa

from rtmp_spark.commands.output.tables.json_lines import print_json

# DEL, C1 controls (U+009B starts an escape sequence), marks that reorder text, and separators of lines.
UNSAFE = "\x1b\x7f\x80\x9b\x9f\u061c\u200e\u200f\u2028\u202a\u202e\u2066\u2069"


def test_characters_that_control_a_terminal_are_escaped() -> None:
    out = io.StringIO()
    print_json([("commands", pa.record_batch({"name": [f"a{UNSAFE}é漢"]}))], out, with_table=False)
    (line,) = out.getvalue().splitlines()
    assert not set(UNSAFE) & set(line)
    assert "é漢" in line
    assert json.loads(line) == {"name": f"a{UNSAFE}é漢"}
