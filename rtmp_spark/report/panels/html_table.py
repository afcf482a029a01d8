"""Tables as HTML: a head of names, rows of cells that are HTML already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str] | tuple[str, Sequence[str]]], style: str = "") -> str:
    """Columns whose name begins with # hold numbers. A row may be (class, cells)."""
    numbers = [name.startswith("#") for name in head]
    names = "".join(_cell("th", name.lstrip("#"), right) for name, right in zip(head, numbers))
    body = []
    for row in rows:
        role, cells = (row[0], row[1]) if len(row) == 2 and not isinstance(row[1], str) else ("", row)
        inside = "".join(_cell("td", str(cell), right) for cell, right in zip(cells, numbers))
        body.append(f"<tr class='{role}'>{inside}</tr>" if role else f"<tr>{inside}</tr>")
    kind = f" class='{style}'" if style else ""
    return f"<div class='wide'><table{kind}><thead><tr>{names}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"


def _cell(tag: str, inside: str, right: bool) -> str:
    if inside.startswith("<td"):
        return inside
    return f"<{tag} class='n'>{inside}</{tag}>" if right else f"<{tag}>{inside}</{tag}>"
