"""One state of a table, immutable and whole."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from velostream.model.tables import SHOWN, TableSpec
from velostream.serving.matching import matching_ids
from velostream.serving.record import Row, row_class
from velostream.serving.segments import Counts, Ids, Views, counts_of, take
from velostream.serving.values import to_python

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from velostream.model.changes import Commit
    from velostream.serving.index import KeyIndex, Link


class TableVersion:
    """All rows of a table as one commit left them.

    Hold it as long as you like: later commits do not touch it. It keeps alive what it alone still needs.
    """

    def __init__(
        self,
        spec: TableSpec,
        number: int,
        views: Views,
        limit: int,
        commit: Commit | None,
        index: KeyIndex | None,
        link: Link,
        memo: dict[int, Row | None],
    ) -> None:
        self.spec = spec
        self.number = number
        """Counts commits that changed rows; 0 is the empty table."""
        self.commit = commit
        """The newest commit it contains, also one that only moved offsets."""
        self.views = views
        self.limit = limit
        """Every row id of this version is below it."""
        self.index = index
        self.link = link
        self.memo = memo
        """Rows already converted, by row id: a row id never means another row, so nothing gets stale."""

    def __len__(self) -> int:
        return self.visible_count

    @cached_property
    def physical_count(self) -> int:
        """Number of rows, hidden ones included."""
        return sum(view.total for view in self.views)

    @cached_property
    def visible_count(self) -> int:
        """Number of rows that readers see."""
        if SHOWN not in self.spec.schema.names:
            return self.physical_count
        return sum(view.visible.num_rows for view in self.views)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of Arrow memory that the rows take."""
        return sum(view.segment.batch.nbytes for view in self.views)

    def snapshot(self) -> pa.Table:
        """The rows that readers see; the same object each time."""
        return self._snapshot

    @cached_property
    def _snapshot(self) -> pa.Table:
        batches = [view.visible for view in self.views]
        return pa.Table.from_batches(batches, schema=self.spec.visible_schema)

    def physical(self) -> pa.Table:
        """All rows with all columns, hidden ones included."""
        return pa.Table.from_batches([view.physical for view in self.views], schema=self.spec.schema)

    # --- by key -------------------------------------------------------------------------------------

    def find(self, key: Hashable) -> int | None:
        """The row id of a canonical key."""
        assert self.index is not None
        return self.index.find(key, self.limit, self.link)

    def find_all(self, keys: list[Hashable]) -> Ids:
        """The row ids of canonical keys, -1 where absent."""
        assert self.index is not None
        return self.index.find_all(keys, self.limit, self.link)

    def take(self, ids: Ids) -> pa.Table:
        """Physical rows by id."""
        return take(self.views, ids, self.spec.schema)

    def fetch_where(self, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """The rows that readers see whose `columns` equal a row of `keys`, in the order they were written.

        `keys` has these columns; null equals nothing, NaN equals NaN, equal keys count once. The cost follows
        the keys and the rows found: through the key when the columns are the key, else through an equality
        index that is made on the first use and kept up to date from then on.
        """
        ids = matching_ids(self, columns, keys)
        rows = self.take(ids)
        counts = self.counts(ids)
        if bool((counts > 1).any()):
            rows = rows.take(pa.array(np.repeat(np.arange(len(ids)), counts)))
        if SHOWN in rows.schema.names:
            rows = rows.filter(rows.column(SHOWN).fill_null(False))
        return rows.select(list(self.spec.visible))

    def counts(self, ids: Ids) -> Counts:
        """How often the rows with these ids count."""
        return counts_of(self.views, ids)

    def row(self, row_id: int) -> Row | None:
        """The row as readers see it, None when it is hidden."""
        try:
            return self.memo[row_id]
        except KeyError:
            pass
        made = self._convert(row_id)
        self.memo[row_id] = made
        return made

    def _convert(self, row_id: int) -> Row | None:
        view = self.views[bisect_right(self._starts, row_id) - 1]
        place = view.segment.place(row_id)
        batch = view.segment.batch
        if SHOWN in batch.schema.names and not batch.column(SHOWN)[place].as_py():
            return None
        names = self.spec.visible
        return row_class(names)(to_python(batch.column(name).slice(place, 1))[0] for name in names)

    @cached_property
    def _starts(self) -> list[int]:
        return [view.segment.first for view in self.views]
