"""Every fault that a sender can cause: generated in the laboratory, live where a peer can do it, and no other one.

What one direction's messages show is judged here with the codec; what needs both directions or a whole session is
judged by the analyzer's end-to-end tests over the same captures.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from rtmp_relay import faults
from rtmp_relay.caller import PLAY, PUBLISH, CallerOptions
from rtmp_relay.client import Refused, publish
from rtmp_relay.faults import CATALOGUE
from rtmp_relay.laboratory import Laboratory, record_clean, record_fault
from rtmp_relay.relay import Relay, RelayOptions
from rtmp_relay.synthetic import Synthetic
from rtmp_relay.tap import Tap
from rtmp_relay.validate import Validator
from rtmp_spark.codec.errors import Severity, UserError, ViolationCode

# Marked g in the catalogue of findings.
GENERATED = {
    "HS_VERSION", "HS_INCOMPLETE", "HS_ECHO", "HS_DIGEST", "CHUNK_FRESH_CSID", "CHUNK_INTERRUPTED",
    "CHUNK_CONTINUATION_FMT", "CHUNK_DELTA_NEGATIVE", "CHUNK_EXT_TS_MISSING", "CHUNK_EXT_TS_NEEDLESS",
    "CHUNK_EXT_DELTA_ABSOLUTE", "CHUNK_CSID_FORM", "CHUNK_CSID_SHORT_CONTINUATION", "CHUNK_SIZE_ZERO",
    "CHUNK_SIZE_BIT31", "CHUNK_SIZE_CLAMPED", "CHUNK_SIZE_SMALL", "CHUNK_SIZE_NOT_APPLIED", "CHUNK_LIMIT",
    "MSG_ABORTED", "MSG_TYPE_UNKNOWN", "MSG_AGGREGATE", "CTRL_CSID", "CTRL_STREAM_ID", "CTRL_LENGTH", "CTRL_VALUE",
    "CTRL_EVENT_UNKNOWN", "CTRL_LIMIT_TYPE", "CTRL_ABORT_IDLE", "CTRL_PING_UNANSWERED", "FLOW_ACK_STARVED",
    "FLOW_ACK_EARLY", "FLOW_ACK_BACKWARDS", "AMF_TRUNCATED", "AMF_MARKER", "AMF_DEPTH", "AMF_LIMIT", "AMF_REFERENCE",
    "AMF_UTF8", "AMF_OBJECT_END", "AMF_TRAILING", "CMD_BEFORE_CONNECT", "CMD_TRANSACTION_REUSED", "CMD_NO_RESPONSE",
    "CMD_RESPONSE_UNEXPECTED", "CMD_REFUSED", "CMD_AUTH_ROUND", "MEDIA_TAG", "MEDIA_CODEC_UNKNOWN",
    "MEDIA_CONFIG_MISSING", "MEDIA_KEY_FLAG", "MEDIA_ANNEXB", "MEDIA_ADTS", "MEDIA_CONFIG_CHANGED", "MEDIA_NAL",
    "MEDIA_START_NOT_KEY", "MEDIA_DECLARED", "MEDIA_GOP_LONG", "MEDIA_NOT_NEGOTIATED", "MEDIA_HEVC_ID12",
    "TIME_BACKWARDS", "TIME_JUMP", "TIME_EXT_BREAK", "TIME_WRAP", "TIME_SKEW", "TIME_STALL", "MEDIA_TRACK_ABSENT",
    "TIME_PTS_BEFORE_DTS", "SESSION_NO_MEDIA", "SESSION_BAD_NAME",
}  # fmt: skip

# What the codec alone sees in one direction; the rest needs the whole conversation.
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
    """(side, severity, code) of everything a validator says about a tap, read back from its packets."""
    pytest.importorskip("scapy", reason="scapy is not installed")
    from scapy.layers.inet import IP, TCP
    from scapy.utils import PcapReader

    said: list[str] = []
    validator = Validator(said.append, whole=False)
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
    found = set()
    for line in said:
        match = re.match(r"connection \d+ (client|relay): (error|warning|info) ([A-Z0-9_]+): ", line)
        if match is not None:
            found.add((match[1].replace("relay", "server"), match[2], match[3]))
    return found


def test_there_is_a_generator_for_every_code_that_a_sender_can_cause() -> None:
    assert {code.value for code in CATALOGUE} == GENERATED


def test_at_least_25_are_live_and_listed() -> None:
    listing = faults.listing("client")
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
    assert {(who, name) for who, _, name in found} == {(side, code)}


@pytest.mark.slow
@pytest.mark.parametrize("code", sorted(GENERATED - LOCAL - {"CHUNK_LIMIT", "TIME_SKEW"}))
def test_faults_of_the_conversation_break_nothing_below_it(tmp_path: Path, code: str) -> None:
    record_fault(code, tmp_path / "fault.pcap")
    below = {name for _, severity, name in findings(tmp_path / "fault.pcap") if severity == Severity.ERROR.value}
    assert below == set()
    record_clean(tmp_path / "clean.pcap", players=0)
    assert (tmp_path / "fault.pcap").read_bytes() != (tmp_path / "clean.pcap").read_bytes()


def test_captures_are_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a.pcap", "b.pcap"):
        record_fault("CHUNK_INTERRUPTED", tmp_path / name)
    assert (tmp_path / "a.pcap").read_bytes() == (tmp_path / "b.pcap").read_bytes()


LIVE = [
    "HS_VERSION", "HS_INCOMPLETE", "HS_ECHO", "HS_DIGEST", "CHUNK_FRESH_CSID", "CHUNK_INTERRUPTED",
    "CHUNK_CONTINUATION_FMT", "CHUNK_EXT_TS_MISSING", "CHUNK_CSID_FORM", "CHUNK_CSID_SHORT_CONTINUATION",
    "CHUNK_SIZE_ZERO", "CHUNK_SIZE_BIT31", "CHUNK_SIZE_CLAMPED", "CHUNK_SIZE_SMALL", "CHUNK_SIZE_NOT_APPLIED",
    "MSG_ABORTED", "MSG_TYPE_UNKNOWN", "MSG_AGGREGATE", "CTRL_CSID", "CTRL_LENGTH", "CTRL_VALUE", "CTRL_ABORT_IDLE",
    "AMF_TRUNCATED", "AMF_DEPTH", "AMF_LIMIT", "MEDIA_TAG", "MEDIA_CONFIG_MISSING", "MEDIA_ANNEXB", "MEDIA_NAL",
]  # fmt: skip


def test_faults_live_on_sockets_and_the_relay_outlives_them_all(tmp_path: Path) -> None:
    """Each against a real relay in turn; then one honest publisher, to see that nothing stuck."""

    async def run() -> dict[str, set[tuple[str, str]]]:
        seen: dict[str, set[tuple[str, str]]] = {}
        for number, code in enumerate(LIVE):
            said: list[str] = []
            relay = Relay(RelayOptions(port=0), (Validator(said.append, whole=False),))
            await relay.start()
            url = f"rtmp://127.0.0.1:{relay.port}/live/s{number}"
            try:
                fault = faults.factory(code, "client")()
                await publish(url, Synthetic(seconds=2.5).tags(), speed=None, fault=fault)
            except Refused:
                pass
            await publish(f"{url}-honest", Synthetic(seconds=0.2).tags(), speed=None)
            await relay.stop()
            matches = [re.match(r"connection 1 (\w+): \w+ ([A-Z0-9_]+): ", line) for line in said]
            seen[code] = {(match[1], match[2]) for match in matches if match is not None}
            assert not [line for line in said if line.startswith("connection 2 ")]
        return seen

    for code, found in asyncio.run(run()).items():
        assert ("client", code) in found, (code, found)


@pytest.mark.parametrize("code", ["TIME_JUMP", "CMD_TRANSACTION_REUSED", "FLOW_ACK_BACKWARDS", "MSG_TYPE_UNKNOWN"])
def test_validation_is_by_the_whole_analyzer(code: str) -> None:
    """What needs both directions or hindsight is said at the end, what was said before is not said again."""
    said: list[str] = []
    laboratory = Laboratory((Validator(said.append),))
    fault = faults.factory(code, "client")()
    party = laboratory.call(PUBLISH, fault=fault)
    laboratory.call(PLAY)
    laboratory.stream(party, Synthetic(seconds=3).tags(), fault)
    laboratory.finish()
    lines = [line for line in said if line.startswith("connection 1 ")]
    assert len(lines) == 1
    assert re.match(rf"connection 1 client: \w+ {code}: .", lines[0])


def test_a_relay_can_be_at_fault_too(tmp_path: Path) -> None:
    async def run(code: str) -> None:
        tap = tmp_path / f"{code}.pcap"
        options = RelayOptions(port=0, tap=tap, new_fault=faults.factory(code, "server"))
        relay = Relay(options)
        await relay.start()
        url = f"rtmp://127.0.0.1:{relay.port}/live/cam"
        try:
            quick = CallerOptions(answer_s=0.3)
            await publish(url, Synthetic(seconds=0.5).tags(), speed=None, options=quick)
        except Refused as refused:
            assert code in ("CMD_REFUSED", "CMD_AUTH_ROUND"), refused
        finally:
            await relay.stop()
        assert isinstance(relay.tap, Tap)
        assert tap.stat().st_size > 5000

    for code in ("CMD_NO_RESPONSE", "CMD_REFUSED", "CMD_AUTH_ROUND", "CTRL_VALUE", "HS_ECHO"):
        asyncio.run(run(code))


def test_what_cannot_be_asked_for_is_said_in_one_sentence() -> None:
    with pytest.raises(UserError, match="no finding"):
        faults.factory("NONSENSE", "client")
    with pytest.raises(UserError, match="No sender can cause"):
        faults.factory("CAPTURE_TRUNCATED", "client")
    with pytest.raises(UserError, match="other side"):
        faults.factory("CMD_REFUSED", "client")
