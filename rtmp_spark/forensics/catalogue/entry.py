"""The shape of one rule in the catalogue, and the texts that a row of `findings` takes from it."""

from __future__ import annotations

from typing import NamedTuple

SPEC = "RTMP 1.0"
ENHANCED = "Enhanced RTMP v2"
FLV = "FLV 10.1"
AMF0 = "AMF 0"

PUBLISH, RELAY = "publish", "relay"
NO_ACTION = "No action is needed."


class Cause(NamedTuple):
    """One value that a finding may give as its cause."""

    name: str
    meaning: str
    remedy: str


class Entry(NamedTuple):
    """One rule. `also` lists the severities that the rule gives in some cases besides its usual one (see `when`)."""

    code: str
    title: str  # a noun phrase
    clause: str | None  # the clause that states the rule; None if no specification does
    when: str
    why: str
    remedy: str
    cases: str = ""  # software and issues in which it was seen
    wireshark: str = ""  # a display filter that finds the packets
    generator: str = ""  # the command whose --fault option breaks this rule on purpose
    also: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()


class CatalogueEntry(NamedTuple):
    """The columns `rule_id`, `title`, `clause` and `fix_hint` of a row of `findings`."""

    rule_id: str
    title: str
    clause: str | None = None
    fix_hint: str | None = None
