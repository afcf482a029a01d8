"""Find a message boundary in bytes that start anywhere, and infer the chunk size.

A boundary is believed when a chain of messages hangs on it: every header that stands where the one before says it
must, every continuation mark, every tag header or AMF name at the start of a payload is worth some bits, and
enough bits are proof. The first header found is rarely the first that is there, because fmt 2 and 3 carry no
length: `find` therefore walks back from it over the messages that end exactly where the next one begins. Audio of
which no header says a length at all is found by its regularity. The bits are rough, and chosen so that tens of
thousands of losses in real streams (bench/resync.py) invent nothing: what cannot be proven is skipped.

Nothing here changes any state: `find` says where to start and what to assume there.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from .flv import AUDIO_FOURCC, VIDEO_FOURCC
from .message import ACKNOWLEDGEMENT, AUDIO, TYPE_NAMES

COMMON_SIZES = (128, 4096, 60000, 65536, 65535, 1024, 2048, 8192, 16384, 32768, 5000, 10000, 512, 1400)
MAX_SIZE = 0xFFFFFF
PROOF_BITS = 60  # with more bytes to come
PROOF_BITS_AT_END = 36  # when nothing more will come
ENOUGH_BITS = 120  # no need to walk further, ...
PATIENT_BITS = 1000  # unless a message is awaited that shows whether a guess was right
HEADERS_ALONE_BITS = 120  # when payloads speak against their type: three headers with a length in a row
FIRST_BITS = 16  # what it is worth to stand right behind the loss: senders begin packets with messages
UNCUT_BITS = 16  # what must follow a message before it shows that it was not cut
TRUST_BITS = 28  # what must follow a message whose length is from before the loss
TRUST_BITS_AT_END = 20  # beyond its own, when nothing more will come
SHORTEST_BITS = 28  # what must follow a guessed length before no longer one is tried
GUESS_BITS = 12  # what a guessed length costs
ENDS_TRIED = 24  # of a message whose length is guessed
INTERLEAVE_STEPS = 200  # headers looked at to see whether messages interleave
ALONE_BITS = 26  # what the first header must say for itself when the chain leaps to the next one
ORPHAN_BITS = 16  # what it costs to take the next thing that looks like a header for the end of a chunk
ALIKE_BYTES = 1 << 15  # in which messages without any length are looked for
SHORTEST_ALIKE = 8  # bytes; so close together anything comes again
RECEIPT_BYTES = 5  # an Acknowledgement of fmt 3
MOST_UNRECEIVED = 1 << 28  # bytes between two of them
ROWS_TRIED = 8  # first messages from which a row of them is looked for
ALIKE_TIMES = 8  # how often such a message must come, or half as often up to a header with a length
MAX_STEPS = 500  # headers looked at before an assumption about the size is given up, ...
STEPS_PER_BYTE = 1 / 32  # and more in a larger window, ...
MOST_STEPS = 4000  # but never more: whoever needs them is not sending RTMP
MARKS_TRIED, SIZES_TRIED = 2000, 16  # in one message, to find sizes that nobody has heard of
INTERLEAVED_SIZES = (128, 4096, 60000, 65536)  # where messages interleave, the size cannot be read off one message
LEAST_EFFORT = 100  # of any search, in steps
BACK_EFFORT = 20_000  # after which messages before a boundary are given up
BACK_BYTES = 1 << 17  # how far before a boundary the message that ends there is looked for
HEADER_BYTES = (11, 7, 3, 0)
_CONTROL_LENGTHS = {1: (4,), 2: (4,), 3: (4,), 4: (6, 10, 3, 44), 5: (4,), 6: (5,)}
_TYPES = b"".join(re.escape(bytes((t,))) for t in TYPE_NAMES)
_VIDEO_FOURCC = [fourcc.encode() for fourcc in VIDEO_FOURCC]
_AUDIO_FOURCC = [fourcc.encode() for fourcc in AUDIO_FOURCC]

# A header that carries a length: fmt 0 with a small stream id, or fmt 1 with a delta below 65536 ms (or 0xFFFFFF).
_ANCHOR = re.compile(
    rb"(?=(?:[\x02-\x3f]|\x00.|\x01..)...[\x00-\x3f]..[" + _TYPES + rb"].\x00\x00\x00"
    rb"|(?:[\x42-\x7f]|\x40.|\x41..)(?:\x00..|\xff\xff\xff)[\x00-\x3f]..[" + _TYPES + rb"])",
    re.DOTALL,
)


# fmt 2 or 3 and the name at the start of a command or data message
_NAMED = re.compile(rb"(?=(?:[\x82-\xbf]\x00..|[\xc2-\xff])\x02\x00([\x03-\x3f])([@|_A-Za-z][!-~]{2}))", re.DOTALL)
_NAME = re.compile(rb"[\w@|.:/-]+")
_VALUES = frozenset(b"\0\1\2\3\5\6\x08\x0a\x0b\x0c\x11")  # how the value behind a name begins
_DATA_NAMES = (
    b"@setDataFrame",
    b"@clearDataFrame",
    b"onMetaData",
    b"onCuePoint",
    b"onTextData",
    b"onCaption",
    b"|Rtmp",
)


_MP3 = (2, 14)
# ADPCM, MP3, PCM, Nellymoser, G.711, Speex: audio whose first byte is all there is to see
_PLAIN_FORMATS = (1, 2, 3, 4, 5, 6, 7, 8, 11)


class Head(NamedTuple):
    """What fmt 1, 2 and 3 refer back to."""

    length: int
    type_id: int
    stream_id: int


class Sync(NamedTuple):
    position: int
    chunk_size: int
    size_floor: int  # 0: the chunk size is certain; else a guess, and it is at least this
    heads: dict[int, Head]  # what messages at and after `position` may refer back to
    orphans: frozenset[int]  # csids on which the rest of a message is still to come


class _Header(NamedTuple):
    fmt: int
    csid: int
    data: int  # where the payload begins
    delta: int
    ext: int | None
    length: int
    type_id: int
    stream_id: int


class _Walk(NamedTuple):
    bits: int
    size: int  # 0 while unknown
    floor: int
    heads: dict[int, Head]
    marks: dict[int, set[bytes]]  # per csid, how its payloads begin
    guessed: Mapping[int, Head] = MappingProxyType({})  # lengths that no header says
    orphans: frozenset[int] = frozenset()  # csids in the middle of a message at the start
    cuts: int = 0  # chunks that ended where the size says


def continuation(buf: bytes, pos: int) -> bytes:
    """The header of a chunk that goes on with the message whose header is at `pos`, its csid in the same form
    (RTMP 1.0 5.3.1.1)."""
    short = buf[pos] & 63
    return bytes((0xC0 | short,)) + (buf[pos + 1 : pos + 2 + short] if short < 2 else b"")


def split_sizes(buf: bytes, data: int, mark: bytes, length: int, floor: int, ext: int | None = None) -> list[int]:
    """Every chunk size that puts continuation headers, `mark`, at the right places inside a message at `data`.

    Where these repeat an extended timestamp there is at most one."""
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
    """How many continuations stand where `size` puts them in the messages from `pos` on; -1 when one does not."""
    heads = dict(heads)
    cuts = 0
    for _ in range(INTERLEAVE_STEPS):
        header = _header(buf, pos, heads)
        if header is None or header.length < 0 or header.ext is not None:
            break
        inside = payload_bits(header.type_id, header.length, buf[header.data : header.data + 24])
        if _header_bits(header, heads) < 0 or inside < 0:
            return -1
        heads[header.csid] = Head(header.length, header.type_id, header.stream_id)
        mark = continuation(buf, pos)
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
    """One byte may happen to look like a mark: a size that nobody uses wants more proof than a common one."""
    if size in COMMON_SIZES:
        return cuts > 1 or bits >= 16
    return cuts > 3 or (cuts > 1 and bits >= PROOF_BITS)  # somewhere in a message a byte looks like one mark


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
    anchors = [match.start() for match in _ANCHOR.finditer(buf, skip)]
    chain = _Chain(buf, anchors, dialect_absent, final)
    proof = _first_proof(chain, chunk_size, heads, first=not skip)
    receipts = _all_receipts(buf if proof is None else buf[: proof[0]], proof is None)
    if receipts is not None:
        return receipts, chain.effort
    if proof is None or proof[0] > ALIKE_BYTES // 8:
        if final or proof is not None or len(buf) >= ALIKE_BYTES:
            before = buf[:ALIKE_BYTES] if proof is None else buf[: min(proof[0] + 1, ALIKE_BYTES)]
            alike = _all_alike(before, chain)
            if alike is not None:
                return alike, chain.effort
    if proof is None or proof[0] > ALIKE_BYTES // 64:
        if final or proof is not None or len(buf) >= ALIKE_BYTES:
            row = _in_a_row(buf[:ALIKE_BYTES] if proof is None else buf[: proof[0]], chain, heads, chunk_size)
            if row is not None:
                return row, chain.effort
    if proof is None:
        return None, chain.effort
    anchor, walk = _longer_header(chain, *proof, heads)
    sync = _back(chain, anchor, walk, heads, interleaved)
    unknown = sync.size_floor and sync.size_floor <= chunk_size
    if unknown or (sync.chunk_size == chunk_size and not walk.cuts):
        sync = sync._replace(chunk_size=chunk_size, size_floor=chunk_size)  # as before the loss: nothing shows another
    return sync, chain.effort


def _first_proof(chain: _Chain, chunk_size: int, heads: dict[int, Head], first: bool) -> tuple[int, _Walk] | None:
    """The first header from which a chain is proven, whatever the chunk size, and the chain. With `first` that may be
    one right behind the loss whose length is from before it.

    A change of the size may be among what was lost: the size that verifies first in the stream is the true one."""
    best: tuple[int, _Walk] | None = None
    earlier = _one_reading(chain.buf, chain.anchors, heads)
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
    chain: _Chain, anchors: list[int], chunk_size: int, heads: dict[int, Head]
) -> tuple[int, _Walk] | None:
    """A sender of test patterns or of codecs unheard of: its headers stand right, whatever is in its payloads."""
    chain.begin(interleaved=chunk_size > 0, any_payload=True)
    for anchor in anchors:
        walk = chain.walk(anchor, chunk_size, heads, guesses=0)
        if walk is not None and not walk.orphans and walk.bits + (0 if anchor else FIRST_BITS) >= HEADERS_ALONE_BITS:
            return anchor, walk
    return None


def _one_reading(buf: bytes, anchors: list[int], used: Container[int]) -> list[int]:
    """A header of one byte behind a byte 0x00, 0x01, 0x40 or 0x41 also reads as a csid of two or three bytes.

    Such csids are rare: the long reading holds only where that csid is in use and the short one's is not."""
    drop: set[int] = set()
    found = set(anchors)
    for pos in anchors:
        short = pos + 1 + (buf[pos] & 63)
        if buf[pos] & 63 < 2 and short in found:
            long = _long_csid(buf, pos) in used and buf[short] & 63 not in used
            drop.add(short if long else pos)
    return [pos for pos in anchors if pos not in drop] if drop else anchors


