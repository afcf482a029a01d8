"""ConnectionView agrees with what the peer recorded."""

from __future__ import annotations

import html
import re
import shlex
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from kit.decoded_tables import recorded_tags
from kit.relay_process import read_flv

from rtmp_spark.cli import main
from rtmp_spark.report.connection_view import ConnectionView
from rtmp_spark.report.view import read_captures


@pytest.fixture(scope="module")
def publisher(sample_pcaps: Path) -> ConnectionView:
    return read_captures(sample_pcaps / "ffmpeg_publish_h264_aac.pcap").connections[0]


def test_plots_show_the_numbers_that_the_server_recorded(publisher: ConnectionView, oracle: Path) -> None:
    tags = recorded_tags(oracle / "ffmpeg_publish_h264_aac.server_record.flvtags.tsv")
    video = [t for t in tags if t.type_id == 9 and t.head[2:4] == "01"]
    keys = [t for t in video if t.head[0] == "1"]
    track = next(t for s in publisher._data.media.streams for t in s.tracks if t.kind == "video")
    assert (track.frames, track.keys) == (len(video), len(keys))
    longest = max(b.timestamp - a.timestamp for a, b in pairwise(keys))
    assert track.key_interval_max == longest
    assert f"{len(keys)} keyframes" in str(publisher.gop())
    drawn = next(s for _, f in publisher._data.media_figures("frames") for s in f.series if s.role == "key")
    assert sorted(drawn.y) == sorted(t.size - 5 for t in keys)  # without the five bytes of the tag header


def test_the_ladder_shows_the_dialogue_in_order(publisher: ConnectionView) -> None:
    ladder = str(publisher.ladder())
    shown = ("C0 C1 C2", "connect", "_result", "createStream", "publish", "deleteStream")
    places = [ladder.index(word) for word in shown]
    assert places == sorted(places)
    assert "NetStream.Publish.Start" in ladder
    assert "127 video, 218 audio messages" in ladder  # tshark's count


def test_wireshark_accepts_the_display_filter(publisher: ConnectionView, sample_pcaps: Path) -> None:
    assert publisher.wireshark_filter() == "ip.addr == 127.0.0.1 && tcp.port == 44864 && tcp.port == 1935"
    row = next(r for r in publisher._messages("c2s") if r["type_name"] == "command_amf0")
    assert publisher.wireshark_filter(row["msg_no"]) == f"frame.number == {row['frame_first']}"
    tshark = shutil.which("tshark")
    if tshark is not None:
        path = str(sample_pcaps / "ffmpeg_publish_h264_aac.pcap")
        command = [tshark, "-r", path, "-Y", publisher.wireshark_filter()]
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        assert len(found.stdout.splitlines()) == 1003


def test_exports(publisher: ConnectionView, tmp_path: Path, oracle: Path) -> None:
    (written,) = publisher.export_flv(tmp_path / "stream.flv")
    tags = [t for t in read_flv(Path(written)) if t.type_id in (8, 9)]
    recorded = recorded_tags(oracle / "ffmpeg_publish_h264_aac.server_record.flvtags.tsv")
    recorded = [t for t in recorded if t.type_id != 18]
    assert len(tags) == len(recorded) - 1  # nginx-rtmp writes the AAC header twice
    target = publisher.export_pcap(tmp_path / "one.pcapng")
    again = read_captures(target).connections[0]
    assert again.uid == publisher.uid
    assert again.table("messages").num_rows == publisher.table("messages").num_rows


def test_rotated_files_are_one_connection(sample_pcaps: Path) -> None:
    recording = read_captures(*sorted(sample_pcaps.glob("rotated_publish_0*.pcap")))
    (view,) = recording.connections
    assert len(view.capture_ids) == 3
    last = view._messages("c2s")[-1]["msg_no"]
    assert "message" in str(view.hexdump(last))


