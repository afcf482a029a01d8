"""For spark-submit: merges small files of a lake and deletes what no reader needs (rtmp_spark/jobs/optimize.py)."""

from __future__ import annotations

import sys

from rtmp_spark.jobs.optimize import main

if __name__ == "__main__":
    sys.exit(main())
