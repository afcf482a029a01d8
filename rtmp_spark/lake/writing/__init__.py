"""The parts of one change of a lake that `rtmp_spark.lake.writer` puts together."""
