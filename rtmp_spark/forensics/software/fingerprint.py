"""Recognises software by its traits.

Each trait that matches an entry of known_software.py is worth points. The program with the most points is recognised if
it has at least `POINTS_NEEDED`; the matching traits are the evidence. A program that is recognised by its behaviour
alone has a name without a version.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from rtmp_spark.forensics.software.known_software import FFMPEG_BY_LIBAVFORMAT, KnownSoftware, Software
from rtmp_spark.forensics.software.traits import Traits

RANDOM: Final = "packet_random"
_ANY_RANDOM: Final = "other"
POINTS_NEEDED: Final = 4  # the points of one unmistakable signature, or of several weaker traits together


class Fingerprint(NamedTuple):
    """`software` is name/version or name; None if unknown."""

    software: str | None
    evidence: tuple[str, ...]


# Names of traits in the column software_evidence, if they differ.
_TRAIT_TEXTS: Final = {
    RANDOM: "first random bytes of the handshake",
    "handshake_text": "text in the handshake",
    "packet_version": "version field of the handshake",
    "packet_time": "time field of the handshake",
    "copies_c1": "S1 is a copy of C1",
    "connect_fields": "fields of connect",
    "order": "first messages",
    "release_id": "transaction id of releaseStream",
    "first_buffer": "first buffer length",
    "buffer": "buffer length",
    "fmsVer": "fmsVer",
    "status_csid": "csid of onStatus",
    "media_stream_id": "message stream id of media",
    "metadata_server": "server named in onMetaData",
}


def recognise(
    traits: Traits, known: KnownSoftware, hide_all: Callable[[tuple[str, ...]], tuple[str, ...]] = tuple
) -> Fingerprint:
    """Return the known program with the most points; unknown if it has too few or two have equally many. `hide_all`
    replaces the secrets in texts."""
    names = _relevant_names(known, tuple(traits))
    values = list(map(traits.__getitem__, names))
    if RANDOM in names and traits[RANDOM] not in _constant_randoms(known):
        values[names.index(RANDOM)] = _ANY_RANDOM  # otherwise each connection would be one of a kind
    return _recognise(known, names, hide_all(tuple(values)))


@lru_cache
def _constant_randoms(known: KnownSoftware) -> frozenset[str]:
    """The random bytes by which an entry recognises its software. All other values match the same patterns."""
    return frozenset(
        trait.pattern for software in known for trait in software.traits if trait.name == RANDOM and trait.points > 0
    )


@lru_cache(256)
def _relevant_names(known: KnownSoftware, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of traits that the entries use."""
    used = {trait.name for software in known for trait in software.traits}
    used |= {version.trait for software in known for version in software.versions}
    return tuple([name for name in names if name in used])


@lru_cache(4096)  # the same few programs connect again and again
def _recognise(known: KnownSoftware, names: tuple[str, ...], values: tuple[str, ...]) -> Fingerprint:
    traits = dict(zip(names, values))
    matches = {
        software.name: [
            trait
            for trait in software.traits
            if trait.name in traits and re.fullmatch(trait.pattern, traits[trait.name], re.DOTALL)
        ]
        for software in known
    }
    scores = {name: sum(trait.points for trait in matching) for name, matching in matches.items()}
    best = max(scores.values())
    winners = [software for software in known if scores[software.name] == best]
    if best < POINTS_NEEDED or len(winners) > 1:
        return Fingerprint(None, ())
    (winner,) = winners
    decisive = sorted((trait for trait in matches[winner.name] if trait.points > 0), key=lambda trait: -trait.points)
    evidence = dict.fromkeys(f"{_TRAIT_TEXTS.get(trait.name, trait.name)}: {traits[trait.name]}" for trait in decisive)
    return Fingerprint(_with_version(winner, traits), tuple(evidence))


def _with_version(software: Software, traits: Traits) -> str:
    for trait, pattern in software.versions:
        found = re.search(pattern, traits.get(trait, ""))
        if found:
            version = found.group(1)
            if software.name == "ffmpeg":
                version = FFMPEG_BY_LIBAVFORMAT.get(version, f"Lavf{version}")
            return f"{software.name}/{version.replace(',', '.')}"
    return software.name