def _longer_header(chain: _Chain, anchor: int, walk: _Walk, heads: dict[int, Head]) -> tuple[int, _Walk]:
    """The csids that come later tell whether the first header is longer than it was taken for."""
    buf = chain.buf
    for long in (anchor - 1, anchor - 2):
        if long in chain.anchors and buf[long] & 63 == anchor - long - 1 and _long_csid(buf, long) in walk.heads:
            chain.begin(interleaved=walk.size > 0)
            longer = chain.walk(long, walk.size, heads)
            if longer is not None and longer.bits >= chain.need:
                return long, longer._replace(floor=walk.floor, cuts=walk.cuts)
    return anchor, walk


def _long_csid(buf: bytes, pos: int) -> int:
    return 64 + buf[pos + 1] + (buf[pos + 2] << 8 if buf[pos] & 63 else 0)


# -- forward -----------------------------------------------------------------------------------------------------


def _header(buf: bytes, pos: int, heads: dict[int, Head]) -> _Header | None:
    """The header at `pos`, None when its bytes are not all there. Unknown lengths are -1."""
    end = len(buf)
    if pos >= end:
        return None
    byte = buf[pos]
    fmt = byte >> 6
    csid = byte & 63
    data = pos + 1
    if csid < 2:
        data += 1 + csid
        if data > end:
            return None
        csid = 64 + buf[pos + 1] + (buf[pos + 2] << 8 if csid else 0)
    field = data
    data += HEADER_BYTES[fmt]
    if data > end:
        return None
    length, type_id, stream_id = heads.get(csid, _NO_HEAD)
    delta, ext = 0, None
    if fmt < 3:
        delta = buf[field] << 16 | buf[field + 1] << 8 | buf[field + 2]
        if delta == 0xFFFFFF:
            data += 4
            if data > end:
                return None
            ext = int.from_bytes(buf[data - 4 : data], "big")
        if fmt < 2:
            length = buf[field + 3] << 16 | buf[field + 4] << 8 | buf[field + 5]
            type_id = buf[field + 6]
            if fmt == 0:
                stream_id = int.from_bytes(buf[field + 7 : field + 11], "little")
            elif stream_id < 0:
                stream_id = 1 if type_id in (8, 9, 15, 18, 22) else 0
    return _Header(fmt, csid, data, delta, ext, length, type_id, stream_id)


