"""spark-submit --py-files dist/rtmp_spark.zip jobs/check.py ...: the arguments of `rtmp-spark check`."""

from __future__ import annotations

import sys

from rtmp_spark.cli import main

if __name__ == "__main__":
    sys.exit(main(["check", *sys.argv[1:]]))
