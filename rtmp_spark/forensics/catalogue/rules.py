"""The catalogue of findings as one mapping, and what is made of it: rows' texts, `explain`, docs/findings.md.

`python -m rtmp_spark.forensics.catalogue` prints the document.
"""

from __future__ import annotations

from rtmp_spark.capture.findings import CatalogueEntry
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.forensics.texts import content, recording, session, wire
from rtmp_spark.forensics.texts.entry import Entry

CATALOGUE: dict[ViolationCode, Entry] = {
    ViolationCode[entry.code]: entry
    for entry in (*recording.ENTRIES, *wire.ENTRIES, *content.ENTRIES, *session.ENTRIES)
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
    "TIME": "Times",
    "SESSION": "Sessions",
}


def entry(code: ViolationCode) -> CatalogueEntry:
    """The texts that a row of `findings` has from its code."""
    found = CATALOGUE[code]
    return CatalogueEntry(found.title, found.clause, None if found.remedy == "None needed." else found.remedy)


def with_cause(word: str) -> ViolationCode | None:
    """The finding that may give this word as its cause."""
    return next((code for code, found in CATALOGUE.items() if any(word == one.name for one in found.causes)), None)


def severities(code: ViolationCode) -> tuple[Severity, ...]:
    """The usual one first."""
    return (code.severity, *(Severity(word) for word in CATALOGUE[code].also))


def reproduce(code: ViolationCode) -> str | None:
    """The command that breaks this rule on purpose."""
    generator = CATALOGUE[code].generator
    if not generator:
        return None
    target = " rtmp://127.0.0.1/live/test" if generator == "publish" else ""
    source = " FILE.flv" if generator == "publish" else ""
    return f"rtmp-spark {generator}{source}{target} --fault {code.value}"


def document() -> str:
    """docs/findings.md."""
    lines = [
        "# Findings",
        "",
        "Every rule that `rtmp-spark` knows, with the name that stands in `findings.rule_id`, in the names of the",
        "`invalid` vectors, and behind `explain` and `--fault`. Generated from the catalogue; do not edit.",
        "",
        "error: a peer broke a MUST, or media is lost. warning: it works by luck, or degrades. info: worth knowing.",
    ]
    for family, title in FAMILIES.items():
        lines += ["", f"## {title}"]
        for code, found in CATALOGUE.items():
            if code.value.partition("_")[0] == family:
                lines += ["", *_section(code, found)]
    return "\n".join(lines) + "\n"


def _section(code: ViolationCode, found: Entry) -> list[str]:
    words = " or ".join(severity.value for severity in severities(code))
    lines = [f"### {code.value}", "", f"**{found.title}.** {words}." + (f" {found.clause}." if found.clause else "")]
    lines += ["", f"When: {found.when}", "", f"Why it matters: {found.why}"]
    if found.remedy != "None needed.":
        lines += ["", f"What to do: {found.remedy}"]
    if found.causes:
        lines += ["", "| cause | what happened | what to do |", "|---|---|---|"]
        lines += [f"| `{cause.name}` | {cause.meaning} | {cause.remedy} |" for cause in found.causes]
    if found.cases:
        lines += ["", f"Seen: {found.cases}"]
    if found.wireshark:
        lines += ["", f"Wireshark: `{found.wireshark}`"]
    again = reproduce(code)
    if again:
        lines += ["", f"Cause it: `{again}`"]
    return lines


if __name__ == "__main__":
    print(document(), end="")