_NO_HEAD = Head(-1, -1, -1)


def _header_bits(header: _Header, heads: dict[int, Head]) -> int:
    """How much a header that starts a message says for itself; -1 when it cannot be one."""
    fmt, csid, _, delta, ext, length, type_id, stream_id = header
    known = heads.get(csid)
    if fmt == 3:
        return 6
    bits = 0
    if fmt == 0:
        if stream_id > 0xFFFF:
            return -1
        bits = 28 if stream_id < 16 else 16
    elif ext is None:
        if delta > 0xFFFFF:
            return -1
        bits = 14 if delta < 1024 else 8 if delta < 65536 else 3
    else:
        bits = 12 if ext < 0xFFFFFFF or ext > 0xFFFF0000 else 2
    if fmt == 2:
        return bits + 4
    if type_id not in TYPE_NAMES:
        return -1
    bits += 12 if length < 1 << 16 else 6 if length < 1 << 20 else 4
    if known is not None and known.type_id == type_id:
        bits += 4
    if known is None and csid >= 64:
        bits -= 16  # more often the byte before a header of one byte
    return max(bits, 0)


def payload_bits(type_id: int, length: int, head: bytes) -> int:
    """How much the first bytes of a payload say for its type; -1 when they contradict it."""
    if type_id in _CONTROL_LENGTHS:
        return 16 if length in _CONTROL_LENGTHS[type_id] else -1
    if length == 0:
        return 0
    if not head:
        return 0
    first = head[0]
    if type_id == 8:
        if first >> 4 == 9:
            return 16 if any(fourcc in head for fourcc in _AUDIO_FOURCC) else -1
        if first >> 4 in (12, 13):
            return -1
        if first >> 4 == 10 and len(head) > 1:
            return 8 if head[1] < 2 else -1
        if first >> 4 in _MP3 and len(head) > 2 and head[1] == 0xFF and head[2] >= 0xE0:
            return 11  # the sync word of a frame
        return 1
    if type_id == 9:
        if first & 0x80:
            return 16 if length < 3 or any(fourcc in head for fourcc in _VIDEO_FOURCC) else -1
        if not 1 <= first >> 4 <= 5 or first & 15 not in (1, 2, 3, 4, 5, 6, 7, 12):
            return -1
        if first & 15 in (7, 12) and len(head) > 2:
            return 14 if head[1] < 3 and head[2] in (0, 255) else -1
        return 2
    if type_id in (15, 17) and first == 0:
        head = head[1:]
    if type_id in (15, 17, 18, 20):  # they begin with a short name
        if len(head) < 4:
            return 0
        name = head[3 : 3 + min(head[2], 12)]
        return (
            24
            if head[:2] == b"\x02\x00" and 0 < head[2] < 64 and name.isascii() and name.decode().isprintable()
            else -1
        )
    return 0


def orphan_end(buf: bytes, data: int, size: int, pending: dict[int, int], orphans: set[int]) -> int | None:
    """Where a chunk ends that belongs to a message of unknown length: after a whole chunk, or at the next header.

    `pending` has the continuation headers of unfinished messages and the bytes these lack, `orphans` those of
    messages whose length is unknown, too."""
    full = data + size
    for match in _ANCHOR.finditer(buf, data + 1, min(full + 40, len(buf))):
        header = match.start()
        if header >= full:
            break
        if is_strong(buf, header):
            for mark, rest in pending.items():  # the last chunk of another message may stand before that header
                before = header - 1 - rest
                if data < before <= full and rest <= size and buf[before] == mark:
                    return before
            return header
    if full < len(buf) and (buf[full] in pending or buf[full] in orphans or is_strong(buf, full)):
        return full
    return None


def is_strong(buf: bytes, pos: int) -> bool:
    """A header with a length whose payload looks like what it says."""
    header = _header(buf, pos, {})
    if header is None or header.fmt > 1 or header.csid >= 64 or _header_bits(header, {}) < 20:
        return False
    return payload_bits(header.type_id, header.length, buf[header.data : header.data + 24]) >= 8


