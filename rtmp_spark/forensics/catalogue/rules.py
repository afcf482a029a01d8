"""All rules as one mapping, and the texts derived from it: columns of `findings`, `explain`, docs/findings.md.

`python -m rtmp_spark.forensics.catalogue.rules` prints docs/findings.md.
"""

from __future__ import annotations

from functools import cache

from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.forensics.catalogue import content_rules, session_rules, transport_rules, wire_rules
from rtmp_spark.forensics.catalogue.entry import NO_ACTION, PUBLISH, CatalogueEntry, Entry

CATALOGUE: dict[ViolationCode, Entry] = {
    ViolationCode[entry.code]: entry
    for entry in (*transport_rules.ENTRIES, *wire_rules.ENTRIES, *content_rules.ENTRIES, *session_rules.ENTRIES)
}
FAMILIES = {
    "CAPTURE": "The capture file",
    "TCP": "TCP",
    "TLS": "TLS",
    "RTMPT": "RTMPT",
    "HS": "Handshake",
    "CHUNK": "Chunks",
    "MSG": "Messages",
    "CTRL": "Control messages",
    "FLOW": "Flow control",
    "AMF": "AMF values",
    "CMD": "Commands",
    "MEDIA": "Media",
    "TIME": "Timestamps and delivery",
    "SESSION": "Sessions",
}


@cache  # for every row
def entry(code: ViolationCode) -> CatalogueEntry:
    """The texts that every row of `findings` with this code shares."""
    found = CATALOGUE[code]
    return CatalogueEntry(found.code, found.title, found.clause, None if found.remedy == NO_ACTION else found.remedy)


def with_cause(word: str) -> ViolationCode | None:
    """The rule whose findings may give this cause; None for a word that is not a cause."""
    return next((code for code, found in CATALOGUE.items() if any(word == one.name for one in found.causes)), None)


def severities(code: ViolationCode) -> tuple[Severity, ...]:
    """All severities that findings of this rule can have, the usual one first."""
    return (code.severity, *(Severity(word) for word in CATALOGUE[code].also))


def reproduce(code: ViolationCode) -> str | None:
    """The command that breaks this rule on purpose; None if there is none."""
    generator = CATALOGUE[code].generator
    if not generator:
        return None
    operands = " FILE.flv rtmp://127.0.0.1/live/test" if generator == PUBLISH else ""
    return f"rtmp-spark {generator}{operands} --fault {code.value}"


def document() -> str:
    """The content of docs/findings.md."""
    lines = [
        "# Findings",
        "",
        "Every rule that `rtmp-spark` checks. The same name is used in `findings.rule_id`, by `rtmp-spark explain`, by",
        "`--fault` and for the `invalid` vectors. Generated from the catalogue; do not edit.",
        "",
        "- error: a peer violated a requirement of the protocol, or media is lost.",
        "- warning: the stream is degraded, or works only because the other side tolerates the violation.",
        "- info: not a problem, but useful to know.",
    ]
    for family, title in FAMILIES.items():
        lines += ["", f"## {title}"]
        for code, found in CATALOGUE.items():
            if code.value.partition("_")[0] == family:
                lines += ["", *_section(code, found)]
    return "\n".join(lines) + "\n"


def _section(code: ViolationCode, found: Entry) -> list[str]:
    severity = " or ".join(severity.value for severity in severities(code))
    clause = f" Clause: {found.clause}." if found.clause else ""
    lines = [f"### {code.value}", "", f"**{found.title}.** Severity: {severity}.{clause}"]
    lines += ["", f"When: {found.when}", "", f"Why it matters: {found.why}"]
    if found.remedy != NO_ACTION:
        lines += ["", f"What to do: {found.remedy}"]
    if found.causes:
        lines += ["", "| cause | what happened | what to do |", "|---|---|---|"]
        lines += [f"| `{cause.name}` | {cause.meaning} | {cause.remedy} |" for cause in found.causes]
    if found.cases:
        lines += ["", f"Seen: {found.cases}"]
    if found.wireshark:
        lines += ["", f"Wireshark: `{found.wireshark}`"]
    command = reproduce(code)
    if command:
        lines += ["", f"Reproduce: `{command}`"]
    return lines


if __name__ == "__main__":
    print(document(), end="")
