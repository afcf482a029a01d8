"""Golden vectors: bytes and what they mean, as JSON files that any implementation can use.

`valid/` and `invalid/` hold one file per case, by layer (chunk, handshake, control, command, amf0, amf3, tag, flv).
`layers` decodes a vector with our codec; `run` compares the result, or that of another program, with the expected one.
The bytes come from the specifications, from other implementations and from bug reports, never from our own encoder,
which would only confirm itself.
"""

from __future__ import annotations

from pathlib import Path

BUNDLED = Path(__file__).parent
