"""The verdict on a published stream whose connection ended under it: it says who ended it."""

from __future__ import annotations

from pathlib import Path

import pytest
from decoded import RtmpTalk
from rewrite import ACK, RST
from rulekit import recorded


def publishing() -> RtmpTalk:
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"})
    talk.command(1, "_result", 1, {}, {"code": "NetConnection.Connect.Success"})
    talk.command(0, "createStream", 2, None).command(1, "_result", 2, None, 1)
    talk.command(0, "publish", 3, None, "show", "live", stream_id=1)
    talk.command(1, "onStatus", 0, None, {"level": "status", "code": "NetStream.Publish.Start"}, stream_id=1)
    for number in range(20):
        talk.wait(0.1).send(0, 8, b"\x2f\xff\xfb" + bytes(50), stream_id=1, timestamp=100 * number)
    return talk


@pytest.mark.parametrize(
    ("side", "reset", "verdict", "text"),
    [
        (0, False, "degraded", "it broke off: the client was gone without a goodbye"),
        (1, False, "degraded", "it broke off: the server closed the connection"),
        (1, True, "degraded", "it broke off: the server reset the connection"),
    ],
)
def test_who_broke_it_off(tmp_path: Path, side: int, reset: bool, verdict: str, text: str) -> None:
    talk = publishing()
    if reset:
        talk.talk.add(side, RST | ACK)
    else:
        talk.bye(side)
    (stream,) = recorded(talk.write(tmp_path / "a.pcap"), "streams")["streams"]
    assert (stream["verdict"], stream["verdict_text"]) == (verdict, text)


def test_a_goodbye_breaks_nothing_off(tmp_path: Path) -> None:
    talk = publishing().command(0, "deleteStream", 4, None, 1).bye(1)
    (stream,) = recorded(talk.write(tmp_path / "a.pcap"), "streams")["streams"]
    assert stream["verdict"] == "ok"
