"""Every case passes on our relay and fails on a relay that is broken for it; each case must have such a relay."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kit.broken_relay import (
    DAMAGED_MEDIA,
    GOOD,
    WRONG_TIMESTAMPS,
    OnBytes,
    OnReceived,
    Variant,
    changes,
    closes_on,
    closing,
    deaf_after,
    holds,
    ignores,
    ignores_from,
    in_handshake,
    is_command,
    is_type,
    omits,
    on_bytes,
    only_first,
    running,
    sends,
    sends_changed,
    sends_text,
)
from kit.tls_connections import make_certificate

from rtmp_relay.faults.fault import Fault
from rtmp_relay.faults.replacement_bytes import chunks, header
from rtmp_relay.frames import SET_DATA_FRAME, Frame
from rtmp_relay.relay.hub import Hub
from rtmp_relay.relay.live_stream import LiveStream
from rtmp_relay.relay.player import Player
from rtmp_relay.relay.relay_server import Relay, RelayOptions
from rtmp_relay.relay.server_connection import ConnectionOptions
from rtmp_relay.relay.server_streams import SessionOptions
from rtmp_spark.codec.command import dump_command, parse_command
from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.events import MessageReceived
from rtmp_spark.codec.message import AUDIO, USER_CONTROL, VIDEO, Message, dump_ping_response
from rtmp_spark.probe.case import Case, Level
from rtmp_spark.probe.catalogue import CASES, SECTIONS, choose
from rtmp_spark.probe.outcome import Verdict
from rtmp_spark.probe.runner import CaseResult, run_case, run_cases
from rtmp_spark.probe.wire import Target

KEY = "s3cret"
ONLY_ONE = only_first(1)  # as if the case had crashed the relay


def each(section: str, numbers: Any, variant: Variant) -> dict[str, Variant]:
    return {f"{section}/{number}": variant for number in numbers}


# -- handshake --------------------------------------------------------------------------------------------------------


def _pads_c1(fault: OnBytes, data: bytes) -> bytes:
    return data + b"\0" if fault.total == 1536 else data


def _remembers_version(fault: OnBytes, data: bytes) -> bytes:
    return b"\3" + data[1:] if fault.total == len(data) else data


def _other_version(fault: OnBytes, part: int, data: bytes) -> bytes:
    return b"\7" if part == 0 and fault.first[0] != 3 else data


def _verifies_c2(fault: OnBytes, data: bytes) -> bytes:
    return closing(fault, 1537 < fault.total <= 3073 and data[8:1000] != fault.s1[8:1000], data)


def _wants_zero(fault: OnBytes, part: int, data: bytes) -> bytes:
    return bytes(8) + data[8:-1] + b"?" if part == 2 and fault.first[5:9] != bytes(4) else data


def _ends_with_c2(fault: OnBytes, data: bytes) -> bytes:
    """Drops what follows C2 in the same packet, if it is less than a chunk header."""
    extra = fault.total - 3073
    return data[:-extra] if 0 < extra < 12 else data


class _Impatient(Fault):
    """Closes a connection whose C2 comes after another connection was opened."""

    opened = 0

    def __init__(self) -> None:
        _Impatient.opened += 1
        self._number, self._total = _Impatient.opened, 0

    def received_bytes(self, data: bytes) -> bytes:
        late = self._total == 1537 and self._number != _Impatient.opened
        self._total += len(data)
        self.closes_connection = self.closes_connection or late
        return data


class _OneAtATime(Fault):
    """Closes a connection that arrives while another is in its handshake."""

    pending: set[int] = set()  # noqa: RUF012

    def __init__(self) -> None:
        self.closes_connection = bool(_OneAtATime.pending)
        self._total = 0

    def received_bytes(self, data: bytes) -> bytes:
        self._total += len(data)
        _OneAtATime.pending.add(id(self)) if self._total < 1537 else _OneAtATime.pending.discard(id(self))
        return data


HANDSHAKE = {
    "handshake/2": on_bytes(_pads_c1),
    "handshake/3": in_handshake(2, lambda data: data + bytes.fromhex("02 000000 000004 05 00000000 002625a0")),
    "handshake/4": in_handshake(0, lambda _: b"\4"),
    "handshake/5": in_handshake(1, lambda data: data[:4] + b"\1\2\3\4" + data[8:]),
    "handshake/6": in_handshake(2, lambda data: b"\xee" + data[1:]),
    **each("handshake", (7, 8, 9), in_handshake(2, lambda data: data[:100] + b"\0\1\2\3" + data[104:])),
    "handshake/10": closes_on(is_command("createStream")),
    **each("handshake", (11, 12), on_bytes(lambda fault, data: closing(fault, len(fault.first) < 1537, data))),
    "handshake/13": Variant(_Impatient),
    "handshake/14": on_bytes(
        lambda fault, data: closing(fault, fault.total > 3073 >= fault.total - len(data) + 1536, data)
    ),
    "handshake/15": on_bytes(_verifies_c2),
    "handshake/16": on_bytes(on_part=_wants_zero),
    **each("handshake", (17, 18, 19, 20), on_bytes(_remembers_version, _other_version)),
    "handshake/21": in_handshake(1, lambda data: data[:8] + bytes(1528)),
    "handshake/22": Variant(_OneAtATime),
    "handshake/23": on_bytes(_ends_with_c2),
}

# -- chunks -----------------------------------------------------------------------------------------------------------


class _OneSize(Fault):
    """Has one variable for the chunk sizes of both directions."""

    size = 0

    def received_message(self, message: MessageReceived) -> MessageReceived | None:
        if message.type_id == 1:
            self.size = int.from_bytes(message.payload, "big")
        return message

    def encode(self, encoder: RtmpEncoder, message: Message) -> bytes:
        if message.type_id == 1:
            return b""
        encoder.chunk_size = self.size or encoder.chunk_size
        return encoder.send(message, fmt=0)


def _fmt1_first(encoder: RtmpEncoder, message: Message) -> bytes:
    return header(message, fmt=1) + message.payload


def _announces_another_size(encoder: RtmpEncoder, message: Message) -> bytes:
    encoder.chunk_size = 4096
    return header(message) + struct.pack(">I", 65536)


def _continues_with_fmt1(encoder: RtmpEncoder, message: Message) -> bytes:
    return chunks(message.payload, 128, header(message), header(message, fmt=1, field=0))


def _encoded_24_bits(self: Frame, chunk_size: int, stream_id: int) -> bytes:
    message = Message(
        6 if self.type_id == VIDEO else 4, self.timestamp & 0xFFFFFF, self.type_id, stream_id, self.payload
    )
    return RtmpEncoder(chunk_size).send(message)


def _encoded_negative_delta(self: Frame, chunk_size: int, stream_id: int) -> bytes:
    message = Message(4, self.timestamp, self.type_id, stream_id, self.payload)
    if self.timestamp == 4000:
        return header(message, 1, 0xFFFFFF, 0xFFFFFFFF - 1019) + self.payload
    return header(message) + self.payload


SHORT_ONLY = ignores(lambda one: one.type_id == 20 and len(one.payload) > 600)
AFTER_SIZE = deaf_after(is_type(1))
CHUNKS = {
    "chunks/1": sends(holds(b"Publish.Start"), _fmt1_first),
    "chunks/2": sends_changed(is_type(5), csid=3),
    "chunks/3": sends(is_type(1), lambda _encoder, one: header(one) + bytes(4)),
    "chunks/4": sends(is_type(1), _announces_another_size),
    "chunks/5": Variant(_OneSize),
    **each("chunks", range(6, 15), AFTER_SIZE),
    "chunks/15": DAMAGED_MEDIA,
    **each("chunks", range(16, 24), SHORT_ONLY),
    **each("chunks", range(24, 32), WRONG_TIMESTAMPS),
    "chunks/32": Variant(patches=((Frame, "encoded", _encoded_24_bits),)),
    "chunks/33": Variant(patches=((Frame, "encoded", _encoded_negative_delta),)),
    **each("chunks", (34, 35), deaf_after(is_type(2))),
    **each("chunks", (36, 37), closes_on(lambda one: one.type_id in (AUDIO, VIDEO) and not one.payload)),
    "chunks/38": closes_on(is_type(99)),
    "chunks/39": closes_on(is_type(19)),
    "chunks/40": ignores(lambda one: one.type_id == 20 and len(one.payload) == 128),
    **each("chunks", (41, 42), SHORT_ONLY),
    "chunks/43": sends_changed(is_type(USER_CONTROL), csid=3),
    "chunks/44": dataclasses.replace(
        sends(holds(b"Play.Start"), _continues_with_fmt1), connection=ConnectionOptions(chunk_size=128)
    ),
    "chunks/45": ignores(lambda one: one.type_id == 20 and parse_command(20, one.payload).transaction_id == 3.0),
}

# -- control ----------------------------------------------------------------------------------------------------------


def _once(type_id: int) -> Any:
    """Chooses every message of a type but the first."""
    seen: list[int] = []

    def choice(message: Any) -> bool:
        if message.type_id != type_id:
            return False
        seen.append(1)
        return len(seen) > 1

    return choice


def _with_ping_response(encoder: RtmpEncoder, message: Message) -> bytes:
    return encoder.send(Message(2, 0, USER_CONTROL, 0, dump_ping_response(1)), fmt=0) + encoder.send(message, fmt=0)


def is_stream_event(event_type: int, about_connection: bool) -> Any:
    head = struct.pack(">H", event_type)
    return lambda one: (
        one.type_id == USER_CONTROL and one.payload[:2] == head and (one.payload[2:] == bytes(4)) is about_connection
    )


def no_end(one: Message) -> bool:
    return is_stream_event(1, False)(one) or b"UnpublishNotify" in one.payload


CONTROL = {
    "control/1": omits(is_type(3)),
    "control/2": sends_changed(is_type(3), payload=struct.pack(">I", 0xFFFFFF00)),
    "control/3": Variant(lambda: omits(_once(3)).fault()),
    "control/4": Variant(lambda: OnReceived(_once(5), lambda _: None)),
    "control/5": omits(lambda one: one.type_id == 5 and one.payload == struct.pack(">I", 1_234_567)),
    "control/6": sends_changed(is_stream_event(7, False), payload=dump_ping_response(1)),
    **each("control", (7, 8, 9, 14), closes_on(is_type(USER_CONTROL))),
    "control/10": closes_on(is_type(3)),
    **each("control", (11, 12), closes_on(is_type(5))),
    "control/13": closes_on(is_type(6)),
    "control/15": omits(is_stream_event(0, True)),
    "control/16": omits(is_stream_event(0, False)),
    "control/17": omits(no_end),
    "control/18": omits(is_type(5, 6)),
    "control/19": HANDSHAKE["handshake/3"],
    "control/20": sends_changed(is_type(5), payload=struct.pack(">I", 100)),
    "control/21": sends(holds(b"Connect.Success"), _with_ping_response),
    "control/22": closes_on(lambda one: one.type_id == 3 and one.payload == struct.pack(">I", 0x1000)),
}

# -- amf and commands -------------------------------------------------------------------------------------------------

ODD_CONNECT = is_command("connect")


def unusual(one: MessageReceived) -> bool:
    """A connect that is not the one of the suite's reference connection."""
    return ODD_CONNECT(one) and b"nonprivate" not in one.payload


