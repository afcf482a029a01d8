"""Every scenario passes with our client, and fails with a client that is broken for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from rtmp_relay.client import rtmp_client as client
from rtmp_relay.client.client_options import ClientOptions
from rtmp_relay.faults.fault import NO_FAULT, Fault
from rtmp_relay.faults.replacement_bytes import header
from rtmp_relay.synthetic_media import Synthetic
from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.errors import UserError
from rtmp_spark.codec.message import COMMANDS, Message
from rtmp_spark.probe.case import Case
from rtmp_spark.probe.listener import listen
from rtmp_spark.probe.outcome import PASSED, Verdict
from rtmp_spark.probe.runner import CaseResult
from rtmp_spark.probe.scenarios import choose_scenarios

OPTIONS = ClientOptions(answer_s=3.0)
PLAYERS_ONLY = {"client/20"}
PUBLISHERS_ONLY = {"client/10"}


async def played(case: Case, role: str, broken: Fault | bytes = NO_FAULT) -> CaseResult:
    """Play a scenario for our client, or for a client that only sends some bytes."""
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    listening = asyncio.ensure_future(listen([case], "127.0.0.1", 0, 4.0, None, lambda port, _: ready.set_result(port)))
    port = await ready
    url = f"rtmp://127.0.0.1:{port}/live/cam"
    try:
        if isinstance(broken, bytes):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(broken)
        elif role == "publish":
            await client.publish(url, Synthetic(seconds=2.0).tags(), options=OPTIONS, fault=broken)
        else:
            await client.play(url, lambda tag: None, duration_s=4.0, options=OPTIONS, fault=broken)
    except UserError:
        pass
    (result,) = await asyncio.wait_for(listening, 20)
    return result


async def all_played(*played: Awaitable[CaseResult]) -> list[CaseResult]:
    """Play at the same time, because scenarios mostly wait."""
    return await asyncio.gather(*played)


SCENARIOS = choose_scenarios()


@pytest.mark.slow
@pytest.mark.parametrize("role", ["publish", "play"])
def test_our_client_passes_every_scenario(role: str) -> None:
    results = asyncio.run(all_played(*(played(case, role) for case in SCENARIOS)))
    skipped = PLAYERS_ONLY if role == "publish" else PUBLISHERS_ONLY
    wrong = {
        one.case.id: (one.verdict, one.detail)
        for one in results
        if one.verdict not in ((Verdict.UNIMPLEMENTED,) if one.case.id in skipped else PASSED)
    }
    assert wrong == {}


class Sends(Fault):
    """Changes what the client sends: `make(encoder, message)` returns bytes, or None for the usual ones."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def encode(self, encoder: RtmpEncoder, message: Message) -> bytes:
        made = self._make(encoder, message)
        return encoder.send(message, fmt=0) if made is None else made


class Silent(Fault):
    """Ignores everything that the server sends after the handshake."""

    def received_message(self, message: Any) -> None:
        return None


class IgnoresErrors(Fault):
    """Takes every answer for a success."""

    def received_message(self, message: Any) -> Any:
        payload = message.payload
        for bad, good in (
            (b"\x02\x00\x06_error", b"\x02\x00\x07_result"),
            (b"NetStream.Publish.BadName", b"NetStream.Publish.Start  "),
            (b"\x05error", b"\x06status"),
        ):
            payload = payload.replace(bad, good)
        payload = payload.replace(b"\x00\x19NetStream.Publish.Start  ", b"\x00\x17NetStream.Publish.Start")
        return message._replace(payload=payload)


class Eager(Fault):
    """Sends C2 without waiting for S1."""

    def handshake_part(self, part: int, data: bytes) -> bytes:
        return data + bytes(1536) if part == 1 else data


def without(choice: Any) -> Fault:
    return Sends(lambda _encoder, message: b"" if choice(message) else None)


def _fixed_stream(encoder: RtmpEncoder, message: Message) -> bytes | None:
    if message.stream_id == 5:
        return encoder.send(Message(message.csid, message.timestamp, message.type_id, 1, message.payload), fmt=0)
    return None


def _early_media(encoder: RtmpEncoder, message: Message) -> bytes | None:
    if message.type_id in COMMANDS and b"publish" in message.payload:
        return encoder.send(message, fmt=0) + encoder.send(Message(4, 0, 8, 1, b"\xaf\1\1\2"), fmt=0)
    return None


def _on_csid_3(encoder: RtmpEncoder, message: Message) -> bytes | None:
    return header(message, csid=3) + message.payload if message.type_id == 1 else None


HANDSHAKE = b"\3" + bytes(1536)
BROKEN: dict[str, Fault | bytes] = {
    **{f"client/{number}": Silent() for number in (1, 5, 6, 7, 8, 10, 18, 19)},
    "client/2": Eager(),
    "client/3": HANDSHAKE + bytes(1536) + bytes(100),
    "client/4": Sends(_on_csid_3),
    "client/9": without(lambda message: message.type_id == 3),
    "client/11": without(lambda message: message.type_id == 5),
    "client/12": without(lambda message: message.type_id == 4),
    "client/13": Sends(_fixed_stream),
    "client/14": Sends(_early_media),
    "client/15": IgnoresErrors(),
    "client/16": IgnoresErrors(),
    "client/17": IgnoresErrors(),
    "client/20": without(lambda message: message.type_id == 4),
}


@pytest.mark.slow
def test_every_scenario_fails_with_a_broken_client() -> None:
    results = asyncio.run(
        all_played(
            *(played(case, "play" if case.id in PLAYERS_ONLY else "publish", BROKEN[case.id]) for case in SCENARIOS)
        )
    )
    wrong = {
        one.case.id: (one.verdict, one.detail, one.received) for one in results if one.verdict is not Verdict.FAILED
    }
    assert wrong == {}


def test_every_scenario_has_a_broken_client() -> None:
    assert set(BROKEN) == {case.id for case in SCENARIOS}
