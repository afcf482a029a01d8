"""What counts as a refusal, what does not, and which findings a refusal replaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.capture_rewriting import RST
from kit.decoded_tables import KEY, RtmpTalk, decode, redacting
from kit.handmade_facts import recorded
from kit.rtmp_talks import CLIENT, SERVER, connected, created, findings, found_rules, goodbye, media, published, status

from rtmp_spark.redact import Redactor

REFUSED = [("CMD_REFUSED", "error", None)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.pcap"


def rejected(words: str) -> RtmpTalk:
    said = RtmpTalk().handshake().command(CLIENT, "connect", 1, {"app": "live"})
    info = status("NetConnection.Connect.Rejected", "error") | {"description": words}
    return said.command(SERVER, "_error", 1, None, info).bye(SERVER)


def test_clean_traffic_has_no_findings(path: Path) -> None:
    assert found_rules(path, goodbye(media(published()))) == []


def test_a_play_that_is_reset_and_then_refused(path: Path) -> None:
    """Flash Media Server sends Play.Reset first; a refusal is not reported as SESSION_NO_MEDIA too."""
    said = created().command(CLIENT, "play", 0, None, "unknown", stream_id=1)
    said.command(SERVER, "onStatus", 0, None, status("NetStream.Play.Reset"), stream_id=1)
    said.command(SERVER, "onStatus", 0, None, status("NetStream.Play.StreamNotFound", "error"), stream_id=1)
    assert found_rules(path, said.wait(3).bye()) == REFUSED
    (row,) = findings(path, said.talk.packets)
    assert row["detail"].startswith("play was refused: NetStream.Play.StreamNotFound")


def test_a_publish_that_is_refused_after_it_was_accepted(path: Path) -> None:
    said = published().command(SERVER, "onStatus", 0, None, status("NetStream.Publish.Denied", "error"), stream_id=1)
    assert found_rules(path, said.wait(2).bye(SERVER)) == REFUSED
    (row,) = findings(path, said.talk.packets)
    assert row["detail"].startswith("publish was refused: NetStream.Publish.Denied")


def test_a_refusal_on_stream_0_refuses_the_pending_stream(path: Path) -> None:
    said = created().command(CLIENT, "publish", 0, None, "cam", "live", stream_id=1)
    said.command(SERVER, "onStatus", 0, None, status("NetStream.Publish.Denied", "error"))
    assert found_rules(path, said.wait(2).bye(SERVER)) == REFUSED


@pytest.mark.parametrize("tid", [2, 77])
def test_a_harmless_error_does_not_explain_a_reset(path: Path, tid: float) -> None:
    """An error for releaseStream, or for an unknown transaction id, refuses nothing."""
    said = connected().command(CLIENT, "releaseStream", 2, None, "cam")
    said.command(SERVER, "_error", tid, None, status("NetConnection.Call.Failed", "error"))
    media(published(created(said, tid=3))).talk.add(SERVER, RST)
    others = [one for one in found_rules(path, said) if one[0] != "CMD_RESPONSE_UNEXPECTED"]
    assert others == [("TCP_RESET", "warning", "server")]


def test_an_early_refusal_does_not_explain_a_reset(path: Path) -> None:
    said = created().command(CLIENT, "play", 0, None, "unknown", stream_id=1)
    said.command(SERVER, "onStatus", 0, None, status("NetStream.Play.StreamNotFound", "error"), stream_id=1)
    media(published(created(said.wait(10), tid=3, stream_id=2), stream_id=2), stream_id=2).talk.add(SERVER, RST)
    assert found_rules(path, said) == [*REFUSED, ("TCP_RESET", "warning", "server")]


@pytest.mark.parametrize("kept", [CLIENT, SERVER])
def test_one_direction_may_lack_the_teardown_before_a_reset(path: Path, kept: int) -> None:
    said = media(published())
    said.talk.add(kept, RST)
    sender = said.talk.ends[kept]
    rows = findings(path, [packet for packet in said.talk.packets if packet.sender == sender])
    assert [row["rule_id"] for row in rows] == ["TCP_ONE_DIRECTION"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("[ AccessManager.Reject ] : [ code=403 need auth; authmod=adobe ] : ", ("CMD_AUTH_ROUND", "info", None)),
        (
            "[ AccessManager.Reject ] : [ authmod=adobe ] : ?reason=needauth&user=u&salt=s&challenge=c&opaque=o",
            ("CMD_AUTH_ROUND", "info", None),
        ),
        ("[ AccessManager.Reject ] : [ authmod=adobe ] : ?reason=authfailed&opaque=o", REFUSED[0]),
        ("[ AccessManager.Reject ] : [ authmod=llnw ] : ?reason=nosuchuser&opaque=o", REFUSED[0]),
    ],
)
def test_an_authentication_round_and_its_failure(path: Path, words: str, expected: Any) -> None:
    assert found_rules(path, rejected(words)) == [expected]


@pytest.mark.parametrize(
    ("seconds", "closer", "at_fault"),
    [(0.05, CLIENT, None), (6, CLIENT, "server"), (0.05, SERVER, "server")],
)
def test_a_server_is_not_at_fault_if_the_client_does_not_wait(
    path: Path, seconds: float, closer: int, at_fault: str | None
) -> None:
    said = connected().command(CLIENT, "createStream", 2, None).wait(seconds).bye(closer)
    assert found_rules(path, said) == [("CMD_NO_RESPONSE", "warning", at_fault)]


@pytest.mark.parametrize(
    ("command", "response"), [("publish", "onStatus"), ("FCPublish", "onFCPublish"), ("FCPublish", "_error")]
)
def test_the_second_publisher_is_at_fault_for_its_name(path: Path, command: str, response: str) -> None:
    said = created().command(CLIENT, command, 3, None, "cam", stream_id=1)
    said.command(SERVER, response, 3, None, status("NetStream.Publish.BadName", "error"), stream_id=1)
    assert found_rules(path, said.bye(SERVER)) == [("SESSION_BAD_NAME", "warning", "client")]


@pytest.mark.parametrize(
    "code", ["NetStream.Record.NoAccess", "NetStream.Seek.InvalidTime", "NetConnection.Connect.AppShutdown"]
)
def test_an_error_status_of_a_running_stream_is_not_a_refusal(path: Path, code: str) -> None:
    said = media(published()).command(SERVER, "onStatus", 0, None, status(code, "error"), stream_id=1)
    assert found_rules(path, goodbye(media(said, later=3000))) == []


def test_an_error_status_of_one_stream_does_not_refuse_another(path: Path) -> None:
    said = created(media(published()), tid=4, stream_id=2)
    said.command(CLIENT, "publish", 0, None, "cam2", "live", stream_id=2)
    said.command(SERVER, "onStatus", 0, None, status("NetStream.Record.Failed", "error"), stream_id=1)
    said.command(SERVER, "onStatus", 0, None, status("NetStream.Publish.Start"), stream_id=2)
    said.command(CLIENT, "deleteStream", 0, None, 1.0)
    assert found_rules(path, goodbye(media(said, stream_id=2), stream_id=2)) == []
    rows = recorded(path, "streams", "commands")
    assert [(row["stream_id"], row["verdict"]) for row in rows["streams"]] == [(1, "ok"), (2, "ok")]
    (publish,) = (row for row in rows["commands"] if row["name"] == "publish" and row["stream_id"] == 2)
    answers = [row for row in rows["commands"] if row["response_to_msg_no"] == publish["msg_no"]]
    assert [row["code"] for row in answers if row["direction"] == "s2c"] == ["NetStream.Publish.Start"]


@pytest.mark.parametrize("name", ["play", "was", "stream", "reason"])
def test_a_stream_named_like_a_word_of_the_text(path: Path, name: str) -> None:
    """Only what the server said is searched for the name."""
    said = created().command(CLIENT, "play", 0, None, name, stream_id=1)
    info = status("NetStream.Play.Failed", "error") | {"description": f"cannot send {name}."}
    said.command(SERVER, "onStatus", 0, None, info, stream_id=1).wait(2).bye().write(path)
    rows = decode(path, settings=redacting(), tables=("findings",))["findings"]
    hidden = Redactor(KEY).token(name)
    assert rows[0]["detail"] == f"play was refused: NetStream.Play.Failed cannot send {hidden}."


def test_a_refused_command_that_is_named_like_the_stream_is_hidden(path: Path) -> None:
    said = created().command(CLIENT, "publish", 0, None, "sesame", "live", stream_id=1)
    said.command(CLIENT, "sesame", 9, None)
    said.command(SERVER, "_error", 9, None, status("NetStream.Publish.BadName", "error")).wait(2).bye().write(path)
    rows = decode(path, settings=redacting(), tables=("findings",))["findings"]
    details = [row["detail"] for row in rows if row["rule_id"] == "SESSION_BAD_NAME"]
    assert details == [f"{Redactor(KEY).token('sesame')} was refused: NetStream.Publish.BadName a description"]


def test_a_name_in_a_refusal_that_becomes_known_later_is_hidden(path: Path) -> None:
    said = connected().command(CLIENT, "createStream", 7, None)
    info = status("NetStream.Create.Failed", "error") | {"description": "live/s3cret is busy"}
    said.command(SERVER, "_error", 7, None, info).command(CLIENT, "publish", 0, None, "s3cret", "live", stream_id=1)
    tables = decode(said.bye().write(path), settings=redacting())
    (detail,) = [row["detail"] for row in tables["findings"] if row["rule_id"] == "CMD_REFUSED"]
    hashed = Redactor(KEY).token("s3cret")
    assert detail == f"createStream was refused: NetStream.Create.Failed live/{hashed} is busy"
