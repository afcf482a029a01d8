"""The handshake: one version byte and two packets of 1536 bytes from each side.

Packets are built and examined here as whole values; the decoder extracts them from a stream. The plain handshake
(RTMP 1.0 5.2) echoes the peer's bytes. The digest handshake of the Flash Player, which the specification does not
describe, puts an HMAC into packet 1 at a place given by packet 1 itself (two schemes) and signs the peer's HMAC at the
end of packet 2. A digest is recognised only by verifying it: the version field does not indicate it. No handshake is
rejected here, and RTMPE is recognised but not decrypted.
"""

from __future__ import annotations

import hmac
from functools import lru_cache
from typing import NamedTuple

from .errors import EncodeError, ViolationCode
from .limits import CACHED_PACKETS

PACKET_SIZE = 1536
DIGEST_SIZE = 32
RANDOM_SIZE = PACKET_SIZE - 8

PLAIN_VERSION = 3
RTMPE_VERSIONS = frozenset({6, 8, 9})  # 8 and 9 encrypt the signatures as well
FIRST_TEXT_VERSION = 32  # from here on the first byte is text of another protocol (RTMP 1.0 5.2.2)

PLAIN, DIGEST0, DIGEST1, RTMPE = "plain", "digest0", "digest1", "rtmpe"
ECHO, SIGNATURE, OTHER = "echo", "signature", "other"
CLIENT, SERVER = "client", "server"

_KEY_TEXTS = {CLIENT: b"Genuine Adobe Flash Player 001", SERVER: b"Genuine Adobe Flash Media Server 001"}
_KEY_TAIL = bytes.fromhex("f0eec24a8068bee82e00d0d1029e7e576eec5d2d29806fab93b8e636cfeb31ae")
_KEYED = {side: hmac.new(text, digestmod="sha256") for side, text in _KEY_TEXTS.items()}  # copying one is cheap
_PEER = {CLIENT: SERVER, SERVER: CLIENT}
_SIGNED_SIZE = PACKET_SIZE - DIGEST_SIZE
# Position of the four bytes whose sum, modulo 728, is the distance from them to the digest.
_POINTERS = {DIGEST0: 772, DIGEST1: 8}


class Packet1(NamedTuple):
    """C1 or S1. `digest` is None unless one verified."""

    time: int
    version: int  # bytes 4-7: the version of the player or server, zero, or anything else
    scheme: str  # PLAIN, DIGEST0, DIGEST1
    digest: bytes | None


class HandshakeVerdict(NamedTuple):
    """One side's handshake compared with the other's; None: it did not arrive or cannot be known."""

    version: int | None  # C0 or S0
    scheme: str | None  # PLAIN, DIGEST0, DIGEST1, RTMPE
    kind: str | None  # of C2 or S2: ECHO, SIGNATURE, OTHER
    time: int | None
    packet_version: int | None
    violations: tuple[tuple[ViolationCode, str], ...]


