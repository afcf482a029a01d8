"""How a direction is decoded. The value is pickled when a direction is decoded in a helper process."""

from __future__ import annotations

from typing import NamedTuple

from rtmp_spark.codec.limits import DEFAULT_LIMITS, Limits


class DecodeOptions(NamedTuple):
    limits: Limits = DEFAULT_LIMITS
    keep_payloads: bool = False
    message_rows: bool = True  # False: messages are counted only
    interval_rows: bool = True  # False: media is not added up per second


DEFAULT_OPTIONS = DecodeOptions()
