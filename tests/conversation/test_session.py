"""Which stream media belongs to, also if the session was saved in between."""

from __future__ import annotations

import json

import pytest
from kit.handmade_facts import command, frame

from rtmp_spark.conversation.connection_secrets import ConnectionSecrets
from rtmp_spark.conversation.session import Session
from rtmp_spark.redact import Redactor


@pytest.mark.parametrize("saved", [False, True])
def test_media_after_the_teardown_of_a_stream_that_used_another_id(saved: bool) -> None:
    session = Session()
    session.receive_command("c2s", command("play", 0, None, "cam"))
    session.receive_media("s2c", [frame("audio", 1, 1, stream_id=0)], [1])
    session.receive_command("c2s", command("deleteStream", 0, None, 1.0, ts=2))
    if saved:
        session = Session.resume(json.loads(json.dumps(session.state(ConnectionSecrets(Redactor(None))))))
    session.receive_media("s2c", [frame("audio", 3, 3, stream_id=0)], [3])
    assert [(span.stream_id, span.media_stream_id, span.audio) for span in session.spans] == [(1, 0, 2)]
