"""`rtmp_spark.spark`: from captures to DataFrames. Run in a directory that contains `sample_pcaps`."""

from pyspark.sql.functions import col

from rtmp_spark.spark import (
    IngestOptions,
    Lake,
    Summary,
    Tables,
    amf0,
    amf3,
    decode,
    decode_packets,
    flv_tags,
    ingest,
    ingest_batch,
    register,
    rtmp_messages,
    rtmp_tag,
    start_spark,
)

CAPTURE = "sample_pcaps/ffmpeg_publish_g711mu_audio_only.pcap"

spark = start_spark()  # or the session that you have
register(spark)

# One table of captures, file by file
messages = spark.read.format("rtmp").option("table", "messages").load(CAPTURE)
assert messages.where("type_name = 'audio'").count() == 16

# Every table, exactly as an ingest gives them
tables: Tables = decode(spark, CAPTURE, sensor="edge-1")
assert tables.streams.first().role == "publish"
tables.close()

# A lake that keeps them
summary: Summary = ingest(spark, [CAPTURE], "lake-of-api", IngestOptions(sensor="edge-1"))
lake = Lake(spark, "lake-of-api")
assert summary.rows["messages"] == lake.messages.count()

# A stream of files, each ingested once: files.writeStream.foreachBatch(...).start()
files = spark.read.format("pcap").option("filesOnly", "true").load(CAPTURE)
assert not ingest_batch(files, 0, "lake-of-api", app_id="captures", sensor="edge-1").ingested

# Packets of any source
packets = spark.read.format("pcap").option("payload", "true").load(CAPTURE)
assert decode_packets(packets).count() == messages.count()

# Bytes that are in a table already
bodies = spark.createDataFrame(
    [(b"\x02\x00\x04live", b"\x04\x07", 8, b"\x82\xff")], "a0 binary, a3 binary, t int, p binary"
)
row = bodies.select(
    amf0("a0")["values"].alias("amf0"),
    amf3("a3")["values"].alias("amf3"),
    rtmp_tag("t", "p")["tags"][0]["codec"].alias("tag"),
).first()
assert (row.amf0.toPython(), row.amf3.toPython(), row.tag) == (["live"], [7], "g711u")
assert bodies.select(flv_tags(col("a0"))["violations"][0]).first()[0].startswith("CAPTURE_BAD_RECORD")
streams = spark.createDataFrame(
    [("a", b"\x03" + bytes(3072) + b"\x02" + bytes(6) + b"\x01" + bytes(4))], "stream string, data binary"
)
assert rtmp_messages(streams).count() == 1
