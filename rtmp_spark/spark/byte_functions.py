"""SQL functions over bytes that are in a table already: AMF, FLV, media messages, byte streams of RTMP.

    register(spark)
    SELECT amf0(body).values:[0]::string FROM bodies
    SELECT inline(flv_tags(content).tags) FROM files
    SELECT rtmp_tag(type_id, payload).tags[0].codec FROM messages
    SELECT * FROM rtmp_messages(TABLE(SELECT conn AS stream, bytes AS data FROM t) PARTITION BY stream ORDER BY seq)

The same names are Python functions over columns: `df.select(amf0("body"))`. Damaged bytes never fail a query: what
could be read is returned, and `violations` says what is wrong. NULL gives NULL.

`rtmp_messages` decodes byte streams. Its table has the columns `stream` (any key) and `data` (binary); the rows of one
stream are joined in their order, so a stream may be one row or many. Every stream is one direction of a connection from
its first byte on, with the handshake. Spark does not allow Arrow table functions in a LATERAL join (4.2).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from zlib import crc32

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import arrow_udf, arrow_udtf  # type: ignore[attr-defined]
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType, VariantType
from pyspark.sql.variant_utils import VariantUtils

from rtmp_spark.codec import amf0 as amf0_codec
from rtmp_spark.codec import amf3 as amf3_codec
from rtmp_spark.codec import flv
from rtmp_spark.codec.amf import Reading, to_json
from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.errors import DecodeError, ViolationCode
from rtmp_spark.codec.events import Event, MessageReceived
from rtmp_spark.codec.media.reader import TagReader
from rtmp_spark.codec.media.tag import MediaTag
from rtmp_spark.codec.message import type_name
from rtmp_spark.schema import arrow_schema

from .arrow_types import spark_schema

Arrays = Callable[..., pa.Array]

_VIOLATIONS = pa.field("violations", pa.list_(pa.string()))
_VARIANT = pa.struct(  # as pyspark.sql.pandas.types.to_arrow_type makes it
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
_VALUES = pa.struct([pa.field("values", _VARIANT), _VIOLATIONS])

_NO_STREAM = ("stream_id", "dts", "pts", "gop_no")  # a single message says nothing about these
_TAG_FIELDS = [name for name in MediaTag._fields if name not in _NO_STREAM]
_FILLED = {"body_start": pa.int32(), "body_end": pa.int32()}  # of the codec data in the payload
_TAG = pa.struct(
    [pa.field(n, _FILLED[n] if n in _FILLED else arrow_schema("media_tags").field(n).type) for n in _TAG_FIELDS]
)
_TAGS = pa.struct([pa.field("tags", pa.list_(_TAG)), _VIOLATIONS])

_FLV_TAG = pa.struct(
    [
        pa.field("offset", pa.int64()),
        pa.field("type_id", pa.int32()),
        pa.field("timestamp", pa.int64()),
        pa.field("payload", pa.binary()),
        pa.field("filtered", pa.bool_()),
    ]
)
_FLV_TAGS = pa.struct([pa.field("tags", pa.list_(_FLV_TAG)), _VIOLATIONS])

_EVENT_COLUMNS = MessageReceived._fields[MessageReceived._fields.index("stream_id") : -1]
_NUMBERED = ("msg_no", "stream_offset", "fmt", "csid", "type_id", "type_name")
_MESSAGE_COLUMNS = (*_NUMBERED, *_EVENT_COLUMNS, "payload_crc32")
MESSAGES = pa.schema(
    [
        pa.field("stream", pa.string()),
        *(pa.field(name, arrow_schema("messages").field(name).type) for name in _MESSAGE_COLUMNS),
        pa.field("payload", pa.binary()),
    ]
)


def _bytes(function: str, data: pa.Array) -> list[bytes | None]:
    if not (pa.types.is_binary(data.type) or pa.types.is_large_binary(data.type) or pa.types.is_null(data.type)):
        raise TypeError(f"{function} needs bytes, not a column of type {data.type}; unhex and unbase64 convert texts")
    found: list[bytes | None] = data.to_pylist()
    return found


def _amf(name: str, read: Callable[[bytes], Reading], data: pa.Array) -> pa.Array:
    return pa.array([None if body is None else _amf_row(read(body)) for body in _bytes(name, data)], _VALUES)


def _amf_row(reading: Reading) -> dict[str, Any]:
    violations = [f"{code.value}: {detail}" for code, _, detail in reading.violations]
    try:
        value, metadata = VariantUtils.parse_json(json.dumps([to_json(value) for value in reading.values]))
    except (PySparkException, RecursionError):  # larger or deeper than a VARIANT may be
        limit = ViolationCode.AMF_LIMIT.value
        return {"values": None, "violations": [*violations, f"{limit}: the values do not fit into a VARIANT"]}
    return {"values": {"value": value, "metadata": metadata}, "violations": violations}


def read_amf0(data: pa.Array) -> pa.Array:
    return _amf("amf0", amf0_codec.read_values, data)


def read_amf3(data: pa.Array) -> pa.Array:
    return _amf("amf3", amf3_codec.read_values, data)


def read_flv(data: pa.Array) -> pa.Array:
    return pa.array([None if file is None else _flv_row(file) for file in _bytes("flv_tags", data)], _FLV_TAGS)


def _flv_row(file: bytes) -> dict[str, Any]:
    try:
        found = flv.parse_file(file)
    except DecodeError as error:
        return {"tags": [], "violations": [f"{error.code.value}: {error.detail}"]}
    return {
        "tags": [tag._asdict() for tag in found.tags],
        "violations": [f"{code.value}: {detail}" for code, _, detail in found.violations],
    }


def read_media(type_ids: pa.Array, payloads: pa.Array) -> pa.Array:
    rows = zip(type_ids.cast(pa.int64()).to_pylist(), _bytes("rtmp_tag", payloads))
    return pa.array([None if kind is None or body is None else _media_row(kind, body) for kind, body in rows], _TAGS)


def _media_row(type_id: int, payload: bytes) -> dict[str, Any]:
    tags, faults = TagReader(midstream=True).read(type_id, 0, 0, payload)
    return {
        "tags": [{name: getattr(tag, name) for name in _TAG_FIELDS} for tag in tags],
        "violations": [f"{code.value}: {detail}" for code, _, detail in faults],
    }


class MessageTable:
    """The handler of `rtmp_messages`: decodes the streams of one partition."""

    def __init__(self) -> None:
        self._decoders: dict[str | None, tuple[RtmpDecoder, list[int]]] = {}

    def eval(self, rows: pa.RecordBatch) -> Iterator[pa.Table]:
        missing = [name for name in ("stream", "data") if name not in rows.schema.names]
        if missing:
            raise ValueError(f"rtmp_messages needs the columns stream and data; {missing[0]} is missing")
        streams = rows.column("stream").cast(pa.string()).to_pylist()
        found: list[dict[str, Any]] = []
        for stream, data in zip(streams, _bytes("rtmp_messages", rows.column("data"))):
            if stream not in self._decoders:
                self._decoders[stream] = RtmpDecoder(), [0]
            if data is not None:
                decoder, numbered = self._decoders[stream]
                found += _messages(stream, numbered, decoder.receive_data(data))
        yield pa.Table.from_pylist(found, MESSAGES)

    def terminate(self) -> Iterator[pa.Table]:
        found: list[dict[str, Any]] = []
        for stream, (decoder, numbered) in self._decoders.items():
            found += _messages(stream, numbered, decoder.receive_eof())
        yield pa.Table.from_pylist(found, MESSAGES)


def _messages(stream: str | None, numbered: list[int], events: Sequence[Event]) -> Iterator[dict[str, Any]]:
    for event in events:
        if isinstance(event, MessageReceived):
            row = event._asdict() | {"stream": stream, "msg_no": numbered[0], "stream_offset": event.start}
            yield row | {"type_name": type_name(event.type_id), "payload_crc32": crc32(event.payload)}
            numbered[0] += 1


def _struct(of_arrow: pa.DataType) -> DataType:
    if of_arrow is _VALUES:
        return StructType([StructField("values", VariantType()), StructField("violations", ArrayType(StringType()))])
    return spark_schema(pa.schema(list(of_arrow)))


_FUNCTIONS: dict[str, tuple[Arrays, pa.DataType]] = {
    "amf0": (read_amf0, _VALUES),
    "amf3": (read_amf3, _VALUES),
    "flv_tags": (read_flv, _FLV_TAGS),
    "rtmp_tag": (read_media, _TAGS),
}


def _udf(name: str) -> Any:
    """Made when it is used: only then it is known whether the session is a Spark Connect session."""
    function, kind = _FUNCTIONS[name]
    return arrow_udf(function, _struct(kind))


def amf0(data: Column | str) -> Column:
    """The AMF0 values in a binary column: `values` (VARIANT, a list as in `commands.args`) and `violations`."""
    return _udf("amf0")(data)  # type: ignore[no-any-return]


def amf3(data: Column | str) -> Column:
    """The AMF3 values in a binary column: `values` (VARIANT, a list) and `violations`."""
    return _udf("amf3")(data)  # type: ignore[no-any-return]


def flv_tags(data: Column | str) -> Column:
    """FLV files in a binary column: `tags` (offset, type_id, timestamp, payload, filtered) and `violations`."""
    return _udf("flv_tags")(data)  # type: ignore[no-any-return]


def rtmp_tag(type_id: Column | str, payload: Column | str) -> Column:
    """The payload of an audio (8) or video (9) message: `tags`, one for each track, and `violations`."""
    return _udf("rtmp_tag")(type_id, payload)  # type: ignore[no-any-return]


def rtmp_messages(streams: DataFrame, order_by: str | None = None) -> DataFrame:
    """The messages of byte streams in the columns `stream` and `data`; the rows of a stream follow `order_by`."""
    table = streams.asTable().partitionBy("stream")
    if order_by is not None:
        table = table.orderBy(order_by)
    return _message_table()(table)  # type: ignore[no-any-return]


def _message_table() -> Any:
    return arrow_udtf(MessageTable, returnType=spark_schema(MESSAGES))


def register_functions(spark: SparkSession) -> None:
    """Make the functions of this module known to SQL."""
    for name in _FUNCTIONS:
        spark.udf.register(name, _udf(name))
    spark.udtf.register("rtmp_messages", _message_table())