def _video_starts(buf: bytes, anchors: list[int]) -> set[bytes]:
    """How the payloads of video begin here, as far as headers that say a length tell."""
    seen: Counter[bytes] = Counter()
    for anchor in anchors[:200]:
        header = _header(buf, anchor, {})
        if header is not None and header.type_id == 9 and header.csid < 64:
            head = buf[header.data : header.data + 24]
            if payload_bits(9, header.length, head) > 0:
                seen[head[:1]] += 1
    return {first for first, times in seen.items() if times > 1 and times * 10 >= seen.total()}


class _UnderWay:
    """What has begun along a walk and goes on."""

    __slots__ = ("ext", "orphans", "rest", "started")

    def __init__(self) -> None:
        self.rest: dict[int, int] = {}  # bytes to come of messages
        self.ext: dict[int, int] = {}
        self.orphans: set[int] = set()
        self.started: set[int] = set()

    def copy(self) -> _UnderWay:
        other = _UnderWay()
        other.rest, other.ext = self.rest.copy(), self.ext.copy()
        other.orphans, other.started = self.orphans.copy(), self.started.copy()
        return other


class _Chain:
    """Follows messages forward through a buffer."""

    def __init__(self, buf: bytes, anchors: list[int], dialect_absent: bool, final: bool) -> None:
        self.buf = buf
        self.anchors = anchors
        self.csids = {buf[anchor] & 63 for anchor in anchors}  # that are in use
        self.video_starts = _video_starts(buf, anchors)
        self.dialect_absent = dialect_absent
        self.final = final
        self.need = PROOF_BITS_AT_END if final else PROOF_BITS
        self.effort = LEAST_EFFORT + len(buf) // 64
        self.begin(interleaved=False)

    def begin(self, interleaved: bool, any_payload: bool = False) -> None:
        """Allow so many steps again; `any_payload` believes headers against what the payloads look like."""
        self.steps = min(int(MAX_STEPS + len(self.buf) * STEPS_PER_BYTE), MOST_STEPS)
        self.interleaved = interleaved
        self.any_payload = any_payload

    def _is_shorter(self, pos: int) -> bool:
        """Is what reads as a csid of two or three bytes, which nobody used, a byte before a header of one?"""
        short = pos + 1 + (self.buf[pos] & 63)
        return self.buf[short : short + 1] >= b"\x40" and is_strong(self.buf, short)

    def alone_bits(self, pos: int, heads: dict[int, Head]) -> int:
        """What the header at `pos` and the payload behind it say, whatever follows."""
        header = _header(self.buf, pos, heads)
        if header is None:
            return -1
        inside = payload_bits(header.type_id, header.length, self.buf[header.data : header.data + 24])
        return _header_bits(header, heads) + inside

    def walk(
        self,
        pos: int,
        size: int,
        known: dict[int, Head],
        floor: int = 0,
        guesses: int = 6,
        doubt: frozenset[int] | None = None,
        under_way: _UnderWay | None = None,
        awaited: frozenset[int] = frozenset(),
    ) -> _Walk | None:
        """Follow the chain from `pos`. None when it breaks; what was gathered when it cannot be followed further.

        `size` 0 means that the chunk size is unknown, but at least `floor`; `doubt` names the csids whose heads are
        from before a loss, so that their lengths may have changed (None: all); those `awaited` must come again."""
        buf, end = self.buf, len(self.buf)
        heads: dict[int, Head] = dict(known)
        doubtful = set(known if doubt is None else doubt)
        now = _UnderWay() if under_way is None else under_way.copy()
        rest, ext, orphans, started = now.rest, now.ext, now.orphans, now.started
        marks: dict[int, set[bytes]] = {}
        bits = cuts = 0
        while bits < ENOUGH_BITS or (bits < PATIENT_BITS and not awaited.issubset(started)):
            self.steps -= 1
            self.effort += 1
            if self.steps < 0:
                return None
            header = _header(buf, pos, heads)
            if header is None:
                break
            fmt, csid, data, _, ext_value, length, type_id, stream_id = header
            left = rest.get(csid, 0)
            if csid >= 64 and csid not in heads and self._is_shorter(pos):
                return None
            if fmt == 3 and left:
                bits += 8
                cuts += 1
                if csid in ext and not self.dialect_absent and int.from_bytes(buf[data : data + 4], "big") == ext[csid]:
                    data += 4
            elif left:
                return None  # a header inside an unfinished message
            else:
                if fmt >= 2 and csid in doubtful and not any(rest.values()):
                    trusting = self.walk(
                        pos, size, heads, floor, guesses, frozenset(doubtful - {csid}), now, awaited - started
                    )
                    enough = TRUST_BITS
                    if self.final:
                        own = payload_bits(type_id, length, buf[data : data + 24])
                        enough = TRUST_BITS_AT_END + _header_bits(header, heads) + own
                    if trusting is not None and trusting.bits >= enough:
                        return _join(bits, cuts, marks, trusting)
                    length = type_id = -1
                if fmt == 3 and csid in ext and not self.dialect_absent:
                    data += 4
                if length < 0:
                    onward = (
                        self._guess(data, csid, type_id, size, floor, heads, guesses, doubtful, now, awaited - started)
                        if guesses
                        else None
                    )
                    if onward is not None:
                        return _join(bits, cuts, marks, onward)
                    seen = csid in self.csids or csid in heads
                    if fmt == 3 and size and self.interleaved and seen and csid not in started:
                        orphans.add(csid)
                        pending = {0xC0 | other: more for other, more in rest.items() if more}
                        stop = orphan_end(buf, data, size, pending, {0xC0 | other for other in orphans})
                        scanned = ((stop or data + size) - data) // 256
                        self.steps -= scanned
                        self.effort += scanned
                        if stop is not None:
                            bits -= 0 if stop == data + size else ORPHAN_BITS
                            pos = stop
                            continue
                    break  # it cannot be followed, but need not be wrong
                worth = _header_bits(header, heads)
                head = buf[data : data + 24]
                inside = payload_bits(type_id, length, head)
                if inside < 0 and self.any_payload and type_id not in _CONTROL_LENGTHS:
                    inside = 0
                if worth < 0 or inside < 0:
                    return None
                bits += worth + inside
                started.add(csid)
                heads[csid] = Head(length, type_id, stream_id)
                if fmt < 2:
                    doubtful.discard(csid)
                    ext.pop(csid, None)
                if ext_value is not None:
                    ext[csid] = ext_value
                if length:
                    marks.setdefault(csid, set()).add(head[:3])
                left = length
                repeated = None if self.dialect_absent else ext.get(csid)
                if not size and left > floor:
                    mark = continuation(buf, pos)
                    onward = self._branch(
                        data, mark, length, floor, heads, guesses, doubtful, repeated, awaited - started
                    )
                    return None if onward is None else _join(bits, cuts, marks, onward)
            count = min(size or MAX_SIZE, left)
            rest[csid] = left - count
            pos = data + count
            if pos > end:
                if self.final:
                    bits -= 8  # a message cut by the end proves less
                break
        return _Walk(bits, size, floor, heads, marks, orphans=frozenset(orphans), cuts=cuts)

    def _branch(
        self,
        data: int,
        mark: bytes,
        length: int,
        floor: int,
        heads: dict[int, Head],
        guesses: int,
        doubtful: set[int],
        ext: int | None,
        awaited: frozenset[int],
    ) -> _Walk | None:
        """The size is unknown and this message is longer than any before: it is cut somewhere, or not at all."""
        best: _Walk | None = None
        end = len(self.buf)
        mark_bytes = len(mark)
        for size in (0, *split_sizes(self.buf, data, mark, length, floor, ext)):
            cuts = (length - 1) // size if size else 0
            stop = data + length + cuts * (mark_bytes if ext is None else mark_bytes + 4)
            if stop <= end:
                onward = self.walk(
                    stop, size, heads, 0 if size else length, guesses, frozenset(doubtful), awaited=awaited
                )
            else:  # not seen whole: an uncut message proves nothing about the size
                cuts = (end - data) // (size + mark_bytes) if size else 0
                onward = _Walk(0, size, 0 if size else floor, heads, {}) if cuts > 1 or not size else None
            if onward is not None and size and not believable_size(size, cuts, onward.bits):
                continue
            if onward is not None and not size and onward.bits < UNCUT_BITS:
                onward = onward._replace(floor=floor)
            if onward is not None and (best is None or onward.bits + 8 * cuts > best.bits):
                best = onward._replace(bits=onward.bits + 8 * cuts, cuts=onward.cuts + cuts)
        return best

    def _guess(
        self,
        data: int,
        csid: int,
        type_id: int,
        size: int,
        floor: int,
        heads: dict[int, Head],
        guesses: int,
        doubtful: set[int],
        now: _UnderWay,
        awaited: frozenset[int],
    ) -> _Walk | None:
        """fmt 2 or 3 whose length is unknown: it ends at a later header after which the chain goes on."""
        buf = self.buf
        if type_id < 0:
            type_id = type_by_content(buf[data : data + 24])
        if type_id < 0 and data < len(buf) and self.video_starts and buf[data : data + 1] not in self.video_starts:
            type_id = 8  # both could begin like this, but the video here begins otherwise
        inside = payload_bits(type_id, 1, buf[data : data + 24]) if type_id >= 0 else -1
        if inside < 0 or csid >= 64 or (type_id == 8 and inside < 8 and buf[data] >> 4 not in _PLAIN_FORMATS):
            return None
        price = GUESS_BITS if inside >= 8 or csid in heads else 2 * GUESS_BITS
        best: _Walk | None = None
        for stop in self._ends(data, csid, heads):
            length = stop - data
            if size and length > size:
                length -= (length - 1) // (size + 1)
                if buf[data + size : stop : size + 1].count(0xC0 | csid) != (length - 1) // size:
                    continue
            if not size and _maybe_cut(buf, data, csid, length, floor):
                continue
            certain = frozenset(doubtful - {csid})
            known = {**heads, csid: Head(length, type_id, 1)}
            onward = self.walk(stop, size, known, floor, guesses - 1, certain, now, awaited | {csid})
            first = buf[data : data + 1]
            if onward is None or not any(mark[:1] == first for mark in onward.marks.get(csid, ())):
                continue  # to be believed it must come again and look alike
            if best is None or onward.bits - price > best.bits:
                head = Head(length, type_id, 1)
                best = onward._replace(bits=onward.bits - price, guessed={**onward.guessed, csid: head})
                best.marks[csid].add(buf[data : data + 3])
                if best.bits >= SHORTEST_BITS:
                    break  # a header with a length is not by chance inside a longer message
        return best

    def _ends(self, data: int, csid: int, heads: dict[int, Head]) -> list[int]:
        """Where a message of `csid` at `data` may end: at a header with a length, at another of its own kind, or at
        one of another csid in use whose payload says loudly what it is."""
        buf = self.buf
        first = bisect_left(self.anchors, data + 1)
        ends = _one_reading(buf, self.anchors[first : first + 32], heads)[:ENDS_TRIED]
        limit = ends[-1] if len(ends) == ENDS_TRIED else len(buf)
        headers = {fmt << 6 | other for other in {csid, *self.csids, *heads} if 1 < other < 64 for fmt in (2, 3)}
        compact = re.compile(b"[" + b"".join(re.escape(bytes((byte,))) for byte in sorted(headers)) + b"]")
        same = buf[data : data + 1]
        found = 0
        for match in compact.finditer(buf, data + 1, limit):
            pos = match.start()
            short = buf[pos] >= 0xC0
            if not short and buf[pos + 1 : pos + 2] != b"\0":
                continue
            head = buf[pos + 1 : pos + 25] if short else buf[pos + 4 : pos + 28]
            if head[:1] == same if buf[pos] & 63 == csid else looks_like_start(head):
                ends.append(pos)
                found += 1
                if found == ENDS_TRIED:
                    break
        return sorted(ends)[:ENDS_TRIED]


