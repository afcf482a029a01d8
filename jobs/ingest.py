"""spark-submit --py-files dist/rtmp_spark.zip jobs/ingest.py ...: the arguments of `rtmp-spark ingest`."""

from __future__ import annotations

import sys

from rtmp_spark.cli import main

if __name__ == "__main__":
    sys.exit(main(["ingest", *sys.argv[1:]]))
