"""`rtmp-spark doctor`: check the requirements on this machine, with a remedy for each problem.

It changes nothing and uses the network only with `--fetch`. Required packages are read from the metadata of the
installed package.
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
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rtmp_spark.codec.chunk import dechunker
from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.exit_codes import ENVIRONMENT
from rtmp_spark.install_command import install_command

OLDEST_PYTHON = (3, 10)
RELAY_PORT = 1935

# Optional extras and what they are for. Other extras are required (`spark`) or for developers.
OPTIONAL_EXTRAS = {
    "lake": "reading a lake: report --lake, check --lake, sql",
    "zstd": "reading .zst captures",
    "tls": "decrypting RTMPS",
    "av": "extract to MP4",
    "notebook": "the notebooks",
}
_EXTRA_ORDER = {"": 0, "spark": 1, **{extra: number for number, extra in enumerate(OPTIONAL_EXTRAS, 2)}}
TOOLS = {
    "ffmpeg": "publishing and playing test traffic",
    "tshark": "comparing with Wireshark",
    "nginx": "tests against a real server",
    "rtmpdump": "tests against a real player",
    "gst-launch-1.0": "tests against GStreamer",
}


@dataclass(frozen=True)
class Check:
    """The result of one check. Only `missing` makes `doctor` fail."""

    name: str
    state: str  # ok, note, missing
    found: str
    remedy: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument(
        "--fetch", action="store_true", help="download the Delta jars now instead of during the first ingest"
    )


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
    print(f"Missing: {', '.join(missing)}." if missing else "All requirements are met.")


def examine(fetch: bool = False) -> Iterator[Check]:
    yield python()
    try:
        packages = _each_once(required_packages())
    except importlib.metadata.PackageNotFoundError:
        yield Check("rtmp-spark", "missing", "not installed; running from a source directory", "pip install .")
        packages = []
    yield compiled_modules()
    yield from (package(name, pin) for name, pin, extra in packages if extra == "")
    spark = [package(name, pin, "spark") for name, pin, extra in packages if extra == "spark"]
    yield from spark
    if spark and all(check.state == "ok" for check in spark):
        yield java()
        yield delta_jars(fetch)
    for extra, purpose in OPTIONAL_EXTRAS.items():
        yield from (optional(name, extra, purpose) for name, _, of in packages if of == extra)
    yield from (tool(name, purpose) for name, purpose in TOOLS.items())
    yield writable("current directory", Path.cwd(), "Change to a writable directory.")
    yield writable("temporary files", Path(tempfile.gettempdir()), "Set TMPDIR to a writable directory.")
    yield port()
    yield encoding()


def python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return Check("Python", "missing", version, "Install Python 3.10 or later.")
    return Check("Python", "ok", f"{version} ({sys.executable})")


def compiled_modules() -> Check:
    is_compiled = not (dechunker.__file__ or "").endswith(".py")
    return Check("compiled modules", "ok", "installed" if is_compiled else "not installed: pure Python")


def required_packages() -> Iterator[tuple[str, str, str]]:
    """(name, exact version or "", extra or "") of each package that rtmp-spark requires."""
    for line in importlib.metadata.requires("rtmp-spark") or []:
        match = re.match(r"([\w.-]+)\s*(\[[^]]*\])?\s*([^;]*)(?:;.*extra\s*==\s*[\"'](\w+)[\"'])?", line)
        if match and match[1] != "rtmp-spark" and not match[2]:  # the package itself is listed separately
            pin = re.search(r"==\s*([\w.]+)", match[3])
            yield match[1], pin[1] if pin else "", match[4] or ""


def _each_once(packages: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """The packages without repetition: one that is required is not listed again as optional."""
    found: dict[str, tuple[str, str, str]] = {}
    for one in sorted(packages, key=lambda one: _EXTRA_ORDER.get(one[2], len(_EXTRA_ORDER))):
        found.setdefault(one[0], one)
    return list(found.values())


def package(name: str, pin: str, extra: str = "") -> Check:
    install = install_command(extra)
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        needed_by = "; required by ingest and demo only" if extra else ""
        return Check(name, "missing", f"not installed{needed_by}", install)
    if pin and version != pin:
        return Check(name, "missing", f"{version} is installed, {pin} is required", install)
    return Check(name, "ok", version)


def optional(name: str, extra: str, purpose: str) -> Check:
    try:
        return Check(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Check(name, "note", f"not installed; needed only for {purpose}", install_command(extra))


def java() -> Check:
    from rtmp_spark.spark.session import jars

    try:
        home = jars.java_home()
        binary = home / "bin" / "java" if home else Path(shutil.which("java") or "java")
        version = re.search(r'version "([^"]+)"', jars.check_java(binary))
        return Check("Java", "ok", f"{version[1] if version else 'unknown version'} ({binary})")
    except UserError as error:
        return Check("Java", "missing", error.text, error.remedy)


def delta_jars(fetch: bool) -> Check:
    from rtmp_spark.spark.session import jars

    try:
        if fetch or os.environ.get("RTMP_SPARK_JARS"):
            return Check("Delta jars", "ok", str(jars.delta_jars()[0].parent))
        directory = jars.cache_directory() / f"delta-{jars.DELTA_VERSION}"
    except UserError as error:
        return Check("Delta jars", "missing", error.text, error.remedy)
    if any(directory.glob("*delta-spark_*.jar")):
        return Check("Delta jars", "ok", str(directory))
    remedy = "`rtmp-spark doctor --fetch` downloads them now. Offline, set RTMP_SPARK_JARS to their directory."
    return Check("Delta jars", "note", "not downloaded yet; the first ingest downloads them", remedy)


def tool(name: str, purpose: str) -> Check:
    found = shutil.which(name)
    if found:
        return Check(name, "ok", found)
    return Check(name, "note", f"not found; needed only for {purpose}")


def writable(name: str, directory: Path, remedy: str) -> Check:
    try:
        with tempfile.TemporaryFile(dir=directory):
            return Check(name, "ok", f"{directory} is writable")
    except OSError as error:
        return Check(name, "missing", f"{directory} is not writable: {error.strerror}", remedy)


def port() -> Check:
    name = f"port {RELAY_PORT}"
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", RELAY_PORT))
        except OSError as error:
            another = f"Use another port for the relay: rtmp-spark relay --listen 127.0.0.1:{RELAY_PORT + 1}"
            return Check(name, "note", f"not available: {error.strerror}", another)
    return Check(name, "ok", "available for the relay")


def encoding() -> Check:
    name = locale.getpreferredencoding(False)
    if name.lower().replace("-", "") == "utf8":
        return Check("text encoding", "ok", name)
    return Check("text encoding", "note", f"{name}; non-ASCII names from captures may be garbled", "Set PYTHONUTF8=1.")
