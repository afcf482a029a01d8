"""Software recognised by its traits; similar software that must stay unknown; stream names are never evidence."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
from kit.handmade_facts import SAMPLES, command, recorded

from rtmp_spark.forensics.software import fingerprint
from rtmp_spark.forensics.software.fingerprint import POINTS_NEEDED, RANDOM, recognise
from rtmp_spark.forensics.software.known_software import CLIENTS, SERVERS, KnownSoftware
from rtmp_spark.forensics.software.traits import TraitCollector
from rtmp_spark.forensics.timestamp_rollover import omits_extended_timestamp
from rtmp_spark.known_secrets import KnownSecrets
from rtmp_spark.redact import Redactor

SEALED = Redactor(b"a key for tests").sealed


@pytest.mark.parametrize("known", [CLIENTS, SERVERS], ids=["clients", "servers"])
def test_random_bytes_are_constant_or_match_like_all_others(known: KnownSoftware) -> None:
    """Only the constant ones are told apart, so that results can be cached."""
    traits = [trait for software in known for trait in software.traits if trait.name == RANDOM]
    others = ["other", "00112233445566ff", "ffffffffffffffff"]
    for trait in traits:
        if trait.points > 0:
            assert re.fullmatch("[0-9a-f]{16}", trait.pattern)
        else:
            assert all(re.fullmatch(trait.pattern, other) for other in others)


def test_other_random_bytes_are_recognised_without_another_search(monkeypatch: pytest.MonkeyPatch) -> None:
    traits = {"flashVer": "FMLE/3.0 (compatible; FMSc/1.0)", RANDOM: "0011223344556677"}
    found = recognise(traits, CLIENTS)
    monkeypatch.setattr(fingerprint, "re", None)
    assert recognise(traits | {RANDOM: "8899aabbccddeeff"}, CLIENTS) == found


def test_no_traits_are_not_recognised() -> None:
    assert recognise({}, CLIENTS).software is None and recognise({}, SERVERS).software is None


@pytest.mark.parametrize(
    "traits",
    [
        {
            "flashVer": "FMLE/3.0 (compatible; FMSc/1.0)",
            "order": "connect releaseStream FCPublish createStream publish",
        },
        {"flashVer": "LNX 9,0,124,2", "audioCodecs": "4071", "packet_version": "00000000"},  # copied by many players
        {"flashVer": "WIN 11,2,202,235"},
        {"encoder": "SomeEncoder 1.0"},
        {
            "encoder": "Lavf59.27.100",
            "flashVer": "OddCam/3.1",
            "packet_time": "0",
            "publish_csid": "8",
        },  # a file written by FFmpeg
    ],
)
def test_common_texts_do_not_identify_a_client(traits: dict[str, str]) -> None:
    assert recognise(traits, CLIENTS).software is None


@pytest.mark.parametrize(
    "traits",
    [
        {"fmsVer": "FMS/3,0,1,123", "capabilities": "31", "connect_words": "Connection succeeded."},
        {"fmsVer": "FMS/3,0,1,123", "copies_c1": "no", "Play.Start": "Started playing stream."},
        {"fmsVer": "FMS/4,5,0,297"},
        {"fmsVer": "FMS/3,0,1,123", "status_csid": "3", "media_stream_id": "0"},
    ],
)
def test_common_texts_do_not_identify_a_server(traits: dict[str, str]) -> None:
    assert recognise(traits, SERVERS).software is None


FMS = {"fmsVer": "FMS/3,0,1,123", "capabilities": "31", "connect_words": "Connection succeeded."}
LIKE_NGINX = FMS | {"order": "window_ack_size set_peer_bandwidth set_chunk_size _result _result onStatus"}


@pytest.mark.parametrize(
    "traits",
    [
        # livego: the version of nginx-rtmp in a digest handshake; onStatus on the csid of the client's command
        LIKE_NGINX | {"packet_version": "0d0e0a0d", "Play.Start": "Started playing stream.", "status_csid": "8"},
        # rtmp-server of npm: the handshake of Node-Media-Server, the texts of nginx-rtmp; and a crash at connect
        LIKE_NGINX | {"packet_version": "01020304", "Publish.Start": "Start publishing", "status_csid": "5"},
        LIKE_NGINX | {"packet_version": "01020304", "Play.Start": "Start live", "status_csid": "3", "video_csid": "4"},
        {"packet_version": "01020304", "packet_time": "0", "copies_c1": "no"},
        # ZLMediaKit
        FMS | {"order": "set_chunk_size window_ack_size set_peer_bandwidth _result onBWDone", "copies_c1": "yes"},
        # a simple handshake, and the example of the specification
        LIKE_NGINX | {"copies_c1": "yes", "status_csid": "3", "Publish.Start": "publishing"},
        {"fmsVer": "FMS/3,5,3,888", "capabilities": "127", "result_fields": "fmsVer,capabilities,mode"},
        {"fmsVer": "FMS/3,5,7,7009", "capabilities": "31", "result_fields": "fmsVer,capabilities,mode"},  # baresip
        {"order": "window_ack_size set_peer_bandwidth stream_begin set_chunk_size _result", "packet_time": "0"} | FMS,
    ],
)
def test_a_similar_server_is_not_recognised_as_a_known_one(traits: dict[str, str]) -> None:
    """Traits from the source code of these servers."""
    assert recognise(traits, SERVERS).software is None


@pytest.mark.parametrize(
    "traits",
    [
        # players and relays with the texts of FFmpeg
        {
            "flashVer": "LNX 9,0,124,2", "audioCodecs": "4071", "packet_time": "0", "packet_version": "09007c02",
            "packet_random": "0123456789abcdef", "buffer": "3000", "play_start": "-2000",
        },
        # SRS as a forwarding client
        {
            "flashVer": "WIN 15,0,0,239", "capabilities": "239", "audioCodecs": "3575",
            "connect_fields": "app,flashVer,swfUrl,tcUrl,fpad,capabilities,audioCodecs,videoCodecs,pageUrl",
        },
        # an encoder with the same library as OBS
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
def test_a_client_that_behaves_like_another_is_unknown(traits: dict[str, str]) -> None:
    assert recognise(traits, CLIENTS).software is None


def test_lal_writes_its_name_into_the_handshake() -> None:
    traits = LIKE_NGINX | {"packet_version": "0d0e0a0d", "Publish.Start": "Start publishing", "status_csid": "5"}
    assert recognise(traits, SERVERS).software == "nginx-rtmp"
    assert recognise(traits | {"packet_random": b"lallalla".hex()}, SERVERS).software == "lal"


# As in captures of lal 0.37.4, of rtmp-go's relay and of MediaMTX; the others from the programs' sources.
OTHER_CLIENTS = [
    ("lal/0.37.4", {"handshake_text": "random buf of rtmp handshake gen by lal v0.37.4", "flashVer": "LNX 9,0,124,2"}),
    ("lal/0.37.4", {"flashVer": "FMLE/3.0 (compatible; lal0.37.4)", "connect_fields": "app,type,flashVer,fpad,tcUrl"}),
    (
        "rtmp-go",
        {
            "connect_fields": "app,audioCodecs,capabilities,flashVer,fpad,objectEncoding,swfUrl,tcUrl,type,videoCodecs,"
            "videoFunction",
            "flashVer": "LNX 9,0,124,2", "audioCodecs": "0", "packet_random": "961c7ab1e8e94dab",
        },
    ),
    (
        "MediaMTX",
        {
            "order": "window_ack_size set_peer_bandwidth set_chunk_size connect createStream set_buffer_length play",
            "flashVer": "LNX 9,0,124,2", "connect_fields": "app,flashVer,tcUrl,objectEncoding,fpad,capabilities",
            "chunk_size": "65536", "packet_random": "3e771ebff63933c0",
        },
    ),
    ("SRS/7.0.18", {"flashVer": "WIN 15,0,0,239", "srs_server": "SRS/7.0.18(Hang)", "capabilities": "239"}),
    ("livego", {"flashVer": "FMS.3.1", "connect_fields": "tcUrl,app,type,flashVer"}),
    (
        "go2rtc",
        {
            "packet_random": "0" * 16, "connect_fields": "tcUrl,app,flashVer",
            "flashVer": "FMLE/3.0 (compatible; FMSc/1.0)", "order": "set_chunk_size connect createStream play",
        },
    ),
    ("ffmpeg/9.0", {"flashVer": "FMLE/3.0 (compatible; Lavf63.1.102)", "packet_random": "f778551eceab8e1e"}),
]  # fmt: skip
OTHER_SERVERS = [
    (
        "lal/0.37.4",
        {
            "handshake_text": "random buf of rtmp handshake gen by lal v0.37.4", "packet_version": "0d0e0a0d",
            "order": "window_ack_size set_peer_bandwidth set_chunk_size _result", "Publish.Start": "Start publishing",
            "status_csid": "5",
        },
    ),
    (
        "livego",
        {
            "packet_version": "0d0e0a0d", "order": "window_ack_size set_peer_bandwidth set_chunk_size _result",
            "Publish.Start": "Start publising.", "chunk_size": "1024", "fmsVer": "FMS/3,0,1,123",
        },
    ),
    ("go2rtc", {"result_fields": "fmsVer", "copies_c1": "yes", "order": "set_chunk_size _result _result onStatus"}),
    ("rtmp-go", {"result_fields": "capabilities,fmsVer,mode", "fmsVer": "FMS/3,5,7,7009"}),
    (
        "rtmp-go",
        {
            "result_fields": "capabilities,fmsVer,mode",
            "fmsVer": "FMS/3,0,1,123",
            "Publish.Start": "Publishing live/*.",
        },
    ),
    ("MediaMTX", {"fmsVer": "LNX 9,0,124,2"}),
]  # fmt: skip


@pytest.mark.parametrize(("software", "traits"), OTHER_CLIENTS)
def test_clients_are_recognised(software: str, traits: dict[str, str]) -> None:
    assert recognise(traits, CLIENTS).software == software


@pytest.mark.parametrize(("software", "traits"), OTHER_SERVERS)
def test_servers_are_recognised(software: str, traits: dict[str, str]) -> None:
    assert recognise(traits, SERVERS).software == software


def test_a_server_that_names_itself_is_not_another() -> None:
    traits = LIKE_NGINX | {"packet_version": "0d0e0a0d", "status_csid": "5", "Play.Start": "Start live"}
    assert recognise(traits | {"metadata_server": "NGINX RTMP (patched)"}, SERVERS).software == "nginx-rtmp"
    assert recognise(traits | {"metadata_server": "Another one"}, SERVERS).software is None


def test_ffmpeg_with_changed_texts_is_recognised_by_its_handshake() -> None:
    """FFmpeg seeds the random bytes of C1 with a constant and sends the time 0 and the version of Flash 9.0.124.2."""
    traits = {"packet_random": "f778551eceab8e1e", "packet_version": "09007c02", "packet_time": "0"}
    assert recognise(traits | {"flashVer": "Mine/1.0"}, CLIENTS).software == "ffmpeg"


def test_programs_in_their_less_common_role() -> None:
    """nginx-rtmp as the client of another server, and `ffmpeg -listen 1` that serves a player."""
    relay = {"packet_version": "0c000d0e", "flashVer": "LNX.11,1,102,55", "audioCodecs": "3575"}
    assert recognise(relay, CLIENTS).software == "nginx-rtmp"
    order = "window_ack_size set_peer_bandwidth stream_begin set_chunk_size _result onBWDone _result"
    serving = {"fmsVer": "FMS/3,0,1,123", "status_csid": "3", "media_stream_id": "0", "order": order}
    assert recognise(serving | {"Play.Start": "playing stream"}, SERVERS).software == "ffmpeg"


def test_versions_come_from_texts_of_the_program() -> None:
    assert recognise({"flashVer": "FMLE/3.0 (compatible; Lavf58.76.100)"}, CLIENTS).software == "ffmpeg/4.4"
    assert recognise({"flashVer": "FMLE/3.0 (compatible; Lavf99.1.100)"}, CLIENTS).software == "ffmpeg/Lavf99.1"
    obs = {"encoder": "obs-output module (libobs version 31.0.2)"}
    assert recognise(obs, CLIENTS).software == "OBS/31.0.2"
    assert recognise({"srs_server": "SRS/5.0.213(Bee)"}, SERVERS).software == "SRS/5.0.213"


def test_every_program_can_reach_the_points_needed() -> None:
    for software in (*CLIENTS, *SERVERS):
        assert sum(points for _, _, points in software.traits if points > 0) >= POINTS_NEEDED, software.name


def test_stream_names_are_not_in_traits() -> None:
    collector = TraitCollector(SEALED)
    collector.command("c2s", command("publish", 5.0, None, "topsecret", "live"))
    status = {"code": "NetStream.Publish.Start", "description": "topsecret is now published. See /live/topsecret?k=1"}
    collector.command("s2c", command("onStatus", 0.0, None, status))
    assert "topsecret" not in json.dumps(collector.state())
    assert collector.server["Publish.Start"] == "* is now published. See *"


def test_a_short_name_is_not_removed_from_other_words() -> None:
    collector = TraitCollector(SEALED)
    collector.command("c2s", command("play", 5.0, None, "s"))
    for code, words in (("Start", "playing stream"), ("Reset", "s is reset")):
        status = {"code": f"NetStream.Play.{code}", "description": words}
        collector.command("s2c", command("onStatus", 0.0, None, status))
    assert (collector.server["Play.Start"], collector.server["Play.Reset"]) == ("playing stream", "* is reset")


def test_evidence_contains_no_stream_name() -> None:
    capture = SAMPLES / "ffmpeg_publish_querystring_metadata.pcap"
    found = recorded(capture, "connections", "streams")
    (stream,) = found["streams"]
    assert all(stream["name"] not in text for c in found["connections"] for text in c["software_evidence"])


@pytest.mark.parametrize(
    ("software", "fails"),
    [
        ("OBS/29.0.2", True),
        ("OBS/30.0.2", True),
        ("OBS/30.1.0", False),
        ("OBS/31.0", False),
        ("OBS", False),
        ("ffmpeg/5.1", False),
    ],
)
def test_software_that_fails_at_4_h_39_min(software: str, fails: bool) -> None:
    """Fixed by obsproject/obs-studio#10097, in 30.1."""
    assert omits_extended_timestamp(software) is fails


