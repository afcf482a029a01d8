"""`format("pcap")` for `spark.read` and `spark.readStream`: the packets of captures as rows, read in byte ranges.

    register(spark)
    spark.read.format("pcap").load("day/*.pcap").where("dport = 1935")
    CREATE TEMPORARY VIEW packets USING pcap OPTIONS (path 'day.pcap')
    spark.readStream.format("pcap").load("captures")  # files as they are completed: pcap_stream.py

Uncompressed classic pcap files are cut into ranges (option `splitSize`, bytes, default 64 MB; 0 keeps files whole);
every other file is one partition. `frame` is set where a file is read in one piece, `record_offset` where it is cut
into ranges. TCP headers and payload bytes are included with the option `payload` = true. Nothing is reassembled or
decoded: `decode_packets` does that. With the option `filesOnly` = true the rows are the files, which are not read.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from rtmp_spark.spark.arrow_types import spark_schema

from .pcap_reader import PcapReader, packet_schema
from .pcap_stream import PcapStreamReader
from .source_options import InOneSentence, SourceOptions, refuse_unknown

OPTIONS = ("payload", "filesOnly", "splitSize", "settle", "late", "maxFilesPerTrigger")


class PcapDataSource(DataSource):
    """The data source that is registered as `pcap`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        with InOneSentence():
            refuse_unknown(options, OPTIONS, self.name())

    @classmethod
    def name(cls) -> str:
        return "pcap"

    def schema(self) -> StructType:
        with InOneSentence():
            return spark_schema(packet_schema(SourceOptions(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        with InOneSentence():
            return PcapReader(SourceOptions(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        with InOneSentence():
            return PcapStreamReader(SourceOptions(self.options))
