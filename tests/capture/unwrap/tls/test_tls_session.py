"""Decryption of TLS connections made by OpenSSL: every cipher, losses, midstream starts, damage."""

from __future__ import annotations

import json
import random
import re
import shutil
import ssl
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from kit.tls_connections import (
    NO_ENCRYPT_THEN_MAC,
    Plain,
    Recorded,
    Wire,
    items,
    make_contexts,
    media_like,
    openssl_early_data,
    openssl_peers,
    packets,
    read,
    talk,
)

from rtmp_spark.capture.tcp.stream_items import Run
from rtmp_spark.capture.unwrap.tls.cipher_suites import SUITES
from rtmp_spark.capture.unwrap.tls.keylog import KeyLog
from rtmp_spark.capture.unwrap.tls.tls_session import TlsSession
from rtmp_spark.codec.errors import ViolationCode

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
CONNECTIONS = {
    "tls13": (V13, None, 0, "rsa"),
    "gcm128": (V12, "ECDHE-RSA-AES128-GCM-SHA256", 0, "rsa"),
    "gcm256": (V12, "AES256-GCM-SHA384", 0, "rsa"),
    "chacha": (V12, "ECDHE-RSA-CHACHA20-POLY1305", 0, "rsa"),
    "ccm": (V12, "AES128-CCM", 0, "rsa"),
    "ccm8": (V12, "ECDHE-ECDSA-AES256-CCM8", 0, "ec"),
    "cbc-sha1-etm": (V12, "AES128-SHA", 0, "rsa"),
    "cbc-sha1": (V12, "AES128-SHA", NO_ENCRYPT_THEN_MAC, "rsa"),
    "cbc-sha256": (V12, "AES256-SHA256", NO_ENCRYPT_THEN_MAC, "rsa"),
    "cbc-sha384-etm": (V12, "ECDHE-RSA-AES256-SHA384", 0, "rsa"),
}
AEAD = ("tls13", "gcm128", "chacha", "ccm")
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def recorded(directory: Path) -> dict[str, Recorded]:
    made = {}
    for name, (version, ciphers, options, certificate) in CONNECTIONS.items():
        made[name] = talk(
            directory, media_like(7), version=version, ciphers=ciphers, options=options, certificate=certificate
        )
    return made


def whole(found: Plain, made: Recorded) -> None:
    for direction in (0, 1):
        assert found.data(direction) == made.sent[direction]
        assert found.lost[direction] == []
        assert found.ends[direction] == len(made.sent[direction])
        at = 0
        for run in found.runs[direction]:
            assert run.offset == at
            at += len(run.data)


@pytest.mark.parametrize("name", CONNECTIONS)
def test_every_byte_is_decrypted(recorded: dict[str, Recorded], name: str) -> None:
    made, wire = recorded[name], Wire()
    found, session = read(items(wire, packets(made.flights)), wire, made.keylog)
    whole(found, made)
    assert session.readable
    assert found.noted == [] and session.end_notes() == []
    assert session.server_name == "ingest.example"
    assert session.version == ("TLS 1.3" if name == "tls13" else "TLS 1.2")
    logged = {line.split()[1].decode() for line in made.keylog.splitlines() if not line.startswith(b"RSA")}
    assert {random.hex() for random in session.client_randoms} == logged


@pytest.mark.parametrize("size,window", [(1, 10_000), (1460, 1), (60_000, 3)])
def test_decryption_is_independent_of_packets_and_windows(
    recorded: dict[str, Recorded], size: int, window: int
) -> None:
    for name in ("tls13", "cbc-sha1"):
        made, wire = recorded[name], Wire()
        found, _ = read(items(wire, packets(made.flights, size), window=window), wire, made.keylog)
        whole(found, made)


def test_a_byte_belongs_to_the_packet_that_completes_its_record(recorded: dict[str, Recorded]) -> None:
    made, wire = recorded["gcm128"], Wire()
    sent = packets(made.flights, 500)
    found, _ = read(items(wire, sent), wire, made.keylog)
    for direction in (0, 1):
        ends, stream = [], b"".join(data for d, data in made.flights if d == direction)
        at = 0
        while at < len(stream):  # the records, by their headers alone
            kind, size = stream[at], int.from_bytes(stream[at + 3 : at + 5], "big")
            at += 5 + size
            if kind == 23:
                ends.append((at, size - 24))  # an explicit nonce of 8 and a tag of 16
        offset = 0
        for end, length in ends:
            packet = next(n for n, (d, o, data) in enumerate(sent, 1) if d == direction and o < end <= o + len(data))
            for place in (offset, offset + length - 1):
                run = next(r for r in found.runs[direction] if r.offset <= place < r.offset + len(r.data))
                assert run.locate(place) == (packet, packet * 1000)
            offset += length


