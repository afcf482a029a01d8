"""`ingest_batch`: continuous ingest by Structured Streaming, exactly once.

    files = spark.readStream.format("pcap").option("filesOnly", "true").load("captures")
    query = files.writeStream.option("checkpointLocation", "checkpoint").foreachBatch(
        lambda batch, batch_id: ingest_batch(batch, batch_id, "lake", app_id="captures")
    ).start()

The rows of the captures and the note that they are ingested are published together, so a batch that Spark repeats after
a failure finds its files known and publishes nothing new; a batch that is in the ledger is not even planned again.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from rtmp_spark.ingest.captures.capture_paths import NothingThere, list_captures
from rtmp_spark.ingest.ingest_summary import Summary
from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.lake.ledger import Batch
from rtmp_spark.lake.writer import open_writer

from .lake_location import lake_location
from .pipeline import ingest


def ingest_batch(
    batch: DataFrame,
    batch_id: int,
    lake: str | Path,
    *,
    app_id: str,
    options: IngestOptions | None = None,
    **fields: Any,
) -> Summary:
    """Ingest the captures that the column `path` of a batch names, each once; for `foreachBatch`.

    `app_id` names the query in the ledger. Choose another one for another checkpoint, because its batches are numbered
    anew. Files that were deleted meanwhile are left out.
    """
    spark = batch.sparkSession
    location = lake_location(spark, lake)
    delivered = Batch(app_id, batch_id)
    with open_writer(location) as writer:
        if writer.is_delivered(delivered):
            return Summary(str(location))
    paths = []
    for row in batch.select("path").distinct().collect():
        with suppress(NothingThere):
            paths += [file.path for file in list_captures([row["path"]])]
    summary = ingest(spark, sorted(paths), lake, options, **fields)
    with open_writer(location) as writer:
        writer.publish([], batch=delivered)
    return summary
