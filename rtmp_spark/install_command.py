"""The pip command that adds an optional extra to this installation."""

from __future__ import annotations

PACKAGE = "rtmp-spark"


def install_command(extra: str = "") -> str:
    """For an installation from a directory, the command names that directory: no package index may have the package."""
    import importlib.metadata  # here because errors are rare and this import takes longer than the rest of the module

    try:
        recorded = importlib.metadata.distribution(PACKAGE).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        source = "."
    else:
        source = _directory(recorded) or PACKAGE
    return f"pip install '{source}[{extra}]'" if extra else f"pip install '{source}'"


def _directory(direct_url: str | None) -> str | None:
    """The directory that pip recorded as the origin of an installation, if it still has the project."""
    import json
    from pathlib import Path
    from urllib.parse import unquote, urlsplit

    url = urlsplit(json.loads(direct_url)["url"]) if direct_url else None
    if url is None or url.scheme != "file":
        return None
    directory = Path(unquote(url.path))
    if not (directory / "pyproject.toml").exists():
        return None
    return "." if directory == Path.cwd() else str(directory)
