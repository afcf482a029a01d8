"""CMD_STREAM_ID and CMD_STREAM_NAME: when they apply, when they do not, and which findings they replace."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.decoded_tables import RtmpTalk
from kit.rtmp_talks import CLIENT, SERVER, connected, created, findings, found_rules, goodbye, media, published, status

from rtmp_spark.conversation.session import Session

WRONG_ID = ("CMD_STREAM_ID", "error", "client")
ACCEPTED_ID = ("CMD_STREAM_ID", "warning", "client")
BAD_NAME = "NetStream.Publish.BadName"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.pcap"


def asked(
    said: RtmpTalk, name: object = "cam", *, stream_id: int = 0, answer: str = BAD_NAME, why: str = ""
) -> RtmpTalk:
    """A publish that is answered on its stream id."""
    level = "status" if answer.endswith("Start") else "error"
    said.command(CLIENT, "publish", 0, None, *([] if name is None else [name, "live"]), stream_id=stream_id)
    info = status(answer, level) | {"description": why}
    return said.command(SERVER, "onStatus", 0, None, info, stream_id=stream_id)


@pytest.mark.parametrize("code", [BAD_NAME, "NetStream.Publish.Denied", "NetStream.Failed"])
def test_a_refused_publish_on_an_unknown_stream_id(path: Path, code: str) -> None:
    """createStream returned 1; the name is not in use."""
    said = asked(created(), answer=code, why="there is no stream 0").bye(SERVER)
    assert found_rules(path, said) == [WRONG_ID]
    (row,) = findings(path, said.talk.packets)
    assert row["direction"] == "c2s" and row["stream_id"] == 0 and "createStream returned 1" in row["detail"]


@pytest.mark.parametrize(
    ("code", "why", "finding"),
    [
        (BAD_NAME, "the stream already has a publisher", ("SESSION_BAD_NAME", "warning", "client")),
        ("NetStream.Publish.Unauthorized", "wrong key", ("CMD_REFUSED", "error", None)),
    ],
)
def test_a_refusal_for_another_reason_stays_what_it_is(
    path: Path, code: str, why: str, finding: tuple[str, ...]
) -> None:
    assert set(found_rules(path, asked(created(), answer=code, why=why).bye(SERVER))) == {finding, ACCEPTED_ID}


def test_an_accepted_publish_on_an_unknown_stream_id(path: Path) -> None:
    """One finding for the command and the media on it."""
    said = media(asked(created(), answer="NetStream.Publish.Start"), stream_id=0)
    assert found_rules(path, goodbye(said, stream_id=0)) == [ACCEPTED_ID]


def test_media_on_an_unknown_stream_id(path: Path) -> None:
    """The publish is correct, the media is not."""
    assert found_rules(path, goodbye(media(published(), stream_id=5))) == [ACCEPTED_ID]


@pytest.mark.parametrize("answer", [None, [None], [None, None], [None, "1"]])
def test_without_a_readable_answer_to_create_stream_nothing_is_known(path: Path, answer: list[object] | None) -> None:
    said = connected().command(CLIENT, "createStream", 2, None)
    if answer is not None:
        said.command(SERVER, "_result", 2, *answer)
    rules = {rule for rule, *_ in found_rules(path, goodbye(media(published(said, stream_id=7), stream_id=7), 7))}
    assert "CMD_STREAM_ID" not in rules


def test_an_answer_after_publish_counts(path: Path) -> None:
    """A client that does not wait: createStream, publish, and only then the answers."""
    said = connected().command(CLIENT, "createStream", 2, None)
    said.command(CLIENT, "publish", 0, None, "cam", "live", stream_id=1)
    said.command(SERVER, "_result", 2, None, 1)
    said.command(SERVER, "onStatus", 0, None, status("NetStream.Publish.Start"), stream_id=1)
    assert found_rules(path, goodbye(media(said))) == []


def test_a_capture_that_starts_late_shows_no_stream_ids(path: Path) -> None:
    packets = goodbye(media(asked(created(), answer="NetStream.Publish.Start"), stream_id=0), stream_id=0).talk.packets
    for first in (6, 12):
        assert "CMD_STREAM_ID" not in {row["rule_id"] for row in findings(path, packets[first:])}


@pytest.mark.parametrize("name", ["", None])
@pytest.mark.parametrize("code", [BAD_NAME, "NetStream.Failed"])
def test_a_refused_publish_without_a_name(path: Path, name: object, code: str) -> None:
    said = asked(created(), name, stream_id=1, answer=code, why="empty name").bye(SERVER)
    assert found_rules(path, said) == [("CMD_STREAM_NAME", "error", "client")]


def test_an_accepted_publish_without_a_name_is_no_fault(path: Path) -> None:
    said = media(asked(created(), "", stream_id=1, answer="NetStream.Publish.Start"))
    assert found_rules(path, goodbye(said)) == []


def test_a_refused_name_is_still_a_bad_name(path: Path) -> None:
    said = asked(created(), stream_id=1, why="cam is already being published").bye(SERVER)
    assert found_rules(path, said) == [("SESSION_BAD_NAME", "warning", "client")]


def test_a_new_session_knows_no_stream_ids() -> None:
    assert not Session().is_uncreated(0)