def _maybe_cut(buf: bytes, data: int, csid: int, length: int, floor: int) -> bool:
    """Does a mark stand where a common size would cut this message? Only one who knows the size can tell."""
    return any(floor <= cut < length and buf[data + cut] == 0xC0 | csid for cut in COMMON_SIZES)


def _join(bits: int, cuts: int, marks: dict[int, set[bytes]], onward: _Walk) -> _Walk:
    for csid, heads in marks.items():
        onward.marks.setdefault(csid, set()).update(heads)
    return onward._replace(bits=bits + onward.bits, cuts=cuts + onward.cuts)


def type_by_content(head: bytes) -> int:
    """Audio, video, or a named command or data message, when only one of them can begin like this."""
    if payload_bits(18, len(head), head) >= 24:
        return 18 if head[3:].startswith(_DATA_NAMES) else 20
    video, audio = payload_bits(9, len(head), head), payload_bits(8, len(head), head)
    if video >= 14 or (video >= 0 > audio):
        return 9
    return 8 if audio >= 0 > video else -1


def looks_like_start(head: bytes) -> bool:
    """Do these bytes say loudly that a message begins with them?"""
    return max(payload_bits(type_id, 24, head) for type_id in (8, 9, 18)) >= 8


# -- messages without any length -----------------------------------------------------------------------------------

