"""Builds the documentation site with Sphinx: `make docs`. Its pages and its search work without a server or a network.

The pages are those of docs/ and a few from elsewhere in the project. They are copied with links that work on the site;
a link or heading that does not exist is an error.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path, PurePosixPath

from sphinx.cmd.build import build_main

ROOT = Path(__file__).parent.parent
MOVED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "sample_pcaps/README.md": "sample_pcaps.md",
    "rtmp_spark/vectors/README.md": "vectors.md",
}
SECTIONS = {
    "Use": (
        "install",
        "troubleshooting",
        "cookbook",
        "spark",
        "dashboards",
        "questions",
        "obs",
        "ffmpeg",
        "gstreamer",
        "sample_pcaps",
    ),
    "Reference": (
        "cli",
        "tables",
        "findings",
        "api",
        "glossary",
        "vectors",
        "probe",
        "conformance",
        "interoperability",
        "limits",
    ),
    "Background": ("architecture", "lake", "scale", "compare", "tshark"),
    "Project": ("contributing", "release", "changelog"),
}
SETTINGS = (
    "extensions=myst_parser",
    "project=rtmp_spark",
    "html_title=rtmp_spark",
    "html_theme=furo",
    "myst_heading_anchors=4",
    "html_show_sphinx=0",
    "html_show_copyright=0",
    "suppress_warnings=misc.highlighting_failure",
)
_LINK = re.compile(r"(\]\()([^)#\s:]+)(#[^)]*)?\)")
_FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def build(target: Path) -> int:
    """Write the site into a directory; the exit code of Sphinx, which treats warnings as errors."""
    source = target.with_name(f"{target.name}_source")
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    for directory in ("img", "conformance"):  # pictures, and the captures of failures
        shutil.copytree(ROOT / "docs" / directory, source / directory)
    for page in [*sorted((ROOT / "docs").glob("*.md")), *(ROOT / name for name in MOVED)]:
        name = page.relative_to(ROOT).as_posix()
        text = page.read_text(encoding="utf-8")
        (source / MOVED.get(name, page.name)).write_text(with_site_links(text, name), encoding="utf-8")
    with (source / "index.md").open("a", encoding="utf-8") as index:
        index.write(_navigation())
    options = [word for setting in SETTINGS for word in ("-D", setting)]
    return build_main(["-q", "-W", "--keep-going", "-C", "-b", "html", *options, str(source), str(target)])


def with_site_links(text: str, name: str) -> str:
    """Point the links of a page to where the site has their targets; a link to another file becomes plain text."""

    def replace(found: re.Match[str]) -> str:
        target = _without_dots(PurePosixPath(name).parent / found[2])
        if target in MOVED:
            target = MOVED[target]
        elif target.startswith("docs/"):
            target = target.removeprefix("docs/")
        else:
            return "]"
        return f"{found[1]}{target}{found[3] or ''})"

    parts = _FENCED.split(text)
    parts[::2] = [_LINK.sub(replace, part) for part in parts[::2]]
    return "".join(parts)


def _without_dots(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _navigation() -> str:
    """The list of pages beside every page."""
    return "".join(
        "\n".join(("", "```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```", ""))
        for title, pages in SECTIONS.items()
    )


if __name__ == "__main__":
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "artifacts" / "site")
    code = build(directory)
    if code == 0:
        print(f"Open {(directory.resolve() / 'index.html').as_uri()}")
    sys.exit(code)
