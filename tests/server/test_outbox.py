"""What waits for one peer, within bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rtmp_relay.outbox import Outbox


def test_messages_leave_whole_and_in_order() -> None:
    outbox = Outbox()
    for piece in (b"aa", b"bbb", b"c"):
        outbox.put(piece)
    assert outbox.take(1) == b"aa"
    assert outbox.take(100) == b"bbbc"
    assert outbox.take(100) == b""


def test_media_that_does_not_fit_takes_all_waiting_media_with_it() -> None:
    outbox = Outbox(max_messages=3)
    outbox.put(b"header")
    assert outbox.put_media(b"key")
    assert outbox.put_media(b"inter")
    assert not outbox.put_media(b"inter")
    assert outbox.skips == 1
    assert outbox.take(100) == b"header"


def test_what_must_be_said_pushes_media_out() -> None:
    outbox = Outbox(max_bytes=10)
    assert outbox.put_media(b"12345678")
    outbox.put(b"status")
    assert not outbox.overflowed
    assert outbox.take(100) == b"status"


def test_too_much_that_must_be_said_is_an_overflow() -> None:
    outbox = Outbox(max_messages=2)
    for _ in range(3):
        outbox.put(b"x")
    assert outbox.overflowed
    assert len(outbox) == 2


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 60)), max_size=200))
def test_bounds_hold_whatever_comes(steps: list[tuple[bool, int, int]]) -> None:
    outbox = Outbox(max_messages=8, max_bytes=100)
    for media, size, taken in steps:
        if media:
            outbox.put_media(bytes(size))
        else:
            outbox.put(bytes(size))
        assert len(outbox) <= 8
        assert outbox.waiting_bytes <= 100
        if taken > 50:
            outbox.take(taken)
    assert len(outbox.take(10_000)) <= 100
    assert outbox.waiting_bytes == 0
