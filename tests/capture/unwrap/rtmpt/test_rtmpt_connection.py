"""RTMPT: a real connection inside HTTP gives the same rows as outside, over one or several connections, or damaged."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit import tls_connections
from kit.capture_rewriting import Packet, Talk
from kit.decoded_tables import Rows, decode, recorded_tags
from kit.handmade_facts import recorded
from kit.tls_connections import Wire
from kit.wrapped_connections import Pipelined, Tunnel, in_tls, lose, over_tcp, said, what_was_said, write

from rtmp_spark.analysis.recording import Recording
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.capture.tcp.stream_items import Gap, Run
from rtmp_spark.capture.unwrap.rtmpt.http_reader import Body, Finished, First, HttpReader, Missing, Skipped, Unsure
from rtmp_spark.capture.unwrap.rtmpt.rtmpt_connection import RtmptConnection
from rtmp_spark.capture.unwrap.rtmpt.rtmpt_session import REQUESTS, RtmptSession
from rtmp_spark.capture.unwrap.rtmpt.rtmpt_tunnels import Tunnels
from rtmp_spark.capture.unwrap.tls import keylog
from rtmp_spark.cli import main

SPOKEN = ("messages", "commands", "controls", "media_tags")
SAMPLE = "ffmpeg_publish_g711mu_audio_only.pcap"


def same(found: dict[str, Rows], plain: dict[str, Rows]) -> None:
    for table in SPOKEN:
        assert what_was_said(found[table]) == what_was_said(plain[table])


@pytest.fixture(scope="module")
def plain(sample_pcaps: Path) -> dict[str, Rows]:
    return decode(sample_pcaps / SAMPLE)


@pytest.fixture(scope="module")
def spoken(sample_pcaps: Path) -> list[tuple[int, bytes]]:
    return said(sample_pcaps / SAMPLE)


def codes(rows: dict[str, Rows]) -> set[str]:
    return {row["rule_id"] for row in rows["findings"]}


def test_a_real_tunnel(sample_pcaps: Path, oracle: Path) -> None:
    name = "p1980_rtmpt_pyrtmp_ffmpeg_publish"
    rows = decode(sample_pcaps / f"{name}.pcap")
    (connection,) = rows["connections"]
    assert connection["service"] == "rtmpt"
    assert connection["session_id"] == "6c3c5a03ac594c848cf5d0c570c9455c"  # what tshark shows in the paths
    assert (connection["closed_by"], connection["close_cause"]) == ("client", "teardown")  # it asked for /close
    sent = [row for row in rows["media_tags"] if row["direction"] == "c2s" and not row["is_config"]]
    recorded = [tag for tag in recorded_tags(oracle / f"{name}.server_record.flvtags.tsv") if tag.is_media]
    assert len(recorded) <= len(sent) <= len(recorded) + 2  # the recorder stopped a little earlier
    assert not {row["rule_id"] for row in rows["findings"]} & {"CHUNK_RESYNC", "RTMPT_SEQUENCE", "RTMPT_HTTP_STATUS"}


@pytest.mark.parametrize("connections", [1, 2, 3])
@pytest.mark.parametrize("chunked", [False, True])
def test_rows_are_the_same_inside_rtmpt(
    tmp_path: Path, plain: dict[str, Rows], spoken: list[tuple[int, bytes]], connections: int, chunked: bool
) -> None:
    packets = Tunnel(spoken, connections=connections, chunked=chunked).close()
    rows = decode(write(tmp_path / "tunnel.pcap", packets))
    same(rows, plain)
    assert [row["session_id"] for row in rows["connections"]] == ["BE7A"] * connections
    assert {row["service"] for row in rows["connections"]} == {"rtmpt"}
    assert len({row["uid"] for row in rows["messages"]}) == 1
    assert "RTMPT_SEQUENCE" not in codes(rows) and "RTMPT_HTTP_STATUS" not in codes(rows)


def test_thousands_of_requests_between_two_answers_with_data(
    tmp_path: Path, plain: dict[str, Rows], spoken: list[tuple[int, bytes]]
) -> None:
    """librtmp polls without a pause: a window of a file has far more requests than are open at a time."""
    tunnel = Tunnel(spoken[:10])
    for _ in range(3000):
        tunnel.round(b"", b"")
    for up, down in tunnel._rounds(spoken[10:]):
        tunnel.round(up, down)
    same(decode(write(tmp_path / "idle.pcap", tunnel.close())), plain)


def test_a_tunnel_through_a_proxy(tmp_path: Path, plain: dict[str, Rows], spoken: list[tuple[int, bytes]]) -> None:
    """Requests to a proxy name the server (RFC 9112 3.2.2), as FFmpeg's do where http_proxy is set."""
    packets = Tunnel(spoken, port=3128, proxied="http://ingest.example:8080").close()
    rows = decode(write(tmp_path / "proxy.pcap", packets))
    same(rows, plain)
    (connection,) = rows["connections"]
    assert (connection["service"], connection["session_id"]) == ("rtmpt", "BE7A")
    joined = decode(write(tmp_path / "joined.pcap", packets[len(packets) // 2 :]))
    assert {row["service"] for row in joined["connections"]} == {"rtmpt"}
    assert len(joined["messages"]) > len(plain["messages"]) * 0.4


def test_offsets_are_located_in_packets(tmp_path: Path, spoken: list[tuple[int, bytes]]) -> None:
    packets = Tunnel(spoken, connections=2).close()
    rows = decode(write(tmp_path / "tunnel.pcap", packets))
    for row in rows["messages"]:
        for frame in (row["frame_first"], row["frame_last"]):
            packet = packets[frame - 1]
            assert packet.payload
            assert (packet.sport == 80) == (row["direction"] == "s2c")
    connect = next(row for row in rows["commands"] if row["name"] == "connect")
    assert b"connect" in packets[connect["frame"] - 1].payload or b"connect" in packets[connect["frame"] - 3].payload


@pytest.mark.parametrize("window", [200, 3000])
def test_windows_do_not_matter(
    tmp_path: Path,
    spoken: list[tuple[int, bytes]],
    plain: dict[str, Rows],
    window: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rtmp_spark.analysis import recording
    from rtmp_spark.capture.files import open_capture

    path = write(tmp_path / "tunnel.pcap", Tunnel(spoken, connections=2).close())
    whole = decode(path)
    original = open_capture.open_capture

    def small(*args: Any, **options: Any) -> Any:
        return original(*args, **options, window_bytes=window)

    monkeypatch.setattr(recording, "open_capture", small)
    again = decode(path)
    for table, rows in whole.items():
        assert sorted(map(str, again[table])) == sorted(map(str, rows))
    same(whole, plain)


def test_other_requests_in_between(tmp_path: Path, plain: dict[str, Rows], spoken: list[tuple[int, bytes]]) -> None:
    get = b"GET /crossdomain.xml HTTP/1.1\r\nHost: a\r\n\r\n"
    page = b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nsorry"
    rows = decode(write(tmp_path / "mixed.pcap", Tunnel(spoken, between=(get, page)).close()))
    same(rows, plain)
    assert "RTMPT_HTTP_STATUS" not in codes(rows)


def test_two_sessions_one_after_the_other_on_one_connection(
    tmp_path: Path, plain: dict[str, Rows], spoken: list[tuple[int, bytes]]
) -> None:
    tunnel = Tunnel(spoken, session_id="ONE")
    tunnel._exchange(0, f"/close/ONE/{tunnel.number}", b"\0", b"")
    tunnel.session_id, tunnel.number = "TWO", 0
    tunnel._exchange(0, "/open/1", b"\0", b"TWO\n", interval=False)
    for up, down in tunnel._rounds(spoken):
        tunnel.round(up, down)
    rows = decode(write(tmp_path / "two.pcap", tunnel.close()))
    assert sorted(row["session_id"] for row in rows["connections"]) == ["ONE", "TWO"]
    for connection in rows["connections"]:
        own = {table: [r for r in rows[table] if r["uid"] == connection["uid"]] for table in SPOKEN}
        same(own, plain)


def test_a_long_answer_read_before_its_requests(tmp_path: Path) -> None:
    """A player receives its stream in responses, and in one window these may be read before the requests."""
    handshake, body = b"\3" + bytes(1536), bytes(range(256)) * 80
    media = b"".join(b"\6" + bytes(3) + len(body).to_bytes(3, "big") + b"\x08\1\0\0\0" + body for _ in range(10))
    chunk_size = b"\2" + bytes(3) + b"\0\0\4\1" + bytes(4) + (1 << 16).to_bytes(4, "big")
    spoken = [(0, handshake), (1, handshake + bytes(1536)), (0, bytes(1536)), (1, chunk_size + media)]
    lower = {"10.0.0.2": "10.0.0.0"}  # the end with the lower address is read first
    packets = [
        replace(packet, src=lower.get(packet.src, packet.src), dst=lower.get(packet.dst, packet.dst))
        for packet in Tunnel(spoken).close()
    ]
    rows = decode(write(tmp_path / "play.pcap", packets))
    assert [row["service"] for row in rows["connections"]] == ["rtmpt"]
    assert [row["length"] for row in rows["messages"] if row["type_id"] == 8] == [len(body)] * 10


def test_a_download_is_soon_recognised_as_not_rtmpt(tmp_path: Path) -> None:
    from kit.capture_rewriting import Talk

    talk = Talk(server=("10.0.0.2", 80)).open()
    talk.say(0, b"GET /film HTTP/1.1\r\nHost: a\r\n\r\n")
    talk.say(1, b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + bytes(300000))
    recording = Recording([write(tmp_path / "film.pcap", talk.close().packets)])
    assert not [batch for table, batch in recording.batches() if table == "connections"]
    assert recording.refusals == {"http": 1}


def test_http_that_is_not_rtmpt(tmp_path: Path) -> None:
    from kit.capture_rewriting import Talk

    talk = Talk(server=("10.0.0.2", 80)).open()
    for number in range(40):
        talk.say(0, b"POST /upload/%d HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc" % number)
        talk.say(1, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    recording = Recording([write(tmp_path / "http.pcap", talk.close().packets)])
    assert not [batch for table, batch in recording.batches() if table == "connections"]
    assert recording.refusals == {"http": 1}


def test_state_is_a_value(spoken: list[tuple[int, bytes]]) -> None:
    tunnel = [(0 if packet.dport == 80 else 1, packet.payload) for packet in Tunnel(spoken).close() if packet.payload]
    for window, lost in ((1, set()), (5, set()), (3, {40, 61})):
        inside: list[list[bytes]] = []
        for resumed in (False, True):
            wire, tunnels, found = Wire(), Tunnels(), []
            reading = RtmptConnection(wire, tunnels, found.append)
            for item in tls_connections.items(wire, tls_connections.packets(tunnel, 300), lost, window=window):
                reading.receive(item)
                tunnels.settle()
                if resumed:
                    saved = json.loads(json.dumps(reading.state()))
                    tunnels = Tunnels()
                    reading = RtmptConnection.resume(saved, wire, tunnels, found.append)
            reading.finish()
            sides = [[i for i in found if i.direction == d and isinstance(i, (Run, Gap))] for d in (0, 1)]
            inside.append([b"".join(i.data if isinstance(i, Run) else b"<gap>" for i in side) for side in sides])
        assert inside[0] == inside[1]
        if not lost:
            assert inside[0] == [b"".join(data for side, data in spoken if side == d) for d in (0, 1)]


def test_a_close_request_is_kept_after_the_first_connection_ended() -> None:
    wires, tunnels = (Wire(), Wire(number=1)), Tunnels()
    readings = []
    for number, wire in enumerate(wires):
        flights = [(0, b"POST /send/BE7A/%d HTTP/1.1\r\nContent-Length: 1\r\n\r\n\0" % number)]
        if number == 0:
            flights.append((0, b"POST /close/BE7A/2 HTTP/1.1\r\nContent-Length: 1\r\n\r\n\0"))
        readings.append(RtmptConnection(wire, tunnels, lambda item: None))
        for item in tls_connections.items(wire, tls_connections.packets(flights, 300), set()):
            readings[-1].receive(item)
    assert readings[1].facts.goodbye_ns is not None
    saved = json.loads(json.dumps(readings[1].state()))
    resumed = RtmptConnection.resume(saved, wires[1], Tunnels(), lambda item: None)
    assert resumed.facts.goodbye_ns == readings[1].facts.goodbye_ns


# -- what can go wrong ------------------------------------------------------------------------------------------------


def test_a_close_request_after_the_first_connection_ended(
    tmp_path: Path, plain: dict[str, Rows], spoken: list[tuple[int, bytes]]
) -> None:
    """A client opens connections as it needs them: the first one ends long before the session."""
    half = len(spoken) // 2
    tunnel = Tunnel(spoken[:half], connections=2)
    tunnel._on(0, lambda talk: talk.close(1))
    del tunnel.talks[0]
    for up, down in tunnel._rounds(spoken[half:]):
        tunnel.round(up, down)
    rows = decode(write(tmp_path / "two.pcap", tunnel.close()))
    same(rows, plain)
    home = {row["uid"] for row in rows["messages"]}
    assert [row["close_cause"] for row in rows["connections"] if row["uid"] in home] == ["teardown"]


def test_a_session_that_began_before_on_another_connection(
    tmp_path: Path, plain: dict[str, Rows], spoken: list[tuple[int, bytes]]
) -> None:
    """The first packets of this connection are not the first packets of the RTMP session."""
    half = len(spoken) // 2
    tunnel = Tunnel(spoken[:half])
    begun = len(tunnel.order)
    tunnel.talks[0] = Talk(client=("10.0.0.1", 50001), server=("10.0.0.2", 80))
    tunnel._on(0, lambda talk: talk.open())
    for up, down in tunnel._rounds(spoken[half:]):
        tunnel.round(up, down)
    rows = recorded(write(tmp_path / "later.pcap", tunnel.close()[begun:]), *SPOKEN, "findings", "connections")
    whole = {(r["direction"], r["type_id"], r["payload_crc32"]) for r in plain["messages"]}
    found = [(r["direction"], r["type_id"], r["payload_crc32"]) for r in rows["messages"] if r["status"] == "complete"]
    assert set(found) <= whole and len(found) > len(plain["messages"]) * 0.4
    assert codes(rows) == {"SESSION_END"}
    (connection,) = rows["connections"]
    assert (connection["service"], connection["close_cause"]) == ("rtmpt", "teardown")
    # With the last requests on the connection before, which starts midstream.
    rows = recorded(write(tmp_path / "both.pcap", tunnel.order[begun - 20 :]), *SPOKEN, "findings", "connections")
    more = [(r["direction"], r["type_id"], r["payload_crc32"]) for r in rows["messages"] if r["status"] == "complete"]
    assert set(more) <= whole and len(more) > len(found)
    assert not codes(rows) & {"RTMPT_SEQUENCE", "CHUNK_RESYNC"}


def test_many_numbers_without_a_body_are_one_gap() -> None:
    """Every second packet was lost, and the others have empty bodies: that is one gap of unknown length."""
    found: list[Any] = []
    session = RtmptSession("BE7A", Wire(), 0, found.append, opened=False)
    session.unsure = True
    for number in range(0, 2000, 2):
        session.finish(REQUESTS, session.begin(REQUESTS, number, number, number))
    session.settle()
    (gap,) = found
    assert isinstance(gap, Gap) and not gap.exact


def test_numbers_that_jump_or_repeat(tmp_path: Path, plain: dict[str, Rows], spoken: list[tuple[int, bytes]]) -> None:
    jumping = Tunnel(spoken, numbers=lambda n: n if n < 4 else n + 3).close()
    rows = decode(write(tmp_path / "jump.pcap", jumping))
    same(rows, plain)
    (finding,) = [row for row in rows["findings"] if row["rule_id"] == "RTMPT_SEQUENCE"]
    assert "request number 3 is followed by 7" in finding["detail"] and finding["severity"] == "warning"
    standing = Tunnel(spoken, numbers=lambda n: min(n, 4)).close()
    rows = decode(write(tmp_path / "stand.pcap", standing))
    same(rows, plain)
    assert "RTMPT_SEQUENCE" in codes(rows)


def test_a_repeated_request_is_delivered_once(
    tmp_path: Path, plain: dict[str, Rows], spoken: list[tuple[int, bytes]]
) -> None:
    tunnel = Tunnel([])
    rounds = tunnel._rounds(spoken)
    for number, (up, down) in enumerate(rounds):
        if number == 6:
            tunnel.round(up, b"", status="503 Service Unavailable")
            tunnel.number -= 1
        tunnel.round(up, down)
    rows = decode(write(tmp_path / "again.pcap", tunnel.close()))
    assert what_was_said([r for r in rows["messages"] if r["direction"] == "c2s"]) == what_was_said(
        [r for r in plain["messages"] if r["direction"] == "c2s"]
    )
    assert {"RTMPT_SEQUENCE", "RTMPT_HTTP_STATUS"} <= codes(rows)
    (finding,) = [row for row in rows["findings"] if row["rule_id"] == "RTMPT_HTTP_STATUS"]
    assert "HTTP status 503 in response to send" in finding["detail"]


def test_more_body_than_announced(tmp_path: Path, plain: dict[str, Rows], spoken: list[tuple[int, bytes]]) -> None:
    tunnel = Tunnel([])
    for number, (up, down) in enumerate(tunnel._rounds(spoken)):
        tunnel.round(up, down)
        if number == 3:
            tunnel._on(0, lambda talk: talk.say(0, b"\0\1\2 and more\r\n\r\n"))
    rows = decode(write(tmp_path / "more.pcap", tunnel.close()))
    same(rows, plain)
    (finding,) = [row for row in rows["findings"] if row["rule_id"] == "RTMPT_HTTP_STATUS"]
    assert "16 bytes" in finding["detail"]


def test_a_lost_packet_loses_only_its_messages(
    tmp_path: Path, plain: dict[str, Rows], spoken: list[tuple[int, bytes]]
) -> None:
    packets = Tunnel(spoken).close()
    # Times may shift: a lost header held a difference.
    whole = {(r["direction"], r["type_id"], r["payload_crc32"]) for r in plain["messages"]}
    inner = [n for n, packet in enumerate(packets, 1) if packet.payload]
    for seed in range(12):
        chance = random.Random(seed)
        lost = {chance.choice(inner[12:-6]) for _ in range(chance.choice((1, 1, 3)))}
        rows = decode(write(tmp_path / f"{seed}.pcap", lose(packets, lost)))
        found = {
            (r["direction"], r["type_id"], r["payload_crc32"]) for r in rows["messages"] if r["status"] == "complete"
        }
        assert "TCP_GAP" in codes(rows) and "RTMPT_SEQUENCE" not in codes(rows)
        assert found <= whole
        # Few messages lie in a packet; some more may be needed to find the next beginning.
        assert len(whole - found) <= 8 * len(lost)


@pytest.mark.slow
def test_a_lost_packet_and_requests_ahead_of_their_answers(tmp_path: Path, sample_pcaps: Path) -> None:
    """Responses can no longer be matched with certainty, but none is dropped without a report."""
    sample = sample_pcaps / "nginx_vod_rtmpdump_play.pcap"
    tunnel = Pipelined([])
    for up, down in tunnel._rounds(said(sample)):
        for at in range(0, max(len(down), 1), 3000):
            tunnel.round(b"" if at else up, down[at : at + 3000])
    packets = tunnel.close()
    plain = decode(sample)
    whole = {(r["direction"], r["type_id"], r["payload_crc32"]) for r in plain["messages"]}
    loaded = [n for n, packet in enumerate(packets, 1) if packet.payload]
    for lost in random.Random(1).sample(loaded[20:-20], 12):
        rows = decode(write(tmp_path / f"{lost}.pcap", lose(packets, {lost})))
        kept = [r for r in rows["messages"] if r["status"] == "complete"]
        found = {(r["direction"], r["type_id"], r["payload_crc32"]) for r in kept}
        assert found <= whole
        assert len(whole - found) <= 25
        assert not [row for row in rows["findings"] if row["severity"] == "error"]


@pytest.mark.slow
def test_a_packet_lost_on_one_of_two_connections(tmp_path: Path, sample_pcaps: Path) -> None:
    """Requests of the other connection wait as long as TCP does: they stay in order."""
    sample = sample_pcaps / "capture_gap_full.pcap"
    tunnel = Tunnel([], connections=2)
    for up, down in tunnel._rounds(said(sample)):
        for at in range(0, max(len(up), 1), 700):
            tunnel.round(up[at : at + 700], b"" if at else down)
    packets = tunnel.close()
    whole = {(r["direction"], r["type_id"], r["payload_crc32"]) for r in decode(sample)["messages"]}
    loaded = [n for n, packet in enumerate(packets, 1) if len(packet.payload) > 700]
    for lost in random.Random(3).sample(loaded[10 : len(loaded) // 2], 8):
        rows = decode(write(tmp_path / f"{lost}.pcap", lose(packets, {lost})))
        kept = [r for r in rows["messages"] if r["status"] == "complete"]
        found = {(r["direction"], r["type_id"], r["payload_crc32"]) for r in kept}
        assert found <= whole
        assert len(whole - found) <= 15
        assert not codes(rows) & {"RTMPT_SEQUENCE", "RTMPT_HTTP_STATUS"}
        assert not [row for row in rows["findings"] if row["severity"] == "error"]


def test_a_midstream_start(tmp_path: Path, sample_pcaps: Path) -> None:
    longer = sample_pcaps / "ffmpeg_publish_h264_aac.pcap"
    plain = decode(longer)
    packets = Tunnel(said(longer)).close()
    rows = decode(write(tmp_path / "middle.pcap", packets[len(packets) // 2 :]))
    (connection,) = rows["connections"]
    assert (connection["service"], connection["session_id"], connection["midstream"]) == ("rtmpt", "BE7A", True)
    assert len(rows["messages"]) > len(plain["messages"]) * 0.4


# -- HTTP -------------------------------------------------------------------------------------------------------------


def merged(events: list[Any]) -> list[Any]:
    out: list[Any] = []
    for event in events:
        if isinstance(event, Body) and out and isinstance(out[-1], Body):
            out[-1] = Body(out[-1].offset, out[-1].data + event.data)
        else:
            out.append(event)
    return out


EXCHANGE = (
    b"POST /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"
    b"GET /b HTTP/1.0\n\n"
    b"POST /c HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n"
    b"3\r\nabc\r\n10;e=1\r\n0123456789abcdef\r\n0\r\nX: y\r\n\r\n"
    b"trash\r\nPOST /d HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
)


def test_messages_of_http() -> None:
    events = merged(HttpReader(requests=True).receive(EXCHANGE, 0))
    targets = [event.target for event in events if isinstance(event, First)]
    assert targets == ["/a", "/b", "/c", "/d"]
    bodies = b"|".join(event.data for event in events if isinstance(event, Body))
    assert bodies == b"hello|abc0123456789abcdef"
    assert [event.length for event in events if isinstance(event, Skipped)] == [7]
    for event in events:
        if isinstance(event, First):
            assert EXCHANGE[event.offset :].startswith(event.word.encode() + b" " + event.target.encode())
    assert sum(isinstance(event, Finished) for event in events) == 4


def test_http_can_be_cut_anywhere() -> None:
    expected = merged(HttpReader(requests=True).receive(EXCHANGE, 0))
    for seed in range(40):
        chance = random.Random(seed)
        reader, found, at = HttpReader(requests=True), [], 0
        while at < len(EXCHANGE):
            size = chance.randint(1, 9 if seed % 2 else 60)
            found += reader.receive(EXCHANGE[at : at + size], at)
            reader = HttpReader.resume(json.loads(json.dumps(reader.state())))
            at += size
        bodies = [b"".join(e.data for e in part if isinstance(e, Body)) for part in (found, expected)]
        assert bodies[0] == bodies[1]
        assert [e for e in found if not isinstance(e, Body)] == [e for e in expected if not isinstance(e, Body)]


def test_gaps_in_http() -> None:
    reader = HttpReader(requests=True)
    reader.receive(b"POST /a HTTP/1.1\r\nContent-Length: 100\r\n\r\nhello", 0)
    assert reader.receive_gap(40) == [Missing(46, 40)]
    assert reader.receive_gap(60) == [Missing(86, 55), Finished(86, False), Unsure(146)]
    events = reader.receive(b"rest of somethingPOST /b HTTP/1.1\r\n\r\n", 146)
    assert [e.target for e in events if isinstance(e, First)] == ["/b"]


def test_responses_without_length_continue_to_the_end() -> None:
    reader = HttpReader(requests=False)
    events = reader.receive(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\n\r\nall the rest", 0)
    events += reader.receive_end()
    assert [e.target for e in events if isinstance(e, First)] == ["100", "200"]
    assert b"".join(e.data for e in events if isinstance(e, Body)) == b"all the rest"


def test_a_slice_has_all_connections_of_a_session(
    tmp_path: Path, plain: dict[str, Rows], spoken: list[tuple[int, bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    """It does not matter which of them is asked for."""
    tunnel = Tunnel(spoken, connections=3).close()
    other = Tunnel(spoken[:4], session_id="ANOTHER", start_port=51000).close()
    path = write(tmp_path / "both.pcap", [*tunnel, *other])
    carriers = [row["uid"] for row in decode(path)["connections"] if row["session_id"] == "BE7A"]
    assert len(carriers) == 3
    for uid in carriers:
        assert main(["slice", str(path), "--uid", uid, "-o", str(tmp_path / "one.pcapng")]) == 0
        assert f"{len(tunnel)} packets of {uid} over 3 TCP connections" in capsys.readouterr().out
        rows = decode(tmp_path / "one.pcapng")
        same(rows, plain)
        assert {row["session_id"] for row in rows["connections"]} == {"BE7A"}


def test_a_slice_of_a_session_inside_tls_can_be_opened_whole(
    tmp_path: Path, plain: dict[str, Rows], spoken: list[tuple[int, bytes]]
) -> None:
    packets: list[Packet] = []
    tunnel = Tunnel(spoken, connections=3)
    tunnel.close()
    for port, talk in enumerate(tunnel.talks, 50000):
        given = [(int(p.sender != talk.ends[0]), p.payload) for p in talk.packets if p.payload]
        flights, secrets = in_tls(tmp_path, given)
        packets += over_tcp(flights, port=443, start_port=port)
        (tmp_path / f"{port}.log").write_bytes(secrets)
    path = write(tmp_path / "tunnel.pcap", sorted(packets, key=lambda p: p.ts_ns))
    (tmp_path / "unused.log").write_bytes(in_tls(tmp_path, spoken[:2])[1])
    logs = [one for log in sorted(tmp_path.glob("*.log")) for one in ("--keylog", str(log))]
    uid = {row["uid"] for row in decode(path, settings=Settings(keylog=keylog.load(logs[1::2])))["messages"]}.pop()
    target = tmp_path / "one.pcapng"
    assert main(["slice", str(path), "--uid", uid, "-o", str(target), "--with-secrets", *logs]) == 0
    same(decode(target), plain)
    unused = (tmp_path / "unused.log").read_bytes().split()
    assert not any(value in target.read_bytes() for value in unused if len(value) > 60)
