"""Further captures that try to cost more than they weigh: commands, media, wrappings and files of unusual kinds."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable

from kit.capture_rewriting import enhanced, interface, section
from kit.hostile_captures import (
    Family,
    Record,
    Wire,
    amf_object,
    basic_header,
    connected,
    message,
    number,
    pcap,
    publishing,
    text,
)


def _one(speak: Callable[[Wire], object]) -> bytes:
    records: list[Record] = []
    speak(connected(Wire(records)))
    return pcap(records)


# -- commands ---------------------------------------------------------------------------------------------------------


def metadata_keys(n: int) -> bytes:
    """One onMetaData with `n` keys, sent again by a server that repeats it."""
    pairs = b"".join(struct.pack(">H", 7) + b"k%06d" % (i % 1_000_000) + number(i) for i in range(n))
    body = text("@setDataFrame") + text("onMetaData") + b"\x08" + struct.pack(">I", n) + pairs + b"\0\0\x09"
    return _one(lambda wire: publishing(wire).say(0, message(4, 18, body, stream_id=1)))


def metadata_messages(n: int) -> bytes:
    """`n` times other metadata."""

    def speak(wire: Wire) -> None:
        publishing(wire)
        for i in range(n):
            fields = amf_object(encoder=f"e{i}", width=str(i), comment=f"c{i}")
            wire.say(0, message(4, 18, text("@setDataFrame") + text("onMetaData") + fields, stream_id=1))

    return _one(speak)


def long_words_and_names(n: int) -> bytes:
    """Texts of 60 words with letters and digits after names that are a little shorter."""

    def speak(wire: Wire) -> None:
        for length in range(24, 30):
            name = f"{length}" + "a1" * (length // 2 - 1)
            wire.say(0, message(3, 20, text("releaseStream") + number(length) + b"\x05" + text(name)))
        for i in range(n):
            words = " ".join(f"{60 * i + k:015d}abcdefghijklmno" for k in range(60)).encode()
            body = text("onTextData") + b"\x0c" + struct.pack(">I", len(words)) + words
            wire.say(0, message(4, 18, body, stream_id=1))

    return _one(speak)


def words_and_names(n: int) -> bytes:
    """A text of `n` words after names of many lengths."""

    def speak(wire: Wire) -> None:
        for i in range(80):
            name = "n" + "x-" * i + str(i)
            wire.say(0, message(3, 20, text("releaseStream") + number(2 + i) + b"\x05" + text(name)))
        words = b" ".join(b"%x" % i for i in range(n))
        body = text("onTextData") + b"\x0c" + struct.pack(">I", len(words)) + words
        wire.say(0, message(4, 18, body, stream_id=1))

    return _one(speak)


def unanswered_names(n: int) -> bytes:
    """releaseStream, FCPublish and createStream of another name each, without a response."""

    def speak(wire: Wire) -> None:
        for i in range(n):
            for place, name in enumerate(("releaseStream", "FCPublish")):
                wire.say(0, message(3, 20, text(name) + number(2 + 3 * i + place) + b"\x05" + text(f"name{i}")))
            wire.say(0, message(3, 20, text("createStream") + number(4 + 3 * i) + b"\x05"))

    return _one(speak)


def republications(n: int) -> bytes:
    """One stream that is published and closed `n` times, each with a frame."""

    def speak(wire: Wire) -> None:
        for i in range(n):
            publishing(wire, tid=2 + i)
            wire.say(0, message(6, 9, b"\x17\x01\0\0\0" + bytes(8), stream_id=1, timestamp=i))
            wire.say(0, message(3, 20, text("closeStream") + number(0) + b"\x05", stream_id=1))

    return _one(speak)


def seeks(n: int) -> bytes:
    """A player that seeks and pauses `n` times."""

    def speak(wire: Wire) -> None:
        wire.say(0, message(8, 20, text("play") + number(0) + b"\x05" + text("cam"), stream_id=1))
        for i in range(n):
            wire.say(0, message(8, 20, text("seek") + number(0) + b"\x05" + number(i * 100), stream_id=1))
            wire.say(0, message(8, 20, text("pause") + number(0) + b"\x05\x01\x01" + number(i), stream_id=1))
            notified = amf_object(level="status", code="NetStream.Seek.Notify", description=f"Seeking {i}.")
            wire.say(1, message(5, 20, text("onStatus") + number(0) + b"\x05" + notified, stream_id=1))

    return _one(speak)


def deep_objects(n: int) -> bytes:
    """Arrays of objects in objects, 60 deep."""
    deep = b"\x03" + (b"\0\1a\x03" * 59) + b"\0\0\x09" * 60
    body = text("deep") + number(5) + b"\x0a" + struct.pack(">I", 100) + deep * 100
    return _one(lambda wire: [wire.say(0, message(3, 20, body)) for _ in range(n)])


def shared_objects(n: int) -> bytes:
    """A shared object of another name in each message."""

    def speak(wire: Wire) -> None:
        for i in range(n):
            name = b"so%06d" % i
            change = b"\0\2ab\x02\0\4" + name[-4:]
            body = struct.pack(">H", len(name)) + name + bytes(12) + b"\x04" + struct.pack(">I", len(change)) + change
            wire.say(0, message(3, 19, body))

    return _one(speak)


def unknown_control_events(n: int) -> bytes:
    """User Control events of unknown types, and Acknowledgements that go back."""
    parts = [message(2, 4, struct.pack(">HI", i & 0xFFFF, i)) + message(2, 3, struct.pack(">I", -i & 0xFFFFFFFF))
             for i in range(n)]  # fmt: skip
    return _one(lambda wire: wire.say(0, b"".join(parts)))


# -- chunks and media -------------------------------------------------------------------------------------------------


def extended_timestamps(n: int) -> bytes:
    """Messages of two chunks with an extended timestamp, which every other second chunk lacks."""

    def speak(wire: Wire) -> None:
        wire.say(0, message(2, 1, struct.pack(">I", 128)))
        parts = []
        for i in range(n):
            time = struct.pack(">I", 0x01000000 + i)
            head = basic_header(0, 6) + b"\xff\xff\xff" + (200).to_bytes(3, "big") + b"\x09" + struct.pack("<I", 1)
            parts.append(head + time + bytes(128) + basic_header(3, 6) + (time if i % 2 else b"") + bytes(72))
        wire.say(0, b"".join(parts))

    return _one(speak)


def nested_aggregates(n: int) -> bytes:
    """Aggregates in aggregates."""
    inner = b"\x16" + (11).to_bytes(3, "big") + bytes(7) + b"\x09" + bytes(10) + b"\0\0\0\x16"
    body = inner * 100
    outer = b"\x16" + len(body).to_bytes(3, "big") + bytes(7) + body + struct.pack(">I", len(body) + 11)
    return _one(lambda wire: wire.say(0, b"".join(message(6, 22, outer, stream_id=1, timestamp=i) for i in range(n))))


def nal_units(n: int) -> bytes:
    """One AVC frame of `n` NAL units."""
    body = b"\x17\x01\0\0\0" + b"\0\0\0\x01\x65" * n
    return _one(lambda wire: publishing(wire).say(0, message(6, 9, body, stream_id=1)))


def many_tracks(n: int) -> bytes:
    """Enhanced RTMP frames of 256 tracks each."""
    tracks = b"".join(bytes((track,)) + b"\0\0\x04" + bytes(4) for track in range(256))
    body = b"\x96\x11avc1" + tracks
    return _one(lambda wire: publishing(wire).say(0, message(6, 9, body, stream_id=1) * n))


def interleaved_csids(n: int) -> bytes:
    """Chunks of one byte of 500 messages by turns."""

    def speak(wire: Wire) -> None:
        wire.say(0, message(2, 1, struct.pack(">I", 1)))
        heads = [bytes(3) + (n // 500 + 1).to_bytes(3, "big") + b"\x09" + struct.pack("<I", 1) + b"\x17"] * 500
        parts = [basic_header(0, 64 + csid) + head for csid, head in enumerate(heads)]
        parts += [basic_header(3, 64 + i % 500) + b"\0" for i in range(n)]
        wire.say(0, b"".join(parts))

    return _one(speak)


def timestamp_rollovers(n: int) -> bytes:
    """Deltas that pass 2^32 with every second message."""
    head = basic_header(1, 6) + b"\xff\xff\xff" + (9).to_bytes(3, "big") + b"\x09" + struct.pack(">I", 0x7FFFFFFF)
    frame = message(6, 9, b"\x27\x01" + bytes(7), stream_id=1) + (head + b"\x27\x01" + bytes(7)) * n
    return _one(lambda wire: publishing(wire).say(0, frame))


# -- packets, wrappings, files ----------------------------------------------------------------------------------------


def window_probes(n: int) -> bytes:
    """A byte beyond a closed window, again and again, with another content each time."""

    def speak(wire: Wire) -> None:
        wire.say(0, message(6, 9, bytes(1000)))
        for i in range(n):
            wire.packet(0, wire.sent[0], bytes((i & 255,)))
            wire.packet(1, wire.sent[1])

    return _one(speak)


def vlan_tags(n: int) -> bytes:
    """Frames of hundreds of VLAN tags before the IP header."""
    records: list[Record] = []
    wire = Wire(records).open()
    for _ in range(n):
        wire.packet(0, wire.sent[0], bytes(10))
    return pcap(Record(us, frame[:12] + b"\x81\x00\x00\x01" * 300 + frame[12:]) for us, frame in records)


def gre_tunnels(n: int) -> bytes:
    """IP in GRE, fifty times in each frame."""
    records: list[Record] = []
    wire = Wire(records).open()
    for _ in range(n):
        wire.packet(0, wire.sent[0], bytes(10))
    outer = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 0, 0, 0, 64, 47, 0, b"\x0a\0\0\1", b"\x0a\0\0\2") + b"\0\0\x08\0"
    return pcap(Record(us, frame[:14] + outer * 50 + frame[14:]) for us, frame in records)


def snaplen_0(n: int) -> bytes:
    """Records of which nothing but the length was captured."""
    parts = [pcap([])]
    parts += [struct.pack("<IIII", 1_700_000_000, i % 1_000_000, 0, 1500) for i in range(n)]
    return b"".join(parts)


def pcapng_options(n: int) -> bytes:
    """Packets with a thousand empty comments each, and interfaces described by as many."""
    comments = struct.pack("<HH", 1, 0) * 1000 + struct.pack("<HH", 0, 0)
    records: list[Record] = []
    wire = Wire(records).open()
    for _ in range(n):
        wire.packet(0, wire.sent[0])
    parts = [section(), interface()]
    for us, frame in records:
        block = enhanced(1_700_000_000_000_000 + us, frame)
        length = len(block) + len(comments)
        parts.append(block[:4] + struct.pack("<I", length) + block[8:-4] + comments + struct.pack("<I", length))
    return b"".join(parts)


def name_resolution_blocks(n: int) -> bytes:
    """Name Resolution Blocks of a hundred records between the packets."""
    record = struct.pack("<HH", 1, 8) + b"\x0a\0\0\1a.b\0"
    body = record * 100 + struct.pack("<HH", 0, 0)
    block = struct.pack("<II", 4, 12 + len(body)) + body + struct.pack("<I", 12 + len(body))
    records: list[Record] = []
    wire = Wire(records).open()
    for _ in range(n):
        wire.packet(0, wire.sent[0])
    parts = [section(), interface()]
    for us, frame in records:
        parts += [block, enhanced(1_700_000_000_000_000 + us, frame)]
    return b"".join(parts)


def gzip_bomb(n: int) -> bytes:
    """A packet record of zeros, `n` times 64 KiB of them, compressed a thousand to one."""
    record = struct.pack("<IIII", 1_700_000_000, 0, 65_536, 65_536) + bytes(65_536)
    return gzip.compress(pcap([]) + record * n)


def http_headers(n: int) -> bytes:
    """HTTP requests whose heads never end."""
    records: list[Record] = []
    wire = Wire(records, port=80).open()
    wire.say(0, b"POST /open/1 HTTP/1.1\r\n" + b"X-A: b\r\n" * n)
    wire.say(1, b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * n)
    return pcap(records)


def rtmpt_polls(n: int) -> bytes:
    """Polls of one RTMPT session, each answered."""
    records: list[Record] = []
    wire = Wire(records, port=80).open()
    wire.say(0, b"POST /open/1 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n\x00")
    wire.say(1, b"HTTP/1.1 200 OK\r\nContent-Type: application/x-fcs\r\nContent-Length: 9\r\n\r\nS0000000\n")
    for i in range(n):
        wire.say(0, b"POST /idle/S0000000/%d HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n\x00" % (i + 1))
        wire.say(1, b"HTTP/1.1 200 OK\r\nContent-Type: application/x-fcs\r\nContent-Length: 1\r\n\r\n\x01")
    return pcap(records)


def tls_fragments(n: int) -> bytes:
    """A ClientHello in records of one byte."""
    records: list[Record] = []
    hello = b"\x01" + n.to_bytes(3, "big") + b"\x03\x03" + bytes(n - 2)
    wire = Wire(records, port=443).open()
    wire.say(0, b"".join(b"\x16\x03\x01\x00\x01" + hello[at : at + 1] for at in range(len(hello))))
    return pcap(records)


FURTHER_FAMILIES: dict[str, Family] = {
    "metadata_keys": Family(metadata_keys, 50_000, ("--json",)),
    "metadata_messages": Family(metadata_messages, 5000, ("--json",)),
    "words_and_names": Family(words_and_names, 130_000, ("--json",)),
    "long_words_and_names": Family(long_words_and_names, 480, ("--json",)),
    "unanswered_names": Family(unanswered_names, 2500, ("--json",)),
    "republications": Family(republications, 1200),
    "seeks": Family(seeks, 2000),
    "deep_objects": Family(deep_objects, 20, ("--json",)),
    "shared_objects": Family(shared_objects, 8000, ("--json",)),
    "unknown_control_events": Family(unknown_control_events, 25_000),
    "extended_timestamps": Family(extended_timestamps, 4000),
    "nested_aggregates": Family(nested_aggregates, 350),
    "nal_units": Family(nal_units, 180_000),
    "many_tracks": Family(many_tracks, 400),
    "interleaved_csids": Family(interleaved_csids, 250_000),
    "timestamp_rollovers": Family(timestamp_rollovers, 40_000),
    "window_probes": Family(window_probes, 6000),
    "vlan_tags": Family(vlan_tags, 700),
    "gre_tunnels": Family(gre_tunnels, 700),
    "snaplen_0": Family(snaplen_0, 60_000),
    "pcapng_options": Family(pcapng_options, 220),
    "name_resolution_blocks": Family(name_resolution_blocks, 700),
    "gzip_bomb": Family(gzip_bomb, 1500),
    "http_headers": Family(http_headers, 60_000),
    "rtmpt_polls": Family(rtmpt_polls, 3000),
    "tls_fragments": Family(tls_fragments, 60_000),
}
