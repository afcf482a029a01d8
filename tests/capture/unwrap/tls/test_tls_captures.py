"""RTMPS captures from end to end: complete, damaged and without keys."""

from __future__ import annotations

import random
import ssl
from pathlib import Path

import pytest
from kit import capture_rewriting
from kit.decoded_tables import Rows, decode, recorded_tags
from kit.tls_connections import NO_ENCRYPT_THEN_MAC
from kit.wrapped_connections import Tunnel, in_tls, lose, over_tcp, said, what_was_said, write

from rtmp_spark.analysis.recording import ALL_TABLES, Recording
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.capture.files.pcapng_writer import PcapngWriter
from rtmp_spark.capture.unwrap.tls import keylog
from rtmp_spark.capture.unwrap.tls.keylog import KeyLog
from rtmp_spark.cli import main
from rtmp_spark.codec.errors import UserError

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
NAME = "rtmps_tls13_ffmpeg_publish"
SAMPLE = "ffmpeg_publish_h264_aac.pcap"
SPOKEN = ("messages", "commands", "controls", "media_tags", "handshakes")


def with_keys(*logs: bytes) -> Settings:
    settings = Settings()
    for log in logs:
        settings.keylog.add(log)
    return settings


def codes(rows: dict[str, Rows]) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for row in rows["findings"]:
        found.setdefault(row["rule_id"], []).append(row)
    return found


@pytest.fixture(scope="module")
def secrets(sample_pcaps: Path) -> bytes:
    return (sample_pcaps / f"{NAME}.keylog").read_bytes()


