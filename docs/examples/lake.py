"""`rtmp_spark.lake`: a lake without Spark. Run in a directory that contains `lake`."""

from rtmp_spark.lake import Lake, clean_up, compact, locate, open_lake

lake: Lake = open_lake("lake")
streams = lake.streams.to_table(columns=["uid", "role", "verdict"])  # a pyarrow dataset; DuckDB and Polars take it too
assert streams.num_rows == lake.table("streams").count_rows()

location = locate("lake")
compact(location)  # merges small files, if there are many
clean_up(location, retention_hours=168)  # deletes what no reader of the last week needs
lake.refresh()
assert lake.streams.count_rows() == streams.num_rows
