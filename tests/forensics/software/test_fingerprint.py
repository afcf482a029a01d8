"""Software by its habits: what is known from sources, what is unknown, and that no name of a stream is evidence."""

from __future__ import annotations

import hashlib
import json

import pytest
from rulekit import SAMPLES, command, recorded

from rtmp_spark.capture.redact import Redactor
from rtmp_spark.forensics.fingerprint import CLIENTS, NEEDED, SERVERS, recognise
from rtmp_spark.forensics.habits import HabitFold
from rtmp_spark.forensics.prediction import predicted

SEALED = Redactor(b"a key for tests").sealed


def test_nothing_seen_is_nobody() -> None:
    assert recognise({}, CLIENTS).software is None and recognise({}, SERVERS).software is None


@pytest.mark.parametrize(
    "habits",
    [
        {
            "flashVer": "FMLE/3.0 (compatible; FMSc/1.0)",
            "order": "connect releaseStream FCPublish createStream publish",
        },
        {"flashVer": "LNX 9,0,124,2", "audioCodecs": "4071", "packet_version": "00000000"},  # copied by many players
        {"flashVer": "WIN 11,2,202,235"},
        {"encoder": "SomeEncoder 1.0"},
        {"encoder": "Lavf59.27.100", "flashVer": "OddCam/3.1", "packet_time": "0", "publish_csid": "8"},  # of a file
    ],
)
def test_strings_that_everybody_copies_name_no_client(habits: dict[str, str]) -> None:
    assert recognise(habits, CLIENTS).software is None


@pytest.mark.parametrize(
    "habits",
    [
        {"fmsVer": "FMS/3,0,1,123", "capabilities": "31", "connect_words": "Connection succeeded."},
        {"fmsVer": "FMS/3,0,1,123", "copies_c1": "no", "Play.Start": "Started playing stream."},
        {"fmsVer": "FMS/4,5,0,297"},
        {"fmsVer": "FMS/3,0,1,123", "status_csid": "3", "media_stream_id": "0"},
    ],
)
def test_strings_that_everybody_copies_name_no_server(habits: dict[str, str]) -> None:
    assert recognise(habits, SERVERS).software is None


FMS = {"fmsVer": "FMS/3,0,1,123", "capabilities": "31", "connect_words": "Connection succeeded."}
LIKE_NGINX = FMS | {"order": "window_ack_size set_peer_bandwidth set_chunk_size _result _result onStatus"}


@pytest.mark.parametrize(
    "habits",
    [
        # livego: the version of nginx-rtmp in a handshake with a digest; statuses on the csid of the client's command
        LIKE_NGINX | {"packet_version": "0d0e0a0d", "Publish.Start": "Start publising.", "status_csid": "8"},
        LIKE_NGINX | {"packet_version": "0d0e0a0d", "Play.Start": "Started playing stream.", "status_csid": "8"},
        # rtmp-server of npm: the handshake of Node-Media-Server, the words of nginx-rtmp; and when it dies at connect
        LIKE_NGINX | {"packet_version": "01020304", "Publish.Start": "Start publishing", "status_csid": "5"},
        LIKE_NGINX | {"packet_version": "01020304", "Play.Start": "Start live", "status_csid": "3", "video_csid": "4"},
        {"packet_version": "01020304", "packet_time": "0", "copies_c1": "no"},
        # ZLMediaKit
        FMS | {"order": "set_chunk_size window_ack_size set_peer_bandwidth _result onBWDone", "copies_c1": "yes"},
        # a simple handshake, and what the specification says in its example
        LIKE_NGINX | {"copies_c1": "yes", "status_csid": "3", "Publish.Start": "publishing"},
        {"fmsVer": "FMS/3,5,3,888", "capabilities": "127", "result_fields": "fmsVer,capabilities,mode"},
        {"fmsVer": "FMS/3,5,7,7009", "capabilities": "31", "result_fields": "fmsVer,capabilities,mode"},  # of baresip
        {"order": "window_ack_size set_peer_bandwidth stream_begin set_chunk_size _result", "packet_time": "0"} | FMS,
    ],
)
def test_a_relative_is_not_taken_for_the_one_on_file(habits: dict[str, str]) -> None:
    """As their sources have it."""
    assert recognise(habits, SERVERS).software is None