def test_stream_names_are_not_in_traits_of_a_resumed_connection() -> None:
    def publish(collector: TraitCollector) -> None:
        collector.command("c2s", command("publish", 0.0, None, "secret key", "live"))

    def answer(collector: TraitCollector) -> None:
        status = {"code": "NetStream.Publish.Start", "description": "Stream 'secret key' is now published."}
        collector.command("s2c", command("onStatus", 0.0, None, status))

    whole = TraitCollector(SEALED)
    publish(whole)
    cut = TraitCollector(SEALED)
    cut.resume(json.loads(json.dumps(whole.state())))
    for collector in (whole, cut):
        answer(collector)
        assert collector.server["Publish.Start"] == "Stream '*' is now published."
        assert "secret" not in json.dumps(collector.state())
        assert hashlib.sha256(b"secret key").hexdigest() not in json.dumps(collector.state()), (
            "an unkeyed hash can be guessed"
        )


def test_redacted_names_of_a_resumed_connection_are_removed_too() -> None:
    redactor = Redactor(b"a key for tests")
    for name in ("topsecret", "topsecret?k=1"):
        words = f"topsecret is now published. See /live/{name}"
        hidden, known = redactor.stream_name(name), KnownSecrets()
        known.add(redactor.secret("topsecret"))
        for requested, answer in ((name, words), (hidden, words), (hidden, redactor.text(words, known))):
            collector = TraitCollector(redactor.sealed)
            collector.add_redacted_name(name, hidden)
            collector.command("c2s", command("publish", 5.0, None, requested, "live"))
            status = {"code": "NetStream.Publish.Start", "description": answer}
            collector.command("s2c", command("onStatus", 0.0, None, status))
            assert collector.server["Publish.Start"] == "* is now published. See *"
