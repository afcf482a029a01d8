"""`rtmp-spark ingest` for spark-submit: spark-submit --py-files dist/rtmp_spark.zip jobs/ingest.py ARGUMENTS."""

from __future__ import annotations

import sys

from rtmp_spark.jobs.command_job import run_job

if __name__ == "__main__":
    sys.exit(run_job("ingest"))
