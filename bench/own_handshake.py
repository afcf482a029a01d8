"""Gives each connection of a benchmark a handshake of its own: equal ones are parsed and recognised only once."""

from __future__ import annotations

import random
from dataclasses import replace

from real_publication import HANDSHAKE, Session

from rtmp_spark.codec.handshake import (
    CLIENT,
    PACKET_SIZE,
    RANDOM_SIZE,
    SERVER,
    dump_packet1,
    dump_packet2,
    parse_packet1,
)


def with_own_handshake(session: Session, rng: random.Random) -> Session:
    """The session with other random bytes in its handshake, as each connection of a real client has."""
    (c1_at, c0_c1), (c2_at, _) = session.client_handshake
    written = b"".join(data for _, data in session.server)
    s1, c1 = parse_packet1(written[1:1537], SERVER), parse_packet1(c0_c1[1:], CLIENT)
    own_c1 = dump_packet1(CLIENT, c1.time, c1.version, rng.randbytes(RANDOM_SIZE), c1.scheme)
    own_s1 = dump_packet1(SERVER, s1.time, s1.version, rng.randbytes(RANDOM_SIZE), s1.scheme)
    own_s2 = dump_packet2(SERVER, own_c1, s1.scheme, s1.time, rng.randbytes(PACKET_SIZE))
    own_c2 = dump_packet2(CLIENT, own_s1, c1.scheme, c1.time, rng.randbytes(PACKET_SIZE))
    written = written[:1] + own_s1 + own_s2 + written[HANDSHAKE:]
    server, at = [], 0
    for time, data in session.server:
        server.append((time, written[at : at + len(data)]))
        at += len(data)
    return replace(session, client_handshake=[(c1_at, c0_c1[:1] + own_c1), (c2_at, own_c2)], server=server)