@pytest.mark.parametrize(
    "habits",
    [
        # players and relays that introduce themselves as FFmpeg does
        {
            "flashVer": "LNX 9,0,124,2", "audioCodecs": "4071", "packet_time": "0", "packet_version": "09007c02",
            "packet_random": "0123456789abcdef", "buffer": "3000", "play_start": "-2000",
        },
        # SRS, when it forwards
        {
            "flashVer": "WIN 15,0,0,239", "capabilities": "239", "audioCodecs": "3575",
            "connect_fields": "app,flashVer,swfUrl,tcUrl,fpad,capabilities,audioCodecs,videoCodecs,pageUrl",
        },
        # an encoder on a library that it shares with OBS
        {
            "order": "set_chunk_size connect releaseStream FCPublish createStream publish @setDataFrame",
            "flashVer": "FMLE/3.0 (compatible; FMSc/1.0)", "connect_fields": "app,type,flashVer,swfUrl,tcUrl",
            "encoder": "SomeCam 2.1",
        },
        {
            "order": "set_chunk_size connect releaseStream FCPublish createStream publish @setDataFrame",
            "flashVer": "FMLE/3.0 (compatible; FMSc/1.0)", "connect_fields": "app,flashVer,tcUrl", "video_csid": "4",
        },
    ],
)  # fmt: skip
def test_a_client_that_behaves_like_another_is_unknown(habits: dict[str, str]) -> None:
    assert recognise(habits, CLIENTS).software is None


def test_lal_writes_its_name_into_the_handshake() -> None:
    habits = LIKE_NGINX | {"packet_version": "0d0e0a0d", "Publish.Start": "Start publishing", "status_csid": "5"}
    assert recognise(habits, SERVERS).software == "nginx-rtmp"
    assert recognise(habits | {"packet_random": b"lallalla".hex()}, SERVERS).software == "lal"


def test_a_server_that_names_itself_is_no_other() -> None:
    habits = LIKE_NGINX | {"packet_version": "0d0e0a0d", "status_csid": "5", "Play.Start": "Start live"}
    assert recognise(habits | {"metadata_server": "NGINX RTMP (of somebody)"}, SERVERS).software == "nginx-rtmp"
    assert recognise(habits | {"metadata_server": "Another one"}, SERVERS).software is None


def test_ffmpeg_is_known_by_its_handshake_when_its_strings_were_changed() -> None:
    """FFmpeg seeds the random bytes of C1 with a constant and sends the time 0 and the version of Flash 9.0.124.2."""
    habits = {"packet_random": "f778551eceab8e1e", "packet_version": "09007c02", "packet_time": "0"}
    assert recognise(habits | {"flashVer": "Mine/1.0"}, CLIENTS).software == "ffmpeg"


def test_programs_in_their_rarer_part() -> None:
    """nginx-rtmp as the client of another server, and `ffmpeg -listen 1` that serves a player."""
    relay = {"packet_version": "0c000d0e", "flashVer": "LNX.11,1,102,55", "audioCodecs": "3575"}
    assert recognise(relay, CLIENTS).software == "nginx-rtmp"
    order = "window_ack_size set_peer_bandwidth stream_begin set_chunk_size _result onBWDone _result"
    serving = {"fmsVer": "FMS/3,0,1,123", "status_csid": "3", "media_stream_id": "0", "order": order}
    assert recognise(serving | {"Play.Start": "playing stream"}, SERVERS).software == "ffmpeg"


def test_versions_come_from_what_the_program_says() -> None:
    assert recognise({"flashVer": "FMLE/3.0 (compatible; Lavf58.76.100)"}, CLIENTS).software == "ffmpeg/4.4"
    assert recognise({"flashVer": "FMLE/3.0 (compatible; Lavf99.1.100)"}, CLIENTS).software == "ffmpeg/Lavf99.1"
    obs = {"encoder": "obs-output module (libobs version 31.0.2)"}
    assert recognise(obs, CLIENTS).software == "OBS/31.0.2"
    assert recognise({"srs_server": "SRS/5.0.213(Bee)"}, SERVERS).software == "SRS/5.0.213"


