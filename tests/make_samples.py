"""The sample captures that our own relay made: `python tests/make_samples.py sample_pcaps`.

They show what no program at hand can be made to do. Clocks are counted, so every run gives the same bytes.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from rtmp_relay.caller import PUBLISH, CallerOptions
from rtmp_relay.connection import DEFAULT_CONNECTION
from rtmp_relay.faults import factory
from rtmp_relay.laboratory import Laboratory
from rtmp_relay.synthetic import Synthetic
from rtmp_relay.tap import Tap

WINDOW = 50_000
PATIENCE_S = 10.0


def encoder_waits_for_acknowledgements(path: Path) -> None:
    """A publisher that sends two windows and then waits, a relay that never acknowledges, and the publisher hangs up
    after ten seconds; then the same two again, with acknowledgements."""
    tap = Tap(path)
    relay = replace(DEFAULT_CONNECTION, window=WINDOW)
    laboratory = Laboratory((tap,), relay)
    options = CallerOptions(window=WINDOW)
    for server_fault in (factory("FLOW_ACK_STARVED", "server"), factory(None, "server")):
        party = laboratory.call(PUBLISH, options=options, server_fault=server_fault())
        start, sent = laboratory.now, 0
        for tag in Synthetic(seconds=4.0, video_bitrate=200_000).tags():
            if sent - party.caller.endpoint.peer_acknowledged > 2 * WINDOW:
                laboratory.wait(PATIENCE_S)
                break
            laboratory.wait(max(0.0, start + tag.timestamp / 1000 - laboratory.now))
            party.caller.send_tag(tag)
            sent += len(tag.payload)
            laboratory.settle()
        else:
            party.caller.finish()
            laboratory.settle()
        laboratory._close(party, by_client=True)
        laboratory.wait(2.0)
    tap.close()


if __name__ == "__main__":
    encoder_waits_for_acknowledgements(Path(sys.argv[1]) / "encoder_waits_for_acknowledgements.pcap")
