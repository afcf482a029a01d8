"""`format("rtmp")` for `spark.read`: a table of decoded captures without a lake, one file at a time.

    register(spark)
    spark.read.format("rtmp").load("day/*.pcap")                              # messages
    spark.read.format("rtmp").option("table", "findings").load("day.pcap")
    CREATE TEMPORARY VIEW streams USING rtmp OPTIONS (path 'day.pcap', table 'streams')

Every file is decoded alone, by one task, with the rows that `inspect` gives for it: a connection that continues in the
next file is cut there, and rules across connections compare the connections of one file. `decode(spark, paths)` is the
exact form for recordings of several files.

Options: `table` (default messages; every table except paths and open_flows), `uid`, `host`, `port`, `since`, `until`,
`sensor`, `keylog` (a file or directory on the driver) and `keepSecrets`, as for `inspect`, and `type` (of messages:
names or numbers, with commas between them). Other connections are not decoded, and other messages have no rows. A
schema of fewer columns (`.schema("uid STRING, type_id INT")`) makes only those; without a capture id files are not
hashed.

Spark applies the filters and the column choice of a query after reading. Spark 4.2.0 does not pass the columns of a
query to Python data sources. It passes filters (`pushFilters`), but keeps the resulting partitions and read function
for every use of the same relation, whatever its filters are, in classic sessions, views and Spark Connect. Self-joins,
unions and later queries would lose rows, even if the reader returns all filters to Spark. So `RtmpReader` takes none.
tests/spark/sources/test_pushed_filters.py shows what Spark does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rtmp_spark.analysis.filter_values import parse_message_types
from rtmp_spark.analysis.recording import ALL_TABLES, Recording
from rtmp_spark.capture.files.file_facts import FileFacts
from rtmp_spark.capture.files.open_capture import Capture, OnBytes
from rtmp_spark.capture.memory_tuning import keep_freed_memory
from rtmp_spark.codec.errors import UserError
from rtmp_spark.codec.limits import READ_WINDOW_BYTES, Limits
from rtmp_spark.codec.message import EVERY_TYPE
from rtmp_spark.ingest.captures.capture_paths import CaptureFile, list_captures, open_file
from rtmp_spark.schema import arrow_schema
from rtmp_spark.spark.arrow_types import spark_schema, spark_type

from .pcap_reader import shown
from .source_options import InOneSentence, SourceOptions, refuse_unknown

TABLES = (*ALL_TABLES, "deliveries", "payloads")
OPTIONS = ("table", "uid", "host", "port", "since", "until", "type", "sensor", "keylog", "keepSecrets")
ABOUT_FILES = ("captures", "findings")  # they say what is wrong with a file
_MEASURED = {"connections", "streams", "deliveries", "findings"}  # other tables do not depend on measures and rules
_CAPTURE_IDS = {"capture_id", "capture_id_last", "capture_ids"}


class RtmpDataSource(DataSource):
    """The data source that is registered as `rtmp`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        with InOneSentence():
            refuse_unknown(options, OPTIONS, self.name())

    @classmethod
    def name(cls) -> str:
        return "rtmp"

    def schema(self) -> StructType:
        with InOneSentence():
            return spark_schema(arrow_schema(table_of(SourceOptions(self.options))))

    def reader(self, schema: StructType) -> DataSourceReader:
        with InOneSentence():
            return RtmpReader(SourceOptions(self.options), schema)


def table_of(options: SourceOptions) -> str:
    table = options.text("table") or "messages"
    if table not in TABLES:
        raise UserError(f"Unknown table {table!r}.", f"Use one of {', '.join(TABLES)}.")
    return table


class DecodedFile(InputPartition):
    def __init__(self, file: CaptureFile) -> None:
        super().__init__(file)
        self.file = file


class StoredFile:
    """One capture at a path or URI, as a source of `Recording`."""

    def __init__(self, file: CaptureFile) -> None:
        self._file = file

    def about(self, path: str) -> FileFacts:
        return FileFacts(shown(path), size_bytes=self._file.size_bytes, modified_at=self._file.modified_ns // 1000)

    def open(self, facts: FileFacts, limits: Limits, on_bytes: OnBytes | None) -> Capture:
        return Capture(open_file(self._file.path), limits, READ_WINDOW_BYTES, on_bytes, facts, close_file=True)


class RtmpReader(DataSourceReader):
    def __init__(self, options: SourceOptions, wanted: StructType) -> None:
        self.table = table_of(options)
        known = arrow_schema(self.table)
        for field in wanted:
            if field.name not in known.names:
                remedy = f"Its columns are {', '.join(known.names)}."
                raise UserError(f"The table {self.table} has no column {field.name!r}.", remedy)
            kind = spark_type(known.field(field.name).type).simpleString()
            if field.dataType.simpleString() != kind:
                given = field.dataType.simpleString()
                raise UserError(f"The column {field.name} has the type {kind}, not {given}.", "Cast it after reading.")
        self.schema = pa.schema([known.field(field.name).with_nullable(field.nullable) for field in wanted])
        self.paths = options.paths("rtmp")
        self.options = options.decoding()
        self.uid = options.text("uid")
        types = options.text("type")
        if types is not None and self.table != "messages":
            raise UserError(
                f"The table {self.table} has no message types.", "The option type is for the table messages."
            )
        self.types = EVERY_TYPE if types is None else parse_message_types(types)

    def partitions(self) -> Sequence[InputPartition]:
        with InOneSentence():
            return [DecodedFile(file) for file in list_captures(self.paths)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, DecodedFile):  # Spark makes one without a value if there are none
            return
        with InOneSentence():
            yield from self._rows(partition.file)

    def _rows(self, file: CaptureFile) -> Iterator[pa.RecordBatch]:
        keep_freed_memory()
        decoding = replace(self.options.settings(), rules_across_connections=True, message_types=self.types)
        decoding.measured = self.table in _MEASURED
        decoding.filter = decoding.filter._replace(uid=self.uid)
        hashes = not _CAPTURE_IDS.isdisjoint(self.schema.names)
        recording = Recording([file.path], decoding, [self.table], identify=hashes, source=StoredFile(file))
        for table, batch in recording.batches():
            if table != self.table:
                continue
            columns = [batch.column(name) for name in self.schema.names]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
        failed = recording.files[0].status == "failed"
        if failed and self.table not in ABOUT_FILES:
            raise UserError(f"{file.path} cannot be decoded: {recording.files[0].error_hint}.", "Leave it out.")