def test_no_rule_rests_on_fewer_points_than_needed() -> None:
    for software in (*CLIENTS, *SERVERS):
        assert sum(points for _, _, points in software.habits if points > 0) >= NEEDED, software.name


def test_stream_names_are_no_habit() -> None:
    fold = HabitFold(SEALED)
    fold.command("c2s", command("publish", 5.0, None, "topsecret", "live"))
    status = {"code": "NetStream.Publish.Start", "description": "topsecret is now published. See /live/topsecret?k=1"}
    fold.command("s2c", command("onStatus", 0.0, None, status))
    assert "topsecret" not in json.dumps(fold.state())
    assert fold.server["Publish.Start"] == "* is now published. See *"


def test_a_short_name_spoils_no_other_word() -> None:
    fold = HabitFold(SEALED)
    fold.command("c2s", command("play", 5.0, None, "s"))
    for code, words in (("Start", "playing stream"), ("Reset", "s is reset")):
        status = {"code": f"NetStream.Play.{code}", "description": words}
        fold.command("s2c", command("onStatus", 0.0, None, status))
    assert (fold.server["Play.Start"], fold.server["Play.Reset"]) == ("playing stream", "* is reset")


def test_evidence_holds_no_stream_name() -> None:
    capture = SAMPLES / "ffmpeg_publish_querystring_metadata.pcap"
    found = recorded(capture, "connections", "streams")
    (stream,) = found["streams"]
    assert all(stream["name"] not in text for c in found["connections"] for text in c["software_evidence"])


@pytest.mark.parametrize(
    ("software", "breaks"),
    [
        ("OBS/29.0.2", True),
        ("OBS/30.0.2", True),
        ("OBS/30.1.0", False),
        ("OBS/31.0", False),
        ("OBS", False),
        ("ffmpeg/5.1", False),
    ],
)
def test_who_will_break_at_4_h_39_min(software: str, breaks: bool) -> None:
    """Mended by obsproject/obs-studio#10097, in 30.1."""
    assert predicted(software) is breaks


def test_the_name_of_a_stream_is_in_no_habit_nor_in_the_state() -> None:
    def published(fold: HabitFold) -> None:
        fold.command("c2s", command("publish", 0.0, None, "secret key", "live"))

    def answered(fold: HabitFold) -> None:
        told = {"code": "NetStream.Publish.Start", "description": "Stream 'secret key' is now published."}
        fold.command("s2c", command("onStatus", 0.0, None, told))

    whole = HabitFold(SEALED)
    published(whole)
    cut = HabitFold(SEALED)
    cut.resume(json.loads(json.dumps(whole.state())))
    for fold in (whole, cut):
        answered(fold)
        assert fold.server["Publish.Start"] == "Stream '*' is now published."
        assert "secret" not in json.dumps(fold.state())
        assert hashlib.sha256(b"secret key").hexdigest() not in json.dumps(fold.state()), "which anybody could guess at"


def test_a_name_is_none_whether_it_or_its_answer_was_saved_meanwhile() -> None:
    redactor = Redactor(b"a key for tests")
    for name in ("topsecret", "topsecret?k=1"):
        words = f"topsecret is now published. See /live/{name}"
        hidden, known = redactor.stream_name(name), {redactor.token("topsecret")}
        for asked, answer in ((name, words), (hidden, words), (hidden, redactor.text(words, known))):
            fold = HabitFold(redactor.sealed)
            fold.foresee(name, hidden)
            fold.command("c2s", command("publish", 5.0, None, asked, "live"))
            status = {"code": "NetStream.Publish.Start", "description": answer}
            fold.command("s2c", command("onStatus", 0.0, None, status))
            assert fold.server["Publish.Start"] == "* is now published. See *"
