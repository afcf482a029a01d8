"""The send queue: order, dropping of media, bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rtmp_relay.relay.send_queue import SendQueue


def test_messages_are_taken_whole_and_in_order() -> None:
    queue = SendQueue()
    for piece in (b"aa", b"bbb", b"c"):
        queue.put(piece)
    assert queue.take(1) == b"aa"
    assert queue.take(100) == b"bbbc"
    assert queue.take(100) == b""


def test_a_frame_that_does_not_fit_drops_all_waiting_frames() -> None:
    queue = SendQueue(max_messages=3)
    queue.put(b"header")
    assert queue.put_media(b"key")
    assert queue.put_media(b"inter")
    assert not queue.put_media(b"inter")
    assert queue.media_drops == 1
    assert queue.take(100) == b"header"


def test_other_messages_replace_waiting_media() -> None:
    queue = SendQueue(max_bytes=10)
    assert queue.put_media(b"12345678")
    queue.put(b"status")
    assert not queue.overflowed
    assert queue.take(100) == b"status"


def test_too_many_other_messages_overflow_the_queue() -> None:
    queue = SendQueue(max_messages=2)
    for _ in range(3):
        queue.put(b"x")
    assert queue.overflowed
    assert len(queue) == 2


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 60)), max_size=200))
def test_bounds_hold_for_any_sequence_of_puts_and_takes(steps: list[tuple[bool, int, int]]) -> None:
    queue = SendQueue(max_messages=8, max_bytes=100)
    for media, size, taken in steps:
        if media:
            queue.put_media(bytes(size))
        else:
            queue.put(bytes(size))
        assert len(queue) <= 8
        assert queue.waiting_bytes <= 100
        if taken > 50:
            queue.take(taken)
    assert len(queue.take(10_000)) <= 100
    assert queue.waiting_bytes == 0
