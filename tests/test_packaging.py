"""The content of the wheel and the sdist, built as `make dist` builds them, and the Dockerfile as far as it can be
tested without Docker; the wheel runs without installation."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from rtmp_spark import __version__

pytest.importorskip("build", reason="build is not installed")
pytest.importorskip("setuptools", minversion="77", reason="setuptools 77 or later is not installed")

ROOT = Path(__file__).parent.parent
DOCKERFILE = ROOT / "Dockerfile"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from a copy of the files that git tracks, so that untracked files cannot get in."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git clone")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "sample_pcaps/", "docs/", "notebooks/")):
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    return out


def sources(suffix: str) -> set[str]:
    roots = {"rtmp_spark": ROOT, "rtmp_relay": ROOT / "server"}
    return {
        path.relative_to(root).as_posix()
        for package, root in roots.items()
        for path in (root / package).rglob(f"*{suffix}")
        if "__pycache__" not in path.parts
    }


def test_the_wheel_contains_all_code_vectors_and_assets(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    known = {name.removeprefix("server/") for name in tracked}
    assert sources(".py") & known <= names
    assert sources(".json") & known <= names
    assert {"rtmp_spark/py.typed", "rtmp_spark/report/assets/report.js"} <= names
    assert sum(name.startswith("rtmp_spark/vectors/") and name.endswith(".json") for name in names) > 100
    assert {name.split("/")[0] for name in names} == {"rtmp_spark", "rtmp_relay", f"rtmp_spark-{__version__}.dist-info"}


def test_the_sdist_contains_what_a_build_needs(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "rtmp_spark/py.typed",
        "server/rtmp_relay/relay/relay_server.py",
    } <= names
    assert "rtmp_spark/report/assets/report.js" in names


def test_the_codec_runs_from_the_wheel_file_without_other_packages(dist: Path) -> None:
    """spark-submit --py-files uses the wheel this way; the codec must not import other packages."""
    (wheel,) = dist.glob("*.whl")
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r}); before = set(sys.modules)\n"
        "import rtmp_spark.codec.decoder, rtmp_spark.codec.encoder\n"
        "heavy = {'numpy', 'pyarrow', 'pyspark', 'pandas', 'rich'} & set(sys.modules)\n"
        "print(rtmp_spark.__file__, rtmp_spark.__version__, sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, cwd=dist)
    assert done.returncode == 0, done.stderr
    place, version, heavy = done.stdout.split(maxsplit=2)
    assert place.startswith(str(wheel)) and version == __version__ and heavy.strip() == "[]"


def test_the_version_is_written_in_one_file() -> None:
    holders = [
        path.relative_to(ROOT).as_posix()
        for path in [ROOT / "pyproject.toml", *ROOT.glob("rtmp_spark/**/*.py"), *ROOT.glob("server/**/*.py")]
        if f'"{__version__}"' in path.read_text(encoding="utf-8")
    ]
    assert holders == ["rtmp_spark/__init__.py"]


@pytest.fixture(scope="module")
def docker_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that `pip install /src` builds in the Dockerfile, from copies of the files that its COPY lines name."""
    source, out = tmp_path_factory.mktemp("docker-source"), tmp_path_factory.mktemp("docker-dist")
    unbuilt = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for line in re.findall(r"^COPY (.+)$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE):
        *names, target = line.split()
        for name in names:
            if (ROOT / name).is_dir():  # COPY copies what a directory contains
                shutil.copytree(ROOT / name, source / target, ignore=unbuilt)
            else:
                shutil.copy(ROOT / name, source / target)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    (wheel,) = out.glob("*.whl")
    return wheel


def test_the_files_that_the_dockerfile_copies_build_the_complete_wheel(dist: Path, docker_wheel: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as complete, zipfile.ZipFile(docker_wheel) as copied:
        assert set(complete.namelist()) - set(copied.namelist()) == set()


def test_the_dockerfile_uses_extras_and_a_command_of_its_wheel(docker_wheel: Path) -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    (metadata,) = importlib.metadata.distributions(path=[str(docker_wheel)])
    extras = {name for group in re.findall(r"/src\[([\w,]+)\]", text) for name in group.split(",")}
    assert extras and extras <= set(metadata.metadata.get_all("Provides-Extra") or ())
    commands = set(re.findall(r'^ENTRYPOINT \["([^"]+)"', text, re.MULTILINE))
    assert commands and commands <= {entry.name for entry in metadata.entry_points.select(group="console_scripts")}


def test_hadolint_has_no_objection_to_the_dockerfile() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([hadolint, str(DOCKERFILE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