def _hmac_sha256(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _digest_offset(packet1: bytes, scheme: str) -> int:
    pointer = _POINTERS[scheme]
    return sum(packet1[pointer : pointer + 4]) % 728 + pointer + 4


def _digest_of(packet1: bytes, offset: int, side: str) -> bytes:
    keyed = _KEYED[side].copy()
    keyed.update(packet1[:offset] + packet1[offset + DIGEST_SIZE :])
    return keyed.digest()


def _signature_of(signed: bytes, peer_digest: bytes, side: str) -> bytes:
    return _hmac_sha256(_hmac_sha256(_KEY_TEXTS[side] + _KEY_TAIL, peer_digest), signed)


def dump_packet1(side: str, time: int, version: int, random: bytes, scheme: str) -> bytes:
    """C1 or S1. In a digest scheme the digest replaces 32 of the random bytes."""
    if len(random) != RANDOM_SIZE:
        raise EncodeError(f"packet 1 needs {RANDOM_SIZE} random bytes, got {len(random)}")
    packet = (time & 0xFFFFFFFF).to_bytes(4, "big") + (version & 0xFFFFFFFF).to_bytes(4, "big") + random
    if scheme == PLAIN:
        return packet
    if scheme not in _POINTERS:
        raise EncodeError(f"unknown handshake scheme {scheme!r}")
    offset = _digest_offset(packet, scheme)
    return packet[:offset] + _digest_of(packet, offset, side) + packet[offset + DIGEST_SIZE :]


def dump_packet2(side: str, peer_packet1: bytes, scheme: str, time2: int, random: bytes) -> bytes:
    """C2 or S2: an echo of the peer's packet (RTMP 1.0 5.2.4), or random bytes signed with the peer's digest."""
    if len(peer_packet1) != PACKET_SIZE:
        raise EncodeError(f"the peer's packet 1 must have {PACKET_SIZE} bytes, got {len(peer_packet1)}")
    if scheme == PLAIN:
        return peer_packet1[:4] + (time2 & 0xFFFFFFFF).to_bytes(4, "big") + peer_packet1[8:]
    if scheme not in _POINTERS:
        raise EncodeError(f"unknown handshake scheme {scheme!r}")
    peer_digest = parse_packet1(peer_packet1, _PEER[side]).digest
    if peer_digest is None:
        raise EncodeError("the peer's packet 1 has no digest to sign; answer it with an echo")
    if len(random) < _SIGNED_SIZE:
        raise EncodeError(f"a signature needs {_SIGNED_SIZE} random bytes, got {len(random)}")
    signed = random[:_SIGNED_SIZE]
    return signed + _signature_of(signed, peer_digest, side)


@lru_cache(CACHED_PACKETS)
def parse_packet1(data: bytes, side: str) -> Packet1:
    """Read the 1536 bytes of C1 (`side` client) or S1 (server), trying both digest schemes."""
    time, version = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")
    if len(data) == PACKET_SIZE:
        for scheme in _POINTERS:
            offset = _digest_offset(data, scheme)
            digest = data[offset : offset + DIGEST_SIZE]
            if hmac.compare_digest(digest, _digest_of(data, offset, side)):
                return Packet1(time, version, scheme, digest)
    return Packet1(time, version, PLAIN, None)


def packet2_kind(data: bytes, side: str, peer_packet1: bytes) -> str:
    """How C2 (`side` client) or S2 (server) answers the peer's packet 1: ECHO, SIGNATURE or OTHER.

    The timestamps at the start are not compared: gortmplib sends zeros there, others swap or copy them.
    """
    if len(data) != PACKET_SIZE:
        return OTHER
    if data[8:] == peer_packet1[8:]:
        return ECHO
    peer_digest = parse_packet1(peer_packet1, _PEER[side]).digest
    if peer_digest is not None:
        if hmac.compare_digest(data[_SIGNED_SIZE:], _signature_of(data[:_SIGNED_SIZE], peer_digest, side)):
            return SIGNATURE
    return OTHER


def examine(
    side: str, version: int | None, packet1: bytes | None, packet2: bytes | None, peer_packet1: bytes | None
) -> HandshakeVerdict:
    """Check what one side sent; `peer_packet1` is None if the other direction was not captured.

    Missing packets are reported as if the side had ended there. A caller must ignore HS_INCOMPLETE while the connection
    continues, and HS_VERSION if nothing else in the connection is RTMP.
    """
    violations: list[tuple[ViolationCode, str]] = []
    first, second = ("C", "S") if side == CLIENT else ("S", "C")
    encrypted = version in RTMPE_VERSIONS
    if encrypted:
        violations.append((ViolationCode.HS_ENCRYPTED, f"{first}0 is {version}: RTMPE"))
    elif version is not None and version != PLAIN_VERSION:
        violations.append((ViolationCode.HS_VERSION, f"{first}0 is {version} instead of 3"))
    if packet1 is None or len(packet1) < PACKET_SIZE:
        violations.append((ViolationCode.HS_INCOMPLETE, f"the stream ended before the last byte of {first}1"))
        return HandshakeVerdict(version, None, None, None, None, tuple(violations))
    own = parse_packet1(packet1, side)
    kind: str | None = None
    if packet2 is None or len(packet2) < PACKET_SIZE:
        if not encrypted:  # packet 2 of RTMPE is encrypted
            violations.append((ViolationCode.HS_INCOMPLETE, f"the stream ended before the last byte of {first}2"))
    elif peer_packet1 is not None:
        kind = packet2_kind(packet2, side, peer_packet1)
        if kind == OTHER and not encrypted:
            if own.digest is not None and parse_packet1(peer_packet1, _PEER[side]).digest is not None:
                detail = f"C1 and S1 have digests, but {first}2 neither signs nor echoes {second}1"
                violations.append((ViolationCode.HS_DIGEST, detail))
            else:
                violations.append((ViolationCode.HS_ECHO, f"{first}2 does not echo the random bytes of {second}1"))
    scheme = RTMPE if encrypted else own.scheme
    return HandshakeVerdict(version, scheme, kind, own.time, own.version, tuple(violations))