def test_state_is_a_value(recorded: dict[str, Recorded]) -> None:
    for name in ("tls13", "cbc-sha1-etm"):
        made, wire = recorded[name], Wire()
        log = KeyLog()
        log.add(made.keylog)
        session, found = TlsSession(wire, log), Plain()
        sent = packets(made.flights)
        for item in items(wire, sent, {40, 41}, window=5):
            found.take(session.receive(item))
            saved = json.dumps(session.state())
            for line in made.keylog.split(b"\n"):
                if line:
                    assert line.split()[2].decode() not in saved.lower()
            session = TlsSession.resume(json.loads(saved), wire, log)
        found.take(session.finish())
        straight, _ = read(items(wire := Wire(), sent, {40, 41}, window=5), wire, made.keylog)
        for direction in (0, 1):
            assert [r.offset for r in found.runs[direction]] == [r.offset for r in straight.runs[direction]]
            assert found.data(direction) == straight.data(direction)


# -- losses -----------------------------------------------------------------------------------------------------------


def contents(made: Recorded, direction: int) -> list[tuple[int, int, int, int]]:
    """Start and end of each data record in the TLS stream, and of its content in the decrypted stream."""
    wire, spans, found = Wire(), [], 0
    stream = b"".join(data for d, data in made.flights if d == direction)
    plain, _ = read(items(wire, [(d, o, b) for d, o, b in packets(made.flights, 1 << 20)]), wire, made.keylog)
    assert plain.data(direction) == made.sent[direction]
    starts = [int(s) for run in plain.runs[direction] for s in run.seg_offsets] + [len(made.sent[direction])]
    sizes = [b - a for a, b in pairwise(starts)]
    at, data_records = 0, []
    while at < len(stream):
        end = at + 5 + int.from_bytes(stream[at + 3 : at + 5], "big")
        if stream[at] == 23:
            data_records.append((at, end))
        at = end
    # The last ones are the data; before them 1.3 has handshake records that look the same, after them an alert.
    alert = 1 if made.cipher.startswith("TLS_") else 0
    chosen = data_records[len(data_records) - alert - len(sizes) : len(data_records) - alert]
    for (begin, end), size in zip(chosen, sizes):
        spans.append((begin, end, found, found + size))
        found += size
    return spans


@pytest.mark.parametrize("name", ["tls13", "gcm128", "chacha", "ccm", "cbc-sha1", "cbc-sha1-etm"])
def test_only_records_with_missing_bytes_are_lost(recorded: dict[str, Recorded], name: str) -> None:
    made = recorded[name]
    sent = packets(made.flights, 700)
    spans = [contents(made, direction) for direction in (0, 1)]
    for seed in range(25):
        chance = random.Random(seed)
        begin = chance.randrange(12, len(sent) - 8)
        lost = set(range(begin, begin + chance.randint(1, 6)))
        lost |= {chance.randrange(12, len(sent)) for _ in range(chance.randint(0, 5))}
        wire = Wire()
        found, session = read(items(wire, sent, lost), wire, made.keylog)
        assert session.readable
        for direction in (0, 1):
            gone = [(o, o + len(b)) for n, (d, o, b) in enumerate(sent, 1) if n in lost and d == direction]
            kept = [s for s in spans[direction] if not any(a < s[1] and s[0] < b for a, b in gone)]
            assert found.data(direction) == b"".join(made.sent[direction][s[2] : s[3]] for s in kept)
            codes = {item.code for item in found.lost[direction]}
            assert codes <= {ViolationCode.TLS_RECORD_LOST}
            assert bool(codes) == (len(kept) < len(spans[direction]))
            if name in AEAD:  # the number of the record found tells exactly how much was inside the lost ones
                for run in found.runs[direction]:
                    assert made.sent[direction][run.offset : run.offset + len(run.data)] == run.data


@pytest.mark.parametrize("name", ["tls13", "chacha"])
def test_a_lost_hello(recorded: dict[str, Recorded], name: str) -> None:
    made = recorded[name]
    sent = packets(made.flights, 700)
    wire = Wire()
    found, session = read(items(wire, sent, {1}), wire, made.keylog)  # the ClientHello: its random is in the log
    assert session.readable
    assert [found.data(d) for d in (0, 1)] == made.sent