AMF = {
    **each("amf", range(1, 28), closes_on(unusual)),
    "amf/28": ignores(is_type(17)),
    "amf/29": deaf_after(is_type(17)),
    **each("amf", range(30, 37), ONLY_ONE),
    "amf/37": sends(holds(b"Publish.Start"), lambda e, one: e.send(dataclasses.replace(one, payload=one.payload[:-9]))),
}


def _as(name: str, *args: object) -> Any:
    """Reads a command as another one with the same transaction id."""
    return lambda payload: dump_command(name, parse_command(20, payload).transaction_id or 0.0, *args)


def _number(old: float, new: float) -> Variant:
    """Sends another number, for example another transaction id."""
    return sends_text(b"\0" + struct.pack(">d", old), b"\0" + struct.pack(">d", new))


def _early_media(encoder: RtmpEncoder, message: Message) -> bytes:
    return encoder.send(Message(4, 0, AUDIO, message.stream_id, b"\xaf\1\1"), fmt=0) + encoder.send(message, fmt=0)


def on_stream(*stream_ids: int) -> Any:
    return lambda one: is_command("publish")(one) and one.stream_id in stream_ids


COMMANDS = {
    "commands/1": _number(1.0, 2.0),
    "commands/2": sends_text(b"Connect.Success", b"Connect.Succeed"),
    "commands/3": sends(
        holds(b"fmsVer"),
        lambda e, one: e.send(
            dataclasses.replace(one, payload=one.payload.replace(b"fmsVer", b"xmsVer").replace(b"cap", b"xap")), fmt=0
        ),
    ),
    **each("commands", range(4, 14), ignores(unusual)),
    "commands/14": Variant(lambda: deaf_after(_second_connect()).fault()),
    "commands/15": ONLY_ONE,
    "commands/16": _number(77.0, 78.0),
    "commands/17": sends(
        lambda one: b"_result" in one.payload and len(one.payload) < 40,
        lambda e, one: e.send(dataclasses.replace(one, payload=one.payload[:-8] + struct.pack(">d", 0.0)), fmt=0),
    ),
    "commands/18": ignores(lambda one: one.type_id == 20 and parse_command(20, one.payload).transaction_id == 9.0),
    "commands/19": sends_text(b"Publish.Start", b"Publish.Begin"),
    "commands/20": sends_text(b"description", b"descriptiox"),
    "commands/21": sends(
        holds(b"Publish.Start"),
        lambda e, one: e.send(
            dataclasses.replace(one, payload=one.payload.replace(bytes(9), b"\0" + struct.pack(">d", 5.0), 1)), fmt=0
        ),
    ),
    "commands/22": sends_changed(holds(b"Publish.Start"), stream_id=0),
    **each("commands", (23, 24, 25), sends_text(b"Publish.Start", b"Publish.Begin")),
    **each("commands", (26, 27), deaf_after(on_stream(0, 55))),
    "commands/28": ignores(is_command("publish", holding=b"\2\0\0")),
    "commands/29": ignores_from(2, is_command("publish")),
    "commands/30": sends_text(b"Play.Start", b"Play.Begin"),
    "commands/31": changes(is_command("play"), lambda payload: payload[:-1] + b"\1"),
    **each("commands", (32, 33, 34, 36, 55), DAMAGED_MEDIA),
    "commands/35": deaf_after(is_command("play")),
    "commands/37": sends_text(b"Pause.Notify", b"Xause.Notify"),
    "commands/38": sends_text(b"Unpause.Notify", b"Xnpause.Notify"),
    "commands/39": closes_on(is_command("seek")),
    "commands/40": closes_on(is_command("receiveAudio")),
    "commands/41": closes_on(is_command("receiveVideo")),
    "commands/42": ignores(is_command("closeStream")),
    "commands/43": ignores(is_command("deleteStream")),
    "commands/44": deaf_after(is_command("FCUnpublish")),
    "commands/45": changes(is_command("deleteStream"), _as("getStreamLength", None, "x")),
    "commands/46": closes_on(is_command("deleteStream")),
    **{
        f"commands/{number}": closes_on(is_command(name))
        for number, name in enumerate(("releaseStream", "FCPublish", "FCSubscribe", "_checkbw", "getStreamLength"), 47)
    },
    "commands/52": closes_on(is_command("someNewCommand")),
    "commands/53": changes(is_command("someNewCommand"), _as("createStream", None)),
    "commands/54": sends(holds(b"Play.Start"), _early_media),
    "commands/56": ignores_from(2, is_command("publish")),
    "commands/57": Variant(lambda: _ClosesOnSecond(is_command("createStream"))),
}


