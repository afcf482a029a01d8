"""Every fault of the catalogue, simulated and (some) on real sockets: it breaks its own rule and no other.

Rules that the codec checks in one direction are tested here. `test_faults_end_to_end` checks the others, which need
both directions or the whole session, with the analyzer on the same captures.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from kit.fault_captures import record_clean, record_fault
from kit.relay_simulation import Simulation

from rtmp_relay.client.client_options import ClientOptions
from rtmp_relay.client.client_session import PLAY, PUBLISH
from rtmp_relay.client.rtmp_client import Refused, publish
from rtmp_relay.faults import fault_catalogue
from rtmp_relay.faults.fault_catalogue import CATALOGUE
from rtmp_relay.relay.relay_server import Relay, RelayOptions
from rtmp_relay.synthetic_media import Synthetic
from rtmp_relay.tap.pcap_tap import Tap
from rtmp_relay.validation.validator import ReportedFinding, Validator
from rtmp_spark.codec.errors import Severity, UserError, ViolationCode

# The rules that a sender can break, by the catalogue of findings.
GENERATED = {
    "HS_VERSION", "HS_INCOMPLETE", "HS_ECHO", "HS_DIGEST", "CHUNK_FRESH_CSID", "CHUNK_INTERRUPTED",
    "CHUNK_CONTINUATION_FMT", "CHUNK_DELTA_NEGATIVE", "CHUNK_EXT_TS_MISSING", "CHUNK_EXT_TS_NEEDLESS",
    "CHUNK_EXT_DELTA_ABSOLUTE", "CHUNK_CSID_FORM", "CHUNK_CSID_SHORT_CONTINUATION", "CHUNK_SIZE_ZERO",
    "CHUNK_SIZE_BIT31", "CHUNK_SIZE_CLAMPED", "CHUNK_SIZE_SMALL", "CHUNK_SIZE_NOT_APPLIED", "CHUNK_LIMIT",
    "MSG_ABORTED", "MSG_TYPE_UNKNOWN", "MSG_AGGREGATE", "CTRL_CSID", "CTRL_STREAM_ID", "CTRL_LENGTH", "CTRL_VALUE",
    "CTRL_EVENT_UNKNOWN", "CTRL_LIMIT_TYPE", "CTRL_ABORT_IDLE", "CTRL_PING_UNANSWERED", "FLOW_ACK_STARVED",
    "FLOW_ACK_EARLY", "FLOW_ACK_BACKWARDS", "AMF_TRUNCATED", "AMF_MARKER", "AMF_DEPTH", "AMF_LIMIT", "AMF_REFERENCE",
    "AMF_UTF8", "AMF_OBJECT_END", "AMF_TRAILING", "AMF_DATE", "CMD_BEFORE_CONNECT", "CMD_TRANSACTION_REUSED",
    "CMD_NO_RESPONSE",
    "CMD_RESPONSE_UNEXPECTED", "CMD_STREAM_ID", "CMD_STREAM_NAME", "CMD_REFUSED", "CMD_AUTH_ROUND", "MEDIA_TAG",
    "MEDIA_RESERVED", "MEDIA_CODEC_UNKNOWN", "MEDIA_CONFIG_MISSING", "MEDIA_KEY_FLAG", "MEDIA_ANNEXB", "MEDIA_ADTS",
    "MEDIA_CONFIG_CHANGED", "MEDIA_NAL", "MEDIA_START_NOT_KEY", "MEDIA_DECLARED", "MEDIA_GOP_LONG",
    "MEDIA_NOT_NEGOTIATED", "MEDIA_HEVC_ID12", "TIME_BACKWARDS", "TIME_JUMP", "TIME_EXT_BREAK", "TIME_WRAP",
    "TIME_SKEW", "TIME_STALL", "TIME_SLOW", "TIME_FAST", "MEDIA_TRACK_ABSENT", "TIME_PTS_BEFORE_DTS",
    "SESSION_NO_MEDIA", "SESSION_BAD_NAME",
}  # fmt: skip

# Rules that the codec alone checks in one direction; the others need the whole connection.
LOCAL = {
    code
    for code in GENERATED
    if code.startswith(("HS_", "CHUNK_", "MSG_", "CTRL_", "AMF_", "MEDIA_"))
    and code
    not in (
        "CHUNK_LIMIT", "CTRL_PING_UNANSWERED", "MEDIA_START_NOT_KEY", "MEDIA_DECLARED", "MEDIA_GOP_LONG",
        "MEDIA_NOT_NEGOTIATED", "MEDIA_TRACK_ABSENT",
    )
}  # fmt: skip


def findings(path: Path) -> set[tuple[str, str, str]]:
    """Return (side, severity, code) of each finding that a validator reports for the packets of a tap."""
    pytest.importorskip("scapy", reason="scapy is not installed")
    from scapy.layers.inet import IP, TCP
    from scapy.utils import PcapReader

    found: list[ReportedFinding] = []
    validator = Validator(found.append, whole=False)
    numbers: dict[tuple[str, int], int] = {}
    for packet in PcapReader(str(path)):
        ip, tcp = packet[IP], packet[TCP]
        from_client = tcp.dport == 1935
        client = (ip.src, tcp.sport) if from_client else (ip.dst, tcp.dport)
        if client not in numbers:
            numbers[client] = len(numbers) + 1
            validator.opened(numbers[client], client, ("", 1935), 0)
        if tcp.payload:
            validator.data(numbers[client], from_client, bytes(tcp.payload), 0)
    for number in numbers.values():
        validator.closed(number, True, False, 0)
    return {(one.at_fault or "", one.severity.value, one.code.value) for one in found}


def test_the_catalogue_has_a_fault_for_every_rule_that_a_sender_can_break() -> None:
    assert {code.value for code in CATALOGUE} == GENERATED


def test_at_least_25_faults_are_listed_for_clients() -> None:
    listing = fault_catalogue.listing("client")
    assert all(re.search(rf"^{code}  ", listing, re.MULTILINE) for code in GENERATED - {"CTRL_PING_UNANSWERED"})
    assert sum("client" in recipe.sides for recipe in CATALOGUE.values()) >= 25


def test_clean_traffic_has_no_findings(tmp_path: Path) -> None:
    record_clean(tmp_path / "clean.pcap", players=2)
    assert findings(tmp_path / "clean.pcap") == set()


CASES = [(code, side) for code in sorted(LOCAL) for side in CATALOGUE[ViolationCode[code]].sides]


@pytest.mark.slow
@pytest.mark.parametrize(("code", "side"), CASES, ids=[f"{code}-{side}" for code, side in CASES])
def test_a_fault_breaks_its_own_rule_and_no_other(tmp_path: Path, code: str, side: str) -> None:
    record_fault(code, tmp_path / "fault.pcap", side)
    found = findings(tmp_path / "fault.pcap")
    assert {(at_fault, name) for at_fault, _, name in found} == {(side, code)}


@pytest.mark.slow
@pytest.mark.parametrize("code", sorted(GENERATED - LOCAL - {"CHUNK_LIMIT", "TIME_SKEW"}))
def test_session_faults_break_no_rule_of_the_codec(tmp_path: Path, code: str) -> None:
    record_fault(code, tmp_path / "fault.pcap")
    below = {name for _, severity, name in findings(tmp_path / "fault.pcap") if severity == Severity.ERROR.value}
    assert below == set()
    record_clean(tmp_path / "clean.pcap", players=0)
    assert (tmp_path / "fault.pcap").read_bytes() != (tmp_path / "clean.pcap").read_bytes()


def test_every_run_writes_the_same_capture(tmp_path: Path) -> None:
    for name in ("a.pcap", "b.pcap"):
        record_fault("CHUNK_INTERRUPTED", tmp_path / name)
    assert (tmp_path / "a.pcap").read_bytes() == (tmp_path / "b.pcap").read_bytes()


def test_a_fast_audio_clock_changes_timestamps_but_not_when_frames_are_sent() -> None:
    fault = fault_catalogue.factory("TIME_SKEW", "client")()
    media = list(Synthetic(seconds=60.0, fps=1, sample_rate=8_000).tags())
    changed = list(fault.changed_tags(media))
    assert changed[-1].timestamp - media[-1].timestamp in range(298, 301)  # 0.5 % of a minute
    assert all(abs(fault.due_ms(after) - before.timestamp) <= 1 for before, after in zip(media, changed, strict=True))


LIVE = [
    "HS_VERSION", "HS_INCOMPLETE", "HS_ECHO", "HS_DIGEST", "CHUNK_FRESH_CSID", "CHUNK_INTERRUPTED",
    "CHUNK_CONTINUATION_FMT", "CHUNK_EXT_TS_MISSING", "CHUNK_CSID_FORM", "CHUNK_CSID_SHORT_CONTINUATION",
    "CHUNK_SIZE_ZERO", "CHUNK_SIZE_BIT31", "CHUNK_SIZE_CLAMPED", "CHUNK_SIZE_SMALL", "CHUNK_SIZE_NOT_APPLIED",
    "MSG_ABORTED", "MSG_TYPE_UNKNOWN", "MSG_AGGREGATE", "CTRL_CSID", "CTRL_LENGTH", "CTRL_VALUE", "CTRL_ABORT_IDLE",
    "AMF_TRUNCATED", "AMF_DEPTH", "AMF_LIMIT", "MEDIA_TAG", "MEDIA_CONFIG_MISSING", "MEDIA_ANNEXB", "MEDIA_NAL",
]  # fmt: skip


def test_faults_are_found_on_real_sockets_and_the_relay_keeps_serving(tmp_path: Path) -> None:
    """Each fault runs against a new relay, followed by a correct publisher without findings."""

    async def run() -> dict[str, set[tuple[str, str]]]:
        seen: dict[str, set[tuple[str, str]]] = {}
        for number, code in enumerate(LIVE):
            reported: list[ReportedFinding] = []
            relay = Relay(RelayOptions(port=0), (Validator(reported.append, whole=False),))
            await relay.start()
            url = f"rtmp://127.0.0.1:{relay.port}/live/s{number}"
            try:
                fault = fault_catalogue.factory(code, "client")()
                await publish(url, Synthetic(seconds=2.5).tags(), speed=None, fault=fault)
            except Refused:
                pass
            await publish(f"{url}-correct", Synthetic(seconds=0.2).tags(), speed=None)
            await relay.stop()
            seen[code] = {(one.at_fault or "", one.code.value) for one in reported if one.connection == 1}
            assert not [one for one in reported if one.connection == 2]
        return seen

    for code, found in asyncio.run(run()).items():
        assert ("client", code) in found, (code, found)


@pytest.mark.parametrize("code", ["TIME_JUMP", "CMD_TRANSACTION_REUSED", "FLOW_ACK_BACKWARDS", "MSG_TYPE_UNKNOWN"])
def test_validation_reports_findings_of_both_directions_once_at_the_end(code: str) -> None:
    """A finding that was reported during the connection is not reported again at its end."""
    reported: list[ReportedFinding] = []
    simulation = Simulation((Validator(reported.append),))
    fault = fault_catalogue.factory(code, "client")()
    client = simulation.connect(PUBLISH, fault=fault)
    simulation.connect(PLAY)
    simulation.stream(client, Synthetic(seconds=3).tags(), fault)
    simulation.finish()
    (finding,) = (one for one in reported if one.connection == 1)
    assert (finding.at_fault, finding.code.value, finding.role) == ("client", code, "publish")
    assert finding.detail


def test_the_relay_can_run_with_a_fault(tmp_path: Path) -> None:
    async def run(code: str) -> None:
        tap = tmp_path / f"{code}.pcap"
        options = RelayOptions(port=0, tap=tap, new_fault=fault_catalogue.factory(code, "server"))
        relay = Relay(options)
        await relay.start()
        url = f"rtmp://127.0.0.1:{relay.port}/live/cam"
        try:
            quick = ClientOptions(answer_s=0.3)
            await publish(url, Synthetic(seconds=0.5).tags(), speed=None, options=quick)
        except Refused as refused:
            assert code in ("CMD_REFUSED", "CMD_AUTH_ROUND"), refused
        finally:
            await relay.stop()
        assert isinstance(relay.tap, Tap)
        assert tap.stat().st_size > 5000

    for code in ("CMD_NO_RESPONSE", "CMD_REFUSED", "CMD_AUTH_ROUND", "CTRL_VALUE", "HS_ECHO"):
        asyncio.run(run(code))


def test_an_unavailable_fault_is_a_user_error() -> None:
    with pytest.raises(UserError, match="Unknown rule"):
        fault_catalogue.factory("NONSENSE", "client")
    with pytest.raises(UserError, match="No sender can cause"):
        fault_catalogue.factory("CAPTURE_TRUNCATED", "client")
    with pytest.raises(UserError, match="other side"):
        fault_catalogue.factory("CMD_REFUSED", "client")