# fmt 3, and the first byte of audio that is sent in frames of one length
_ALIKE = re.compile(rb"(?=([\xc2-\xff][\x10-\x8f\xb0-\xbf\xe0-\xef]))", re.DOTALL)

# the same, or fmt 2 with a step of less than 4 s
_IN_A_ROW = re.compile(rb"(?=([\xc2-\xff]|[\x82-\xbf]\x00[\x00-\x0f].)[\x10-\x8f\xb0-\xbf\xe0-\xef])", re.DOTALL)


def _all_alike(buf: bytes, chain: _Chain) -> Sync | None:
    """Audio in messages of one length is sent with fmt 3 only: the same two bytes, again and again at one distance.

    Nothing may contradict: the chain goes to the end of the bytes or to a header with a length, and no other pair
    of bytes comes at that distance, as it would in a tone, nor this one in between, as it would in a pattern."""
    places: dict[bytes, list[int]] = {}
    for match in _ALIKE.finditer(buf):
        places.setdefault(match[1], []).append(match.start())
    found: dict[int, dict[int, bytes]] = {}  # distance, place: bytes
    dense: set[tuple[int, bytes]] = set()
    ends = set(chain.anchors)
    chain.effort += len(buf) // 64
    for pair, at in places.items():
        if len(at) < ALIKE_TIMES // 2:
            continue
        known = set(at)
        for number, first in enumerate(at[:8], 1):
            for second in at[number : number + 16]:
                step = second - first
                if step <= SHORTEST_ALIKE:
                    continue
                times, stop = 1, second
                while stop in known:
                    times, stop = times + 1, stop + step
                chain.effort += 1 + times // 16
                wanted = ALIKE_TIMES // 2 if stop in ends else ALIKE_TIMES if stop >= len(buf) - 1 else len(buf)
                if times >= wanted:
                    found.setdefault(step, {})[first % step] = pair
                    if bisect_left(at, stop) - number + 1 > 2 * times - times // 2:  # they stand in between as well
                        dense.add((step, pair))
    single = {step: next(iter(phases)) for step, phases in found.items() if len(phases) == 1}
    step = min(single, default=1)
    if not single or any(other % step or phase % step != single[step] for other, phase in single.items()):
        return None
    phase = single[step]
    pair = found[step][phase]
    first = next(at for at in places[pair] if at % step == phase)
    if (step, pair) in dense or _marks_of_chunks(buf, first, step) or _repeats_itself(buf, first, step):
        return None
    return Sync(first, MAX_SIZE, step - 1, {pair[0] & 63: Head(step - 1, 8, 1)}, frozenset())


