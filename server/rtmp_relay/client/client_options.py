"""How a client behaves: handshake, chunk size, AMF version and how long it waits for responses."""

from __future__ import annotations

from dataclasses import dataclass

from rtmp_spark.codec import handshake


@dataclass(frozen=True)
class ClientOptions:
    scheme: str = handshake.DIGEST1
    chunk_size: int = 4096
    amf_version: int = 0
    enhanced: bool = True  # offer E-RTMP codecs and capabilities in connect
    window: int | None = None  # announce this window without being asked
    answer_s: float = 5.0  # how long to wait for a response


DEFAULT_CLIENT = ClientOptions()