class _ClosesOnSecond(Fault):
    """Closes the connection at the second of the chosen messages."""

    def __init__(self, choice: Any) -> None:
        self._choice, self._seen = choice, 0

    def received_message(self, message: MessageReceived) -> MessageReceived | None:
        self._seen += self._choice(message)
        self.closes_connection = self.closes_connection or self._seen > 1
        return message


def _second_connect() -> Any:
    seen: list[int] = []

    def choice(one: MessageReceived) -> bool:
        if ODD_CONNECT(one):
            seen.append(1)
        return len(seen) > 1

    return choice


# -- enhanced, media, lifecycle, robustness ---------------------------------------------------------------------------


def _after_text(text: bytes, value: float) -> Variant:
    """Sends another number after a text."""

    def make(encoder: RtmpEncoder, one: Message) -> bytes:
        at = one.payload.index(text) + len(text)
        payload = one.payload[:at] + b"\0" + struct.pack(">d", value) + one.payload[at + 9 :]
        return encoder.send(dataclasses.replace(one, payload=payload), fmt=0)

    return sends(holds(text), make)


ENHANCED = {
    **each("enhanced", (1, 5, 6), ignores(is_command("connect", holding=b"fourCcList"))),
    "enhanced/2": _after_text(b"capsEx", 1000.0),
    "enhanced/3": _after_text(b"videoFourCcInfoMap\3\0\1*", 99.0),
    "enhanced/4": _after_text(b"audioFourCcInfoMap\3\0\1*", 99.0),
    **each("enhanced", range(7, 20), DAMAGED_MEDIA),
}


