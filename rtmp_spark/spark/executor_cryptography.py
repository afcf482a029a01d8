"""Checks once, before any work and only if there are keys, that the executors can decrypt TLS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from rtmp_spark.codec.errors import UserError


def require_cryptography(spark: SparkSession, tasks: int = 8) -> None:
    """Raises UserError if an executor lacks the package cryptography."""
    if any(row["missing"] for row in spark.range(0, tasks, 1, tasks).mapInArrow(_look, "missing boolean").collect()):
        text = "The executors lack the package cryptography, which is needed to decrypt TLS with a key log."
        raise UserError(text, "Install rtmp-spark[tls] there, or send it with --py-files or --archives.", 3)


def _look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from rtmp_spark.capture.unwrap.tls.keylog import can_decrypt

    for batch in batches:
        yield pa.record_batch({"missing": [not can_decrypt()] * batch.num_rows})
