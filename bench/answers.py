"""CPU time of the rules compared with decoding, of the report of a long session, and of the report of a lake.

    python bench/answers.py rules DIR [NAME...]     with and without rules, on the captures of make_captures.py
    python bench/answers.py wrapping DIR [NAME...]  with and without detection of TLS and HTTP
    python bench/answers.py report [FILE.html]      the report of an hour at 5 Mb/s, from repeated rows of a sample
    python bench/answers.py hour LAKE               the same report from a lake; creates the lake if it does not exist
    python bench/answers.py archive LAKE            the report of a lake, on local[2]

It prints CPU seconds together with the number of rows, and asserts nothing.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.analysis.recording import ALL_TABLES, Recording
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.conversation.service_probe import ServiceProbe
from rtmp_spark.report.page import pieces
from rtmp_spark.report.table_source import ArrowTables
from rtmp_spark.report.view import judged_settings, read_captures

SAMPLE = Path(__file__).parent.parent / "sample_pcaps" / "ffmpeg_publish_h264_aac.pcap"
HOUR_US, BITRATE = 3_600_000_000, 5_000_000
# Columns that increase with each repetition of the sample.
_COUNTED = ("msg_no", "frame", "frame_first", "frame_last", "gop_no", "stream_offset")


def decoded(path: Path, settings: Settings) -> tuple[float, int]:
    """Return CPU seconds and the number of messages."""
    start, rows = time.process_time(), 0
    for table, batch in Recording([path], settings, ALL_TABLES, identify=False).batches():
        rows += batch.num_rows if table == "messages" else 0
    return time.process_time() - start, rows


def compare(path: Path, settings: Settings, less: Settings, repeat: int) -> None:
    """Compare the minimum of several alternating runs, because other processes may use the machine."""
    whole, without = [], []
    for _ in range(repeat):
        without.append(decoded(path, less))
        whole.append(decoded(path, settings))
    (slow, rows), (fast, _) = min(whole), min(without)
    print(f"{path.stem:<10} {rows:>8} messages {slow:>7.2f} s {fast:>7.2f} s {(slow - fast) / fast:>+7.1%}")


def rules(directory: Path, names: list[str], repeat: int) -> None:
    settings = judged_settings()
    print("capture                      with rules  without     more")
    for name in names:
        compare(
            directory / f"{name}.pcap",
            settings,
            replace(settings, measured=False, rules_across_connections=False),
            repeat,
        )


def wrapping(directory: Path, names: list[str], repeat: int) -> None:
    settings = judged_settings()
    detectors = ServiceProbe._is_tls, ServiceProbe._is_tunnel
    print("capture                        detection  none")
    for name in names:
        runs: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(repeat):
            for detecting in (False, True):
                tls, tunnel = detectors if detecting else (_never, _never)
                ServiceProbe._is_tls = tls  # type: ignore[method-assign]
                ServiceProbe._is_tunnel = tunnel  # type: ignore[method-assign]
                cost, rows = decoded(directory / f"{name}.pcap", settings)
                runs[detecting].append(cost)
        much, little = min(runs[True]), min(runs[False])
        print(f"{name:<10} {rows:>8} messages {much:>7.2f} s {little:>7.2f} s {(much - little) / little:>+7.1%}")


def _never(*_: object) -> bool:
    return False


def one_hour_of_rows() -> ArrowTables:
    """Repeat five seconds of a real session for an hour, with frames scaled to 5 Mb/s."""
    found = read_captures(SAMPLE)
    tables = {name: found.table(name) for name in ("captures", "connections", "handshakes", "streams", "findings")}
    media = found.table("media_tags")
    span = pc.max(media["ts"].cast(pa.int64())).as_py() - pc.min(media["ts"].cast(pa.int64())).as_py()
    times = HOUR_US // span
    scale = BITRATE * span / 8e6 / pc.sum(media["size"]).as_py()
    for name in ("messages", "media_tags", "intervals", "controls", "commands"):
        once = found.table(name)
        if name in ("controls", "commands"):
            tables[name] = once
            continue
        tables[name] = pa.concat_tables([_repeated(once, number, span, scale) for number in range(times)])
    end = pa.scalar(HOUR_US, pa.duration("us"))
    for name in ("connections", "streams"):
        at = tables[name].schema.get_field_index("ts_end")
        field = tables[name].schema.field(at)
        tables[name] = tables[name].set_column(at, field, pc.add(tables[name]["ts_start"], end))
    return ArrowTables("an hour at 5 Mb/s", tables)


def _repeated(table: pa.Table, number: int, span: int, scale: float) -> pa.Table:
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
            column = pc.multiply(column.cast(pa.float64()), scale).cast(field.type, safe=False)
        table = table.set_column(at, field, column)
    return table


def report(target: Path) -> None:
    tables = one_hour_of_rows()
    start = time.process_time()
    target.write_text("".join(pieces(tables)), "utf-8")
    cost = time.process_time() - start
    rows = {name: len(tables.arrow(name)) for name in ("messages", "media_tags", "intervals")}
    print(f"an hour at 5 Mb/s, {rows}: {cost:.1f} s, {target.stat().st_size / 1e6:.1f} MB -> {target}")


def hour(lake: Path) -> None:
    """Measure the report of a lake with one hour of rows, which is created on the first run."""
    from rtmp_spark.lake.location import locate
    from rtmp_spark.lake.parquet_files import write_rows
    from rtmp_spark.lake.writer import open_writer
    from rtmp_spark.schema import TABLES

    if not lake.exists():
        tables = one_hour_of_rows()
        with open_writer(locate(lake)) as writer:
            writer.publish([write_rows(writer.target, n, tables.arrow(n)) for n in TABLES if len(tables.arrow(n))])
    archive(lake)


def archive(lake: Path) -> None:
    """Measure `rtmp-spark report --lake`."""
    from rtmp_spark.lake.reader import open_lake
    from rtmp_spark.report.lake_tables import LakeTables

    start, before = time.monotonic(), time.process_time()
    tables = LakeTables(open_lake(lake))
    size = sum(map(len, pieces(tables)))
    wall, used = time.monotonic() - start, time.process_time() - before
    print(f"{len(tables.rows('connections'))} sessions, {size / 1e6:.1f} MB: {wall:.1f} s wall, {used:.1f} s CPU")


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
