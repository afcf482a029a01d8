"""The options of an ingest, as one value that is passed from the command line to the executors."""

from __future__ import annotations

from dataclasses import dataclass, field

from rtmp_spark.analysis.settings import ConnectionFilter, Settings
from rtmp_spark.capture.unwrap.tls.keylog import KeyLog, can_decrypt
from rtmp_spark.redact import Redactor

SPLIT_BYTES = 64 << 20
LEAST_SPLIT_BYTES = 4096  # below this a split is smaller than the records it holds


@dataclass(frozen=True)
class IngestOptions:
    """Every option of `rtmp-spark ingest` and of `rtmp_spark.spark.ingest`. Times are epoch microseconds."""

    sensor: str = ""
    keep_payloads: bool = False
    keep_secrets: bool = False
    host: str | None = None
    port: int | None = None
    since: int | None = None
    until: int | None = None
    keylog: bytes = field(default=b"", repr=False)  # TLS secrets; never written to the lake
    split_bytes: int = SPLIT_BYTES
    round_bytes: int | None = None  # None: as much as the cores of the cluster decode in about half a minute
    sorted_copy: bool | None = None  # of plain pcap files; None: where there are many buckets
    cores: int | None = None  # None: as many as the cluster offers
    redo: bool = False
    verify: bool = False
    dry_run: bool = False
    wait_seconds: float = 600  # for another ingest into the same lake
    redact_key: str | None = field(default=None, repr=False)  # hex; set once the lake is open; None keeps secrets

    def __post_init__(self) -> None:
        if self.split_bytes < LEAST_SPLIT_BYTES:
            object.__setattr__(self, "split_bytes", LEAST_SPLIT_BYTES)

    def settings(self) -> Settings:
        """The settings of the analysis on an executor."""
        log = KeyLog()
        if can_decrypt():
            log.add(self.keylog)
        return Settings(
            keylog=log,
            sensor=self.sensor,
            redactor=Redactor(None if self.redact_key is None else bytes.fromhex(self.redact_key)),
            keep_payloads=self.keep_payloads,
            filter=ConnectionFilter(host=self.host, port=self.port, since=self.since, until=self.until),
            rules_across_connections=False,  # they are applied to the whole lake
        )