TLS12, TLS13 = "rtmps_tls12_ffmpeg_publish", NAME
OF_12 = ("TLS 1.2", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")  # 0xc030 in its Server Hello, says tshark
OF_13 = ("TLS 1.3", "TLS_AES_256_GCM_SHA384")


@pytest.mark.parametrize(
    ("capture", "record", "keylog", "spoken"),
    [
        (f"{TLS12}.pcap", TLS12, f"{TLS12}.keylog", OF_12),
        (f"{TLS13}.pcap", TLS13, f"{TLS13}.keylog", OF_13),
        ("rtmps_tls13_secrets_inside.pcapng", TLS13, None, OF_13),
    ],
)
def test_every_tag_of_a_real_capture(
    sample_pcaps: Path, oracle: Path, capture: str, record: str, keylog: str | None, spoken: tuple[str, str]
) -> None:
    given = with_keys() if keylog is None else with_keys((sample_pcaps / keylog).read_bytes())
    rows = decode(sample_pcaps / capture, settings=given)
    (connection,) = rows["connections"]
    assert (connection["service"], connection["close_cause"]) == ("rtmps", "teardown")
    assert (connection["tls_version"], connection["tls_cipher"]) == spoken
    recorded = [tag for tag in recorded_tags(oracle / f"{record}.server_record.flvtags.tsv") if tag.is_media]
    sent = [row for row in rows["media_tags"] if not row["is_config"]]
    assert [(tag.type_id, tag.timestamp) for tag in recorded] == [
        ({"audio": 8, "video": 9}[row["kind"]], row["dts"]) for row in sent
    ]
    assert set(codes(rows)) == {"SESSION_END"}


def ways() -> list[object]:
    chosen = {
        "tls13": {"version": V13},
        "gcm": {"version": V12, "ciphers": "ECDHE-RSA-AES128-GCM-SHA256"},
        "chacha": {"version": V12, "ciphers": "ECDHE-RSA-CHACHA20-POLY1305"},
        "ccm": {"version": V12, "ciphers": "AES128-CCM"},
        "cbc": {"version": V12, "ciphers": "AES128-SHA", "options": NO_ENCRYPT_THEN_MAC},
        "cbc-etm": {"version": V12, "ciphers": "ECDHE-RSA-AES256-SHA384"},
    }
    return [pytest.param(options, id=name) for name, options in chosen.items()]


@pytest.mark.parametrize("options", ways())
def test_rows_are_the_same_inside_tls(tmp_path: Path, sample_pcaps: Path, options: dict[str, object]) -> None:
    plain = decode(sample_pcaps / SAMPLE)
    flights, log = in_tls(tmp_path, said(sample_pcaps / SAMPLE), **options)
    packets = over_tcp(flights, port=5000)
    rows = decode(write(tmp_path / "tls.pcap", packets), settings=with_keys(log))
    for table in SPOKEN[:-1]:
        assert what_was_said(rows[table]) == what_was_said(plain[table])
    # Offsets count the bytes inside: they are those of the plain connection.
    for one, other in zip(rows["messages"], plain["messages"], strict=True):
        assert one["stream_offset"] == other["stream_offset"] or one["direction"] != other["direction"]
    (connection,) = rows["connections"]
    assert (connection["service"], connection["server_name"]) == ("rtmps", "ingest.example")
    # The rest of the wrapping's metamorphoses: other segments, order, doubles.
    mixed = capture_rewriting.shuffle(
        capture_rewriting.duplicate(capture_rewriting.resegment(packets, 333)), seed=3, reach=9
    )
    rows = decode(write(tmp_path / "mixed.pcap", mixed), settings=with_keys(log))
    for table in SPOKEN[:-1]:
        assert what_was_said(rows[table]) == what_was_said(plain[table])


@pytest.mark.slow
@pytest.mark.parametrize("options", ways())
def test_a_lost_packet_loses_only_its_messages(tmp_path: Path, sample_pcaps: Path, options: dict[str, object]) -> None:
    plain = decode(sample_pcaps / SAMPLE)
    flights, log = in_tls(tmp_path, said(sample_pcaps / SAMPLE), **options)
    packets = over_tcp(flights, port=5000)
    whole = {(r["direction"], r["type_id"], r["payload_crc32"]) for r in plain["messages"]}
    loaded = [n for n, packet in enumerate(packets, 1) if packet.payload]
    for seed in range(3):
        chance = random.Random(seed)
        lost = set(chance.sample(loaded[40:-20], 3))
        rows = decode(write(tmp_path / f"{seed}.pcap", lose(packets, lost)), settings=with_keys(log))
        kept = [r for r in rows["messages"] if r["status"] == "complete"]
        found = {(r["direction"], r["type_id"], r["payload_crc32"]) for r in kept}
        assert found <= whole
        assert len(whole - found) <= 15
        assert {"TCP_GAP", "TLS_RECORD_LOST"} <= set(codes(rows))
        assert sum(row["count"] for row in codes(rows)["TCP_GAP"]) == 3


def test_a_lost_end_is_a_gap_and_not_a_cut_message(tmp_path: Path, sample_pcaps: Path) -> None:
    """The capture tool dropped it and the server acknowledged it: the sender did not stop inside a message."""
    spoken = said(sample_pcaps / SAMPLE)
    at = next(n for n, (side, data) in enumerate(spoken) if n > 60 and side == 0 and len(data) > 3000)
    spoken[at : at + 1] = [(0, spoken[at][1][:1500]), (0, spoken[at][1][1500:])]
    flights, log = in_tls(tmp_path, spoken[: at + 2], version=V13, close=False)
    for packets, given in (
        (over_tcp(spoken[: at + 2], size=9000), with_keys()),
        (over_tcp(flights, port=5000, size=9000), with_keys(log)),
    ):
        last = max(n for n, packet in enumerate(packets, 1) if packet.payload and packet.sport == 40000)
        ends = {
            n for n, packet in enumerate(packets, 1) if packet.flags & capture_rewriting.FIN and packet.sport == 40000
        }
        rows = decode(write(tmp_path / "tail.pcap", lose(packets, {last} | ends)), settings=given)
        found = set(codes(rows)) - {"SESSION_END", "TLS_RECORD_LOST"}
        assert found == {"TCP_GAP"}
        assert [row["status"] for row in rows["messages"] if row["status"] != "complete"] == ["gap"]


def test_a_midstream_start(tmp_path: Path, sample_pcaps: Path) -> None:
    plain = decode(sample_pcaps / SAMPLE)
    flights, log = in_tls(tmp_path, said(sample_pcaps / SAMPLE), version=V13)
    packets = over_tcp(flights, port=5000)
    rows = decode(write(tmp_path / "middle.pcap", packets[len(packets) // 2 :]), settings=with_keys(log))
    (connection,) = rows["connections"]
    assert (connection["service"], connection["midstream"], connection["orig_p"]) == ("rtmps", True, 40000)
    assert len(rows["messages"]) > len(plain["messages"]) * 0.4


def test_a_tunnel_inside_tls(tmp_path: Path, sample_pcaps: Path) -> None:
    sample = sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap"
    tunnel = Tunnel(said(sample)).close()
    through = [(0 if packet.dport == 80 else 1, packet.payload) for packet in tunnel if packet.payload]
    flights, log = in_tls(tmp_path, through, version=V13)
    rows = decode(write(tmp_path / "both.pcap", over_tcp(flights, port=443)), settings=with_keys(log))
    plain = decode(sample)
    for table in SPOKEN[:-1]:
        assert what_was_said(rows[table]) == what_was_said(plain[table])
    (connection,) = rows["connections"]
    assert (connection["service"], connection["session_id"]) == ("rtmpt", "BE7A")
    assert connection["tls_version"] == "TLS 1.3"


@pytest.mark.slow
def test_a_tunnel_inside_tls_with_lost_packets(tmp_path: Path, sample_pcaps: Path) -> None:
    sample = sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap"
    through = [(0 if p.dport == 80 else 1, p.payload) for p in Tunnel(said(sample)).close() if p.payload]
    plain = decode(sample)
    whole = {(r["direction"], r["type_id"], r["payload_crc32"]) for r in plain["messages"]}
    for options in ({"version": V13}, {"version": V12, "ciphers": "AES128-SHA"}):
        flights, log = in_tls(tmp_path, through, **options)
        packets = over_tcp(flights, port=443)
        loaded = [n for n, packet in enumerate(packets, 1) if packet.payload]
        for lost in random.Random(2).sample(loaded[20:-5], 10):
            rows = decode(write(tmp_path / "both.pcap", lose(packets, {lost})), settings=with_keys(log))
            kept = [r for r in rows["messages"] if r["status"] == "complete"]
            found = {(r["direction"], r["type_id"], r["payload_crc32"]) for r in kept}
            assert found <= whole
            assert len(whole - found) <= 20
            assert {"TCP_GAP", "TLS_RECORD_LOST"} <= set(codes(rows))
            assert not [row for row in rows["findings"] if row["severity"] == "error"]


# -- without keys -----------------------------------------------------------------------------------------------------


def test_no_key_on_an_rtmp_port(tmp_path: Path, sample_pcaps: Path) -> None:
    flights, _ = in_tls(tmp_path, said(sample_pcaps / SAMPLE)[:40], version=V12)
    for port, client, rows_expected in ((1935, 40000, 1), (5000, 40000, 0), (1936, 1100, 1)):  # as old Windows chose
        path = write(tmp_path / f"{port}.pcap", over_tcp(flights, port=port, start_port=client))
        recording = Recording([path])
        tables: dict[str, Rows] = {name: [] for name in ALL_TABLES}
        for table, batch in recording.batches():
            tables[table] += batch.to_pylist()
        assert len(tables["connections"]) == rows_expected
        assert not tables["messages"]
        if not rows_expected:
            assert recording.refusals == {"tls": 1}
            continue
        (connection,) = tables["connections"]
        assert (connection["service"], connection["server_name"]) == ("rtmps", "ingest.example")
        assert connection["tls_version"] == "TLS 1.2" and connection["tls_cipher"].startswith("TLS_")
        assert connection["captured_bytes_c2s"] == sum(len(data) for side, data in flights if side == 0)
        (finding,) = codes(tables)["TLS_NO_KEY"]
        assert finding["severity"] == "info"
        for word in ("OBS", "ffmpeg", "nginx", "Node", "browser", "SSLKEYLOGFILE", "--keylog"):
            assert word in finding["detail"]


def test_an_alert_in_the_handshake(tmp_path: Path, sample_pcaps: Path) -> None:
    flights, _ = in_tls(tmp_path, said(sample_pcaps / SAMPLE)[:3], version=V12)
    refused = [flights[0], (1, b"\x15\x03\x03\x00\x02\x02\x70")]
    rows = decode(write(tmp_path / "alert.pcap", over_tcp(refused)))
    (finding,) = codes(rows)["TLS_ALERT"]
    assert finding["direction"] == "s2c" and finding["severity"] == "warning"
    assert "unrecognized_name" in finding["detail"] and "host name" in finding["detail"]


# -- secrets and the command line -------------------------------------------------------------------------------------


def test_secrets_are_not_printed(sample_pcaps: Path, secrets: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    log = KeyLog()
    log.add(secrets)
    assert repr(log) == "KeyLog(1 connections)"
    path = str(sample_pcaps / f"{NAME}.pcap")
    assert main(["inspect", path, "--json", "--keylog", str(sample_pcaps / f"{NAME}.keylog")]) == 0
    shown = capsys.readouterr().out
    assert shown.count('"table":"messages"') + shown.count('"table": "messages"') > 200
    for line in secrets.splitlines():
        assert line.split()[2].decode() not in shown
        assert line.split()[1].decode() not in shown


def test_where_keys_come_from(
    tmp_path: Path,
    sample_pcaps: Path,
    secrets: bytes,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = str(sample_pcaps / f"{NAME}.pcap")
    monkeypatch.delenv("SSLKEYLOGFILE", raising=False)
    assert main(["inspect", path]) == 5
    assert "--keylog" in capsys.readouterr().err
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "one.log").write_bytes(secrets)
    (logs / "not a log.pcap").write_bytes(b"\xd4\xc3\xb2\xa1" * 100)
    assert main(["inspect", path, "--keylog", str(logs)]) == 0
    monkeypatch.setenv("SSLKEYLOGFILE", str(logs / "one.log"))
    assert main(["inspect", path]) == 0


def test_a_slice_carries_secrets_only_when_asked(
    tmp_path: Path, sample_pcaps: Path, secrets: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path, keys = str(sample_pcaps / f"{NAME}.pcap"), str(sample_pcaps / f"{NAME}.keylog")
    values = [line.split()[2] for line in secrets.splitlines() if b"EXPORTER" not in line]
    assert main(["slice", path, "--keylog", keys, "-o", str(tmp_path / "closed.pcapng")]) == 0
    assert not any(value in (tmp_path / "closed.pcapng").read_bytes() for value in values)
    assert main(["slice", path, "--keylog", keys, "-o", str(tmp_path / "open.pcapng"), "--with-secrets"]) == 0
    assert all(value in (tmp_path / "open.pcapng").read_bytes() for value in values)
    rows = decode(tmp_path / "open.pcapng")
    assert len(rows["messages"]) == len(decode(Path(path), settings=with_keys(secrets))["messages"])
    assert main(["slice", str(sample_pcaps / SAMPLE), "-o", str(tmp_path / "no.pcapng"), "--with-secrets"]) == 2


def test_secrets_in_another_file_of_the_recording(tmp_path: Path, sample_pcaps: Path, secrets: bytes) -> None:
    """A capture tool with rotating files may write the keys when it closes the last file."""
    later = tmp_path / "later.pcapng"
    with later.open("wb") as file:
        writer = PcapngWriter(file, "test")
        writer.write_secrets(keylog.SECRETS_TYPE_TLS, secrets)
        writer.write(4_000_000_000 * 1_000_000_000, bytes(60), 60, 1)
    settings = Settings()
    found = Recording([sample_pcaps / f"{NAME}.pcap", later], settings, ("messages",))
    read = sum(batch.num_rows for _, batch in found.batches())
    assert read == len(decode(sample_pcaps / f"{NAME}.pcap", settings=with_keys(secrets))["messages"]) > 200


def test_files_that_are_not_key_logs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        keylog.load([tmp_path / "nothing"])
    (tmp_path / "wrong").write_text("this is\nnot a key log\n")
    with pytest.raises(UserError, match="is not a key log"):
        keylog.load([tmp_path / "wrong"])
    half = tmp_path / "half"
    half.write_text("# made by a test\nCLIENT_RANDOM " + "ab" * 32 + " " + "cd" * 48 + "\nCLIENT_RANDOM " + "ef" * 20)
    log = keylog.load([half])
    assert len(log) == 1 and log.unusable_lines == 1


def test_missing_cryptography_is_reported_at_the_start(
    tmp_path: Path, sample_pcaps: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(keylog, "can_decrypt", lambda: False)
    path = str(sample_pcaps / f"{NAME}.pcap")
    assert main(["inspect", path, "--keylog", str(sample_pcaps / f"{NAME}.keylog")]) == 3
    printed = capsys.readouterr()
    assert "cryptography" in printed.err and printed.out == ""
