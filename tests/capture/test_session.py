"""Which stream media belongs to, also where the session was saved in between."""

from __future__ import annotations

import json

import pytest
from rulekit import command, frame

from rtmp_spark.capture.redact import Redactor
from rtmp_spark.capture.session import Session


@pytest.mark.parametrize("saved", [False, True])
def test_media_behind_the_goodbye_of_a_stream_that_was_sent_on_another_id(saved: bool) -> None:
    redactor = Redactor(None)
    session = Session(redactor)
    session.notable("c2s", command("play", 0, None, "cam"))
    session.media("s2c", [frame("audio", 1, 1, stream_id=0)], [1])
    session.notable("c2s", command("deleteStream", 0, None, 1.0, ts=2))
    session.commands = {"c2s": [], "s2c": []}
    if saved:
        session = Session.resume(json.loads(json.dumps(session.state())), redactor)
    session.media("s2c", [frame("audio", 3, 3, stream_id=0)], [3])
    assert [(span.stream_id, span.media_stream_id, span.audio) for span in session.spans] == [(1, 0, 2)]
