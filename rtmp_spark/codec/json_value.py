"""The type of what JSON can hold: AMF values as tables keep them, and saved states.

The types of saved states give a list of fixed length as a tuple. JSON reads it back as a list, so `resume` may only
unpack it.
"""

from __future__ import annotations

from typing import Union

Json = Union[None, bool, int, float, str, "list[Json]", "dict[str, Json]"]
