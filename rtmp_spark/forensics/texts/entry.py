"""The shape of a catalogue entry."""

from __future__ import annotations

from typing import NamedTuple

SPEC = "RTMP 1.0"
ENHANCED = "Enhanced RTMP v2"
FLV = "FLV 10.1"
AMF0 = "AMF 0"

PUBLISH, RELAY = "publish", "relay"


class Cause(NamedTuple):
    """A word that a finding may give as its cause."""

    name: str
    meaning: str
    remedy: str


class Entry(NamedTuple):
    """`also` names the other severities that the rule gives in some cases (see `when`)."""

    code: str
    title: str  # one line
    clause: str | None  # where the rule is written; None: nowhere, it is our judgement
    when: str
    why: str
    remedy: str  # what to do about it
    cases: str = ""  # where it was met
    wireshark: str = ""  # a display filter that leads there
    generator: str = ""  # the command that can break this rule on purpose
    also: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
