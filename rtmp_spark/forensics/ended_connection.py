"""A connection that is over, as the rules across connections see it."""

from __future__ import annotations

from typing import NamedTuple


class Ended(NamedTuple):
    uid: str
    orig_h: str
    resp_h: str
    resp_p: int
    ts_start: int
    closed_by: str | None
    close_kind: str
    close_cause: str