@pytest.mark.parametrize("skipped", [30, 61, 112])
def test_a_midstream_start(recorded: dict[str, Recorded], skipped: int) -> None:
    made = recorded["tls13"]
    labels = ("CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0")
    noise = "".join(f"{label} {n:064x} {n:096x}\n" for n in range(50) for label in labels)
    wire = Wire(syn=False)
    sent = packets(made.flights)
    found, session = read(items(wire, sent, skip_before=skipped), wire, noise.encode() + made.keylog)
    assert session.readable
    for direction in (0, 1):
        left = sum(len(b) for n, (d, _, b) in enumerate(sent, 1) if d == direction and n > skipped)
        got = found.data(direction)
        assert made.sent[direction].endswith(got)
        assert len(got) > left - 1000 - 6500 or (direction == 1 and left < 300)
        assert found.lost[direction] == []


def test_tls12_midstream_is_unreadable_without_hellos(recorded: dict[str, Recorded]) -> None:
    made, wire = recorded["gcm128"], Wire(syn=False)
    found, session = read(items(wire, packets(made.flights), skip_before=40), wire, made.keylog)
    assert not session.readable
    assert "does not contain the whole handshake" in session.why_unreadable()
    assert found.data(0) == b""


# -- openssl as the peer ----------------------------------------------------------------------------------------------


