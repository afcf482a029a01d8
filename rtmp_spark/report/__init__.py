"""Pages and panels for people: one self-contained HTML report, and the object that notebooks work with. No Spark."""

from __future__ import annotations
