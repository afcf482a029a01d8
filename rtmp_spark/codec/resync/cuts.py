"""Where messages are split into chunks: the sizes that fit one message, and how far they hold in what follows.

A split is visible by the continuation header after it, `mark`, which is usually one byte. That byte occurs anywhere by
chance, so a single one does not prove a size; an unusual size needs more of them than a common one.
"""

from __future__ import annotations

from ..chunk.header import Head, continuation_header
from ..limits import INTERLEAVE_STEPS, MARKS_TRIED, PAYLOAD_HEAD_BYTES, PROOF_BITS, SIZES_TRIED
from .anchors import ANCHOR, read_header
from .evidence import header_bits, is_strong, payload_bits

COMMON_SIZES = (128, 4096, 60000, 65536, 65535, 1024, 2048, 8192, 16384, 32768, 5000, 10000, 512, 1400)


def split_sizes(buf: bytes, data: int, mark: bytes, length: int, floor: int, ext: int | None = None) -> list[int]:
    """Every chunk size that puts continuation headers, `mark`, at the right places inside a message at `data`.

    If these repeat an extended timestamp, there is at most one."""
    if ext is not None:
        repeated = mark + ext.to_bytes(4, "big")
        at = buf.find(repeated, data + max(floor, 1), data + length)
        size, step = at - data, len(repeated)
        stop = data + length + step * ((length - 1) // size) if at >= 0 else 0
        cuts = range(at, min(stop, len(buf) - step + 1), size + step)
        return [size] if at >= 0 and all(buf[cut : cut + step] == repeated for cut in cuts) else []

    def fits(size: int) -> bool:
        stop = data + length + (length - 1) // size * len(mark)
        if len(mark) == 1:
            marks = buf[data + size : stop : size + 1]
            return len(marks) > 0 and marks.count(mark) == len(marks)
        cuts = range(data + size, min(stop, len(buf) - len(mark) + 1), size + len(mark))
        return len(cuts) > 0 and all(buf[cut : cut + len(mark)] == mark for cut in cuts)

    floor = max(floor, 1)
    sizes = [size for size in sorted(COMMON_SIZES) if floor <= size < length and fits(size)]
    at, limit = data + floor, min(data + length, len(buf))
    for _ in range(MARKS_TRIED):
        at = buf.find(mark, at, limit)
        if at < 0 or len(sizes) >= SIZES_TRIED:
            break
        if at - data not in COMMON_SIZES and fits(at - data):
            sizes.append(at - data)
        at += 1
    return sizes


def cuts_ahead(buf: bytes, pos: int, size: int, heads: dict[int, Head]) -> int:
    """How many continuation headers are where `size` puts them in the messages from `pos` on; -1 if one is not."""
    heads = dict(heads)
    cuts = 0
    for _ in range(INTERLEAVE_STEPS):
        header = read_header(buf, pos, heads)
        if header is None or header.length < 0 or header.ext is not None:
            break
        inside = payload_bits(header.type_id, header.length, buf[header.data : header.data + PAYLOAD_HEAD_BYTES])
        if header_bits(header, heads) < 0 or inside < 0:
            return -1
        heads[header.csid] = Head(header.length, header.type_id, header.stream_id)
        mark = continuation_header(buf, pos)
        stop = header.data + header.length + max(header.length - 1, 0) // size * len(mark)
        for at in range(header.data + size, stop, size + len(mark)):
            if at + len(mark) > len(buf):
                return cuts
            if not buf.startswith(mark, at):
                return -1
            cuts += 1
        pos = stop
    return cuts


def believable_size(size: int, cuts: int, bits: int) -> bool:
    """True if `cuts` continuation headers and `bits` of evidence after the message are enough for this chunk size.

    One byte may look like a continuation header by chance, so an unusual size needs more than a common one."""
    if size in COMMON_SIZES:
        return cuts > 1 or bits >= 16
    return cuts > 3 or (cuts > 1 and bits >= PROOF_BITS)


def maybe_cut(buf: bytes, data: int, csid: int, length: int, floor: int) -> bool:
    """True if a continuation header may be where a common size of at least `floor` would split this message."""
    return any(floor <= cut < length and buf[data + cut] == 0xC0 | csid for cut in COMMON_SIZES)


def interleaves(buf: bytes, pos: int, size: int, known: dict[int, Head]) -> bool:
    """True if one of the messages from `pos` on has chunks of another message between its own."""
    heads = dict(known)
    unfinished, rest = -1, 0
    ext: dict[int, int | None] = {}
    for _ in range(INTERLEAVE_STEPS):
        header = read_header(buf, pos, heads)
        if header is None or (header.length < 0 and header.csid != unfinished):
            return False
        if rest and header.csid != unfinished:
            return True
        data = header.data
        if header.fmt == 3 and ext.get(header.csid) == int.from_bytes(buf[data : data + 4], "big"):
            data += 4
        elif header.fmt < 3:
            ext[header.csid] = header.ext
        if not rest:
            heads[header.csid] = Head(header.length, header.type_id, header.stream_id)
            rest = header.length
        unfinished = header.csid
        pos = data + min(size, rest)
        rest -= min(size, rest)
    return False


def orphan_end(buf: bytes, data: int, size: int, pending: dict[int, int], orphans: set[int]) -> int | None:
    """Where a chunk of a message of unknown length ends: after a whole chunk, or at the next header.

    `pending` maps the continuation headers of unfinished messages to the bytes these lack; `orphans` holds the
    continuation headers of messages whose length is unknown as well."""
    full = data + size
    for match in ANCHOR.finditer(buf, data + 1, min(full + 40, len(buf))):
        header = match.start()
        if header >= full:
            break
        if is_strong(buf, header):
            for mark, rest in pending.items():  # the last chunk of another message may precede that header
                before = header - 1 - rest
                if data < before <= full and rest <= size and buf[before] == mark:
                    return before
            return header
    if full < len(buf) and (buf[full] in pending or buf[full] in orphans or is_strong(buf, full)):
        return full
    return None
