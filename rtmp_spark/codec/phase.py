"""The phases of a decoder, and every change between them.

::

    HANDSHAKE ──C0──> PART1 ──C1──> PART2 ──C2──> CHUNKS <────────────────┐
        │               │             │             │  │                  │
        │ not RTMP      │ RTMPE       │ gap         │  └─gap in a─> BRIDGE│
        v               v             v             │    message      │   │
      OPAQUE          OPAQUE        SEARCH <────────┘ sync lost, gap  │   │
                                      │ <─────────────────────────────┘   │
                                      └──boundary found───────────────────┘

Rules:

1. Every direction starts in HANDSHAKE, unless the caller knows better: CHUNKS after the handshake, SEARCH if the bytes
   start in the middle of a stream (`phase="midstream"`).
2. A gap of known length inside the handshake steps over the damaged parts, because their lengths are known; a gap of
   unknown length leads to SEARCH.
3. A gap of known length inside exactly one message leads to BRIDGE: the end of that message is known, and if a header
   follows there, nothing has to be searched. Any other gap leads to SEARCH.
4. Nothing leaves OPAQUE.

| from      | event                                             | to        |
|-----------|---------------------------------------------------|-----------|
| HANDSHAKE | C0 or S0 arrives                                  | PART1     |
| HANDSHAKE | the first byte is text (32 or above)              | OPAQUE    |
| PART1     | C1 or S1 is complete                              | PART2     |
| PART1     | C1 or S1 is complete, the version is RTMPE        | OPAQUE    |
| PART2     | C2 or S2 is complete                              | CHUNKS    |
| HANDSHAKE | a gap inside C0 or C1                             | PART1     |
| HANDSHAKE | a gap that ends inside C2                         | PART2     |
| PART1     | a gap that ends inside C2                         | PART2     |
| any of the three | a gap that ends exactly with C2            | CHUNKS    |
| any of the three | a gap that ends after C2, or of unknown length | SEARCH |
| CHUNKS    | a header that cannot be valid                     | SEARCH    |
| CHUNKS    | a gap inside one message                          | BRIDGE    |
| CHUNKS    | any other gap                                     | SEARCH    |
| BRIDGE    | a header follows where the message must end       | CHUNKS    |
| BRIDGE    | no header follows there                           | SEARCH    |
| SEARCH    | a boundary is proven                              | CHUNKS    |

tests/codec/test_phase.py compares `TRANSITIONS` with what decoders do.
"""

from __future__ import annotations

from enum import Enum

MIDSTREAM = "midstream"  # as the phase of a new decoder: SEARCH, and the chunk size was never announced


class Phase(str, Enum):
    """The values are saved in decoder states, and equal to plain strings."""

    HANDSHAKE = "handshake"  # next is C0 or S0
    PART1 = "part1"  # inside C1 or S1
    PART2 = "part2"  # inside C2 or S2
    CHUNKS = "chunks"
    SEARCH = "search"  # looking for a message boundary
    BRIDGE = "bridge"  # a gap is inside one message, whose end is known
    OPAQUE = "opaque"  # encrypted, or not RTMP


# As module constants: in Python 3.11 these are read much faster than attributes of an Enum.
HANDSHAKE, PART1, PART2, CHUNKS, SEARCH, BRIDGE, OPAQUE = Phase

HANDSHAKE_PHASES = (HANDSHAKE, PART1, PART2)

TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    HANDSHAKE: frozenset({PART1, PART2, CHUNKS, SEARCH, OPAQUE}),
    PART1: frozenset({PART2, CHUNKS, SEARCH, OPAQUE}),
    PART2: frozenset({CHUNKS, SEARCH}),
    CHUNKS: frozenset({SEARCH, BRIDGE}),
    SEARCH: frozenset({CHUNKS}),
    BRIDGE: frozenset({CHUNKS, SEARCH}),
    OPAQUE: frozenset(),
}
