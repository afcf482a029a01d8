"""What is wrong with a capture file: a value that becomes a finding and the error of a `captures` row.

`detail` says what is wrong and `hint` what to do about it; both are clauses without a capital letter or a full stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rtmp_spark.codec.errors import Severity, ViolationCode

FILE_INCOMPLETE_HINT = "wait until the capture tool has closed the file; all complete packets were read"
FILE_DAMAGED_HINT = "the file is damaged from there on; all packets before it were read"


@dataclass
class Problem:
    code: ViolationCode
    detail: str
    hint: str = ""
    count: int = 1
    frame: int | None = None
    ts_ns: int | None = None
    severity: Severity | None = None  # None: the usual severity of the code

    @property
    def remedy(self) -> str | None:
        """The hint as a sentence."""
        return f"{self.hint[0].upper()}{self.hint[1:].rstrip('.')}." if self.hint else None

    @property
    def explanation(self) -> str:
        """Detail and hint in one line."""
        return explanation(self.detail, self.hint)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Problem:
        """The problem that `dataclasses.asdict` and JSON made these values of."""
        severity = values["severity"]
        code = ViolationCode[values["code"]]
        return cls(**{**values, "code": code, "severity": None if severity is None else Severity(severity)})


def explanation(detail: str, hint: str) -> str:
    return f"{detail}; {hint}".rstrip("; ")


def often(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