def _loses_one(one: MessageReceived) -> bool:
    return one.type_id == VIDEO and one.timestamp == 4720


def _second_configuration(one: MessageReceived) -> bool:
    return one.type_id == VIDEO and one.timestamp >= 1000 and Frame(VIDEO, 0, one.payload).is_header


class _LosesFirst(Fault):
    """Ignores the first audio message."""

    lost = False

    def received_message(self, message: MessageReceived) -> MessageReceived | None:
        if message.type_id != AUDIO or self.lost:
            return message
        self.lost = True
        return None


MEDIA = {
    **each("media", (*range(1, 33), 44, 45, 51, 52, 56, 57, 58), DAMAGED_MEDIA),
    **each("media", (40, 41), Variant(patches=((LiveStream, "send_headers", lambda self, player: None),))),
    "media/42": Variant(patches=((Player, "_skip", lambda self, frame: False),)),
    "media/43": ignores(_loses_one),
    **each("media", (46, 47, 48), WRONG_TIMESTAMPS),
    "media/49": changes(is_type(VIDEO), lambda payload: payload[:2] + bytes(3) + payload[5:]),
    "media/50": changes(is_type(22), lambda payload: payload[: len(payload) * 2 // 3]),
    "media/53": changes(is_type(18), lambda payload: SET_DATA_FRAME + payload),
    **each("media", (54, 55), changes(is_type(15, 18), lambda payload: payload.replace(b"hello", b"jello"))),
    "media/59": ignores(_second_configuration),
    "media/60": ONLY_ONE,
    "media/61": Variant(_LosesFirst),
}


def _feed_waits_for_all(self: LiveStream, frame: Frame) -> None:
    if not any(len(player.queue) > 3 for player in self.players):
        _FEED(self, frame)


_FEED = LiveStream.feed
NEVER_FREE = Variant(patches=((Hub, "unpublish", lambda self, stream, publisher, now: None),))
LIFECYCLE = {
    **each("lifecycle", (1, 2, 3), omits(no_end)),
    **each("lifecycle", (4, 5, 6, 10), NEVER_FREE),
    **each("lifecycle", (7, 8, 11, 15), DAMAGED_MEDIA),
    "lifecycle/9": Variant(patches=((LiveStream, "feed", _feed_waits_for_all),)),
    **each("lifecycle", (12, 13), GOOD),  # a relay without keys
    "lifecycle/14": Variant(connection=ConnectionOptions(command_s=1000.0, idle_s=1000.0)),
}
ROBUSTNESS = {
    **each("robustness", (*range(1, 13), 14, 17), ONLY_ONE),
    "robustness/13": deaf_after(is_type(AUDIO)),
    "robustness/15": only_first(200),
    "robustness/16": only_first(30),
}
BROKEN = HANDSHAKE | CHUNKS | CONTROL | AMF | COMMANDS | ENHANCED | MEDIA | LIFECYCLE | ROBUSTNESS


@asynccontextmanager
async def greeting_server(timeout_s: float) -> AsyncIterator[Target]:
    """A relay behind a proxy that sends S0 before anything was received; for handshake/1."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\3")
        there, back = await asyncio.open_connection("127.0.0.1", relay.port)
        await asyncio.gather(_copy(reader, back, 0), _copy(there, writer, 1), return_exceptions=True)

    relay = Relay(RelayOptions(port=0))
    await relay.start()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield Target("127.0.0.1", port, "live", f"rtmp://127.0.0.1:{port}/live", timeout_s=timeout_s)
    finally:
        server.close()
        await relay.stop()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, skip: int) -> None:
    if skip:
        await reader.readexactly(skip)
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def broken_result(case: Case, timeout_s: float) -> CaseResult:
    if case.id == "handshake/1":
        async with greeting_server(timeout_s) as target:
            return await run_case(case, target)
    key = KEY if case.id in ("lifecycle/12", "lifecycle/13") else ""
    async with running(BROKEN[case.id], timeout_s, publish_key=key) as target:
        return await run_case(case, target)


async def broken_results(cases: list[Case]) -> list[CaseResult]:
    """Run each case on its own broken relay. Most of the time they wait, so 8 run at once; patches need a run alone."""
    free = asyncio.Semaphore(8)

    async def together(case: Case) -> CaseResult:
        async with free:
            return await broken_result(case, 1.0)

    patched = [case for case in cases if case.id in BROKEN and BROKEN[case.id].patches]
    results = await asyncio.gather(*(together(case) for case in cases if case not in patched))
    results += [await broken_result(case, 1.0) for case in patched]
    # A result is inconclusive if this machine was too slow.
    return [await broken_result(one.case, 8.0) if one.verdict is Verdict.INCONCLUSIVE else one for one in results]


@pytest.mark.slow
@pytest.mark.parametrize("section", [section.name for section in SECTIONS])
def test_each_case_fails_on_a_relay_that_is_broken_for_it(section: str) -> None:
    cases = [case for case in CASES if case.section == section]
    results = asyncio.run(broken_results(cases))
    assert {one.case.id for one in results} == {case.id for case in cases}
    wrong = {
        one.case.id: (one.verdict, one.detail, one.received) for one in results if one.verdict is not Verdict.FAILED
    }
    assert wrong == {}


def test_every_case_has_a_broken_relay() -> None:
    assert set(BROKEN) | {"handshake/1"} == {case.id for case in CASES}


def run_on_relay(cases: list[Case], tls: Path | None = None, **connection: Any) -> dict[str, CaseResult]:
    """Run cases against a healthy relay that needs a key to publish."""
    options = ConnectionOptions(session=SessionOptions(publish_keys=(KEY,)), **connection)

    async def run() -> list[CaseResult]:
        server = client = None
        if tls is not None:
            server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            server.load_cert_chain(tls)
            client = ssl.create_default_context(cafile=tls)
            client.check_hostname = False
        relay = Relay(RelayOptions(port=0, connection=options, tls=server))
        await relay.start()
        url = f"rtmp://127.0.0.1:{relay.port}/live"
        target = Target("127.0.0.1", relay.port, "live", url, client, timeout_s=20.0, publish_key=KEY)
        try:
            return await run_cases(cases, target, 4)
        finally:
            await relay.stop()

    return {result.case.id: result for result in asyncio.run(run())}


def failures(results: dict[str, CaseResult]) -> dict[str, tuple[Verdict, str]]:
    bad = (Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.UNIMPLEMENTED)
    return {name: (one.verdict, one.detail) for name, one in results.items() if one.verdict in bad}


def test_every_case_passes_on_our_relay() -> None:
    results = run_on_relay(choose())
    assert failures(results) == {}
    assert all(one.verdict is not Verdict.NON_STRICT for one in results.values() if one.case.level is Level.MUST)


def test_every_must_passes_on_our_relay_over_tls(tmp_path: Path) -> None:
    musts = [case for case in CASES if case.level is Level.MUST]
    assert failures(run_on_relay(musts, make_certificate(tmp_path))) == {}


@pytest.mark.slow
def test_every_hostile_case_passes_on_our_relay() -> None:
    hostile = [case for case in CASES if case.hostile]
    assert failures(run_on_relay(hostile, command_s=1.0)) == {}


def test_every_case_says_what_it_expects_and_why() -> None:
    for case in CASES:
        assert case.expected.endswith("."), case.id
        assert case.rationale.endswith((".", ")")), case.id
        assert case.clause, case.id
        if case.level is not Level.PRACTICE and case.section != "enhanced":
            assert case.requirement, case.id
    assert len(CASES) >= 120
    assert {section.name for section in SECTIONS} == {case.section for case in CASES}
