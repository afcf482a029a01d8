"""TLS secrets from key log files (RFC 9850, what SSLKEYLOGFILE writes) and from Decryption Secrets Blocks.

Secrets live in memory only: nothing here writes, prints or shows them, and `repr` tells how many there are. A line
that makes no sense is counted and passed over, because a key log is often read while a program still writes it.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from rtmp_spark.codec.errors import UserError

ENVIRONMENT = "SSLKEYLOGFILE"
SECRETS_TYPE_TLS = 0x544C534B  # "TLSK", the secrets type of a key log inside a pcapng

MASTER = "CLIENT_RANDOM"
EARLY = "CLIENT_EARLY_TRAFFIC_SECRET"
HANDSHAKE = ("CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_HANDSHAKE_TRAFFIC_SECRET")
TRAFFIC = ("CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0")
_LABELS = frozenset({MASTER, EARLY, *HANDSHAKE, *TRAFFIC})
_UNUSED = frozenset({"EXPORTER_SECRET", "EARLY_EXPORTER_SECRET", "ECH_SECRET", "ECH_CONFIG"})
_SNIFFED_BYTES = 4096
_LINE = re.compile(rb"([A-Z_0-9]+) ([0-9a-fA-F]{64}) ((?:[0-9a-fA-F]{2})+)\s*")

HOW_TO_GET_KEYS = (
    "start one end so that it writes them: SSLKEYLOGFILE=FILE before ffmpeg (with GnuTLS, as in Debian), curl, "
    "a browser; Node with --tls-keylog=FILE; nginx and others with OpenSSL under LD_PRELOAD=libsslkeylog.so; OBS "
    "writes none, so log at its server, or let it publish to rtmp-spark relay --tls-cert C --tls-key K --keylog FILE. "
    "Then give --keylog FILE here"
)


class KeyLog:
    """Secrets by client random and label. Live: what is added later is found by everyone who holds it."""

    def __init__(self) -> None:
        self._secrets: dict[bytes, dict[str, bytes]] = {}
        self.unusable_lines = 0

    def __repr__(self) -> str:
        return f"KeyLog({len(self._secrets)} connections)"

    def __len__(self) -> int:
        return len(self._secrets)

    def add(self, text: bytes) -> None:
        for line in text.splitlines():
            line = line.strip()
            if not line or line.startswith((b"#", b"RSA ")):  # RSA: the same secret before it became the master
                continue
            match = _LINE.fullmatch(line)
            label = match[1].decode() if match is not None else ""
            if match is None or label not in _LABELS:
                self.unusable_lines += label not in _UNUSED
                continue
            known = self._secrets.setdefault(bytes.fromhex(match[2].decode()), {})
            known[label] = bytes.fromhex(match[3].decode())

    def secret(self, label: str, client_random: bytes) -> bytes | None:
        return self._secrets.get(client_random, {}).get(label)

    def knows(self, client_random: bytes) -> bool:
        return client_random in self._secrets

    def client_randoms(self) -> Iterator[bytes]:
        """Every connection of the log, in the order of its lines."""
        return iter(self._secrets)

    def dump(self) -> bytes:
        """All of it in the file's own format, for another process; never for a file nobody asked for."""
        return b"".join(self.lines_for(client_random) for client_random in self._secrets)

    def lines_for(self, client_random: bytes) -> bytes:
        """The log of one connection, in the file's own format: for a slice that is to carry its secrets."""
        secrets = self._secrets.get(client_random, {})
        return b"".join(f"{label} {client_random.hex()} {value.hex()}\n".encode() for label, value in secrets.items())


def tls_secrets(blocks: Iterable[tuple[int, bytes]]) -> bytes:
    """The key log in the secrets that a pcapng carries: kind and content of each block."""
    return b"\n".join(content for kind, content in blocks if kind == SECRETS_TYPE_TLS)


def load(paths: Iterable[str | os.PathLike[str]] = (), *, environment: bool = True) -> KeyLog:
    """Key logs from files and directories of them; `environment` adds the file SSLKEYLOGFILE names, if it is there."""
    log = KeyLog()
    for given in paths:
        path = Path(given)
        if not path.exists():
            raise UserError(f"The key log {path} does not exist.", "Check the path given with --keylog.")
        before = log.unusable_lines, len(log)
        for file in _logs_in(path) if path.is_dir() else [path]:
            _read(log, file)
        if len(log) == before[1] and log.unusable_lines > before[0]:
            text = f"{path} is no key log: none of its lines has the form LABEL CLIENT_RANDOM SECRET."
            raise UserError(text, f"It is the file that {ENVIRONMENT} names.")
    if environment:
        named = os.environ.get(ENVIRONMENT)
        if named and Path(named).is_file() and os.access(named, os.R_OK):
            _read(log, Path(named))
    return log


def can_decrypt() -> bool:
    return importlib.util.find_spec("cryptography") is not None


def require_cryptography() -> None:
    """Before any work starts: without the package there is no use in a key log."""
    if not can_decrypt():
        text = "Reading TLS with a key log needs the package cryptography."
        raise UserError(text, "Install it: pip install 'rtmp-spark[tls]'", 3)


def _logs_in(directory: Path) -> list[Path]:
    """The files of a directory that begin like a key log; captures may lie beside them."""
    found = []
    for path in sorted(p for p in directory.iterdir() if p.is_file() and os.access(p, os.R_OK)):
        with path.open("rb") as file:
            lines = [line.strip() for line in file.read(_SNIFFED_BYTES).splitlines()]
        first = next((line for line in lines if line and not line.startswith(b"#")), b"")
        if _LINE.match(first):
            found.append(path)
    return found


def _read(log: KeyLog, path: Path) -> None:
    try:
        log.add(path.read_bytes())
    except OSError as error:
        raise UserError(f"The key log {path} cannot be read ({error.strerror}).", "Check its permissions.") from None
