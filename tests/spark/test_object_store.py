"""The same tables from captures in an object store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from otherspark import INGEST, NAMES, assert_same, python

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def object_store() -> Iterator[dict[str, str]]:
    """An S3 server on loopback; the environment that leads there."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed (extra: test)")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    server.stop()


def test_captures_in_an_object_store(
    local: Path, object_store: dict[str, str], sample_pcaps: Path, tmp_path: Path
) -> None:
    """A directory by `s3`, whose name is data, and a file by `s3a`."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=object_store["AWS_ENDPOINT_URL"],
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="captures")
    client.upload_file(str(sample_pcaps / NAMES[0]), "captures", f"50% of day 1/{NAMES[0]}")
    client.upload_file(str(sample_pcaps / NAMES[1]), "captures", NAMES[1])
    lake = tmp_path / "lake"
    addresses = ["s3://captures/50%25 of day 1", f"s3a://captures/{NAMES[1]}"]
    python(INGEST, "ingest", *addresses, "--lake", str(lake), "--split-size", "64KB", **object_store)
    assert_same(local, lake)
