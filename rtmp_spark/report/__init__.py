"""The HTML report, its panels, and the views that notebooks use. Nothing here needs Spark."""

from __future__ import annotations
