"""TLS connections made by OpenSSL, as recorded bytes: input for the tests of rtmp_spark.capture.unwrap.tls.

The peers are Python's `ssl` over memory (all of TLS 1.2, the defaults of 1.3) or the program `openssl` (ciphers of
1.3, KeyUpdate, renegotiation). The sent data is known, so tests can compare the decrypted data with it.
"""

from __future__ import annotations

import contextlib
import datetime
import random
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from rtmp_spark.capture.tcp.stream_items import End, Gap, Item, Lost, Run
from rtmp_spark.capture.unwrap.tls.keylog import KeyLog
from rtmp_spark.capture.unwrap.tls.tls_session import TlsSession

NO_ENCRYPT_THEN_MAC = 1 << 19  # SSL_OP_NO_ENCRYPT_THEN_MAC


def make_certificate(directory: Path, kind: str = "rsa") -> Path:
    """A self-signed certificate and its key in one PEM file."""
    path = directory / f"{kind}.pem"
    if path.exists():
        return path
    key = rsa.generate_private_key(65537, 2048) if kind == "rsa" else ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ingest.example")])
    begin = datetime.datetime(2020, 1, 1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=36500))
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(certificate.public_bytes(encoding) + private)
    return path


@dataclass
class Recorded:
    """Flights of TLS bytes in order of time, the data that was sent inside them, and the key log."""

    flights: list[tuple[int, bytes]]
    sent: list[bytes]
    keylog: bytes
    session: ssl.SSLSession | None = None
    cipher: str = ""


def talk(
    directory: Path,
    said: Sequence[tuple[int, bytes]],
    *,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
    ciphers: str | None = None,
    options: int = 0,
    certificate: str = "rsa",
    contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
    session: ssl.SSLSession | None = None,
    close: bool = True,
) -> Recorded:
    """Run a whole connection in memory; `said` lists (sender, data) of each record, sender 0 is the client."""
    log = directory / "keys.log"
    before = log.read_bytes() if log.exists() else b""
    client_context, server_context = contexts or make_contexts(directory, version, ciphers, options, certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname="ingest.example", session=session)
    flights: list[tuple[int, bytes]] = []
    server_in, server_out = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(server_in, server_out, server_side=True)

    def carry() -> bool:
        moved = False
        data = to_server.read()
        if data:
            flights.append((0, data))
            server_in.write(data)
            moved = True
        data = server_out.read()
        if data:
            flights.append((1, data))
            to_client.write(data)
            moved = True
        return moved

    done = [False, False]
    while not all(done):
        for number, end in enumerate((client, server)):
            if not done[number]:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
                    done[number] = True
            carry()
    sent = [bytearray(), bytearray()]
    ends = (client, server)
    for who, what in said:
        ends[who].write(what)
        carry()
        with contextlib.suppress(ssl.SSLWantReadError):
            while True:
                got = ends[1 - who].read(1 << 20)
                if not got:
                    break
                sent[who] += got
    assert [b"".join(w for n, w in said if n == d) for d in (0, 1)] == sent
    kept = client.session
    if close:
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLError):
            client.unwrap()
        carry()
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLError):
            server.unwrap()
        carry()
    cipher = client.cipher()
    lines = log.read_bytes()[len(before) :].splitlines(keepends=True)
    secrets = b"".join(line for line in lines if not line.startswith(b"#"))
    return Recorded(flights, [bytes(data) for data in sent], secrets, kept, cipher[0] if cipher else "")


