"""The type of what JSON can hold: AMF values as tables keep them, and saved states.

A tuple in a saved state has the type `SavedFields`. JSON reads it back as a list, so `resume` may only unpack it, and a
type that says tuple would be wrong: a compiled module (setup.py) rejects the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

Json = Union[None, bool, int, float, str, "list[Json]", "dict[str, Json]"]
SavedFields = Sequence[Any]
