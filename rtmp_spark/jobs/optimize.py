"""`python -m rtmp_spark.jobs.optimize --lake DIR`: merges small files of a lake and deletes what no reader needs.

It needs no Spark; with spark-submit use jobs/optimize.py.
"""

from __future__ import annotations

import argparse
import sys

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.output.error_message import print_error
from rtmp_spark.jobs.command_job import expanded
from rtmp_spark.lake.compaction import compact
from rtmp_spark.lake.location import locate
from rtmp_spark.lake.maintenance import RETENTION_HOURS, clean_up


def main() -> int:
    parser = argparse.ArgumentParser(description="Merge small files of a lake and delete files that no reader needs.")
    parser.add_argument("--lake", required=True, metavar="DIR", help="the lake")
    parser.add_argument(
        "--retention-hours",
        type=int,
        default=RETENTION_HOURS,
        metavar="N",
        help="keep what could be read in the last N hours (%(default)s); older readers lose their files",
    )
    parser.add_argument("--no-vacuum", action="store_true", help="only merge files, delete none")
    try:
        args = parser.parse_args(list(expanded(sys.argv[1:])))
        location = locate(args.lake)
        compacted = compact(location)
        if not args.no_vacuum:
            clean_up(location, retention_hours=args.retention_hours)
    except UserError as error:
        return print_error(error.text, error.remedy, error.exit_code)
    print(f"{args.lake}: {'merged small files' if compacted is not None else 'there were no files to merge'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