def make_contexts(
    directory: Path,
    version: ssl.TLSVersion,
    ciphers: str | None,
    options: int = 0,
    certificate: str = "rsa",
    curve: str | None = None,
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    client, server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    server.load_cert_chain(make_certificate(directory, certificate))
    if curve is not None:
        server.set_ecdh_curve(curve)
    client.keylog_filename = str(directory / "keys.log")
    for context in (client, server):
        context.minimum_version = context.maximum_version = version
        if ciphers is not None:
            context.set_ciphers(f"{ciphers}:@SECLEVEL=0")
        context.options |= options
    return client, server


# -- openssl s_server and s_client ------------------------------------------------------------------------------------


@dataclass
class _Proxy:
    """Forwards one connection and records its bytes."""

    to_port: int
    flights: list[tuple[int, bytes]] = field(default_factory=list)

    def start(self) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._run, args=(listener,), daemon=True).start()
        return int(listener.getsockname()[1])

    def _run(self, listener: socket.socket) -> None:
        near, _ = listener.accept()
        listener.close()
        far = socket.create_connection(("127.0.0.1", self.to_port))
        threads = [
            threading.Thread(target=self._carry, args=pair, daemon=True) for pair in ((0, near, far), (1, far, near))
        ]
        for thread in threads:
            thread.start()

    def _carry(self, direction: int, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.flights.append((direction, data))
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await(condition: object, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > until:
            raise TimeoutError("the peers of openssl did not answer")
        time.sleep(0.01)


@contextlib.contextmanager
def openssl_peers(
    directory: Path, client_options: Sequence[str], server_options: Sequence[str] = ()
) -> Iterator[SimpleNamespace]:
    """Run both programs, connected through a recorder; `say(who, text)` writes a line, which may be a command."""
    port = _free_port()
    certificate = str(make_certificate(directory))
    log = directory / f"openssl-{port}.log"
    server_command = ["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-cert", certificate, "-key", certificate]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([*server_command, *server_options], **pipes)  # type: ignore[call-overload]
    heard: list[bytearray] = [bytearray(), bytearray()]  # by the server, by the client
    peers = [server]

    def listen(number: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        while data := process.stdout.read1(65536):  # type: ignore[attr-defined]
            heard[number] += data

    threading.Thread(target=listen, args=(0, server), daemon=True).start()
    try:
        _await(lambda: b"ACCEPT" in heard[0])
        proxy = _Proxy(port)
        near = proxy.start()
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{near}", "-keylogfile", str(log), *client_options]
        client = subprocess.Popen(command, **pipes)  # type: ignore[call-overload]
        peers.append(client)
        threading.Thread(target=listen, args=(1, client), daemon=True).start()

        def say(who: int, text: bytes, awaited: bytes | None = None) -> None:
            process = (client, server)[who]
            assert process.stdin is not None
            before = len(proxy.flights)
            process.stdin.write(text)
            process.stdin.flush()
            if awaited is not None:
                _await(lambda: awaited in heard[who])
            else:
                _await(lambda: len(proxy.flights) > before)
                time.sleep(0.05)

        _await(lambda: b"Verify return code" in heard[1])
        yield SimpleNamespace(say=say, flights=proxy.flights, keylog=log.read_bytes, heard=heard)
    finally:
        for process in peers:
            process.kill()
            process.wait()


def openssl_early_data(
    directory: Path, early: bytes, later: bytes
) -> list[tuple[list[tuple[int, bytes]], bytes, bool]]:
    """Two connections with one ticket that send `early` with their first flight and `later` after the handshake.

    Returns the recorded bytes, the key log, and whether the server accepted the early data: it accepts that of the
    first connection and refuses a ticket that is used again.
    """
    port = _free_port()
    certificate = str(make_certificate(directory))
    ticket, file = directory / f"ticket-{port}", directory / f"early-{port}"
    file.write_bytes(early)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    options = ["-accept", f"127.0.0.1:{port}", "-cert", certificate, "-key", certificate, "-early_data", "-tls1_3"]
    server = subprocess.Popen(["openssl", "s_server", *options], **pipes)  # type: ignore[call-overload]
    assert server.stdout is not None
    found = []
    try:
        while b"ACCEPT" not in server.stdout.readline():
            pass
        threading.Thread(target=server.stdout.read, daemon=True).start()
        for use in range(3):
            proxy = _Proxy(port)
            log = directory / f"early-{port}-{use}.log"
            command = ["openssl", "s_client", "-connect", f"127.0.0.1:{proxy.start()}", "-keylogfile", str(log)]
            command += ["-sess_in", str(ticket), "-early_data", str(file)] if use else ["-sess_out", str(ticket)]
            client = subprocess.Popen([*command, "-tls1_3"], **pipes)  # type: ignore[call-overload]
            heard = bytearray()
            _listen(client, heard)
            _await(lambda use=use, heard=heard: b"Early data was" in heard if use else ticket.exists())
            before = len(proxy.flights)
            client.stdin.write(later)
            client.stdin.flush()
            _await(lambda proxy=proxy, before=before: len(proxy.flights) > before)
            client.stdin.close()
            client.wait(60)
            found.append((list(proxy.flights), log.read_bytes(), b"Early data was accepted" in heard))
    finally:
        server.kill()
        server.wait()
    return found[1:]


def _listen(process: subprocess.Popen[bytes], heard: bytearray) -> None:
    def run() -> None:
        assert process.stdout is not None
        while data := process.stdout.read1(65536):  # type: ignore[attr-defined]
            heard.extend(data)

    threading.Thread(target=run, daemon=True).start()


# -- as items of the capture layer -------------------------------------------------------------------------------------


@dataclass
class Wire:
    """A stand-in for a TCP connection."""

    syn: bool = True
    number: int = 0

    def __post_init__(self) -> None:
        self.streams = (SimpleNamespace(syn=self.syn), SimpleNamespace(syn=self.syn))
        self.midstream = not self.syn
        self.a, self.b = ("10.0.0.1", 40000 + self.number), ("10.0.0.2", 80)
        self.close_kind = "fin"

    def drop(self) -> None:
        pass


def packets(flights: Sequence[tuple[int, bytes]], size: int = 1000) -> list[tuple[int, int, bytes]]:
    """Direction, stream offset and bytes of each packet; its frame is its place in the list, from 1."""
    offsets, made = [0, 0], []
    for direction, data in flights:
        for at in range(0, len(data), size):
            piece = data[at : at + size]
            made.append((direction, offsets[direction], piece))
            offsets[direction] += len(piece)
    return made


def items(
    wire: Wire,
    made: Sequence[tuple[int, int, bytes]],
    lost: frozenset[int] | set[int] = frozenset(),
    *,
    window: int = 50,
    skip_before: int = 0,
) -> Iterator[Item]:
    """The items that reassembly delivers, window by window; `lost` frames become gaps."""
    expected: list[int | None] = [0, 0] if wire.syn else [None, None]
    numbered = [(n + 1, *packet) for n, packet in enumerate(made) if n + 1 > skip_before and n + 1 not in lost]
    for first in range(0, len(numbered), window):
        part = numbered[first : first + window]
        for direction in (0, 1):
            own = [p for p in part if p[1] == direction]
            at = 0
            while at < len(own):
                frame, _, offset, _data = own[at]
                if expected[direction] is None:
                    expected[direction] = offset
                if offset != expected[direction]:
                    begin = expected[direction]
                    assert begin is not None
                    yield Gap(wire, direction, begin, offset - begin, frame, frame * 1000, True, False)  # type: ignore[arg-type]
                run = [own[at]]
                while at + len(run) < len(own) and own[at + len(run)][2] == run[-1][2] + len(run[-1][3]):
                    run.append(own[at + len(run)])
                places = [(p[2], p[0], p[0] * 1000) for p in run]
                columns = [np.array(column, np.int64) for column in zip(*places)]
                yield Run(wire, direction, offset, b"".join(p[3] for p in run), *columns)  # type: ignore[arg-type]
                expected[direction] = run[-1][2] + len(run[-1][3])
                at += len(run)
    for direction in (0, 1):
        if expected[direction] is not None:
            last = len(made)
            yield End(wire, direction, "fin", expected[direction] or 0, last, last * 1000)  # type: ignore[arg-type]


@dataclass
class Plain:
    """The decrypted pieces of each direction with their offsets, losses, and the packet of every byte."""

    runs: list[list[Run]] = field(default_factory=lambda: [[], []])
    lost: list[list[Lost]] = field(default_factory=lambda: [[], []])
    ends: list[int] = field(default_factory=lambda: [-1, -1])
    noted: list[object] = field(default_factory=list)

    def data(self, direction: int) -> bytes:
        return b"".join(run.data for run in self.runs[direction])

    def take(self, found: Sequence[Item]) -> None:
        for item in found:
            if isinstance(item, Run):
                self.runs[item.direction].append(item)
            elif isinstance(item, Lost):
                self.lost[item.direction].append(item)
            elif isinstance(item, End):
                self.ends[item.direction] = item.offset


def read(given: Iterator[Item], wire: Wire, keylog: bytes) -> tuple[Plain, TlsSession]:
    log = KeyLog()
    log.add(keylog)
    session = TlsSession(wire, log)
    plain = Plain()
    for item in given:
        plain.take(session.receive(item))
    plain.take(session.finish())
    plain.noted = [*session.take_noted()]
    return plain, session


def media_like(seed: int, count: int = 60, largest: int = 6000) -> list[tuple[int, bytes]]:
    """Data for a connection with much from the client and little from the server."""
    chance = random.Random(seed)
    said = [(0, chance.randbytes(1537)), (1, chance.randbytes(3073)), (0, chance.randbytes(1536))]
    for n in range(count):
        said.append((0, chance.randbytes(chance.randint(1, largest))))
        if n % 7 == 0:
            said.append((1, chance.randbytes(chance.randint(1, 200))))
    return said
