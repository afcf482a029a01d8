"""HTML tables: column names and rows of cells, where each cell is HTML already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

FILTER_FROM = 8  # rows; shorter tables need no search field


def table(head: Sequence[str], rows: Iterable[Sequence[str] | tuple[str, Sequence[str]]], style: str = "") -> str:
    """The table as HTML. Columns whose name begins with # hold numbers. A row is its cells, or (CSS class, cells)."""
    numbers = [name.startswith("#") for name in head]
    names = "".join(_cell("th", name.lstrip("#"), right) for name, right in zip(head, numbers))
    body = []
    for row in rows:
        role, cells = (row[0], row[1]) if len(row) == 2 and not isinstance(row[1], str) else ("", row)
        inside = "".join(_cell("td", str(cell), right) for cell, right in zip(cells, numbers))
        body.append(f"<tr class='{role}'>{inside}</tr>" if role else f"<tr>{inside}</tr>")
    kind = f" class='{style}'" if style else ""
    return f"<div class='wide'><table{kind}><thead><tr>{names}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"


def filterable(table: str, rows: int, what: str) -> str:
    """A table with a search field, which the script shows, unless it is short."""
    if rows <= FILTER_FROM:
        return table
    field = f"<input class='search' type='search' placeholder='filter' aria-label='filter {what}' hidden>"
    return f"<div class='filterable'>{field}{table}</div>"


def _cell(tag: str, inside: str, right: bool) -> str:
    if inside.startswith("<td"):
        return inside
    return f"<{tag} class='n'>{inside}</{tag}>" if right else f"<{tag}>{inside}</{tag}>"
