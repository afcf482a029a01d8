"""The first boundary that verifies, whatever the chunk size: where decoding can go on after a loss.

It puts the searches in their order and weighs what they find against each other; how each of them looks is its own
affair. Nothing is kept from one search to the next: the caller may try again with more bytes.
"""

from __future__ import annotations

from .backward import back
from .chain import Chain, Sync, Walk
from .header import ANCHOR, Head, long_csid, one_reading
from .regular import all_alike, all_receipts, in_a_row

HEADERS_ALONE_BITS = 120  # when payloads speak against their type: three headers with a length in a row
FIRST_BITS = 16  # what it is worth to stand right behind the loss: senders begin packets with messages
ALONE_BITS = 26  # what the first header must say for itself when the chain leaps to the next one
ALIKE_BYTES = 1 << 15  # in which messages without any length are looked for
INTERLEAVED_SIZES = (128, 4096, 60000, 65536)  # where messages interleave, the size cannot be read off one message


def find(
    buf: bytes,
    skip: int,
    heads: dict[int, Head],
    chunk_size: int,
    dialect_absent: bool,
    final: bool,
    interleaved: bool = False,
) -> tuple[Sync | None, int]:
    """The first boundary that verifies, and the effort it took. `chunk_size` is 0 when nothing is known of it;
    `interleaved`: the rest of some message may still come.

    The first `skip` bytes are no header with a length; they may be one without."""
    anchors = [match.start() for match in ANCHOR.finditer(buf, skip)]
    chain = Chain(buf, anchors, dialect_absent, final)
    proof = _first_proof(chain, chunk_size, heads, first=not skip)
    receipts = all_receipts(buf if proof is None else buf[: proof[0]], proof is None)
    if receipts is not None:
        return receipts, chain.effort
    if proof is None or proof[0] > ALIKE_BYTES // 8:
        if final or proof is not None or len(buf) >= ALIKE_BYTES:
            before = buf[:ALIKE_BYTES] if proof is None else buf[: min(proof[0] + 1, ALIKE_BYTES)]
            alike = all_alike(before, chain)
            if alike is not None:
                return alike, chain.effort
    if proof is None or proof[0] > ALIKE_BYTES // 64:
        if final or proof is not None or len(buf) >= ALIKE_BYTES:
            row = in_a_row(buf[:ALIKE_BYTES] if proof is None else buf[: proof[0]], chain, heads, chunk_size)
            if row is not None:
                return row, chain.effort
    if proof is None:
        return None, chain.effort
    anchor, walk = _longer_header(chain, *proof, heads)
    sync = back(chain, anchor, walk, heads, interleaved)
    unknown = sync.size_floor and sync.size_floor <= chunk_size
    if unknown or (sync.chunk_size == chunk_size and not walk.cuts):
        sync = sync._replace(chunk_size=chunk_size, size_floor=chunk_size)  # as before the loss: nothing shows another
    return sync, chain.effort


def _first_proof(chain: Chain, chunk_size: int, heads: dict[int, Head], first: bool) -> tuple[int, Walk] | None:
    """The first header from which a chain is proven, whatever the chunk size, and the chain. With `first` that may be
    one right behind the loss whose length is from before it.

    A change of the size may be among what was lost: the size that verifies first in the stream is the true one."""
    best: tuple[int, Walk] | None = None
    earlier = one_reading(chain.buf, chain.anchors, heads)
    trusted = -1  # csid of a header without length at the very beginning
    if first and chain.buf and chain.buf[0] >= 0x80 and chain.buf[0] & 63 in heads:
        earlier, trusted = [0, *earlier], chain.buf[0] & 63
    shown = 0  # a size whose cuts were seen
    for size in (*([chunk_size] if chunk_size else []), *(size for size in INTERLEAVED_SIZES if size != chunk_size), 0):
        if shown and size:
            continue
        chain.begin(interleaved=size > 0)
        cuts_wanted = 2 if size != chunk_size and size else 0  # of a size that is only tried
        for at, anchor in enumerate(earlier):
            walk = chain.walk(anchor, size, heads)
            if walk is None or walk.bits + (0 if anchor else FIRST_BITS) < chain.need or walk.cuts < cuts_wanted:
                continue
            if shown and (walk.size not in (0, shown) or walk.floor > shown):
                continue
            if not anchor and (trusted in walk.orphans or trusted in walk.guessed):
                continue
            if walk.orphans and chain.alone_bits(anchor, heads) < ALONE_BITS:
                continue
            best = anchor, walk._replace(size=walk.size or shown, cuts=max(walk.cuts, 2 if shown else 0))
            earlier = earlier[:at]
            if size and walk.cuts > 1:
                shown = size
            break
    return _by_headers_alone(chain, earlier, chunk_size, heads) or best


def _by_headers_alone(
    chain: Chain, anchors: list[int], chunk_size: int, heads: dict[int, Head]
) -> tuple[int, Walk] | None:
    """A sender of test patterns or of codecs unheard of: its headers stand right, whatever is in its payloads."""
    chain.begin(interleaved=chunk_size > 0, any_payload=True)
    for anchor in anchors:
        walk = chain.walk(anchor, chunk_size, heads, guesses=0)
        if walk is not None and not walk.orphans and walk.bits + (0 if anchor else FIRST_BITS) >= HEADERS_ALONE_BITS:
            return anchor, walk
    return None


def _longer_header(chain: Chain, anchor: int, walk: Walk, heads: dict[int, Head]) -> tuple[int, Walk]:
    """The csids that come later tell whether the first header is longer than it was taken for."""
    buf = chain.buf
    for long in (anchor - 1, anchor - 2):
        if long in chain.anchors and buf[long] & 63 == anchor - long - 1 and long_csid(buf, long) in walk.heads:
            chain.begin(interleaved=walk.size > 0)
            longer = chain.walk(long, walk.size, heads)
            if longer is not None and longer.bits >= chain.need:
                return long, longer._replace(floor=walk.floor, cuts=walk.cuts)
    return anchor, walk
