"""spark-submit --py-files dist/rtmp_spark.zip jobs/report.py ...: the arguments of `rtmp-spark report`."""

from __future__ import annotations

import sys

from rtmp_spark.cli import main

if __name__ == "__main__":
    sys.exit(main(["report", *sys.argv[1:]]))
