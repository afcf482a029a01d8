"""`rtmp-spark doctor`: what this machine has and lacks, with the remedies.

It looks and tells; it changes nothing, and goes to the network only when `--fetch` asks it to. What the package
needs is read from the package's own metadata, so that it stands in one place.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import locale
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rtmp_spark.codec.errors import UserError

OLDEST_PYTHON = (3, 10)
RELAY_PORT = 1935
ENVIRONMENT = 3

# What is lost without an extra; those that are not here are needed (`spark`) or for developers.
OPTIONAL_EXTRAS = {
    "zstd": "reading .zst captures",
    "tls": "decrypting RTMPS",
    "notebook": "the notebooks",
}
TOOLS = {
    "ffmpeg": "publishing and playing test traffic",
    "tshark": "comparing with Wireshark",
    "nginx": "tests against a real server",
    "rtmpdump": "tests against a real player",
    "gst-launch-1.0": "tests against GStreamer",
}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. Only `missing` makes the doctor fail."""

    name: str
    state: str  # ok, note, missing
    found: str
    remedy: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--fetch", action="store_true", help="fetch the Delta jars now instead of at the first ingest")


def run(args: argparse.Namespace) -> int:
    checks = list(examine(fetch=args.fetch))
    if args.json:
        for check in checks:
            print(json.dumps(asdict(check)))
    else:
        show(checks)
    return ENVIRONMENT if any(check.state == "missing" for check in checks) else 0


def show(checks: list[Check]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        print(f"{check.state:8} {check.name:{width}}  {check.found}")
        if check.remedy:
            print(f"{'':8} {'':{width}}  -> {check.remedy}")
    missing = [check.name for check in checks if check.state == "missing"]
    print()
    print(f"Missing: {', '.join(missing)}." if missing else "Everything that is needed is there.")


def examine(fetch: bool = False) -> Iterator[Check]:
    yield python()
    try:
        packages = list(required_packages())
    except importlib.metadata.PackageNotFoundError:
        yield Check("rtmp-spark", "missing", "runs from a directory, not installed", "pip install .")
        packages = []
    yield from (package(name, pin) for name, pin, extra in packages if extra == "")
    spark = [package(name, pin, "spark") for name, pin, extra in packages if extra == "spark"]
    yield from spark
    if spark and all(check.state == "ok" for check in spark):
        yield java()
        yield delta_jars(fetch)
    for extra, purpose in OPTIONAL_EXTRAS.items():
        yield from (optional(name, extra, purpose) for name, _, of in packages if of == extra)
    yield from (tool(name, purpose) for name, purpose in TOOLS.items())
    yield writable("current directory", Path.cwd(), "Change to a directory that you may write to.")
    yield writable("temporary files", Path(tempfile.gettempdir()), "Set TMPDIR to a directory that you may write to.")
    yield port()
    yield encoding()


def python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return Check("Python", "missing", version, "Install Python 3.10 or later.")
    return Check("Python", "ok", f"{version} ({sys.executable})")


def required_packages() -> Iterator[tuple[str, str, str]]:
    """(name, exact version or "", extra or "") of what rtmp-spark says it needs."""
    for line in importlib.metadata.requires("rtmp-spark") or []:
        match = re.match(r"([\w.-]+)\s*(\[[^]]*\])?\s*([^;]*)(?:;.*extra\s*==\s*[\"'](\w+)[\"'])?", line)
        if match and match[1] != "rtmp-spark" and not match[2]:  # an extra of a package comes beside the package
            pin = re.search(r"==\s*([\w.]+)", match[3])
            yield match[1], pin[1] if pin else "", match[4] or ""


def package(name: str, pin: str, extra: str = "") -> Check:
    install = f"pip install 'rtmp-spark[{extra}]'" if extra else "pip install --force-reinstall rtmp-spark"
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        of = "; ingest, demo and --lake need it, the rest works without" if extra else ""
        return Check(name, "missing", f"not installed{of}", install)
    if pin and version != pin:
        return Check(name, "missing", f"{version}, but {pin} is needed", install)
    return Check(name, "ok", version)


def optional(name: str, extra: str, purpose: str) -> Check:
    try:
        return Check(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Check(name, "note", f"not installed; only for {purpose}", f"pip install 'rtmp-spark[{extra}]'")


def java() -> Check:
    from rtmp_spark.spark import jars

    try:
        home = jars.java_home()
        binary = home / "bin" / "java" if home else Path(shutil.which("java") or "java")
        version = re.search(r'version "([^"]+)"', jars.check_java(binary))
        return Check("Java", "ok", f"{version[1] if version else 'of unknown version'} ({binary})")
    except UserError as error:
        return Check("Java", "missing", error.text, error.remedy)


def delta_jars(fetch: bool) -> Check:
    from rtmp_spark.spark import jars

    try:
        if fetch or os.environ.get("RTMP_SPARK_JARS"):
            return Check("Delta jars", "ok", str(jars.delta_jars()[0].parent))
        directory = jars.cache_directory() / f"delta-{jars.DELTA_VERSION}"
    except UserError as error:
        return Check("Delta jars", "missing", error.text, error.remedy)
    if any(directory.glob("*delta-spark_*.jar")):
        return Check("Delta jars", "ok", str(directory))
    remedy = "`rtmp-spark doctor --fetch` fetches them now, without a network name a directory in RTMP_SPARK_JARS."
    return Check("Delta jars", "note", "not fetched yet; the first ingest will", remedy)


def tool(name: str, purpose: str) -> Check:
    found = shutil.which(name)
    if found:
        return Check(name, "ok", found)
    return Check(name, "note", f"not found; only for {purpose}")


def writable(name: str, directory: Path, remedy: str) -> Check:
    try:
        with tempfile.TemporaryFile(dir=directory):
            return Check(name, "ok", f"{directory} can be written")
    except OSError as error:
        return Check(name, "missing", f"{directory} cannot be written: {error.strerror}", remedy)


def port() -> Check:
    name = f"port {RELAY_PORT}"
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", RELAY_PORT))
        except OSError as error:
            another = f"Give the relay another one: rtmp-spark relay --listen 127.0.0.1:{RELAY_PORT + 1}"
            return Check(name, "note", f"cannot be used: {error.strerror}", another)
    return Check(name, "ok", "free for the relay")


def encoding() -> Check:
    name = locale.getpreferredencoding(False)
    if name.lower().replace("-", "") == "utf8":
        return Check("text encoding", "ok", name)
    return Check("text encoding", "note", f"{name}: names from captures may look odd", "Set PYTHONUTF8=1.")
