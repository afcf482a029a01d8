"""spark-submit --py-files dist/rtmp_spark.zip jobs/optimize.py --lake DIR: compaction and clean-up of a lake."""

from __future__ import annotations

import argparse
import sys

from rtmp_spark.codec.errors import UserError
from rtmp_spark.spark import start_spark
from rtmp_spark.spark.maintain import RETENTION_HOURS, optimize


def main() -> int:
    parser = argparse.ArgumentParser(description="Pack small files of a lake, cluster them, remove old ones.")
    parser.add_argument("--lake", required=True, metavar="DIR")
    parser.add_argument("--master", metavar="URL")
    parser.add_argument("--retention-hours", type=int, default=RETENTION_HOURS, help="what older readers need goes")
    parser.add_argument("--no-vacuum", action="store_true", help="only compact")
    args = parser.parse_args()
    try:
        spark = start_spark(args.master)
        done = optimize(spark, args.lake, retention_hours=args.retention_hours, vacuum=not args.no_vacuum)
    except UserError as error:
        print(f"optimize: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{len(done)} tables of {args.lake} compacted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
