"""Golden vectors: bytes and what they mean, as JSON files that any implementation can use.

`valid/` and `invalid/` hold one file per case, by layer (chunk, handshake, control, command, amf0, amf3, tag,
flv). `layers` says what our codec makes of one, `run` compares that, or what another program says, with what is
expected. The bytes come from the specifications, from other implementations and from bug reports, never from our
own encoder, which would only agree with itself.
"""

from __future__ import annotations

from pathlib import Path

BUNDLED = Path(__file__).parent
