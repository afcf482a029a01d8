"""How a direction is decoded. The value is pickled when a direction is decoded in a helper process."""

from __future__ import annotations

from typing import NamedTuple

from rtmp_spark.codec.limits import DEFAULT_LIMITS, Limits
from rtmp_spark.codec.message import EVERY_TYPE


class DecodeOptions(NamedTuple):
    limits: Limits = DEFAULT_LIMITS
    keep_payloads: bool = False
    message_types: frozenset[int] = EVERY_TYPE  # messages of other types have no rows
    interval_rows: bool = True  # False: media is not added up per second


DEFAULT_OPTIONS = DecodeOptions()
