"""Measures the speed of TLS decryption of 4 KB records on one core, from reassembled to decrypted bytes.

    python bench/tls.py [--megabytes 64]

Python's ssl makes the connections. Measures the CPU time of decryption only and checks the result.
"""

from __future__ import annotations

import argparse
import random
import ssl
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from kit.tls_connections import Wire, items, packets, read, talk

RECORD_BYTES = 4096
KINDS = {
    "TLS 1.3, AES-256-GCM": {"version": ssl.TLSVersion.TLSv1_3},
    "TLS 1.2, AES-128-GCM": {"ciphers": "ECDHE-RSA-AES128-GCM-SHA256"},
    "TLS 1.2, ChaCha20-Poly1305": {"ciphers": "ECDHE-RSA-CHACHA20-POLY1305"},
    "TLS 1.2, AES-128-CBC, SHA-1": {"ciphers": "ECDHE-RSA-AES128-SHA"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=64)
    args = parser.parse_args()
    part = random.Random(1).randbytes(RECORD_BYTES)
    said = [(0, part)] * (args.megabytes * 1_000_000 // RECORD_BYTES)
    for name, how in KINDS.items():
        with tempfile.TemporaryDirectory() as directory:
            made = talk(Path(directory), said, **how)  # type: ignore[arg-type]
        wire = Wire()
        given = list(items(wire, packets(made.flights, 1448), window=5000))
        start = time.process_time()
        plain, _ = read(iter(given), wire, made.keylog)
        spent = time.process_time() - start
        assert plain.data(0) == made.sent[0], name
        print(f"{name} ({made.cipher}): {len(made.sent[0]) / spent / 1e6:.0f} MB/s", flush=True)


if __name__ == "__main__":
    main()
