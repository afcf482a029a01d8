"""An Airflow DAG (Airflow 3): ingests the captures of the last hour, and merges small files of the lake at night.

The task runs where the worker of Airflow runs; with --master it uses a cluster. The last line that a job prints is its
summary as JSON, which BashOperator passes on as XCom. The exit code is 4 if a capture could not be read: the others are
ingested, and a second try would not help, so the task is skipped instead of retried.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

LAKE = "s3://lake/rtmp"

with DAG("rtmp_ingest", schedule="5 * * * *", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1):
    ingest = BashOperator(
        task_id="ingest",
        bash_command=(
            "python -m rtmp_spark.jobs.ingest"
            " 's3://captures/{{ data_interval_start.strftime('%Y/%m/%d/%H') }}/'"
            f" --lake {LAKE} --sensor edge-1 --quiet"
        ),
        skip_on_exit_code=4,
        retries=3,
        retry_delay=timedelta(minutes=5),
    )

with DAG("rtmp_optimize", schedule="45 2 * * *", start_date=datetime(2026, 1, 1), catchup=False):
    BashOperator(task_id="optimize", bash_command=f"python -m rtmp_spark.jobs.optimize --lake {LAKE}")
