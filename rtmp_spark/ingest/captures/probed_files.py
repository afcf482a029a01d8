"""The first look at a capture, on an executor: its format, the time of its first packet, and TLS secrets before it.

A file that is not a capture, or that may not be read, is not refused here: the scan says why. It comes last, as in the
sequential analysis. Any other error fails the ingest: the order of the files depends on this look.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.capture.unwrap.tls.keylog import tls_secrets
from rtmp_spark.codec.errors import CaptureError
from rtmp_spark.codec.limits import FIRST_WINDOW_BYTES
from rtmp_spark.ingest.captures.capture_paths import CaptureFile, open_file

PROBES_OF_A_TASK = 200, 2000  # files, at least: starting a task costs as much; at most: an object store is slow
TASKS_OF_A_CORE = 4  # between these: the cores are not equally fast
PROBED_HERE = 16  # files; a Spark job costs more than looking at these
PROBE_SECONDS = 3600.0  # for the files of a task
Run = Callable[
    [Callable[[str], str], Sequence[str], float, bool], tuple[list[str], list[tuple[str, str]]]
]  # `Stages.run`


@dataclass(frozen=True)
class ProbedFile:
    file: CaptureFile
    format: str | None = None  # None: not a capture, or unreadable
    compressed: bool = False
    head_ns: int | None = None  # time of the first packet in file order
    secrets: str = ""  # TLS secrets before the first packet, as a key log

    @property
    def order(self) -> tuple[bool, int, str]:
        """The order in which files are decoded."""
        return self.head_ns is None, self.head_ns or 0, self.file.path

    @property
    def can_be_cut(self) -> bool:
        """True if byte ranges of it can be read."""
        return self.format is not None and not self.compressed

    @property
    def is_plain_pcap(self) -> bool:
        """True for a classic pcap that is not compressed."""
        return self.format == "pcap" and not self.compressed


def probe(file: CaptureFile) -> ProbedFile:
    try:
        with open_file(file.path) as opened:
            capture = open_capture(opened, window_bytes=FIRST_WINDOW_BYTES)
            head_ns = capture.first_ts_ns()
            facts, found = capture.facts, capture.decryption_secrets
            secrets = tls_secrets(found).decode("latin-1") if found else ""
    except (CaptureError, PermissionError):
        return ProbedFile(file)
    return ProbedFile(file, facts.format, facts.compression is not None, head_ns, secrets)


def probe_all(run: Run, files: Sequence[CaptureFile], cores: int) -> list[ProbedFile]:
    """Look at every file, on executors unless there are few. `run` is that of the stages."""
    share = min(max(PROBES_OF_A_TASK[0], -(-len(files) // (TASKS_OF_A_CORE * cores))), PROBES_OF_A_TASK[1])
    parts = (files[at : at + share] for at in range(0, len(files), share))
    work = [json.dumps([(file.path, file.size_bytes, file.modified_ns) for file in part]) for part in parts]
    texts, dead = run(_probe_files, work, PROBE_SECONDS, len(files) <= PROBED_HERE)
    found = (fields for text in texts for fields in json.loads(text))
    probed = [ProbedFile(**{**fields, "file": CaptureFile(**fields["file"])}) for fields in found]
    return probed + [ProbedFile(CaptureFile(*fields)) for text, _ in dead for fields in json.loads(text)]


def _probe_files(text: str) -> str:
    """The work of a task: files as JSON in, their probes as JSON out."""
    return json.dumps([probe(CaptureFile(*fields)) for fields in json.loads(text)], default=vars)