@needs_openssl
@pytest.mark.parametrize(
    "suite",
    [
        "TLS_AES_128_GCM_SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    ],
)
def test_suites_and_key_updates_of_tls13(directory: Path, suite: str) -> None:
    said: list[list[bytes]] = [[], []]
    with openssl_peers(directory, ["-tls1_3", "-ciphersuites", suite], ["-ciphersuites", suite]) as peers:
        for round_ in range(4):
            for who in (0, 1):
                line = f"line {round_} of {who}: ".encode() + bytes([97 + round_]) * 300 + b"\n"
                peers.say(who, line)
                said[who].append(line)
            peers.say(0, b"K\n")  # update both directions
            if round_ % 2:
                peers.say(1, b"k\n")
        flights, log = list(peers.flights), peers.keylog()
    wire = Wire()
    sent = packets(flights, 200)
    found, session = read(items(wire, sent), wire, log)
    assert session.cipher == suite
    assert [found.data(d) for d in (0, 1)] == [b"".join(lines) for lines in said]
    assert session._sides[0] is not None and session._sides[0].epoch.generation >= 4
    # A KeyUpdate that falls into a gap: the next key is tried.
    updates = [
        n for n, (d, _, b) in enumerate(sent, 1) if d == 0 and b[:3] == b"\x17\x03\x03" and len(b) in (27, 19, 26)
    ]
    assert updates
    found, session = read(items(wire := Wire(), sent, {updates[1]}), wire, log)
    assert found.data(0) == b"".join(said[0])
    # Several of them, and what was said in between.
    own = {n for n, (d, _, _) in enumerate(sent, 1) if d == 0}
    found, session = read(items(wire := Wire(), sent, own & set(range(updates[0], updates[2] + 1))), wire, log)
    assert found.data(0) == said[0][0] + said[0][3]
    assert len(found.lost[0]) == 1


@needs_openssl
def test_renegotiation_in_tls12(directory: Path) -> None:
    options = ["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"]
    with openssl_peers(directory, options, ["-client_renegotiation"]) as peers:
        peers.say(0, b"before\n")
        peers.say(0, b"R\n")
        peers.say(0, b"after\n")
        peers.say(1, b"answer\n")
        flights, log = list(peers.flights), peers.keylog()
    assert len({line.split()[1] for line in log.splitlines() if line.startswith(b"CLIENT_RANDOM")}) == 2
    for window in (1, 1000):
        wire = Wire()
        found, _ = read(items(wire, packets(flights), window=window), wire, log)
        assert found.data(0) == b"before\nafter\n"
        assert found.data(1) == b"answer\n"
    # Without the second secret the rest is lost and reported; the first part is decrypted.
    first = b"\n".join(log.splitlines()[:2])
    found, _ = read(items(wire := Wire(), packets(flights)), wire, first)
    assert found.data(0) == b"before\n"


@needs_openssl
def test_suite_names_are_the_registered_ones() -> None:
    listing = subprocess.run(
        ["openssl", "ciphers", "-V", "-stdname", "ALL:COMPLEMENTOFALL"], capture_output=True, text=True, check=True
    )
    compared = 0
    for line in listing.stdout.splitlines():
        match = re.match(r"\s*0x(..),0x(..) - (\S+)", line)
        assert match is not None
        code = int(match[1] + match[2], 16)
        if code in SUITES:
            assert SUITES[code].name == match[3]
            compared += 1
    assert compared > 40


@pytest.mark.parametrize("version", [V12, V13])
def test_resumption(directory: Path, version: ssl.TLSVersion) -> None:
    contexts = make_contexts(directory, version, None)
    first = talk(directory, media_like(1, 5), contexts=contexts)
    second = talk(directory, media_like(2, 5), contexts=contexts, session=first.session)
    lengths = [sum(len(b) for d, b in made.flights if d == 1) - len(made.sent[1]) for made in (first, second)]
    assert lengths[1] < lengths[0] - 400  # no certificate: it was resumed
    wire = Wire()
    found, _ = read(items(wire, packets(second.flights)), wire, first.keylog + second.keylog)
    whole(found, second)


def test_a_server_that_asks_for_another_hello(directory: Path) -> None:
    """OpenSSL and GnuTLS send a change_cipher_spec after the HelloRetryRequest (RFC 8446 D.4), before the keys."""
    contexts = make_contexts(directory, V13, None, curve="secp521r1")  # the client's first key share is another
    made = talk(directory, media_like(3, 5), contexts=contexts)
    answers = b"".join(data for direction, data in made.flights if direction == 1)
    assert answers[11:43].hex().startswith("cf21ad74e59a6111")  # its random: RFC 8446 4.1.3
    wire = Wire()
    log = KeyLog()
    log.add(made.keylog)
    session = TlsSession(wire, log)
    found = b"".join(
        out.data
        for item in items(wire, packets(made.flights), window=1)
        for out in session.receive(item)
        if isinstance(out, Run) and out.direction == 1
    )
    assert found == made.sent[1]  # as it came, not only when nothing more will come
    assert (session.version, session.cipher) == ("TLS 1.3", "TLS_AES_256_GCM_SHA384")
    _, session = read(items(wire, packets(made.flights)), wire, b"")
    assert "there is no key for this connection" in session.why_unreadable()


# -- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tls13", "gcm128"])
def test_no_key_and_wrong_key(recorded: dict[str, Recorded], name: str) -> None:
    made = recorded[name]
    lines = [line.split() for line in made.keylog.splitlines()]
    wrong = b"".join(b" ".join((a, b, c[:-2] + (b"00" if c[-2:] != b"00" else b"01"))) + b"\n" for a, b, c in lines)
    other = b"".join(b" ".join((a, b[::-1], c)) + b"\n" for a, b, c in lines)
    for log, words in ((b"", "no key for this"), (wrong, "do not decrypt"), (other, "no key for this")):
        wire = Wire()
        found, session = read(items(wire, packets(made.flights)), wire, log)
        assert session.readable is False
        assert words in session.why_unreadable()
        assert found.data(0) == found.data(1) == b""
        (note,) = session.end_notes()
        assert note.code is ViolationCode.TLS_NO_KEY
        assert session.version in note.detail and session.cipher in note.detail and "ingest.example" in note.detail
        assert "SSLKEYLOGFILE" in note.detail


def test_partial_key_logs(recorded: dict[str, Recorded]) -> None:
    made = recorded["tls13"]
    lines = made.keylog.splitlines(keepends=True)
    without_handshake = b"".join(line for line in lines if b"HANDSHAKE" not in line)
    wire = Wire()
    found, _ = read(items(wire, packets(made.flights)), wire, without_handshake)
    whole(found, made)
    only_client = b"".join(line for line in lines if b"SERVER" not in line)
    found, session = read(items(wire := Wire(), packets(made.flights)), wire, only_client)
    assert found.data(0) == made.sent[0] and found.data(1) == b""
    assert [note.direction for note in session.end_notes()] == [1]


def test_damaged_bytes_lose_only_their_record(recorded: dict[str, Recorded]) -> None:
    for name in (*AEAD, "cbc-sha1"):
        made = recorded[name]
        sent = [list(packet) for packet in packets(made.flights, 700)]
        hit = next(n for n, p in enumerate(sent) if n > 60 and p[0] == 0 and len(p[2]) == 700)
        sent[hit][2] = sent[hit][2][:350] + bytes([sent[hit][2][350] ^ 1]) + sent[hit][2][351:]
        wire = Wire()
        found, _ = read(items(wire, [(d, o, b) for d, o, b in sent]), wire, made.keylog)
        (lost,) = found.lost[0]
        kept = found.data(0)
        assert "authentication" in lost.detail
        assert made.sent[0].startswith(kept[: lost.offset]) and made.sent[0].endswith(kept[lost.offset :])
        assert 0 < len(made.sent[0]) - len(kept) <= 6000


def test_records_that_are_too_long_and_random_bytes(recorded: dict[str, Recorded]) -> None:
    made = recorded["tls13"]
    flights = list(made.flights)
    place = len(flights) // 2
    for extra in (b"\x17\x03\x03" + (20480).to_bytes(2, "big") + bytes(20480), b"\0" * 3000, b"\x17\x03\x03\0\0"):
        wire = Wire()
        given = [*flights[:place], (0, extra), *flights[place:]]
        found, _ = read(items(wire, packets(given)), wire, made.keylog)
        assert found.data(0) == made.sent[0]
        assert found.data(1) == made.sent[1]
        (note,) = found.noted
        assert note.code is ViolationCode.TLS_RECORD_LOST and f"{len(extra)} bytes" in note.detail  # type: ignore[attr-defined]


def test_alerts(directory: Path, recorded: dict[str, Recorded]) -> None:
    made = recorded["gcm128"]
    hello = made.flights[0]
    alert = (1, b"\x15\x03\x03\x00\x02\x02\x28")
    wire = Wire()
    found, _ = read(items(wire, packets([hello, alert])), wire, made.keylog)
    (note,) = found.noted
    assert note.code is ViolationCode.TLS_ALERT and note.direction == 1  # type: ignore[attr-defined]
    assert "fatal alert handshake_failure" in note.detail and "no cipher" in note.detail  # type: ignore[attr-defined]
    # Inside TLS 1.3: the client does not trust the certificate.
    contexts = make_contexts(directory, V13, None)
    contexts[0].verify_mode = ssl.CERT_REQUIRED
    flights = refused(contexts)
    log = (directory / "keys.log").read_bytes()
    found, _ = read(items(wire := Wire(), packets(flights)), wire, log)
    (note,) = found.noted
    assert note.direction == 0 and "unknown_ca" in note.detail  # type: ignore[attr-defined]


def refused(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> list[tuple[int, bytes]]:
    bios = [ssl.MemoryBIO() for _ in range(4)]
    client = contexts[0].wrap_bio(bios[0], bios[1], server_hostname="ingest.example")
    server = contexts[1].wrap_bio(bios[2], bios[3], server_side=True)
    flights = []
    for _ in range(6):
        for end, out, into, number in ((client, bios[1], bios[2], 0), (server, bios[3], bios[0], 1)):
            try:
                end.do_handshake()
            except ssl.SSLError:
                pass
            data = out.read()
            if data:
                flights.append((number, data))
                into.write(data)
    return flights


def test_any_bytes_end_without_an_exception(recorded: dict[str, Recorded]) -> None:
    for seed in range(60):
        chance = random.Random(seed)
        made = recorded[chance.choice(list(CONNECTIONS))]
        sent = packets(made.flights[: chance.randint(1, len(made.flights))], chance.choice((50, 700, 3000)))
        damaged = []
        for direction, offset, data in sent:
            if chance.random() < 0.1:
                body = bytearray(data)
                for _ in range(chance.randint(1, 30)):
                    body[chance.randrange(len(body))] = chance.randrange(256)
                data = bytes(body)
            damaged.append((direction, offset, data))
        lost = {n for n in range(1, len(sent) + 1) if chance.random() < 0.05}
        wire = Wire(syn=chance.random() < 0.7)
        found, _ = read(items(wire, damaged, lost, skip_before=chance.choice((0, 0, 5))), wire, made.keylog)
        for direction in (0, 1):
            at = 0
            for item in sorted([*found.runs[direction], *found.lost[direction]], key=lambda i: i.offset):
                assert item.offset == at
                at += len(item.data) if hasattr(item, "data") else item.length


@needs_openssl
def test_early_data(directory: Path) -> None:
    """Early data is part of the stream only if the server accepted it; without its secret, that is reported."""
    early, later = b"early " * 50, b"later\n"
    (taken, log, took), (refused, other_log, took_again) = openssl_early_data(directory, early, later)
    assert took and not took_again
    for window in (1, 1000):
        wire = Wire()
        found, _ = read(items(wire, packets(taken, 200), window=window), wire, log)
        assert found.data(0) == early + later and not found.noted
        found, _ = read(items(wire := Wire(), packets(refused, 200), window=window), wire, other_log)
        assert found.data(0) == later and not found.noted
    without = b"\n".join(line for line in log.splitlines() if not line.startswith(b"CLIENT_EARLY_TRAFFIC"))
    found, session = read(items(wire := Wire(), packets(taken, 200)), wire, without)
    assert found.data(0) == later
    (lost,) = found.lost[0]
    assert lost.code is ViolationCode.TLS_RECORD_LOST and abs(lost.length - len(early)) < 20
    assert [(n.code, "0-RTT" in n.detail) for n in session.end_notes()] == [(ViolationCode.TLS_NO_KEY, True)]
