"""Findings of live traffic name the stream and hide its key; streams in progress have a row."""

from __future__ import annotations

import pytest
from kit.relay_simulation import EPOCH_NS, Simulation

from rtmp_relay.client.client_session import PLAY, PUBLISH
from rtmp_relay.faults import fault_catalogue
from rtmp_relay.frames import Tag
from rtmp_relay.relay.server_connection import ConnectionOptions
from rtmp_relay.relay.server_streams import SessionOptions
from rtmp_relay.synthetic_media import Synthetic
from rtmp_relay.validation.stream_rows import StreamRow, stream_rows
from rtmp_relay.validation.validator import ReportedFinding, Validator
from rtmp_spark.redact import Redactor


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTMP_SPARK_REDACT_KEY", "test")


def hashed(name: str) -> str:
    return f"live/{Redactor(b'test').stream_name(name)}"


def rows(validator: Validator, simulation: Simulation) -> list[StreamRow]:
    return stream_rows(validator.active_streams(), EPOCH_NS + round(simulation.now * 1e9), 100)[0]


@pytest.mark.parametrize("code", ["MEDIA_ANNEXB", "CHUNK_CSID_FORM", "TIME_JUMP"])
def test_a_finding_has_time_stream_and_role(code: str) -> None:
    found: list[ReportedFinding] = []
    simulation = Simulation((Validator(found.append),))
    fault = fault_catalogue.factory(code, "client")()
    client = simulation.connect(PUBLISH, "s3cret?token=t0ken", fault=fault)
    simulation.stream(client, Synthetic(seconds=3).tags(), fault)
    simulation.finish()
    first = next(one for one in found if one.code.value == code)
    assert (first.stream, first.role, first.at_fault) == (hashed("s3cret"), "publish", "client")
    assert EPOCH_NS < first.time_ns <= EPOCH_NS + round(simulation.now * 1e9)
    assert "s3cret" not in str(found) and "t0ken" not in str(found)


def test_a_name_in_the_detail_of_a_finding_is_hashed() -> None:
    found: list[ReportedFinding] = []
    simulation = Simulation((Validator(found.append),))
    simulation.connect(PUBLISH, "s3cret")
    simulation.connect(PUBLISH, "s3cret")
    simulation.finish()
    assert [one for one in found if one.code.value == "SESSION_BAD_NAME" or one.code.value.startswith("CMD_")]
    assert "s3cret" not in str(found)


def test_a_repeated_finding_is_reported_ten_times_and_counted() -> None:
    found: list[ReportedFinding] = []
    simulation = Simulation((Validator(found.append, whole=False),))
    client = simulation.connect(PUBLISH)
    headers = [tag for tag in Synthetic(seconds=0.1).tags() if tag.type_id == 9][:2]  # configuration and keyframe
    start_codes = bytes.fromhex("2701000000 0000000141") + bytes(20)
    simulation.stream(client, [*headers, *(Tag(9, 40 * number, start_codes) for number in range(1, 16))])
    simulation.finish()
    of_rule = [one for one in found if one.code.value == "MEDIA_ANNEXB" and one.connection == 1]
    assert len(of_rule) == 11
    assert of_rule[-1].detail == "15 times in total"


def test_streams_have_rows_with_measures_and_players() -> None:
    validator = Validator(lambda finding: None, whole=False)
    simulation = Simulation((validator,))
    publisher = simulation.connect(PUBLISH, "cam")
    players = [simulation.connect(PLAY, "cam"), simulation.connect(PLAY, "cam")]
    simulation.stream(publisher, Synthetic(seconds=8, fps=25, gop=50).tags())
    publish, *plays = rows(validator, simulation)
    assert (publish.name, publish.role, publish.players, publish.last_finding) == (hashed("cam"), "publish", 2, None)
    assert [(row.name, row.role, row.players) for row in plays] == [(hashed("cam"), "play", None)] * 2
    for row in (publish, *plays):
        measures = row.measures
        assert measures.frame_rate is not None and abs(measures.frame_rate - 25) < 1
        assert measures.pace is not None and abs(measures.pace - 1) < 0.02
        assert measures.skew_ms is not None and abs(measures.skew_ms) < 30
        assert measures.gop_ms == 2000
    simulation.close(players[0], by_client=True)
    assert rows(validator, simulation)[0].players == 1
    publisher.session.finish()
    simulation.exchange_all()
    assert rows(validator, simulation) == []  # the player leaves with the publisher


def test_a_row_shows_the_last_finding() -> None:
    validator = Validator(lambda finding: None, whole=False)
    simulation = Simulation((validator,))
    fault = fault_catalogue.factory("MEDIA_ANNEXB", "client")()
    client = simulation.connect(PUBLISH, fault=fault)
    simulation.stream(client, Synthetic(seconds=3).tags(), fault)
    (row,) = rows(validator, simulation)
    assert row.last_finding is not None and row.last_finding[0].value == "MEDIA_ANNEXB"


def test_a_refused_publish_has_no_row() -> None:
    validator = Validator(lambda finding: None, whole=False)
    options = ConnectionOptions(session=SessionOptions(publish_keys=("right",)))
    simulation = Simulation((validator,), options)
    simulation.connect(PUBLISH, "cam?key=wrong")
    assert rows(validator, simulation) == []


def test_rows_beyond_the_limit_are_counted() -> None:
    validator = Validator(lambda finding: None, whole=False)
    simulation = Simulation((validator,))
    for name in ("c", "a", "b"):
        simulation.connect(PUBLISH, name)
    shown, left_out = stream_rows(validator.active_streams(), EPOCH_NS, 2)
    assert [row.name for row in shown] == sorted(map(hashed, "abc"))[:2]
    assert left_out == 1
