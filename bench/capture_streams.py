"""Measures each step from a capture file to directed TCP streams, on one core.

    python bench/capture_streams.py FILE... [--window MiB]

Prints CPU seconds, MB/s and ns per byte of reading records, decoding headers and reassembly, the number of delivered
bytes and the peak memory.
"""

from __future__ import annotations

import argparse
import resource
import time

from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.capture.packets.dissector import Dissector
from rtmp_spark.capture.tcp.reassembler import Reassembler
from rtmp_spark.capture.tcp.stream_items import Run


def measure(path: str, window_bytes: int) -> None:
    spent = dict.fromkeys(("records", "headers", "streams"), 0.0)
    clock = time.process_time
    with open_capture(path, window_bytes=window_bytes) as capture:
        dissector, reassembler = Dissector(), Reassembler()
        delivered = runs = 0
        blocks = iter(capture)
        while True:
            begun = clock()
            block = next(blocks, None)
            walked = clock()
            spent["records"] += walked - begun
            items = reassembler.finish() if block is None else []
            if block is not None:
                segments = dissector.segments(block)
                spent["headers"] += clock() - walked
                walked = clock()
                items = reassembler.feed(segments)
                reassembler.take_intervals()
            spent["streams"] += clock() - walked
            for item in items:
                if isinstance(item, Run):
                    delivered += len(item.data)
                    runs += 1
            if block is None:
                break
        size = capture.size_bytes
        connections = reassembler.counts["connections"]
        print(
            f"{path}: {size / 1e6:.0f} MB, {capture.facts.packets} packets, {connections} connections, "
            f"{runs} runs, {delivered} bytes delivered"
        )
    for step, seconds in (*spent.items(), ("all", sum(spent.values()))):
        rate = size / 1e6 / max(seconds, 1e-9)
        per_flow = seconds * 1e6 / max(2 * connections, 1)
        print(
            f"  {step:8} {seconds:7.2f} s CPU {rate:8.0f} MB/s {seconds * 1e9 / size:6.2f} ns/byte "
            f"{per_flow:10.1f} us per direction"
        )
    print(f"  highest memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the steps from capture files to directed TCP streams.")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--window", type=int, default=8, help="MiB read at a time")
    arguments = parser.parse_args()
    for path in arguments.files:
        measure(path, arguments.window << 20)


if __name__ == "__main__":
    main()
