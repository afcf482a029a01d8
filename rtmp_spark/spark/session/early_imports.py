"""Imports that take place while Java starts, in a thread."""

from __future__ import annotations

import threading
from importlib import import_module

# pyspark imports pandas for every DataFrame. None of these imports pyspark itself: of two modules that import each
# other, a thread may see one half finished while another thread imports it.
_MODULES = ("pandas", "rtmp_spark.ingest.rounds")


def import_early() -> None:
    """Begin to import what an ingest uses; returns at once. An error is raised where the module is used."""
    threading.Thread(target=_import_all, daemon=True).start()


def _import_all() -> None:
    for name in _MODULES:
        try:
            import_module(name)
        except ImportError:
            return
