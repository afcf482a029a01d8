"""Arrow schemas as Spark schemas."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_TYPES: dict[pa.DataType, DataType] = {
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
}


def spark_type(kind: pa.DataType) -> DataType:
    if pa.types.is_list(kind):
        return ArrayType(spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return spark_schema(pa.schema(list(kind)))
    return _TYPES[kind]


def spark_schema(schema: pa.Schema) -> StructType:
    return StructType([StructField(field.name, spark_type(field.type), field.nullable) for field in schema])
