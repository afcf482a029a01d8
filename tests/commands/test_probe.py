"""`rtmp-spark probe`: outputs, choice of cases and exit codes, against a relay and a broken one in this process."""

from __future__ import annotations

import asyncio
import json
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.broken_relay import GOOD, Variant, in_handshake, omits, running
from kit.decoded_tables import decode

from rtmp_spark.cli import main
from rtmp_spark.probe.catalogue import CASES


@pytest.fixture
def serve() -> Iterator[object]:
    """A function that starts the relay of a variant in a thread and returns its URL."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    threads: list[threading.Thread] = []

    def start(variant: Variant = GOOD) -> str:
        ready = threading.Event()
        url = ""

        async def run() -> None:
            nonlocal url
            async with running(variant) as target:
                url = target.tc_url
                ready.set()
                await stop.wait()

        thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
        threads.append(thread)
        thread.start()
        assert ready.wait(10)
        return url

    yield start
    loop.call_soon_threadsafe(stop.set)
    for thread in threads:
        thread.join()
    loop.close()


def test_the_summary_ends_with_the_counts(serve, capsys) -> None:  # type: ignore[no-untyped-def]
    assert main(["probe", serve(), "--only", "handshake/4", "--only", "commands/35", "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["handshake", "1", "ok"]
    assert lines[-1] == "2 passed, 0 failed, 0 skipped"


def test_a_failed_must_gives_exit_code_1_and_a_junit_failure(serve, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    url = serve(in_handshake(0, lambda _: b"\4"))
    junit, html, packets = tmp_path / "probe.xml", tmp_path / "probe.html", tmp_path / "packets"
    only = ["--only", "handshake/4", "--only", "handshake/6"]
    command = ["probe", url, *only, "--junit", str(junit), "--html", str(html), "--captures", str(packets)]
    assert main(command) == 1
    out = capsys.readouterr().out
    assert "S0 is 4" in out
    assert out.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"
    suite = ElementTree.parse(junit).getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "0")
    assert [case.find("failure") is not None for case in suite] == [True, False]
    assert "S0 is 4" in html.read_text("utf-8")
    rows = decode(packets / "handshake-04.pcapng")
    assert len(rows["connections"]) == 1


def test_a_failed_should_counts_only_with_strict(serve, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    url = serve(omits(lambda message: message.type_id == 5 and message.payload == (1_234_567).to_bytes(4, "big")))
    command = ["probe", url, "--only", "control/5", "--junit", str(tmp_path / "x.xml")]
    assert main(command) == 0
    suite = ElementTree.parse(tmp_path / "x.xml").getroot()[0]
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "1")
    assert main([*command, "--strict"]) == 1
    assert ElementTree.parse(tmp_path / "x.xml").getroot()[0].get("failures") == "1"
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_json_has_what_was_sent_and_received(serve, capsys) -> None:  # type: ignore[no-untyped-def]
    assert main(["probe", serve(), "--only", "commands/19", "--json"]) == 0
    captured = capsys.readouterr()
    row = json.loads(captured.out)
    assert (row["id"], row["level"], row["verdict"]) == ("commands/19", "MUST", "ok")
    assert any(line.startswith("publish(") for line in row["sent"])
    assert any("NetStream.Publish.Start" in line for line in row["received"])
    assert captured.err.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"


def test_a_key_is_not_shown(serve, capsys) -> None:  # type: ignore[no-untyped-def]
    main(["probe", serve(), "--only", "commands/19", "--json", "--publish-key", "s3cret"])
    assert "s3cret" not in capsys.readouterr().out


@pytest.mark.parametrize("path", ["/name", ""])
def test_the_query_of_the_url_is_not_shown(serve, path: str, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    html = tmp_path / "x.html"
    assert (
        main(["probe", f"{serve()}{path}?token=t0psecret", "--only", "commands/19", "--json", "--html", str(html)]) == 0
    )
    assert "t0psecret" not in capsys.readouterr().out + html.read_text("utf-8")


def test_list_only_and_skip(capsys) -> None:  # type: ignore[no-untyped-def]
    assert main(["probe", "--list"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{len(CASES)} cases"
    assert main(["probe", "--list", "--only", "handshake", "--skip", "handshake/1", "--json"]) == 0
    ids = [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()]
    assert ids == [case.id for case in CASES if case.section == "handshake" and case.number != 1]


@pytest.mark.parametrize(
    "arguments",
    [[], ["rtmp://127.0.0.1/live", "--only", "nothing/1"], ["http://127.0.0.1/"], ["rtmp://h/live", "--listen", ":0"],
     ["rtmp://127.0.0.1/live", "--jobs", "0"], ["--listen", ":0", "--scenario", "99"],
     ["rtmp://127.0.0.1/live", "--only", "robustness"], ["rtmp://127.0.0.1/live", "--timeout", "nan"],
     ["rtmp://127.0.0.1/live", "--scenario", "1"], ["--listen", ":0", "--only", "handshake"], ["rtmp://127.0.0.1"],
     ["rtmp://127.0.0.1:1/live", "--junit", "/no/such/directory/x.xml"]],
)  # fmt: skip
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    assert main(["probe", *arguments]) == 2


def test_a_server_without_rtmpt_is_exit_code_3(serve, capsys) -> None:  # type: ignore[no-untyped-def]
    assert main(["probe", serve().replace("rtmp:", "rtmpt:")]) == 3
    assert "does not speak RTMPT (it " in capsys.readouterr().err


def test_a_server_that_cannot_be_reached_is_exit_code_3(capsys) -> None:  # type: ignore[no-untyped-def]
    assert main(["probe", "rtmp://127.0.0.1:1/live"]) == 3
    assert "cannot be reached" in capsys.readouterr().err


def test_a_server_that_does_not_answer_is_exit_code_3(capsys) -> None:  # type: ignore[no-untyped-def]
    """It accepts connections and reads, so that every case would be inconclusive."""

    async def run() -> int:
        async def accept(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            await reader.read()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        url = f"rtmp://127.0.0.1:{server.sockets[0].getsockname()[1]}/live"
        return await asyncio.to_thread(main, ["probe", url, "--timeout", "0.2"])

    assert asyncio.run(run()) == 3
    assert "does not answer a handshake" in capsys.readouterr().err


def test_a_server_that_dies_during_the_run_is_exit_code_3(capsys) -> None:  # type: ignore[no-untyped-def]
    """The listening socket is closed after the first connection."""

    async def run() -> int:
        async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            server.close()
            writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        url = f"rtmp://127.0.0.1:{server.sockets[0].getsockname()[1]}/live"
        command = ["probe", url, "--only", "commands/19", "--only", "commands/30", "--timeout", "0.5", "--jobs", "1"]
        return await asyncio.to_thread(main, command)

    assert asyncio.run(run()) == 3
    captured = capsys.readouterr()
    assert "stopped during the run" in captured.err
    assert captured.out.splitlines()[-1] == "0 passed, 0 failed, 2 skipped"
