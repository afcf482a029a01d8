"""Who is client and who is server when no SYN was recorded: by what they say, else by their ports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rtmp_spark.capture.facts import CommandFact, ControlFact, HandshakeFact, Notable
from rtmp_spark.capture.service import RTMP_PORTS

WORDS_WITHIN = 64  # messages of a direction that are listened to before the ports decide
_CLIENT_SAYS = frozenset(  # not @setDataFrame: Node-Media-Server passes it on to players
    "connect createStream releaseStream FCPublish FCUnpublish FCSubscribe publish play play2 pause seek deleteStream "
    "closeStream receiveAudio receiveVideo getStreamLength _checkbw set_buffer_length "
    "ping_response swf_verify_response".split(" ")
)
_SERVER_SAYS = frozenset(
    "_result _error onStatus onBWDone onFCPublish onFCUnpublish onFCSubscribe |RtmpSampleAccess stream_begin "
    "stream_eof stream_dry stream_is_recorded ping_request swf_verify_request buffer_empty buffer_ready".split(" ")
)


def client_by_words(facts: Sequence[Iterable[Notable]]) -> int | None:
    """The number of the direction that the client sends, told by the first telling word of either side."""
    told: list[tuple[int, int]] = []  # at, number of the client's direction
    first_bytes: list[tuple[int, int]] = []
    for number, notable in enumerate(facts):
        for fact in notable:
            if isinstance(fact, CommandFact):
                word = fact.name
            elif isinstance(fact, ControlFact):
                word = fact.kind
            else:
                if isinstance(fact, HandshakeFact) and fact.part == 0:
                    first_bytes.append((fact.at, number))
                continue
            if fact.msg_no < WORDS_WITHIN and (word in _CLIENT_SAYS or word in _SERVER_SAYS):
                told.append((fact.at, number if word in _CLIENT_SAYS else 1 - number))
                break
    if told:
        return min(told)[1]
    if len(first_bytes) == 2:
        return min(first_bytes)[1]  # the client speaks first
    return None


def client_by_ports(a: int, b: int) -> int:
    """0 when the side with port `a` is the client: the other one has a port of RTMP, or the lower one."""
    servers = [number for number, port in enumerate((a, b)) if port in RTMP_PORTS]
    if len(servers) == 1:
        return 1 - servers[0]
    return 0 if a >= b else 1
