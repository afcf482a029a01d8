"""Builds the wheel as pyproject.toml says; with RTMP_SPARK_COMPILED=1, a faster one for this platform and Python.

That wheel also has the modules of `COMPILED` as C extensions, made by mypyc. Python imports them in place of the .py
files beside them. tests/test_compiled.py checks the rules that these modules must follow:

- A saved state has no tuple in its types, because JSON reads it back as a list, and compiled code checks types.
- Their classes have no subclasses in other modules.
- They do not rely on mypy narrowing an attribute (`if self.x is None`) across a call that changes it.
- Their constants are `Final`, and so are those that they import: C code looks up any other variable of a module in a
  dictionary, by name, whenever it is used.
"""

from __future__ import annotations

import os
import shutil
import sys

from setuptools import setup

# Modules whose functions run for every segment, message or connection. Not compiled, although they are hot:
# codec/errors and codec/phase (enums with values of their own), codec/chunk/header (object.__new__),
# codec/shared_arguments (a subclass of dict), codec/amf* and codec/command (they accept any value of a peer),
# capture/tcp/tcp_connection (RTMPT passes another class in its place), analysis/row_sink (it has a subclass elsewhere),
# and what spends its time in numpy, pyarrow or zlib.
COMPILED = {
    "codec": (
        "chunk/assembly", "chunk/control", "chunk/cursor", "chunk/dechunker", "chunk/one_chunk", "chunk/size",
        "chunk/state", "chunk/stream", "decoder", "events", "handshake", "media/nal", "media/reader", "media/tag",
        "message",
    ),
    "capture": (
        "service", "tcp/batch_observation", "tcp/connection_table", "tcp/half_stream", "tcp/in_order_segments",
        "tcp/loss_counter", "tcp/reassembler", "tcp/segment_batch", "tcp/stream_counters", "tcp/stream_items",
    ),
    "conversation": (
        "answer_order", "connection_secrets", "conversation", "decoding/direction_decoder", "decoding/directions",
        "decoding/message_facts", "decoding/parsed_commands", "decoding/segment_places", "ending", "fact_order",
        "facts", "handshakes", "identity", "media_row", "pending_requests", "service_probe", "session", "stream_span",
    ),
    "forensics": (
        "acknowledgement_rules", "answer_rules", "command_rules", "connection_rules", "ending_rules",
        "explained_findings", "fact_rules", "findings", "loss_rules", "position", "software/fingerprint",
        "software/traits", "stream_id_rules", "streams/av_drift", "streams/declared_media", "streams/histogram",
        "streams/keyframe_interval", "streams/pace", "streams/stalls", "streams/stream_measure",
        "streams/stream_verdict", "streams/timestamp_rules", "streams/track", "timestamp_rollover",
        "zero_window_seconds",
    ),
    "analysis": (
        "connection_analysis", "core", "row_filter", "rows/command_rows", "rows/interval_rows", "rows/summary_rows",
    ),
    ".": ("known_secrets", "redact"),
}  # fmt: skip


def paths() -> list[str]:
    return [
        os.path.normpath(f"rtmp_spark/{package}/{name}.py") for package, names in COMPILED.items() for name in names
    ]


def main() -> None:
    wanted = os.environ.get("RTMP_SPARK_COMPILED", "")
    if not wanted:
        setup()
    elif "bdist_wheel" not in sys.argv:  # pip asks what the build needs; mypy has mypyc, and reads types of the others
        setup(setup_requires=["mypy>=2", "numpy>=1.24", "cryptography>=42"])
    else:
        from mypyc.build import mypycify

        shutil.rmtree("build", ignore_errors=True)  # setuptools would add extensions of an earlier build to the wheel
        level = "0" if wanted == "unoptimised" else "3"  # "unoptimised" takes half the time: for tests
        setup(ext_modules=mypycify(paths(), opt_level=level, debug_level="0", multi_file=True, group_name="rtmp_spark"))


if __name__ == "__main__":
    main()
