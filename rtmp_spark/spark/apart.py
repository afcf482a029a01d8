"""Files that share no connection are decoded apart, so that a file is not read by many buckets for a few packets each.

An index group holds the connections of one hash, wherever they are. Here it falls into one group for each *part* of the
input: files joined by connections that go on from one into another. Nothing else changes: what has to be decoded
together still is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from .flow_state import header_of
from .scan import GROUPS, flows_of
from .sets import Sets


def apart(index: pa.Table, file_of_split: Mapping[int, int]) -> pa.Table:
    """The index with groups numbered by part and hash."""
    files = np.array([file_of_split[i] for i in index["split_id"].to_pylist()], np.int64)
    if not len(files) or (files == files[0]).all():
        return index
    keys = [flows_of(flows)["key"] for flows in index["flows"].to_pylist()]
    number = pa.concat_arrays(keys).dictionary_encode().indices.to_numpy()
    file = np.repeat(files, [len(k) for k in keys])
    first = np.empty(int(number.max()) + 1, np.int64)
    first[number[::-1]] = file[::-1]
    going_on = first[number] != file
    part_of = _joined(sorted(set(files.tolist())), np.stack((first[number], file), axis=1)[going_on].tolist())
    groups = [part_of[f] * GROUPS + g for f, g in zip(files.tolist(), index["group"].to_pylist())]
    place = index.schema.get_field_index("group")
    return index.set_column(place, index.schema.field(place), pa.array(groups, index.schema.field(place).type))


def of_parts(index: pa.Table) -> list[list[int]]:
    """The groups of each part."""
    parts: dict[int, list[int]] = {}
    for group in sorted(set(index["group"].to_pylist())):
        parts.setdefault(group // GROUPS, []).append(group)
    return list(parts.values())


def at_home(states: Mapping[int, Sequence[bytes]], index: pa.Table) -> dict[int, list[bytes]]:
    """Saved connections with the group in which they go on."""
    keys = {bytes.fromhex(header_of(packed).key): packed for saved in states.values() for packed in saved}
    found: dict[int, list[bytes]] = {}
    if keys:
        for group, flows in zip(index["group"].to_pylist(), index["flows"].to_pylist()):
            for key in flows_of(flows)["key"].to_pylist():
                packed = keys.pop(key, None)
                if packed is not None:
                    found.setdefault(group, []).append(packed)
    return found


def _joined(files: Iterable[int], pairs: Iterable[Sequence[int]]) -> dict[int, int]:
    """Each file with the number of its part."""
    files = list(files)
    sets = Sets(files)
    for a, b in pairs:
        sets.join(a, b)
    numbers: dict[int, int] = {}
    return {file: numbers.setdefault(sets.root(file), len(numbers)) for file in files}
