"""A small chunk writer by the specification alone, so that the decoder is not only tested against our encoder.

It imports nothing of the project. Unlike a real sender it chooses among all legal encodings of a message at random:
header formats, forms of the csid, interleaving, chunk sizes that change between two chunks, extended timestamps
repeated on fmt 3 (RTMP 1.0) or left out (the draft of 2009).
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field

CSIDS = [3, 4, 5, 6, 7, 63, 64, 65, 70, 319, 320, 365, 65599]


@dataclass
class Sent:
    csid: int
    timestamp: int
    type_id: int
    stream_id: int
    payload: bytes


@dataclass
class _Channel:
    """The fields of the last header on a csid, and the message that is being written."""

    last: Sent | None = None
    delta: int | None = None
    queue: list[Sent] = field(default_factory=list)
    written: int = 0
    extension: bytes = b""


def basic_header(fmt: int, csid: int, form: int) -> bytes:
    """RTMP 1.0 5.3.1.1: one byte for 2-63, two for 64-319, three (low byte first) for 64-65599."""
    if form == 1:
        return struct.pack("B", fmt * 64 + csid)
    if form == 2:
        return struct.pack("BB", fmt * 64, csid - 64)
    return struct.pack("<BH", fmt * 64 + 1, csid - 64)


def message_header(fmt: int, value: int, message: Sent) -> tuple[bytes, bytes]:
    """The fields that `fmt` has, and the extended timestamp (RTMP 1.0 5.3.1.2, 5.3.1.3)."""
    clipped = struct.pack(">I", min(value, 0xFFFFFF))[1:]
    extension = struct.pack(">I", value) if value >= 0xFFFFFF else b""
    length_and_type = struct.pack(">I", len(message.payload))[1:] + struct.pack("B", message.type_id)
    if fmt == 0:
        return clipped + length_and_type + struct.pack("<I", message.stream_id), extension
    if fmt == 1:
        return clipped + length_and_type, extension
    return (clipped if fmt == 2 else b""), extension


class ChunkWriter:
    def __init__(self, rng: random.Random, chunk_size: int = 128, repeat_extension: bool = True) -> None:
        self.rng = rng
        self.chunk_size = chunk_size
        self.repeat_extension = repeat_extension
        self.channels: dict[int, _Channel] = {}
        self.wire = bytearray()
        self.sent: list[Sent] = []  # in order of completion

    def queue(self, message: Sent) -> None:
        self.channels.setdefault(message.csid, _Channel()).queue.append(message)

    def flush(self) -> None:
        """Write everything that is queued, one chunk of a random csid at a time."""
        while waiting := [csid for csid, channel in self.channels.items() if channel.queue]:
            self._chunk(self.rng.choice(waiting))

    def set_chunk_size(self, size: int) -> None:
        """Change the chunk size now, even between chunks of a message: the next chunk uses the new size."""
        message = Sent(2, 0, 1, 0, struct.pack(">I", size))
        self.wire += b"\x02" + message_header(0, 0, message)[0] + message.payload[: self.chunk_size]
        for at in range(self.chunk_size, 4, self.chunk_size):
            self.wire += b"\xc2" + message.payload[at : at + self.chunk_size]
        self.channels[2] = _Channel(last=message)
        self.sent.append(message)
        self.chunk_size = size

    def step(self) -> bool:
        """Write one chunk of a queued message; False if nothing is queued."""
        waiting = [csid for csid, channel in self.channels.items() if channel.queue]
        if waiting:
            self._chunk(self.rng.choice(waiting))
        return bool(waiting)

    def _chunk(self, csid: int) -> None:
        channel = self.channels[csid]
        message = channel.queue[0]
        form = 1 if csid < 64 else 3 if csid > 319 else 2
        if channel.written == 0:
            fmt, value = self._choose(channel, message)
            header, channel.extension = message_header(fmt, value, message)
            extension = channel.extension if fmt < 3 or self.repeat_extension else b""
            self.wire += basic_header(fmt, csid, form) + header + extension
            channel.last = message
            channel.delta = value if fmt else None
        else:
            self.wire += basic_header(3, csid, form) + (channel.extension if self.repeat_extension else b"")
        data = message.payload[channel.written : channel.written + self.chunk_size]
        self.wire += data
        channel.written += len(data)
        if channel.written == len(message.payload):
            channel.written = 0
            channel.queue.pop(0)
            self.sent.append(message)

    def _choose(self, channel: _Channel, message: Sent) -> tuple[int, int]:
        last = channel.last
        legal = [0]
        step = 0
        if last is not None and last.stream_id == message.stream_id and message.timestamp >= last.timestamp:
            step = message.timestamp - last.timestamp
            legal.append(1)
            if last.type_id == message.type_id and len(last.payload) == len(message.payload):
                legal.append(2)
                if channel.delta == step:
                    legal.append(3)
        fmt = self.rng.choice(legal)
        return fmt, message.timestamp if fmt == 0 else step


def random_stream(
    rng: random.Random, messages: int, extended: bool = False, repeat_extension: bool = True
) -> ChunkWriter:
    """Media on several csids, interleaved, with changes of the chunk size in between."""
    writer = ChunkWriter(rng, 128, repeat_extension)
    csids = rng.sample(CSIDS, rng.randint(1, 4))
    clock = dict.fromkeys(csids, 0x2000000 if extended else 0)
    delta = {csid: rng.choice([0, 20, 23, 40]) for csid in csids}
    for _ in range(messages):
        csid = rng.choice(csids)
        if rng.random() < 0.3:
            delta[csid] = rng.choice([0, 17, 23, 40, 1000, *([0xFFFFFF, 0x1000000] if extended else [])])
        clock[csid] += delta[csid]
        type_id = rng.choice([8, 9])
        size = rng.choice([2, 10, 127, 128, 129, 200, 200, 1000])
        head = b"\xaf\x01" if type_id == 8 else b"\x27\x01"
        writer.queue(Sent(csid, clock[csid], type_id, rng.choice([1, 1, 1, 2]), head + rng.randbytes(size - 2)))
        while rng.random() < 0.7 and writer.step():
            pass
        if rng.random() < 0.05:
            writer.set_chunk_size(rng.choice([50, 128, 129, 4096]))
    writer.flush()
    return writer
