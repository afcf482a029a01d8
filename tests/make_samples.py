"""Makes the sample captures that come from our own relay: `python tests/make_samples.py sample_pcaps`.

They show behaviour that no other program at hand produces. The clock is simulated: every run writes the same bytes.
Each has another server, so that one recording of all samples has every connection.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from kit.relay_simulation import Simulation

from rtmp_relay.client import client_session
from rtmp_relay.client.client_options import ClientOptions
from rtmp_relay.client.client_session import PUBLISH
from rtmp_relay.faults.fault_catalogue import factory
from rtmp_relay.relay import server_session
from rtmp_relay.relay.server_connection import DEFAULT_CONNECTION
from rtmp_relay.synthetic_media import Synthetic
from rtmp_relay.tap.pcap_tap import Tap

WINDOW = 50_000
PATIENCE_S = 10.0


def encoder_waits_for_acknowledgements(path: Path) -> None:
    """A publisher sends two windows to a relay that never acknowledges, waits ten seconds and closes the connection.

    It then connects again, to a relay that acknowledges.
    """
    tap = Tap(path)
    relay = replace(DEFAULT_CONNECTION, window=WINDOW)
    simulation = Simulation((tap,), relay, server=("192.0.2.2", 1935))
    options = ClientOptions(window=WINDOW)
    for server_fault in (factory("FLOW_ACK_STARVED", "server"), factory(None, "server")):
        client = simulation.connect(PUBLISH, options=options, server_fault=server_fault())
        start, sent = simulation.now, 0
        for tag in Synthetic(seconds=4.0, video_bitrate=200_000).tags():
            if sent - client.session.endpoint.peer_acknowledged > 2 * WINDOW:
                simulation.wait(PATIENCE_S)
                break
            simulation.wait(max(0.0, start + tag.timestamp / 1000 - simulation.now))
            client.session.send_tag(tag)
            sent += len(tag.payload)
            simulation.exchange_all()
        else:
            client.session.finish()
            simulation.exchange_all()
        simulation.close(client, by_client=True)
        simulation.wait(2.0)
    tap.close()


def slow_and_fast_publishers(path: Path) -> None:
    """Three publishers, one after the other: at 0.3 x real time, as fast as possible, and without a stream name."""
    tap = Tap(path)
    simulation = Simulation((tap,))
    for code, seconds in (("TIME_SLOW", 6.0), ("TIME_FAST", 7.0), ("CMD_STREAM_NAME", 1.0)):
        fault = factory(code, "client")()
        client = simulation.connect(PUBLISH, fault=fault)
        simulation.stream(client, Synthetic(seconds=seconds, fps=10, gop=20, video_bitrate=20_000).tags(), fault)
        client.session.finish()
        simulation.exchange_all()
        simulation.close(client, by_client=True)
        simulation.wait(2.0)
    tap.close()


def audio_drifts_ahead_of_video(path: Path) -> None:
    """A publisher whose audio clock is 0.5 % fast: after 66 s, audio timestamps are 330 ms ahead of video."""
    tap = Tap(path)
    simulation = Simulation((tap,), server=("192.0.2.3", 1935))
    fault = factory("TIME_SKEW", "client")()
    client = simulation.connect(PUBLISH, fault=fault)
    media = Synthetic(seconds=66.0, fps=10, gop=20, video_bitrate=10_000, audio_bitrate=6_000, sample_rate=16_000)
    simulation.stream(client, media.tags(), fault)
    simulation.finish()
    tap.close()


if __name__ == "__main__":
    # The samples keep the version that made them first, so that a release does not change them.
    server_session.SERVER_VERSION = "rtmp_relay/0.1.0"
    client_session.CLIENT_VERSION = "FMLE/3.0 (compatible; rtmp_relay/0.1.0)"
    encoder_waits_for_acknowledgements(Path(sys.argv[1]) / "encoder_waits_for_acknowledgements.pcap")
    slow_and_fast_publishers(Path(sys.argv[1]) / "slow_and_fast_publishers.pcap")
    audio_drifts_ahead_of_video(Path(sys.argv[1]) / "audio_drifts_ahead_of_video.pcap")