def _in_a_row(buf: bytes, chain: _Chain, known: dict[int, Head], chunk_size: int) -> Sync | None:
    """The same with fmt 2 wherever the rounded step of time changes: one length, and a header of one or four bytes
    in front of it. Where the length is known from before a loss, half as many are enough, and fmt 3 alone."""
    places: dict[tuple[int, int], dict[int, int]] = {}  # csid and first byte: header, payload
    for match in _IN_A_ROW.finditer(buf):
        data = match.end(1)
        places.setdefault((buf[match.start()] & 63, buf[data]), {})[match.start()] = data
    ends = set(chain.anchors)
    chain.effort += len(buf) // 64
    rows: dict[tuple[int, bool], dict[tuple[int, int, int], int]] = {}  # length, as before: csid, byte, stop; first
    for (csid, byte), at in places.items():
        told = known.get(csid, _NO_HEAD)
        enough = ALIKE_TIMES // 2 if told.type_id == AUDIO else ALIKE_TIMES
        if len(at) < enough:
            continue
        order = list(at)
        for number, first in enumerate(order[:ROWS_TRIED], 1):
            for second in order[number : number + 16]:
                length = second - at[first]
                as_before = told.type_id == AUDIO and length == told.length
                if length <= SHORTEST_ALIKE or (chunk_size and length > chunk_size):
                    continue
                times, twos, pos = 0, 0, first
                while pos in at:
                    times, twos, pos = times + 1, twos + (buf[pos] < 0xC0), at[pos] + length
                chain.effort += 1 + times // 16
                goes_on = pos >= len(buf) - HEADER_BYTES[2] or pos in ends
                mixed = 1 < twos < times and times >= ALIKE_TIMES
                if goes_on and times >= enough and (as_before or mixed):
                    rows.setdefault((length, as_before), {}).setdefault((csid, byte, pos), first)
    # a longer one may go from some messages of the row to others of it; two of one length are a tone or a pattern
    best = min(rows, key=lambda row: (not row[1], row[0]), default=(0, False))
    if len(rows.get(best, ())) != 1:
        return None
    ((csid, byte, _), first), *_ = rows[best].items()
    length = best[0]
    if chunk_size:
        return Sync(first, chunk_size, chunk_size, {**known, csid: Head(length, AUDIO, 1)}, frozenset())
    size = _always_cut(buf, places[csid, byte], first, length)
    if size < 0:
        return None
    if size:
        return Sync(first, size, 0, {csid: Head(length - length // (size + 1), AUDIO, 1)}, frozenset())
    return Sync(first, MAX_SIZE, length, {csid: Head(length, AUDIO, 1)}, frozenset())


def _always_cut(buf: bytes, at: dict[int, int], first: int, length: int) -> int:
    """The size at which each message of a row is cut, 0 where no message is, -1 where it cannot be told."""
    mark = 0xC0 | buf[first] & 63
    marks = set(range(1, length))  # where that byte stands in each of them
    while first in at and marks:
        data = at[first]
        marks = {offset for offset in marks if buf[data + offset : data + offset + 1] in (b"", bytes((mark,)))}
        first = data + length
    size = min(marks, default=0)
    if not size:
        return 0
    return size if size in COMMON_SIZES and marks.issuperset(range(size, length, size + 1)) else -1


def _all_receipts(buf: bytes, to_the_end: bool) -> Sync | None:
    """A receiver that says nothing but how much it got: fmt 3 on csid 2 and a number that grows (RTMP 1.0 5.4.3)."""
    phases = range(min(RECEIPT_BYTES, len(buf))) if to_the_end else (len(buf) % RECEIPT_BYTES,)
    for first in phases:
        marks = buf[first::RECEIPT_BYTES]
        if len(marks) > ALIKE_TIMES // 2 and marks.count(0xC2) == len(marks):
            starts = range(first + 1, len(buf) - RECEIPT_BYTES + 2, RECEIPT_BYTES)
            numbers = [int.from_bytes(buf[at : at + 4], "big") for at in starts]
            if all(0 < later - number < MOST_UNRECEIVED for number, later in pairwise(numbers)):
                return Sync(first, MAX_SIZE, 4, {2: Head(4, ACKNOWLEDGEMENT, 0)}, frozenset())
    return None


def _marks_of_chunks(buf: bytes, first: int, step: int) -> bool:
    """Are these the continuations of one long message, with the like of them in between?"""
    some = range(first, min(first + ALIKE_TIMES // 2 * step, len(buf)))
    sizes = [size for size in COMMON_SIZES if step % (size + 1) == 0]
    return any(all(buf[at] == buf[first] for at in some[:: size + 1]) for size in sizes)


def _repeats_itself(buf: bytes, first: int, step: int) -> bool:
    """Is what comes after one step mostly the same again? That is a pattern or a tone, and no row of messages."""
    stop = min(first + ALIKE_TIMES // 2 * step, len(buf) - step)
    same = sum(buf[at] == buf[at + step] for at in range(first, stop))
    return same * 3 > stop - first


# -- backward ----------------------------------------------------------------------------------------------------


def _back(chain: _Chain, at: int, walk: _Walk, known: dict[int, Head], interleaved: bool) -> Sync:
    """From a proven boundary, take in the messages before it that end exactly where the next one begins."""
    buf, size = chain.buf, walk.size or MAX_SIZE
    alone = not interleaved and not walk.orphans and not _interleaves(buf, at, size, known)
    lengths: dict[int, int] = {csid: head.length for csid, head in {**known, **walk.guessed}.items()}
    types = dict(walk.heads)
    heads = dict(known)
    certain = set(walk.guessed)  # csids whose length a later message repeats
    position, longest = at, max(walk.floor, 1)
    enough = chain.effort + BACK_EFFORT
    while chain.effort < enough:
        earlier = chain.anchors[: bisect_left(chain.anchors, position)]
        chain.effort += 1 + len(earlier) // 16 + min(position, BACK_BYTES) // 256
        floor = MAX_SIZE if walk.size else longest
        step = _before(buf, position, size, earlier, lengths, certain, types, walk.marks, alone, floor)
        if step is None:
            break
        position, header = step
        longest = max(longest, header.length)
        if header.fmt >= 2:
            lengths[header.csid] = header.length
            certain.add(header.csid)
            heads[header.csid] = Head(header.length, header.type_id, header.stream_id)
        else:
            lengths.pop(header.csid, None)
            certain.discard(header.csid)
            heads.pop(header.csid, None)
    for csid, head in {**types, **walk.guessed}.items():
        heads.setdefault(csid, head if csid in walk.guessed else Head(-1, head.type_id, head.stream_id))
    return Sync(position, size, 0 if walk.size else longest, heads, walk.orphans)


def _interleaves(buf: bytes, pos: int, size: int, known: dict[int, Head]) -> bool:
    """Do chunks of another message stand inside one of the messages that follow?"""
    heads = dict(known)
    under_way, rest = -1, 0
    ext: dict[int, int | None] = {}
    for _ in range(INTERLEAVE_STEPS):
        header = _header(buf, pos, heads)
        if header is None or (header.length < 0 and header.csid != under_way):
            return False
        if rest and header.csid != under_way:
            return True
        data = header.data
        if header.fmt == 3 and ext.get(header.csid) == int.from_bytes(buf[data : data + 4], "big"):
            data += 4
        elif header.fmt < 3:
            ext[header.csid] = header.ext
        if not rest:
            heads[header.csid] = Head(header.length, header.type_id, header.stream_id)
            rest = header.length
        under_way = header.csid
        pos = data + min(size, rest)
        rest -= min(size, rest)
    return False


def _before(
    buf: bytes,
    stop: int,
    size: int,
    anchors: list[int],
    lengths: dict[int, int],
    certain: set[int],
    types: dict[int, Head],
    marks: dict[int, set[bytes]],
    alone: bool,
    floor: int,
) -> tuple[int, _Header] | None:
    """The message that ends at `stop`. Only where messages stand `alone` can one be believed whose length is unknown:
    otherwise the end of another may stand behind it; nor one that may be cut, at a size of `floor` or more."""
    for anchor in reversed(anchors):
        if stop - anchor > BACK_BYTES:
            break
        header = _header(buf, anchor, types)
        if header is not None and _spans(buf, header, stop, size) and _header_bits(header, types) >= 0:
            inside = payload_bits(header.type_id, header.length, buf[header.data : min(stop, header.data + 24)])
            if inside >= 0:
                return anchor, header
    for csid, length in lengths.items():
        if csid in types and csid < 64 and length >= 0:
            for fmt in (3, 2):
                pos = stop - length - max(length - 1, 0) // size - 1 - HEADER_BYTES[fmt]
                found = _compact(buf, pos, stop, fmt, csid, size, types[csid], marks)
                if found is not None and found[0] >= 16:
                    return found[1:]
    if not alone:
        return None
    low = max(0, stop - BACK_BYTES)  # and no message is believed that would swallow what looks like a header
    low = max(low, next((anchor + 1 for anchor in reversed(anchors) if is_strong(buf, anchor)), 0))
    named = _named_before(buf, low, stop, size, types, marks, floor)
    uncertain = {csid for csid in types if csid < 64 and csid not in certain and marks.get(csid)}
    for pos in _candidates(buf, low if named is None else named[0] + 1, stop, uncertain):
        csid = buf[pos] & 63
        found = _compact(buf, pos, stop, buf[pos] >> 6, csid, size, types[csid], marks)
        if found is not None and found[0] >= 30 and not _maybe_cut(buf, found[2].data, csid, found[2].length, floor):
            return found[1:]
        if found is not None and found[0] >= 16:
            return None  # it may well begin here: do not swallow it with what stands before, whatever its csid
    if named is not None:
        types[named[1].csid] = Head(named[1].length, named[1].type_id, 1)
    return named


def _named_before(
    buf: bytes, low: int, stop: int, size: int, types: dict[int, Head], marks: dict[int, set[bytes]], floor: int
) -> tuple[int, _Header] | None:
    """The nearest command or data message on a csid of which nothing is known yet."""
    matches = {match.start(): match for match in _NAMED.finditer(buf, low, stop)}
    for pos, match in reversed(matches.items()):
        csid = buf[pos] & 63
        if buf[pos] >= 0xC0 and pos - HEADER_BYTES[2] in matches:
            continue  # the last byte of a step of time
        if csid not in types and _is_name(buf[match.start(2) : stop], match[1][0]):
            type_id = type_by_content(buf[pos + 1 + HEADER_BYTES[buf[pos] >> 6] :][:24])
            found = _compact(buf, pos, stop, buf[pos] >> 6, csid, size, Head(-1, type_id, 1), marks)
            if found is None or _maybe_cut(buf, found[2].data, csid, found[2].length, floor):
                continue
            if found[0] >= 30:
                return found[1:]
    return None


def _is_name(buf: bytes, length: int) -> bool:
    """Is this a name of `length` bytes, and a value behind it? Three letters alone come by chance."""
    return len(buf) > length and buf[length] in _VALUES and _NAME.fullmatch(buf, 0, length) is not None


def _candidates(buf: bytes, low: int, high: int, csids: Iterable[int]) -> Iterator[int]:
    """Positions of fmt 2 and 3 header bytes of `csids`, nearest to `high` first."""
    headers = {fmt << 6 | csid for csid in csids for fmt in (2, 3)}
    for pos in range(high - 1, low - 1, -1):
        if buf[pos] in headers:
            yield pos


def _spans(buf: bytes, header: _Header, stop: int, size: int) -> bool:
    """Does the message of `header` end exactly at `stop`?"""
    length = header.length
    cuts = max(length - 1, 0) // size
    if header.csid >= 64 or header.data + length + cuts != stop:
        return False
    mark = 0xC0 | header.csid
    return buf[header.data + size : stop : size + 1].count(mark) == cuts


def _compact(
    buf: bytes,
    pos: int,
    stop: int,
    fmt: int,
    csid: int,
    size: int,
    head: Head,
    marks: dict[int, set[bytes]],
) -> tuple[int, int, _Header] | None:
    """A message with a header of fmt 2 or 3 from `pos` to `stop`: how loudly its bytes say so, and the message."""
    if pos < 0 or buf[pos] != (fmt << 6 | csid):
        return None
    data = pos + 1 + HEADER_BYTES[fmt]
    if data > stop:
        return None
    bits = 8
    delta = 0
    if fmt == 2:
        delta = buf[pos + 1] << 16 | buf[pos + 2] << 8 | buf[pos + 3]
        if delta > 1024:
            return None
        bits += 14 if delta != 3 else 2  # 00 00 03 stands all over H.264 and HEVC (ITU-T H.264 7.4.1)
    wire = stop - data
    cuts = wire // (size + 1) if wire % (size + 1) else max(wire // (size + 1) - 1, 0)
    length = wire - cuts
    mark = 0xC0 | csid
    if length <= 0 or buf[data + size : stop : size + 1].count(mark) != cuts:
        return None
    # the marks are no evidence: the tail of any longer message has them too
    inside = payload_bits(head.type_id, length, buf[data : min(stop, data + 24)])
    if inside < 0 or head.type_id in _CONTROL_LENGTHS:
        return None
    if inside < 8 and any(payload_bits(head.type_id, length, seen) >= 8 for seen in marks.get(csid, ())):
        return None  # the others of its csid say loudly what they are
    alike = max((_alike(buf[data : data + 3], mark) for mark in marks.get(csid, ())), default=0)
    if not alike and inside < 24:
        return None
    return (
        bits + max(inside, 8 * alike),
        pos,
        _Header(fmt, csid, data, delta, None, length, head.type_id, head.stream_id),
    )


def _alike(a: bytes, b: bytes) -> int:
    """How many bytes two beginnings share."""
    count = 0
    for x, y in zip(a, b):
        if x != y:
            break
        count += 1
    return count
