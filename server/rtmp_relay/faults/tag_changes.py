"""Changes of single tags of one kind, as faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rtmp_relay.frames import Tag

from .fault import Fault, MediaFault
from .message_choice import is_coded

Change = Callable[[Tag], list[Tag]]  # the tags to send in place of one


def changed_frames(
    type_id: int, change: Change, *, after: int = 0, times: int = 1, coded: bool = True
) -> Callable[[], Fault]:
    """Return a factory of faults that change frames (or, if not `coded`, configurations) of one message type.

    The first `after` of them stay unchanged, the next `times` are changed.
    """

    def changed(tags: Iterable[Tag]) -> Iterator[Tag]:
        seen = 0
        for tag in tags:
            if tag.type_id != type_id or is_coded(tag.payload) is not coded:
                yield tag
                continue
            seen += 1
            if after < seen <= after + times:
                yield from change(tag)
            else:
                yield tag

    return lambda: MediaFault(changed)


def changed_payload(change: Callable[[bytes], bytes]) -> Change:
    return lambda tag: [tag._replace(payload=change(tag.payload))]


def dropped(_: Tag) -> list[Tag]:
    return []
