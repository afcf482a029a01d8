"""Parts of an input that share no connection, so that a file is not read by many buckets for a few packets each.

A group holds the connections with one hash value, wherever they are. `split_by_part` divides each group by *part*:
files that are linked by connections which continue from one into another, or that must be decoded together, form a
part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from rtmp_spark.ingest.scan.disjoint_sets import DisjointSets
from rtmp_spark.ingest.scan.flow_index import GROUPS
from rtmp_spark.ingest.scan.flow_tables import key_numbers, looked_up, numbers_of, of_keys


def parts_of_files(
    flows: pa.Table, file_of_split: Mapping[int, int], together: Iterable[Sequence[bytes]] = ()
) -> dict[int, int]:
    """The number of the part of each file. `together`: connections that must be decoded together."""
    files = looked_up(file_of_split, flows["split_id"])
    present = np.unique(files).tolist()
    sets = DisjointSets(present)
    if len(files):
        number = key_numbers(flows)
        first = np.empty(int(number.max()) + 1, np.int64)
        first[number[::-1]] = files[::-1]
        begun = first[number]
        continues = begun != files
        for a, b in np.unique(np.stack((begun[continues], files[continues]), axis=1), axis=0).tolist():
            sets.join(a, b)
    for keys in together:
        linked = sorted({file_of_split[i] for i in of_keys(flows, keys)["split_id"].to_pylist()})
        for other in linked[1:]:
            sets.join(linked[0], other)
    numbers: dict[int, int] = {}
    return {file: numbers.setdefault(sets.root(file), len(numbers)) for file in present}


def split_by_part(table: pa.Table, file_of_split: Mapping[int, int], part_of_file: Mapping[int, int]) -> pa.Table:
    """A table with groups renumbered by part and hash value."""
    part = looked_up({split: part_of_file.get(file, -1) for split, file in file_of_split.items()}, table["split_id"])
    place = table.schema.get_field_index("group")
    groups = part * GROUPS + numbers_of(table["group"]) % GROUPS
    return table.set_column(place, table.schema.field(place), pa.array(groups.astype(np.int32), from_pandas=False))


def groups_by_part(groups: Iterable[int]) -> list[list[int]]:
    """The groups of each part."""
    parts: dict[int, list[int]] = {}
    for group in sorted(groups):
        parts.setdefault(group // GROUPS, []).append(group)
    return list(parts.values())
