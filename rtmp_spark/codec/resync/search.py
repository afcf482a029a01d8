"""Find the first proven message boundary, whatever the chunk size: where decoding can continue after a loss.

This module runs the searches in their order and chooses between their results. Nothing is kept from one search to the
next: the caller may try again with more bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from ..chunk.header import Head, long_csid
from ..limits import ALIKE_TIMES, ALONE_BITS, FIRST_BITS, HEADERS_ALONE_BITS, REGULAR_WINDOW_BYTES
from .anchors import ANCHOR, one_reading
from .backward import back
from .chain import Assumed, Chain, Sync, Walk
from .regular import acknowledgements_only, fixed_length_audio, fixed_length_audio_with_deltas

INTERLEAVED_SIZES = (128, 4096, 60000, 65536)  # tried one by one: interleaved messages do not show it


_MARKS = bytes(byte | 0xC0 for byte in range(256))  # the csid of a header of fmt 2 or 3
_NO_MARKS = bytes(range(0x80))


class _Proof(NamedTuple):
    """A header, and the chain of messages that proves it."""

    anchor: int
    walk: Walk


def may_find(buf: bytes) -> bool:
    """Whether `find` can find anything in all the bytes of a stream of which nothing else is known. It is quick, and
    most bytes that are not RTMP fail here if they are few."""
    if ANCHOR.search(buf) is not None:
        return True
    marks = buf.translate(_MARKS, _NO_MARKS)
    return any(marks.count(mark) >= ALIKE_TIMES // 2 for mark in set(marks))


def find(
    buf: bytes,
    skip: int,
    heads: dict[int, Head],
    chunk_size: int,
    dialect_absent: bool,
    final: bool,
    interleaved: bool = False,
) -> tuple[Sync | None, int]:
    """The first proven boundary, if any, and the effort the search took.

    The first `skip` bytes do not begin a header with a length; they may begin one without. `heads` holds the headers
    from before the loss, `chunk_size` the size then (0: unknown). With `interleaved`, the rest of some message that
    began before the loss may follow."""
    anchors = [match.start() for match in ANCHOR.finditer(buf, skip)]
    chain = Chain(buf, anchors, dialect_absent, final)
    proof = _first_proof(chain, chunk_size, heads, first=not skip)
    sync = _regular(chain, proof, heads, chunk_size)
    if sync is not None or proof is None:
        return sync, chain.effort
    anchor, walk = _longer_header(chain, proof, heads)
    sync = back(chain, anchor, walk, heads, interleaved)
    unknown = sync.size_floor and sync.size_floor <= chunk_size
    if unknown or (sync.chunk_size == chunk_size and not walk.cuts):
        sync = sync._replace(chunk_size=chunk_size, size_floor=chunk_size)  # nothing shows a change
    return sync, chain.effort


def _regular(chain: Chain, proof: _Proof | None, heads: dict[int, Head], chunk_size: int) -> Sync | None:
    """Messages without any length, before the first proven header or in bytes without one."""
    buf = chain.buf
    sync = acknowledgements_only(buf if proof is None else buf[: proof.anchor], proof is None)
    if sync is not None or (proof is None and not chain.final and len(buf) < REGULAR_WINDOW_BYTES):
        return sync
    if proof is None:
        before = buf[:REGULAR_WINDOW_BYTES]
        return fixed_length_audio(before, chain) or fixed_length_audio_with_deltas(before, chain, heads, chunk_size)
    if proof.anchor > REGULAR_WINDOW_BYTES // 8:
        sync = fixed_length_audio(buf[: min(proof.anchor + 1, REGULAR_WINDOW_BYTES)], chain)
    if sync is None and proof.anchor > REGULAR_WINDOW_BYTES // 64:
        sync = fixed_length_audio_with_deltas(buf[: proof.anchor], chain, heads, chunk_size)
    return sync


def _first_proof(chain: Chain, chunk_size: int, heads: dict[int, Head], first: bool) -> _Proof | None:
    """The first header from which a chain is proven, whatever the chunk size, and the chain.

    With `first` it may be a header directly after the loss whose length is from before the loss. A Set Chunk Size may
    be among the lost bytes: the size that is proven earliest in the stream is taken."""
    best: _Proof | None = None
    earlier = one_reading(chain.buf, chain.anchors, heads)
    trusted = -1  # csid of a header without length at the very start
    if first and chain.buf and chain.buf[0] >= 0x80 and chain.buf[0] & 63 in heads:
        earlier, trusted = [0, *earlier], chain.buf[0] & 63
    shown = 0  # a size whose continuation headers were seen
    for size in (*([chunk_size] if chunk_size else []), *(size for size in INTERLEAVED_SIZES if size != chunk_size), 0):
        if shown and size:
            continue
        chain.begin(interleaved=size > 0)
        cuts_wanted = 2 if size != chunk_size and size else 0  # required of a size that is only tried
        for at, anchor in enumerate(earlier):
            walk = chain.walk(anchor, heads, Assumed(size))
            if walk is None or walk.bits + (0 if anchor else FIRST_BITS) < chain.need or walk.cuts < cuts_wanted:
                continue
            if shown and (walk.size not in (0, shown) or walk.floor > shown):
                continue
            if not anchor and (trusted in walk.orphans or trusted in walk.guessed):
                continue
            if walk.orphans and chain.alone_bits(anchor, heads) < ALONE_BITS:
                continue
            best = _Proof(anchor, walk._replace(size=walk.size or shown, cuts=max(walk.cuts, 2 if shown else 0)))
            earlier = earlier[:at]
            if size and walk.cuts > 1:
                shown = size
            break
    return _by_headers_alone(chain, earlier, chunk_size, heads) or best


def _by_headers_alone(chain: Chain, anchors: list[int], chunk_size: int, heads: dict[int, Head]) -> _Proof | None:
    """The same for test patterns and unknown codecs: headers are where they must be, whatever the payloads are."""
    chain.begin(interleaved=chunk_size > 0, any_payload=True)
    for anchor in anchors:
        walk = chain.walk(anchor, heads, Assumed(chunk_size, guesses=0))
        if walk is not None and not walk.orphans and walk.bits + (0 if anchor else FIRST_BITS) >= HEADERS_ALONE_BITS:
            return _Proof(anchor, walk)
    return None


def _longer_header(chain: Chain, proof: _Proof, heads: dict[int, Head]) -> _Proof:
    """The first header with a csid of two or three bytes, if later messages use that csid; else as it was."""
    buf = chain.buf
    anchor, walk = proof
    for long in (anchor - 1, anchor - 2):
        if long in chain.anchors and buf[long] & 63 == anchor - long - 1 and long_csid(buf, long) in walk.heads:
            chain.begin(interleaved=walk.size > 0)
            longer = chain.walk(long, heads, Assumed(walk.size))
            if longer is not None and longer.bits >= chain.need:
                return _Proof(long, longer._replace(floor=walk.floor, cuts=walk.cuts))
    return proof
