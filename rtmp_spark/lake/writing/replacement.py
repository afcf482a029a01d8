"""Rows of earlier ingests that this one replaces: their files are written again without them.

Rows that may be replaced are in small files of their own (`open`), so this rewrites little. Only decoding again and
rules across connections touch other files, one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ..commit import Act, change_files
from ..faults import explained
from ..parquet_files import OPEN, WrittenFile, write_sorted
from ..snapshot import DataFile, Snapshot, dataset_of, not_yet_committed


class PendingFiles:
    """The files of one table as they will be after this ingest. Nothing is committed."""

    def __init__(self, snapshot: Snapshot, ingest_id: int) -> None:
        self._snapshot = snapshot
        self._ingest_id = ingest_id
        self._files = list(snapshot.files)
        self._rewritten: dict[str, WrittenFile] = {}

    def drop_rows(self, condition: pc.Expression, kind: str | None = None) -> None:
        """Write the files that hold rows for which the condition is true again without them; only files of `kind`."""
        gone = pc.coalesce(condition, pc.scalar(False))
        candidates = {file.path: file for file in self._files if kind in (None, file.kind)}
        with explained(str(self._snapshot.location), f"read the table {self._snapshot.table}"):
            hit = [candidates[f.path] for f in self._dataset(list(candidates.values())).get_fragments(filter=gone)]
            left_open: list[pa.Table] = []
            for file in hit:
                rest = self._rest(file, gone)
                if rest is None:
                    continue
                self._files.remove(file)
                if file.kind == OPEN:
                    left_open.append(rest)
                else:
                    self._write([rest], file.kind)
            self._write(left_open, OPEN)

    def _rest(self, file: DataFile, gone: pc.Expression) -> pa.Table | None:
        """The rows of a file that stay, None if all do."""
        rows = self._dataset([file])
        total = file.rows if file.rows is not None else rows.count_rows()
        rest = rows.to_table(filter=~gone)
        return None if rest.num_rows == total else rest

    def _write(self, rows: list[pa.Table], kind: str) -> None:
        if not sum(part.num_rows for part in rows):
            return
        name = f"{kind}-{self._ingest_id:08d}-rest"
        file = write_sorted(self._snapshot.location, self._snapshot.table, rows, name)
        self._rewritten[file.path] = file
        self._files.append(not_yet_committed(file))

    def files(self, new: Iterable[WrittenFile]) -> list[DataFile]:
        """The files that stay, what is left of others, and new files."""
        return [*self._files, *map(not_yet_committed, new)]

    def dataset(self, new: Iterable[WrittenFile]) -> ds.Dataset:
        """The rows of all these files."""
        return self._dataset(self.files(new))

    def _dataset(self, files: list[DataFile]) -> ds.Dataset:
        return dataset_of(self._snapshot.location, self._snapshot.table, files, self._snapshot.schema)

    def change(self, new: Iterable[WrittenFile]) -> Act | None:
        """The commit that makes it so; None if nothing changes."""
        current = {file.path for file in self._files}
        removed = [(file.path, file.size) for file in self._snapshot.files if file.path not in current]
        added = [*new, *(file for path, file in self._rewritten.items() if path in current)]
        return change_files(added, removed) if added or removed else None
