"""What the answers cost: rules beside decoding, the page of a long session, the page of an archive.

    python bench/answers.py rules DIR [NAME...]     with and without rules, on the captures of make_captures.py
    python bench/answers.py wrapping DIR [NAME...]  with and without looking for TLS and HTTP
    python bench/answers.py report [FILE.html]      the page of an hour at 5 Mb/s: a sample's rows, many times over
    python bench/answers.py hour LAKE               the same page from a lake, which is made when it is not there
    python bench/answers.py archive LAKE            the page over a lake, on local[2]

CPU seconds, printed and never asserted. A figure stands beside the number of rows it was measured on.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.capture import conversation
from rtmp_spark.capture.recording import ALL_TABLES, Recording
from rtmp_spark.capture.settings import Settings
from rtmp_spark.report.page import pieces
from rtmp_spark.report.source import ArrowTables
from rtmp_spark.report.view import judged_settings, read_captures

SAMPLE = Path(__file__).parent.parent / "sample_pcaps" / "ffmpeg_publish_h264_aac.pcap"
HOUR_US, BITRATE = 3_600_000_000, 5_000_000
# What grows with time, per repetition of the sample; sizes grow with the bitrate.
_COUNTED = ("msg_no", "frame", "frame_first", "frame_last", "gop_no", "stream_offset")


def decoded(path: Path, settings: Settings) -> tuple[float, int]:
    """CPU seconds and messages."""
    begun, rows = time.process_time(), 0
    for table, batch in Recording([path], settings, ALL_TABLES, identify=False).batches():
        rows += batch.num_rows if table == "messages" else 0
    return time.process_time() - begun, rows


def compare(path: Path, settings: Settings, less: Settings, repeat: int) -> None:
    """The least of several runs, turn by turn: others may be at work on this machine."""
    whole, without = [], []
    for _ in range(repeat):
        without.append(decoded(path, less))
        whole.append(decoded(path, settings))
    (much, rows), (little, _) = min(whole), min(without)
    print(f"{path.stem:<10} {rows:>8} messages {much:>7.2f} s {little:>7.2f} s {(much - little) / little:>+7.1%}")


def rules(directory: Path, names: list[str], repeat: int) -> None:
    settings = judged_settings()
    print("capture                      with rules  without     more")
    for name in names:
        compare(directory / f"{name}.pcap", settings, replace(settings, judge=None, hindsight=None), repeat)


def wrapping(directory: Path, names: list[str], repeat: int) -> None:
    settings = judged_settings()
    looks = conversation.Conversation._is_tls, conversation.Conversation._is_tunnel
    print("capture                        looking  blind")
    for name in names:
        runs: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(repeat):
            for looking in (False, True):
                tls, tunnel = looks if looking else (_never, _never)
                conversation.Conversation._is_tls = tls  # type: ignore[method-assign]
                conversation.Conversation._is_tunnel = tunnel  # type: ignore[method-assign]
                cost, rows = decoded(directory / f"{name}.pcap", settings)
                runs[looking].append(cost)
        much, little = min(runs[True]), min(runs[False])
        print(f"{name:<10} {rows:>8} messages {much:>7.2f} s {little:>7.2f} s {(much - little) / little:>+7.1%}")


def _never(*_: object) -> bool:
    return False


def an_hour() -> ArrowTables:
    """Five seconds of a real session, again and again until the hour is full, frames as large as 5 Mb/s makes them."""
    found = read_captures(SAMPLE)
    tables = {name: found.table(name) for name in ("captures", "connections", "handshakes", "streams", "findings")}
    media = found.table("media_tags")
    span = pc.max(media["ts"].cast(pa.int64())).as_py() - pc.min(media["ts"].cast(pa.int64())).as_py()
    times = HOUR_US // span
    grown = BITRATE * span / 8e6 / pc.sum(media["size"]).as_py()
    for name in ("messages", "media_tags", "intervals", "controls", "commands"):
        once = found.table(name)
        if name in ("controls", "commands"):
            tables[name] = once
            continue
        tables[name] = pa.concat_tables([_later(once, number, span, grown) for number in range(times)])
    end = pa.scalar(HOUR_US, pa.duration("us"))
    for name in ("connections", "streams"):
        at = tables[name].schema.get_field_index("ts_end")
        field = tables[name].schema.field(at)
        tables[name] = tables[name].set_column(at, field, pc.add(tables[name]["ts_start"], end))
    return ArrowTables("an hour at 5 Mb/s", tables)


def _later(table: pa.Table, number: int, span: int, grown: float) -> pa.Table:
    for at, field in enumerate(table.schema):
        column = table.column(at)
        if pa.types.is_timestamp(field.type):
            whole = span // 1_000_000 * 1_000_000 if field.name == "ts_second" else span
            column = pc.add(column, pa.scalar(number * whole, pa.duration("us")))
        elif field.name in _COUNTED:
            most = pc.max(column).as_py() or 0
            column = pc.add(column, pa.scalar(number * (most + 1), field.type))
        elif field.name in ("dts", "pts", "dts_first", "dts_last", "timestamp"):
            column = pc.add(column, pa.scalar(number * (span // 1000), field.type))
        elif field.name in ("size", "length", "bytes", "video_bytes", "audio_bytes"):
            column = pc.multiply(column.cast(pa.float64()), grown).cast(field.type, safe=False)
        table = table.set_column(at, field, column)
    return table


def report(target: Path) -> None:
    tables = an_hour()
    begun = time.process_time()
    target.write_text("".join(pieces(tables)), "utf-8")
    cost = time.process_time() - begun
    rows = {name: len(tables.arrow(name)) for name in ("messages", "media_tags", "intervals")}
    print(f"an hour at 5 Mb/s, {rows}: {cost:.1f} s, {target.stat().st_size / 1e6:.1f} MB -> {target}")


def hour(lake: Path) -> None:
    if not lake.exists():
        from rtmp_spark.schema import TABLES, arrow_schema
        from rtmp_spark.spark import start_spark
        from rtmp_spark.spark.lake import open_writer
        from rtmp_spark.spark.passes import stamped

        tables = an_hour()
        spark = start_spark(master="local[2]")
        with open_writer(spark, str(lake)) as writer:
            writer.begin()
            for name in TABLES:
                writer.append(name, stamped(tables.arrow(name), arrow_schema(name), writer.ingest_id))
            writer.commit()
        spark.stop()
        print("The lake is made; the same command measures it, with a Java of its own.")
    else:
        archive(lake)


def archive(lake: Path) -> None:
    """As `rtmp-spark report --lake` does it, Spark's start included."""
    from rtmp_spark.spark import Lake
    from rtmp_spark.spark.connection import LakeTables
    from rtmp_spark.spark.session import start_spark_for

    begun, before = time.monotonic(), time.process_time()
    spark = start_spark_for(str(lake), "local[2]")
    started = time.monotonic() - begun
    tables = LakeTables(Lake(spark, str(lake)))
    size = sum(map(len, pieces(tables)))
    wall = time.monotonic() - begun
    java, workers = _java_seconds(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
    print(
        f"{len(tables.rows('connections'))} sessions, {size / 1e6:.1f} MB: wall {wall:.1f} s "
        f"({started:.1f} for the start of Spark), "
        f"CPU: driver {time.process_time() - before:.1f} s, Java {java:.1f} s, workers {workers:.1f} s"
    )
    spark.stop()


def _java_seconds(pid: int) -> tuple[float, float]:
    """CPU of a process and of those below it, where there is /proc."""
    own, below = 0.0, 0.0
    waiting = [pid]
    while waiting:
        process = waiting.pop()
        try:
            ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:15]
            for children in Path(f"/proc/{process}/task").glob("*/children"):
                waiting += map(int, children.read_text().split())
        except OSError:
            continue
        used, of_dead = (sum(map(int, pair)) / os.sysconf("SC_CLK_TCK") for pair in (ticks[:2], ticks[2:]))
        own, below = (used, below + of_dead) if process == pid else (own, below + used + of_dead)
    return own, below


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rules", "wrapping", "report", "hour", "archive"))
    parser.add_argument("where", type=Path, nargs="?", default=Path("hour.html"))
    parser.add_argument("names", nargs="*", default=["c4096", "c128"])
    parser.add_argument("--repeat", type=int, default=2)
    args = parser.parse_args()
    if args.what in ("rules", "wrapping"):
        {"rules": rules, "wrapping": wrapping}[args.what](args.where, args.names, args.repeat)
    else:
        {"report": report, "hour": hour, "archive": archive}[args.what](args.where)


if __name__ == "__main__":
    main()
