"""Memory settings of workers."""

from __future__ import annotations

import subprocess
import sys

_FREEZE_TWICE = """
import gc
from rtmp_spark.capture.memory_tuning import exempt_loaded_modules
before = len(gc.get_objects())
exempt_loaded_modules()
first, left = gc.get_freeze_count(), len(gc.get_objects())
kept = [[] for _ in range(1000)]
exempt_loaded_modules()
assert left < before / 10, (left, before)
assert gc.get_freeze_count() <= first, "objects of later tasks must stay collectable"
"""


def test_collections_skip_loaded_modules_but_not_the_objects_of_later_tasks() -> None:
    subprocess.run([sys.executable, "-c", _FREEZE_TWICE], check=True)
