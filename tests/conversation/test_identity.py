"""Identifiers of connections."""

from __future__ import annotations

import re

from rtmp_spark.conversation.identity import community_id, make_uid

CLIENT, SERVER = ("10.0.0.1", 40000), ("10.0.0.2", 1935)
MICROSECOND = 1_700_000_000_123_456


def test_a_uid_starts_with_the_start_second() -> None:
    """Base32hex of 1,700,000,000 in 7 digits, worked out by hand: 1,700,000,000 = 0x6553F100."""
    uid = make_uid("", CLIENT, SERVER, MICROSECOND)
    assert re.fullmatch(r"C[0-9A-V]{20}", uid)
    assert int(uid[1:8], 32) == 1_700_000_000


def test_uids_sort_by_start_time() -> None:
    starts = [0, 1_000_000, 59_000_000, 31_000_000_000_000, MICROSECOND, MICROSECOND + 1_000_000, 1 << 55]
    uids = [make_uid("", CLIENT, SERVER, start) for start in starts]
    assert uids == sorted(uids)


def test_times_outside_the_range_are_clamped() -> None:
    assert make_uid("", CLIENT, SERVER, -5)[1:8] == "0000000"
    assert make_uid("", CLIENT, SERVER, 1 << 62)[1:8] == "VVVVVVV"


def test_every_part_of_the_identity_counts() -> None:
    others = [
        make_uid("", CLIENT, SERVER, MICROSECOND),
        make_uid("edge", CLIENT, SERVER, MICROSECOND),
        make_uid("", SERVER, CLIENT, MICROSECOND),
        make_uid("", ("10.0.0.1", 40001), SERVER, MICROSECOND),
        make_uid("", CLIENT, SERVER, MICROSECOND + 1),
    ]
    assert len(set(others)) == len(others)


def test_community_id_of_the_specification() -> None:
    """An example of the Community ID specification (github.com/corelight/community-id-spec, TCP)."""
    ends = ("128.232.110.120", 34855), ("66.35.250.204", 80)
    assert community_id(*ends) == community_id(*reversed(ends)) == "1:LQU9qZlK+B5F3KDmev6m5PMibrg="
