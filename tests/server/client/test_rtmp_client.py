"""The client against servers that cannot read a connect with the properties of enhanced RTMP."""

from __future__ import annotations

import asyncio
import os

import pytest

from rtmp_relay.client.client_options import ClientOptions
from rtmp_relay.client.rtmp_client import Progress, Refused, publish
from rtmp_relay.relay.hub import Hub
from rtmp_relay.relay.server_connection import DEFAULT_CONNECTION, ServerConnection
from rtmp_relay.synthetic_media import Synthetic

OPTIONS = ClientOptions(answer_s=0.2)
TAGS = list(Synthetic(seconds=0.2).tags())


async def publish_to(reaction: str, options: ClientOptions, offending: bytes) -> tuple[Progress, int]:
    """Publish to a server that ignores a connect with `offending` in it, or closes. Returns the connections too."""
    attempts = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        connection = ServerConnection(1, Hub(), DEFAULT_CONNECTION, os.urandom, 0.0)
        while data := await reader.read(65536):
            if offending in data:
                if reaction == "closes":
                    break
                continue
            connection.receive_data(data, 0.0)
            while answer := connection.data_to_send(0.0):
                writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        return await publish(f"rtmp://127.0.0.1:{port}/live/cam", TAGS, speed=None, options=options), attempts
    finally:
        server.close()


@pytest.mark.parametrize("reaction", ["ignores", "closes"])
def test_a_connect_that_is_not_answered_is_repeated_without_enhanced_properties(reaction: str) -> None:
    progress, attempts = asyncio.run(publish_to(reaction, OPTIONS, b"fourCcList"))
    assert progress.tags == len(TAGS)
    assert progress.ended is None
    assert attempts == 2


def test_a_server_that_never_answers_gets_two_attempts() -> None:
    with pytest.raises(Refused, match="no response to connect"):
        asyncio.run(publish_to("ignores", OPTIONS, b"flashVer"))


def test_a_server_that_answers_gets_one_connection() -> None:
    _, attempts = asyncio.run(publish_to("ignores", OPTIONS, b"never sent"))
    assert attempts == 1
