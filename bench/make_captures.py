"""Makes the large captures of the benchmarks from one small real capture.

    python bench/make_captures.py DIRECTORY [NAME ...] [--source FILE.pcap] [--scale 1.0] [--force]

    c128, c4096, c60000   15 publishers at once, about 300 MB: the same messages at three chunk sizes
    huge                  one publisher, about 550 MB; its sequence numbers pass 2^32
    tiny10k               10,000 connections of 40 packets
    files10k              the same, each in a file of its own
    mixed1000             1,000 publishers at once, about 300 MB
    players               1 publisher and 5,000 players
    names                 6,000 publishers and 4,000 plays of three names, every publication with its own content
    same                  the same with one content: everything was published and played thousands of times
    relay                 15 publishers of video with three players each, about 2 GB
    relay8                the same with 8 GB; only made if it is named
    c4096_pcapng, c4096_gz  c4096 as pcapng and compressed with gzip

Handshake, commands and responses are those of the real publisher. Its media is repeated with increasing timestamps,
and filler NAL units enlarge its video frames to about 5 Mbit/s. `--source` takes another capture of one complete
publication and uses its media unchanged. The writer follows the specification and does not use `rtmp_spark`, so that
the benchmarks compare with independent counts. DIRECTORY/captures.json contains the number of packets, connections and
messages of each capture. The same arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from publication_writer import Connection, Script, write_pcap
from real_publication import AUDIO, SAMPLE, Session, read_session
from relay_traffic import FEW_FRAMES, PLAY_MESSAGES, Packets, fan_out, fan_out_frames, few_names, relay

START = 1_700_000_000.0
TINY_PACKETS = 40
RELAYED, PLAYERS = 15, 3  # publishers of `relay`, and players of each


def media_frames(session: Session, wanted_bytes: float) -> int:
    mean = sum(len(m.payload) for m in session.media) / len(session.media)
    return max(1, int(wanted_bytes / (mean * 1.07)))


def make_publishers(path: Path, session: Session, chunk_size: int, count: int, each_bytes: float) -> dict[str, int]:
    """Write simultaneous publishers; the sequence numbers of the first wrap after a third of its bytes."""
    bodies: dict[tuple[int, int, int], bytes] = {}
    scripts = [Script(session, chunk_size, bodies) for _ in range(count)]
    frames = media_frames(session, each_bytes)
    first = (1 << 32) - int(each_bytes / 3)
    flows = [
        Connection(n, START + n * 0.731, (first + 1_000_000_007 * n) & 0xFFFFFFFF).packets(script.whole_session(frames))
        for n, script in enumerate(scripts)
    ]
    packets, size = write_pcap(path, flows)
    return summary(size, packets, count, scripts)


def tiny_connections(session: Session, count: int) -> tuple[list[Script], list[Iterator[tuple[float, bytes]]]]:
    """Return connections of exactly TINY_PACKETS packets, filled with audio frames."""
    short = replace(session, media=[m for m in session.media if m.type_id == AUDIO])
    fixed = sum(1 for _ in Connection(0, START, 0, False).packets(Script(short, 4096, {}).whole_session(0)))
    if fixed >= TINY_PACKETS:
        raise SystemExit(
            f"The source needs {fixed} packets without media; tiny10k needs fewer than {TINY_PACKETS}. Choose another."
        )
    scripts = [Script(short, 4096, {}) for _ in range(count)]
    return scripts, [
        Connection(n, START + n * 0.003, 9_000 * n + 5, False).packets(script.whole_session(TINY_PACKETS - fixed))
        for n, script in enumerate(scripts)
    ]


def make_tiny(path: Path, session: Session, count: int) -> dict[str, int]:
    scripts, flows = tiny_connections(session, count)
    packets, size = write_pcap(path, flows)
    return summary(size, packets, count, scripts)


def make_relayed(path: Path, flows: list[Packets], client_messages: int) -> dict[str, int]:
    packets, size = write_pcap(path, flows)
    return {"bytes": size, "packets": packets, "connections": len(flows), "client_messages": client_messages}


def make_files(directory: Path, session: Session, count: int) -> dict[str, int]:
    """Write the tiny connections, each into its own file."""
    directory.mkdir(exist_ok=True)
    scripts, flows = tiny_connections(session, count)
    written = [write_pcap(directory / f"{n:06}.pcap", [flow]) for n, flow in enumerate(flows)]
    return summary(sum(size for _, size in written), sum(packets for packets, _ in written), count, scripts)


def as_pcapng(source: Path, path: Path) -> None:
    """The packets of a pcap in enhanced packet blocks of one interface."""
    data = source.read_bytes()
    at = 24
    with path.open("wb", buffering=1 << 20) as out:
        out.write(struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28))
        out.write(struct.pack("<IIHHII", 1, 20, 1, 0, 262144, 20))
        while at < len(data):
            seconds, micros, length, original = struct.unpack_from("<IIII", data, at)
            ticks = seconds * 1_000_000 + micros
            size = 32 + length + (-length & 3)
            out.write(struct.pack("<IIIIIII", 6, size, 0, ticks >> 32, ticks & 0xFFFFFFFF, length, original))
            out.write(data[at + 16 : at + 16 + length] + bytes(-length & 3) + struct.pack("<I", size))
            at += 16 + length


def make_variant(path: Path, made: dict[str, dict[str, int]]) -> dict[str, int]:
    """c4096 in another format; it has to exist."""
    source = path.parent / "c4096.pcap"
    if not source.exists():
        raise SystemExit("Make c4096 first.")
    if path.suffix == ".gz":
        with gzip.open(path, "wb", 1) as out:
            out.write(source.read_bytes())
    else:
        as_pcapng(source, path)
    return {**made["c4096"], "bytes": path.stat().st_size}


def summary(size: int, packets: int, connections: int, scripts: list[Script]) -> dict[str, int]:
    return {
        "bytes": size,
        "packets": packets,
        "connections": connections,
        "client_messages": sum(script.messages for script in scripts),
    }


def size_of(path: Path) -> int:
    """Return the size of a file, or of all files in a directory."""
    return sum(p.stat().st_size for p in (path.iterdir() if path.is_dir() else [path]) if p.exists())


NAMES = (
    "c128",
    "c4096",
    "c60000",
    "huge",
    "tiny10k",
    "files10k",
    "mixed1000",
    "players",
    "names",
    "same",
    "relay",
    "relay8",
)
FILES = {name: name if name == "files10k" else f"{name}.pcap" for name in NAMES}
ON_REQUEST = ("relay8",)
FILES |= {"c4096_pcapng": "c4096.pcapng", "c4096_gz": "c4096.pcap.gz"}


def make(name: str, path: Path, session: Session, scale: float) -> dict[str, int]:
    if name == "tiny10k":
        return make_tiny(path, session, max(1, int(10_000 * scale)))
    if name == "files10k":
        return make_files(path, session, max(1, int(10_000 * scale)))
    if name == "mixed1000":
        return make_publishers(path, session, 4096, max(1, int(1000 * min(scale, 1))), 0.3e6 * max(scale, 1))
    if name == "players":
        players = int(5000 * scale)
        sent = PLAY_MESSAGES + 1 + fan_out_frames(players)
        return make_relayed(path, fan_out(players, START), sent + PLAY_MESSAGES * players)
    if name in ("names", "same"):
        publishers, players = int(6000 * scale), int(4000 * scale)
        sent = publishers * (PLAY_MESSAGES + 1 + FEW_FRAMES) + players * PLAY_MESSAGES
        return make_relayed(path, few_names(publishers, players, START, name == "same"), sent)
    if name in ("relay", "relay8"):
        each = (2e9 if name == "relay" else 8e9) / (RELAYED * (PLAYERS + 1)) * scale
        return make_relayed(path, *relay(session, RELAYED, PLAYERS, media_frames(session, each), START))
    if name == "huge":
        return make_publishers(path, session, 4096, 1, 550e6 * scale)
    return make_publishers(path, session, int(name[1:]), 15, 20e6 * scale)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Make the large captures of the benchmarks from one small real capture."
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(FILES)} (default: all except relay8)")
    parser.add_argument(
        "--source", type=Path, help="a capture of one complete publication; its media is used unchanged"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="scale of the sizes (0.01 for a quick look)")
    parser.add_argument("--force", action="store_true", help="make captures again even if they exist")
    args = parser.parse_args()
    unknown = set(args.names) - set(FILES)
    if unknown:
        parser.error(f"unknown capture: {', '.join(sorted(unknown))}")
    session = read_session(args.source or SAMPLE, args.source is None, random.Random(1935))
    args.directory.mkdir(parents=True, exist_ok=True)
    ledger = args.directory / "captures.json"
    made = json.loads(ledger.read_text()) if ledger.exists() else {}
    for name in args.names or [name for name in FILES if name not in ON_REQUEST]:
        path = args.directory / FILES[name]
        if name in made and not args.force and made[name]["bytes"] == size_of(path):
            print(f"{path}: exists")
            continue
        variant = name.startswith("c4096_")
        made[name] = make_variant(path, made) if variant else make(name, path, session, args.scale)
        ledger.write_text(json.dumps(made, indent=1) + "\n")
        print(f"{path}: " + ", ".join(f"{value} {key}" for key, value in made[name].items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
