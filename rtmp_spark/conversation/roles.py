"""Which side is the client if no SYN was captured: decided by what the sides send, otherwise by their ports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rtmp_spark.capture.service import RTMP_PORTS
from rtmp_spark.codec.limits import ROLE_MESSAGES
from rtmp_spark.conversation.facts import CommandFact, ControlFact, HandshakeFact, Notable

FROM_CLIENT = frozenset(  # not @setDataFrame: Node-Media-Server forwards it to players
    "connect createStream releaseStream FCPublish FCUnpublish FCSubscribe publish play play2 pause seek deleteStream "
    "closeStream receiveAudio receiveVideo getStreamLength _checkbw set_buffer_length "
    "ping_response swf_verify_response".split(" ")
)
FROM_SERVER = frozenset(
    "_result _error onStatus onBWDone onFCPublish onFCUnpublish onFCSubscribe |RtmpSampleAccess stream_begin "
    "stream_eof stream_dry stream_is_recorded ping_request swf_verify_request buffer_empty buffer_ready".split(" ")
)


def client_by_messages(facts: Sequence[Iterable[Notable]]) -> int | None:
    """The number of the client's direction, by the first command or event of either side that only one role sends."""
    found: list[tuple[int, int]] = []  # at, number of the client's direction
    first_bytes: list[tuple[int, int]] = []
    for number, notable in enumerate(facts):
        for fact in notable:
            if isinstance(fact, CommandFact):
                name = fact.name
            elif isinstance(fact, ControlFact):
                name = fact.kind
            else:
                if isinstance(fact, HandshakeFact) and fact.part == 0:
                    first_bytes.append((fact.at, number))
                continue
            if fact.msg_no < ROLE_MESSAGES and (name in FROM_CLIENT or name in FROM_SERVER):
                found.append((fact.at, number if name in FROM_CLIENT else 1 - number))
                break
    if found:
        return min(found)[1]
    if len(first_bytes) == 2:
        return min(first_bytes)[1]  # the client sends C0 first
    return None


def client_by_ports(a: int, b: int) -> int:
    """0 if the side with port `a` is the client: the other side has a port of RTMP, or the lower port."""
    servers = [number for number, port in enumerate((a, b)) if port in RTMP_PORTS]
    if len(servers) == 1:
        return 1 - servers[0]
    return 0 if a >= b else 1
