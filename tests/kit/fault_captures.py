"""Captures for tests: one in which a side breaks one rule, and one without faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kit.relay_simulation import SimulatedClient, Simulation

from rtmp_relay.client.client_options import ClientOptions
from rtmp_relay.client.client_session import PLAY, PUBLISH
from rtmp_relay.faults import fault_catalogue
from rtmp_relay.faults.session_faults import AuthRounds
from rtmp_relay.relay.server_connection import DEFAULT_CONNECTION
from rtmp_relay.synthetic_media import Synthetic
from rtmp_relay.tap.pcap_tap import Tap
from rtmp_spark.codec.errors import ViolationCode

_SMALL_WINDOW = 20_000
_MEDIA_S = {  # other rules need 3 s of media
    ViolationCode.TIME_SKEW: 66.0,  # clock skew shows only over a minute
    ViolationCode.TIME_FAST: 8.0,  # a publisher is too fast if it is 5 s ahead
}
_AUTH_QUERIES = (
    "",
    "?authmod=adobe&user=someone",
    "?authmod=adobe&user=someone&challenge=Y2hhbA==&response=cmVzcG9uc2U=&opaque=Y2hhbA==",
)


def record_fault(code: str, path: Path, side: str | None = None) -> None:
    """Write a capture in which this side (by default the first that can) breaks this one rule."""
    rule = ViolationCode[code]
    side = side or fault_catalogue.CATALOGUE[rule].sides[0]
    tap = Tap(path)
    no_acks = rule is ViolationCode.FLOW_ACK_STARVED
    no_pongs = rule is ViolationCode.CTRL_PING_UNANSWERED
    relay_options = replace(
        DEFAULT_CONNECTION,
        ping_s=1.0 if no_pongs else 10.0,
        window=_SMALL_WINDOW if no_acks else DEFAULT_CONNECTION.window,
    )
    simulation = Simulation((tap,), relay_options)
    make = fault_catalogue.factory(code, side)
    media = Synthetic(seconds=_MEDIA_S.get(rule, 3.0))
    options = ClientOptions(window=_SMALL_WINDOW if no_acks else None, answer_s=6.0)
    if rule is ViolationCode.CMD_AUTH_ROUND:
        assert isinstance(make, AuthRounds)
        for query in _AUTH_QUERIES:
            publisher = simulation.connect(PUBLISH, app=f"live{query}", options=options, server_fault=make())
        simulation.stream(publisher, media.tags())
    elif (no_acks or no_pongs) and side == "client":  # only a player receives enough to acknowledge
        publisher = simulation.connect(PUBLISH)
        simulation.connect(PLAY, fault=make())
        simulation.stream(publisher, media.tags())
    elif side == "server":
        publisher = simulation.connect(PUBLISH, options=options, server_fault=make())
        simulation.stream(publisher, media.tags())
    else:
        fault = make()
        publisher = simulation.connect(PUBLISH, options=options, fault=fault)
        if rule is ViolationCode.SESSION_BAD_NAME:
            simulation.connect(PUBLISH, options=options)
        simulation.stream(publisher, media.tags(), fault)
    simulation.finish()
    tap.close()


def record_clean(path: Path, players: int = 1, seconds: float = 3.0) -> list[SimulatedClient]:
    """Write a capture of a publisher and its players without any fault."""
    tap = Tap(path)
    simulation = Simulation((tap,))
    publisher = simulation.connect(PUBLISH)
    for _ in range(players):
        simulation.connect(PLAY)
    simulation.stream(publisher, Synthetic(seconds=seconds).tags())
    simulation.finish()
    tap.close()
    return simulation.clients
