"""Every kind of path means the same place to Python and to Spark, or is refused with what to write instead."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from kit.lake_rows import made_rows, publish_rows

from rtmp_spark.codec.errors import UserError
from rtmp_spark.lake.location import locate
from rtmp_spark.lake.reader import open_lake

HDFS = {"fs.defaultFS": "hdfs://nn:8020"}
S3 = {"fs.defaultFS": "s3a://Bucket/"}


@pytest.mark.parametrize(
    ("given", "hadoop", "python", "spark"),
    [
        ("/data/lake", {}, "/data/lake", "file:///data/lake"),
        ("/data/lake/", {}, "/data/lake", "file:///data/lake"),
        ("/data/a b", {}, "/data/a b", "file:///data/a b"),
        ("/data/100%", {}, "/data/100%", "file:///data/100%"),
        ("file:/data/lake", {}, "/data/lake", "file:///data/lake"),
        ("file:///data/lake", {}, "/data/lake", "file:///data/lake"),
        ("file://localhost/data/lake", {}, "/data/lake", "file:///data/lake"),
        ("file:///data/lake", HDFS, "/data/lake", "file:///data/lake"),
        ("s3://bucket/lake", {}, "s3://bucket/lake", "s3a://bucket/lake"),
        ("s3a://bucket/lake/", {}, "s3://bucket/lake", "s3a://bucket/lake"),
        ("S3A://bucket/lake", HDFS, "s3://bucket/lake", "s3a://bucket/lake"),
        ("gs://bucket/a/b", {}, "gs://bucket/a/b", "gs://bucket/a/b"),
        ("abfss://c@a.dfs.core.windows.net/l", {}, "abfss://c@a.dfs.core.windows.net/l",
         "abfss://c@a.dfs.core.windows.net/l"),
        ("hdfs://nn:8020/lake", {}, "hdfs://nn:8020/lake", "hdfs://nn:8020/lake"),
        ("hdfs:/lake", HDFS, "hdfs://nn:8020/lake", "hdfs://nn:8020/lake"),
        ("hdfs:///lake", HDFS, "hdfs://nn:8020/lake", "hdfs://nn:8020/lake"),
        ("/lake", HDFS, "hdfs://nn:8020/lake", "hdfs://nn:8020/lake"),
        ("/lake", S3, "s3://Bucket/lake", "s3a://Bucket/lake"),
    ],
)  # fmt: skip
def test_python_and_spark_mean_the_same_place(given: str, hadoop: dict[str, str], python: str, spark: str) -> None:
    found = locate(given, hadoop=hadoop, environment={})
    assert (found.uri, found.for_spark) == (python, spark)


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = locate("lake")
    monkeypatch.chdir("/")
    assert found.uri == str(tmp_path / "lake")


@pytest.mark.parametrize(
    ("given", "hadoop", "remedy"),
    [
        ("", {}, "Name a directory"),
        ("lake", HDFS, "hdfs://nn:8020/PATH, or file:///PATH"),
        ("dbfs:/lake", {}, "/Volumes"),
        ("hdfs:/lake", {}, "hdfs://HOST/PATH"),
        ("hdfs:///lake", S3, "hdfs://HOST/PATH"),
        ("s3:///lake", HDFS, "s3://HOST/PATH"),
        ("hdfs://nn:8020/a lake", {}, "letters, digits"),
        ("/ä", HDFS, "letters, digits"),
        ("wasbs://c@a/l", {}, "abfss://"),
        ("az://container/lake", {}, "abfss://"),
        ("abfss://container/lake", {}, "abfss://"),
        ("https://host/lake", {}, "s3"),
        ("ftp://host/lake", {}, "s3"),
        ("file://other/data", {}, "file:///PATH"),
        ("file:///data/a%20b", {}, "plain path"),
        ("/data/a%20b", {}, "rename it"),
        ("s3://bucket/a%2Fb", {}, "rename it"),
        ("s3://key:secret@bucket/lake", {}, "AWS_ACCESS_KEY_ID"),
        ("/lake", {"fs.defaultFS": "dbfs:///"}, "/Volumes"),
    ],
)
def test_an_ambiguous_path_is_refused_with_a_remedy(given: str, hadoop: dict[str, str], remedy: str) -> None:
    with pytest.raises(UserError) as refused:
        locate(given, hadoop=hadoop, environment={})
    assert remedy in refused.value.remedy
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", ["a b", "100%", "ü'\"", "x#y?z", "[1]*"])
def test_a_lake_may_have_any_name(tmp_path: Path, name: str) -> None:
    location = locate(tmp_path / name)
    publish_rows(location, {"messages": made_rows("messages")})
    assert (tmp_path / name / "messages").is_dir() and [p.name for p in tmp_path.iterdir()] == [name]
    assert open_lake(tmp_path / name).messages.count_rows() == 1


def test_options_come_from_the_environment_the_session_and_the_caller() -> None:
    environment = {"AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "env", "HOME": "/x", "AZURE_STORAGE_KEY": "no"}
    hadoop = {
        "fs.s3a.access.key": "hadoop",
        "fs.s3a.secret.key": "hidden",
        "fs.s3a.endpoint": "127.0.0.1:9000",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.bucket.b.endpoint.region": "here",
    }
    found = locate("s3a://b/lake", {"AWS_REGION": "mine"}, hadoop=hadoop, environment=environment)
    assert found.options == {
        "AWS_REGION": "mine",
        "AWS_ACCESS_KEY_ID": "hadoop",
        "AWS_SECRET_ACCESS_KEY": "hidden",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "AWS_ALLOW_HTTP": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
    }
    assert "hidden" not in repr(found)
    assert locate("/local", hadoop=hadoop, environment=environment).options == {}


def test_azure_and_google_settings_are_understood() -> None:
    account = "acc.dfs.core.windows.net"
    hadoop = {
        f"fs.azure.account.oauth2.client.id.{account}": "id",
        f"fs.azure.account.oauth2.client.secret.{account}": "hidden",
        f"fs.azure.account.oauth2.client.endpoint.{account}": "https://login.microsoftonline.com/tenant/oauth2/token",
        "google.cloud.auth.service.account.json.keyfile": "/key.json",
    }
    assert locate(f"abfss://c@{account}/l", hadoop=hadoop, environment={}).options == {
        "AZURE_STORAGE_CLIENT_ID": "id",
        "AZURE_STORAGE_CLIENT_SECRET": "hidden",
        "AZURE_STORAGE_TENANT_ID": "tenant",
    }
    assert locate("gs://b/l", hadoop=hadoop, environment={}).options == {"GOOGLE_SERVICE_ACCOUNT": "/key.json"}


def test_a_location_can_be_sent_to_executors(tmp_path: Path) -> None:
    location = locate(tmp_path / "lake")
    publish_rows(location, {"messages": made_rows("messages")})
    again = pickle.loads(pickle.dumps(location))
    assert again == location and open_lake(again).messages.count_rows() == 1
