"""Builds captures of publishers, players and their server step by step; a test can omit or change each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kit.capture_rewriting import Packet, Talk, build, pcap
from kit.decoded_tables import RtmpTalk
from kit.handmade_facts import recorded

from rtmp_relay.frames import Tag
from rtmp_relay.synthetic_media import Synthetic
from rtmp_spark.codec.message import dump_set_chunk_size, dump_window_ack_size

CLIENT, SERVER = 0, 1
CHUNK_SIZE = 4096


def status(code: str, level: str = "status") -> dict[str, str]:
    return {"level": level, "code": code, "description": "a description"}


def connected(talk: Talk | None = None) -> RtmpTalk:
    said = RtmpTalk(talk).handshake().send(CLIENT, 1, dump_set_chunk_size(CHUNK_SIZE))
    said.command(CLIENT, "connect", 1, {"app": "live", "tcUrl": "rtmp://10.0.0.2/live"})
    said.send(SERVER, 5, dump_window_ack_size(2_500_000)).send(SERVER, 1, dump_set_chunk_size(CHUNK_SIZE))
    return said.command(SERVER, "_result", 1, None, status("NetConnection.Connect.Success"))


def created(said: RtmpTalk | None = None, *, tid: float = 2, stream_id: int = 1) -> RtmpTalk:
    said = said or connected()
    return said.command(CLIENT, "createStream", tid, None).command(SERVER, "_result", tid, None, float(stream_id))


def published(said: RtmpTalk | None = None, name: str = "cam", *, stream_id: int = 1) -> RtmpTalk:
    said = said or created()
    said.command(CLIENT, "publish", 0, None, name, "live", stream_id=stream_id)
    return said.command(SERVER, "onStatus", 0, None, status("NetStream.Publish.Start"), stream_id=stream_id)


def played(said: RtmpTalk | None = None, name: str = "cam", *, stream_id: int = 1) -> RtmpTalk:
    said = said or created()
    said.command(CLIENT, "play", 0, None, name, stream_id=stream_id)
    for code in ("NetStream.Play.Reset", "NetStream.Play.Start"):
        said.command(SERVER, "onStatus", 0, None, status(code), stream_id=stream_id)
    return said


def media(
    said: RtmpTalk,
    side: int = CLIENT,
    *,
    stream_id: int = 1,
    later: int = 0,
    spoil: Callable[[Tag], Tag | None] = lambda tag: tag,
    **options: Any,
) -> RtmpTalk:
    """Send synthetic audio and video in real time, three seconds by default; `later` ms are added to timestamps.

    `spoil` returns the tag to send in place of each tag, or None to omit it.
    """
    begun = said.talk.now_ns
    for tag in Synthetic(**{"seconds": 3.0, **options}).tags():
        spoilt = spoil(tag)
        if spoilt is not None:
            said.talk.now_ns = max(said.talk.now_ns, begun + tag.timestamp * 1_000_000)
            timestamp = spoilt.timestamp + later
            said.send(side, spoilt.type_id, spoilt.payload, stream_id=stream_id, timestamp=timestamp)
    return said


def is_config(tag: Tag) -> bool:
    return tag.type_id in (8, 9) and tag.payload[1] == 0


def goodbye(said: RtmpTalk, stream_id: int = 1) -> RtmpTalk:
    return said.command(CLIENT, "deleteStream", 0, None, float(stream_id)).bye(CLIENT)


def findings(path: Path, *packets: Sequence[Packet]) -> list[dict[str, Any]]:
    """Return the findings of a capture of these packets (one list per connection), without SESSION_END."""
    together = sorted((packet for one in packets for packet in one), key=lambda packet: packet.ts_ns)
    path.write_bytes(pcap(build(together)))
    return [row for row in recorded(path, "findings")["findings"] if row["rule_id"] != "SESSION_END"]


def found_rules(path: Path, *said: RtmpTalk) -> list[tuple[str, str, str | None]]:
    """Return the findings of a capture as (rule, severity, party at fault)."""
    rows = findings(path, *(one.talk.packets for one in said))
    return [(row["rule_id"], row["severity"], row["at_fault"]) for row in rows]
