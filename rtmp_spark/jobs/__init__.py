"""Commands as jobs of schedulers: `python -m rtmp_spark.jobs.ingest`, `.check`, `.report`, `.optimize`."""
