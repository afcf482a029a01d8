"""Measures the speed of the codec on one core. Prints the figures and asserts nothing.

    python bench/codec.py [--megabytes 60] [--repeat 5]

Measured are: dechunking at three chunk sizes and with two interleaved streams, in pieces of 64 KiB and as a whole;
pieces of one byte (the cost must not grow with the square of the input); an AMF0 connect; and the memory for 60,000
unfinished messages of 16 MB. Times are CPU times, the minimum of several runs. Every rate is printed with the number of
messages found and sent, because a decoder that finds less is faster. The streams come from make_captures.py, which does
not use `rtmp_spark`.
"""

from __future__ import annotations

import argparse
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import zip_longest

from make_captures import media_frames
from publication_writer import Script
from real_publication import SAMPLE, Session, read_session

from rtmp_spark.codec import amf0
from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.events import COMPLETE, MessageReceived

PIECE = 64 * 1024
COMMAND = 20


def publisher_stream(session: Session, chunk_size: int, size: float) -> tuple[bytes, int]:
    """The bytes that a publisher sends after its handshake, and the number of messages in them."""
    script = Script(session, chunk_size, {})
    writes = [data for _, from_client, data in script.whole_session(media_frames(session, size)) if from_client]
    return b"".join(writes[2:]), script.messages  # C0+C1 and C2 come first


def interleaved_stream(chunk_size: int, size: int) -> tuple[bytes, int]:
    """Two csids whose chunks alternate while both have an unfinished message."""
    rng = random.Random(7)
    parts, sent, timestamp = [], 0, 0
    while sent * 6_000 < size:
        timestamp += 40
        sides = []
        for csid, type_id in ((4, 8), (6, 9)):
            body = rng.randbytes(rng.randrange(5_000, 7_000))
            header = bytes([csid]) + timestamp.to_bytes(3, "big") + len(body).to_bytes(3, "big") + bytes([type_id])
            pieces = [body[i : i + chunk_size] for i in range(0, len(body), chunk_size)]
            sides.append([header + b"\1\0\0\0" + pieces[0], *(bytes([0xC0 | csid]) + piece for piece in pieces[1:])])
            sent += 1
        parts.append(b"".join(a + b for a, b in zip_longest(*sides, fillvalue=b"")))
    return b"".join(parts), sent


def found(stream: bytes, piece: int) -> int:
    """Whole messages that the decoder reports."""
    decoder = RtmpDecoder(phase="chunks")
    count = 0
    for start in range(0, len(stream), piece):
        for event in decoder.receive_data(stream[start : start + piece]):
            count += isinstance(event, MessageReceived) and event.status == COMPLETE
    return count


def best(repeat: int, work: Callable[[], int]) -> tuple[float, int]:
    """CPU seconds of the fastest run, and the result of `work`."""
    shortest, result = float("inf"), 0
    for _ in range(repeat):
        begin = time.process_time()
        result = work()
        shortest = min(shortest, time.process_time() - begin)
    return shortest, result


def dechunking(session: Session, megabytes: float, repeat: int) -> None:
    streams = {f"chunk size {size}": publisher_stream(session, size, megabytes * 1e6) for size in (128, 4096, 60000)}
    streams["chunk size 128, two streams interleaved"] = interleaved_stream(128, int(megabytes * 1e6 / 4))
    for name, (stream, sent) in streams.items():
        for how, piece in (("64 KiB pieces", PIECE), ("whole", len(stream))):
            seconds, count = best(repeat, partial(found, stream, piece))
            rate = len(stream) / seconds / 1e6
            print(f"dechunk, {name}, {how}: {rate:.0f} MB/s ({count} of {sent} messages, {len(stream) / 1e6:.0f} MB)")


def single_bytes(session: Session) -> None:
    stream, _ = publisher_stream(session, 4096, 12e6)
    for size in (1_250_000, 2_500_000, 5_000_000, 10_000_000):
        seconds, count = best(1, partial(found, stream[:size], 1))
        print(f"one byte at a time, {size / 1e6:.2f} MB: {seconds:.2f} s ({count} messages)")


def connect_command(session: Session, repeat: int) -> None:
    payload = next(m.payload for m in session.opening if m.type_id == COMMAND)
    times = 20_000

    def parse() -> int:
        for _ in range(times):
            values = amf0.parse_values(payload)
        return len(values)

    seconds, values = best(repeat, parse)
    print(f"AMF0 connect, {len(payload)} bytes: {seconds / times * 1e6:.2f} us ({values} values)")


ANNOUNCE = """
import resource, sys
from rtmp_spark.codec.decoder import RtmpDecoder
def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()
data = sys.stdin.buffer.read()
decoder = RtmpDecoder(phase="chunks")
before, events = resident(), 0
for start in range(0, len(data), 65536):
    events += len(decoder.receive_data(data[start:start + 65536]))
print((resident() - before) / 2**20, events)
"""


def announced_memory() -> None:
    """Measure memory in a new process: 60,000 csids announce 16 MB each and send one chunk of 128 bytes."""
    header = b"\0\0\0" + (16_000_000).to_bytes(3, "big") + bytes([9]) + b"\1\0\0\0"
    stream = b"".join(b"\1" + struct.pack("<H", csid - 64) + header + bytes(128) for csid in range(320, 60_320))
    result = subprocess.run([sys.executable, "-c", ANNOUNCE], input=stream, capture_output=True, check=True)
    grown, events = result.stdout.split()
    text = f"16 MB announced on 60,000 csids ({len(stream) / 1e6:.1f} MB sent): resident memory grows"
    print(f"{text} {float(grown):.1f} MiB ({int(events)} events)")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the speed of the codec on one core.")
    parser.add_argument("--megabytes", type=float, default=60, help="of each stream")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    session = read_session(SAMPLE, True, random.Random(1935))
    print(f"Python {sys.version.split()[0]}, CPU time, best of {args.repeat}")
    dechunking(session, args.megabytes, args.repeat)
    single_bytes(session)
    connect_command(session, args.repeat)
    announced_memory()
    return 0


if __name__ == "__main__":
    sys.exit(main())
