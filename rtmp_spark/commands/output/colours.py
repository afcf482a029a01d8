"""The colours of the terminal, as rich styles."""

from __future__ import annotations

SEVERITY_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}
VERDICT_STYLES = {"ok": "green", "degraded": "yellow", "failed": "bold red", "no_media": "yellow", "unknown": "dim"}
HEADING = "bold cyan"
