"""Handshake packets: rebuilt from those of real programs, and properties."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtmp_spark.codec import handshake
from rtmp_spark.codec.errors import EncodeError, ViolationCode
from rtmp_spark.vectors import BUNDLED
from rtmp_spark.vectors.layers import bytes_of

SIDES = st.sampled_from(["client", "server"])
DIGESTS = st.sampled_from(["digest0", "digest1"])
OTHER_SIDE = {"client": "server", "server": "client"}
RANDOM = bytes(range(256)) * 6


def recorded(name: str) -> tuple[bytes, bytes, bytes]:
    """Packet 1 and packet 2 that a real program sent, and packet 1 of its peer."""
    vector: dict[str, Any] = json.loads((BUNDLED / "valid" / "handshake" / f"{name}.json").read_text())
    sent, peer = bytes_of(vector["input"]), bytes_of(vector["start"]["peer"])
    return sent[1:1537], sent[1537:3073], peer[1:1537]


@pytest.mark.parametrize(
    ("name", "side", "scheme"),
    [
        ("ffmpeg_publish_nginx_client", "client", "digest1"),
        ("ffmpeg_publish_nginx_server", "server", "digest1"),
        ("ffmpeg_publish_nms_server", "server", "digest1"),
        ("digest0_client", "client", "digest0"),
        ("digest0_server", "server", "digest0"),
    ],
)
def test_packet1_of_real_programs_is_rebuilt(name: str, side: str, scheme: str) -> None:
    packet = recorded(name)[0]
    parsed = handshake.parse_packet1(packet, side)
    assert parsed.scheme == scheme and parsed.digest is not None
    blanked = packet.replace(parsed.digest, bytes(32))
    assert blanked != packet
    assert handshake.dump_packet1(side, parsed.time, parsed.version, blanked[8:], scheme) == packet


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("ffmpeg_publish_nginx_server", "server"),
        ("ffmpeg_play_nginx_client", "client"),
        ("ffmpeg_play_nginx_server", "server"),
        ("ffmpeg_publish_nms_server", "server"),
    ],
)
def test_signatures_of_real_programs_are_rebuilt(name: str, side: str) -> None:
    _, packet2, peer_packet1 = recorded(name)
    assert handshake.dump_packet2(side, peer_packet1, "digest1", 0, packet2[:1504]) == packet2


@given(SIDES, st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFFFFFFFF), st.binary(min_size=1528, max_size=1528), DIGESTS)
def test_a_digest_is_found_where_it_was_put(side: str, time: int, version: int, random: bytes, scheme: str) -> None:
    packet = handshake.dump_packet1(side, time, version, random, scheme)
    parsed = handshake.parse_packet1(packet, side)
    assert (len(packet), parsed.time, parsed.version, parsed.scheme) == (1536, time, version, scheme)
    assert handshake.parse_packet1(packet, OTHER_SIDE[side]).scheme == "plain"  # the keys differ


@given(SIDES, DIGESTS, st.integers(0, 1535), st.integers(0, 7))
def test_any_wrong_bit_invalidates_a_signature(side: str, scheme: str, byte: int, bit: int) -> None:
    peer = handshake.dump_packet1(OTHER_SIDE[side], 5, 7, RANDOM[:1528], scheme)
    packet = bytearray(handshake.dump_packet2(side, peer, scheme, 0, RANDOM[8:]))
    assert handshake.packet2_kind(bytes(packet), side, peer) == "signature"
    packet[byte] ^= 1 << bit
    assert handshake.packet2_kind(bytes(packet), side, peer) == "other"


@given(SIDES, st.binary(min_size=1536, max_size=1536), st.integers(0, 0xFFFFFFFF))
def test_a_plain_answer_is_an_echo(side: str, peer: bytes, time2: int) -> None:
    packet = handshake.dump_packet2(side, peer, "plain", time2, b"")
    assert packet[:4] == peer[:4] and packet[4:8] == time2.to_bytes(4, "big") and packet[8:] == peer[8:]
    assert handshake.packet2_kind(bytes(8) + packet[8:], side, peer) == "echo"


@given(st.binary(max_size=1600), SIDES, st.none() | st.binary(max_size=1600), st.none() | st.integers(0, 255))
def test_arbitrary_packets_raise_nothing(packet: bytes, side: str, peer: bytes | None, version: int | None) -> None:
    handshake.parse_packet1(packet, side)
    verdict = handshake.examine(side, version, packet, packet, peer)
    assert verdict.version == version


def test_a_wrong_answer_is_a_digest_violation_only_if_both_sides_have_a_digest() -> None:
    digested = {side: handshake.dump_packet1(side, 0, 1, RANDOM[:1528], "digest1") for side in ("client", "server")}
    plain = handshake.dump_packet1("server", 0, 1, RANDOM[:1528], "plain")
    wrong = bytes(1536)

    def codes(packet1: bytes, peer: bytes) -> list[ViolationCode]:
        return [code for code, _ in handshake.examine("client", 3, packet1, wrong, peer).violations]

    assert codes(digested["client"], digested["server"]) == [ViolationCode.HS_DIGEST]
    assert codes(digested["client"], plain) == [ViolationCode.HS_ECHO]


@pytest.mark.parametrize(
    "call",
    [
        lambda: handshake.dump_packet1("client", 0, 0, bytes(10), "plain"),
        lambda: handshake.dump_packet1("client", 0, 0, bytes(1528), "digest2"),
        lambda: handshake.dump_packet2("client", bytes(10), "plain", 0, b""),
        lambda: handshake.dump_packet2("client", bytes(1536), "digest0", 0, bytes(1504)),
        lambda: handshake.dump_packet2("client", bytes(1536), "other", 0, bytes(1504)),
    ],
)
def test_invalid_packets_are_not_built(call: Any) -> None:
    with pytest.raises(EncodeError):
        call()
