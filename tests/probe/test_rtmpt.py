"""The conformance suite over RTMPT: cases pass as over TCP, or are skipped with a reason."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
from pathlib import Path

import pytest
from kit.broken_relay import GOOD, Variant, in_handshake, running
from kit.decoded_tables import decode
from kit.rtmpt_front import rtmpt_front
from kit.tls_connections import make_certificate

from rtmp_spark.probe.catalogue import CASES
from rtmp_spark.probe.outcome import PASSED, Verdict
from rtmp_spark.probe.runner import CaseResult, run_cases

WANTED = ("handshake/1", "handshake/2", "handshake/11", "handshake/18", "control/1", "media/19", "lifecycle/2")


def run(
    wanted: tuple[str, ...], framing: str = "length", captures: Path | None = None, certificate: Path | None = None,
    variant: Variant = GOOD,
) -> dict[str, CaseResult]:  # fmt: skip
    server = client = None
    if certificate is not None:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(certificate)
        client = ssl.create_default_context(cafile=certificate)
        client.check_hostname = False

    async def run_all() -> list[CaseResult]:
        cases = [case for case in CASES if case.id in wanted]
        async with running(variant, 20.0) as relay, rtmpt_front(relay.port, framing, server) as port:
            target = dataclasses.replace(relay, port=port, rtmpt=True, tls=client)
            return await run_cases(cases, target, 4, captures)

    return {result.case.id: result for result in asyncio.run(run_all())}


def test_cases_pass_over_rtmpt(tmp_path: Path) -> None:
    results = run(WANTED, captures=tmp_path)
    assert len(results) == len(WANTED)
    assert {name: one.detail for name, one in results.items() if one.verdict not in PASSED} == {}
    connections = decode(tmp_path / "lifecycle-02.pcapng")["connections"]
    assert {row["service"] for row in connections} == {"rtmp"} and len(connections) > 1


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_responses_may_be_chunked_or_end_with_the_connection(framing: str) -> None:
    assert run(("commands/19",), framing)["commands/19"].verdict is Verdict.OK


def test_a_case_passes_over_rtmpts(tmp_path: Path) -> None:
    assert run(("commands/19",), certificate=make_certificate(tmp_path))["commands/19"].verdict is Verdict.OK


def test_a_case_fails_over_rtmpt_on_a_broken_relay() -> None:
    early = in_handshake(2, lambda data: data + bytes.fromhex("02 000000 000004 05 00000000 002625a0"))
    assert run(("handshake/3",), variant=early)["handshake/3"].verdict is Verdict.FAILED


def test_cases_that_need_tcp_are_skipped_with_a_reason() -> None:
    results = run(("lifecycle/3", "robustness/14", "robustness/17"))
    assert {name: one.verdict for name, one in results.items()} == {
        "lifecycle/3": Verdict.INCONCLUSIVE,
        "robustness/14": Verdict.UNIMPLEMENTED,
        "robustness/17": Verdict.INCONCLUSIVE,
    }
    assert all("RTMPT" in one.detail or "HTTP" in one.detail for one in results.values())