def test_missing_media_is_explained(sample_pcaps: Path) -> None:
    (encrypted, *_) = read_captures(sample_pcaps / "rtmpe_rtmpdump_rtmpsrv.pcap").connections
    assert "No media" in str(encrypted.gop())
    assert "encrypted" in str(encrypted)
    audio = read_captures(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap").connections[0]
    assert "no video" in str(audio.gop())
    assert "audio only" in str(audio.timestamps())


def test_the_report_command_explains_wrong_usage(
    tmp_path: Path, sample_pcaps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "r.html"
    capture = str(sample_pcaps / "ffmpeg_publish_h264_aac.pcap")
    assert main(["report", "-o", str(page)]) == 2
    assert "Give capture files or a lake." in capsys.readouterr().err
    assert main(["report", capture, "-o", str(tmp_path / "none" / "r.html")]) == 2
    assert main(["report", capture, "--uid", "CNOTTHERE", "-o", str(page)]) == 2
    (tmp_path / "empty.pcap").write_bytes(b"")
    assert main(["report", str(tmp_path / "empty.pcap"), "-o", str(page)]) == 4
    assert not page.exists()
    assert list(tmp_path.glob("*.part")) == []


def test_the_command_on_the_page_reproduces_the_page(tmp_path: Path, sample_pcaps: Path) -> None:
    page = tmp_path / "r.html"
    words = ["report", str(sample_pcaps / "ffmpeg_publish_h264_aac.pcap"), "--since", "2026-11-16T00:02:22Z"]
    assert main([*words, "--until", "2026-11-16T00:02:28Z", "--sensor", "edge 1", "-o", str(page)]) == 0
    first = page.read_text("utf-8")
    found = re.search(r"(rtmp-spark report [^<]*)</code>", first)
    assert found is not None
    again = shlex.split(html.unescape(found[1]))
    assert "--sensor" in again and "--until" in again
    page.unlink()
    assert main(again[1:]) == 0
    assert page.read_text("utf-8") == first


def test_secrets_stay_out_of_the_page(tmp_path: Path, sample_pcaps: Path) -> None:
    page = tmp_path / "r.html"
    capture = str(sample_pcaps / "ffmpeg_publish_querystring_metadata.pcap")
    assert main(["report", capture, "-o", str(page)]) == 0
    names = read_captures(capture, keep_secrets=True).connections[0].stream_names
    assert names and all(name.partition("?")[0] not in page.read_text() for name in names)


def test_the_page_shows_findings_about_the_file(tmp_path: Path, sample_pcaps: Path) -> None:
    page = tmp_path / "r.html"
    assert main(["report", str(sample_pcaps / "file_cut_mid_record.pcap"), "-o", str(page)]) == 0
    assert "CAPTURE_TRUNCATED" in page.read_text()


def test_every_sample_gives_a_page(tmp_path: Path, sample_pcaps: Path) -> None:
    captures = [str(path) for path in sorted(sample_pcaps.glob("*.pcap*"))]
    page = tmp_path / "all.html"
    assert main(["report", *captures, "-o", str(page)]) == 0
    text = page.read_text()
    assert "Findings per software" in text  # enough connections for the archive panels
    links = set(re.findall(r"(?:src|href|action)=['\"]([^'\"]*)", text))
    assert {link[:1] for link in links if link != "data:,"} == {"#"}  # within the page only
    assert "@import" not in text and "url(" not in text


def test_retransmitted_packets_do_not_make_timestamps_go_backwards(sample_pcaps: Path, oracle: Path) -> None:
    """Retransmission completes messages in another order; the timestamps that the server recorded never decrease."""
    name = "lossy_mtu1500_server_side"
    tags = [t for t in recorded_tags(oracle / f"{name}.server_record.flvtags.tsv") if t.type_id == 9]
    assert all(a.timestamp <= b.timestamp for a, b in pairwise(tags))
    for view in read_captures(sample_pcaps / f"{name}.pcap").connections:
        for _, figure in view._data.media_figures("clock"):
            assert "timestamp goes backwards" not in [series.name for series in figure.series]
            for series in figure.series:
                assert series.x == sorted(series.x)


def test_a_connection_shorter_than_a_second_is_drawn_to_its_end(sample_pcaps: Path) -> None:
    for view in read_captures(sample_pcaps / "denied_and_unknown_app.pcap").connections:
        sent = view._data.flow_control[0].series[0]
        assert sent.x[-1] == pytest.approx(view._data.duration_ms / 1000, abs=0.001)
        row = view._data.connection
        way = "c2s" if "client → server" in view._data.flow_control[0].title else "s2c"
        assert sent.y[-1] == row[f"delivered_bytes_{way}"]


def test_media_in_the_packet_of_fcunpublish_comes_before_it(sample_pcaps: Path) -> None:
    """The encoder's last frames and then its FCUnpublish are in one packet (number 521 in tshark)."""
    name = "p1950_enhanced_multitrack_audio_libav62_nms.pcap"
    lines = str(read_captures(sample_pcaps / name).connections[0].ladder()).splitlines()
    media = [i for i, line in enumerate(lines) if "video" in line and "audio messages" in line]
    unpublish = next(i for i, line in enumerate(lines) if "FCUnpublish" in line)
    assert media == [unpublish - 1]


def test_a_tap_recording_shows_no_tcp_figures(sample_pcaps: Path) -> None:
    """The relay wrote this capture; its packets are acknowledged without delay."""
    tapped = read_captures(sample_pcaps / "encoder_waits_for_acknowledgements.pcap").connections[0]
    shown = str(tapped.flow_control())
    assert "A tap wrote the TCP headers" in shown and "never closed" not in shown
    assert "Round-trip time: RTMP ping " in shown and "Round-trip time: TCP" not in shown  # RTMP pings are real


def test_a_real_recording_shows_tcp_figures(publisher: ConnectionView) -> None:
    shown = str(publisher.flow_control())
    assert "tap" not in shown and "The window was never zero." in shown


def test_the_loss_of_a_connection_is_that_of_its_media(sample_pcaps: Path) -> None:
    """The server of the publisher retransmitted half of its few bytes; `inspect` and the page show the publisher's."""
    page = read_captures(sample_pcaps / "lossy_mtu1500_client_side.pcap")._repr_html_()
    assert "4.2 %" in page and "3.7 %" in page and "57.3 %" not in page
