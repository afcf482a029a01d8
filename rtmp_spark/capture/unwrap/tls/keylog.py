"""TLS secrets from key log files (RFC 9850, what SSLKEYLOGFILE writes) and from Decryption Secrets Blocks.

Secrets are kept in memory only: nothing here writes or prints them, and `repr` shows only their number. An invalid
line is counted and skipped, because a key log is often read while a program still writes it.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from rtmp_spark.codec.errors import UserError, path_remedy
from rtmp_spark.codec.limits import KEYLOG_BYTES, KEYLOG_SNIFFED_BYTES
from rtmp_spark.install_command import install_command

ENVIRONMENT = "SSLKEYLOGFILE"
SECRETS_TYPE_TLS = 0x544C534B  # "TLSK", the secrets type of a key log inside a pcapng

MASTER = "CLIENT_RANDOM"
EARLY = "CLIENT_EARLY_TRAFFIC_SECRET"
HANDSHAKE = ("CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_HANDSHAKE_TRAFFIC_SECRET")
TRAFFIC = ("CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0")
_LABELS = frozenset({MASTER, EARLY, *HANDSHAKE, *TRAFFIC})
_UNUSED = frozenset({"EXPORTER_SECRET", "EARLY_EXPORTER_SECRET", "ECH_SECRET", "ECH_CONFIG"})
_LINE = re.compile(rb"([A-Z_0-9]+) ([0-9a-fA-F]{64}) ((?:[0-9a-fA-F]{2})+)\s*")

HOW_TO_GET_KEYS = (
    "make one end write them: set SSLKEYLOGFILE=FILE for ffmpeg (with GnuTLS, as in Debian), curl or a browser; start "
    "Node with --tls-keylog=FILE; start nginx and other OpenSSL programs with LD_PRELOAD=libsslkeylog.so. OBS writes "
    "none: log at its server, or let it publish to rtmp-spark relay --tls-cert C --tls-key K --keylog FILE. "
    "Then pass --keylog FILE"
)


class KeyLog:
    """Secrets by client random and label. All holders of the log see secrets that are added later."""

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
            if not line or line.startswith((b"#", b"RSA ")):  # RSA: a premaster secret, not used
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
        """The connections of the log, in the order of its lines."""
        return iter(self._secrets)

    def dump(self) -> bytes:
        """The whole log in the format of the file, to pass it to another process."""
        return b"".join(self.lines_for(client_random) for client_random in self._secrets)

    def lines_for(self, client_random: bytes) -> bytes:
        """The log of one connection in the format of the file, to embed it in a slice."""
        secrets = self._secrets.get(client_random, {})
        return b"".join(f"{label} {client_random.hex()} {value.hex()}\n".encode() for label, value in secrets.items())


def tls_secrets(blocks: Iterable[tuple[int, bytes]]) -> bytes:
    """The key log in the Decryption Secrets Blocks (type, content) of a pcapng."""
    return b"\n".join(content for kind, content in blocks if kind == SECRETS_TYPE_TLS)


def load(paths: Iterable[str | os.PathLike[str]] = (), *, environment: bool = True) -> KeyLog:
    """Read key logs from files and directories; `environment` adds the file that SSLKEYLOGFILE names, if it exists."""
    log = KeyLog()
    for given in paths:
        path = Path(given)
        if not path.exists():
            raise UserError(f"The key log {path} does not exist.", "Check the path given with --keylog.")
        before = log.unusable_lines, len(log)
        for file in _logs_in(path) if path.is_dir() else [path]:
            _read(log, file)
        if len(log) == before[1] and log.unusable_lines > before[0]:
            text = f"{path} is not a key log: none of its lines has the form LABEL CLIENT_RANDOM SECRET."
            raise UserError(text, f"Pass the file that {ENVIRONMENT} named when the keys were written.")
    if environment:
        named = os.environ.get(ENVIRONMENT)
        if named and Path(named).is_file() and os.access(named, os.R_OK):
            _read(log, Path(named))
    return log


def can_decrypt() -> bool:
    return importlib.util.find_spec("cryptography") is not None


def require_cryptography() -> None:
    """Raise UserError if the package that decrypts is missing."""
    if not can_decrypt():
        text = "Decrypting TLS with a key log needs the package cryptography."
        raise UserError(text, f"Install it: {install_command('tls')}", 3)


def _logs_in(directory: Path) -> list[Path]:
    """The files of a directory that begin like a key log; it may also contain captures."""
    found = []
    for path in sorted(p for p in directory.iterdir() if p.is_file() and os.access(p, os.R_OK)):
        with path.open("rb") as file:
            lines = [line.strip() for line in file.read(KEYLOG_SNIFFED_BYTES).splitlines()]
        first = next((line for line in lines if line and not line.startswith(b"#")), b"")
        if _LINE.match(first):
            found.append(path)
    return found


def _read(log: KeyLog, path: Path) -> None:
    try:
        if not path.is_file() and not path.is_fifo():
            raise UserError(f"The key log {path} is not a file.", "Check the path given with --keylog.")
        with path.open("rb") as file:
            text = file.read(KEYLOG_BYTES + 1)
    except OSError as error:
        raise UserError(f"The key log {path} cannot be read ({error.strerror}).", path_remedy(error)) from None
    if len(text) > KEYLOG_BYTES:
        raise UserError(f"The key log {path} is longer than {KEYLOG_BYTES >> 20} MiB.", "Pass only the lines you need.")
    log.add(text)
