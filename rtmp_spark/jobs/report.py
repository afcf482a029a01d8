"""`python -m rtmp_spark.jobs.report ARGUMENTS`: `rtmp-spark report` as a job (command_job.py)."""

from __future__ import annotations

import sys

from rtmp_spark.jobs.command_job import run_job

if __name__ == "__main__":
    sys.exit(run_job("report"))
