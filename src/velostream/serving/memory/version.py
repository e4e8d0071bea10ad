"""One version of a table in memory: its segments, and lookups by key and by other columns."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np
import pyarrow as pa

from velostream.model.columns import SHOWN
from velostream.serving.columns.dictionaries import plain, together
from velostream.serving.columns.segments import Counts, Ids, Views, counts_of, take
from velostream.serving.columns.values import to_python
from velostream.serving.contract.version import Columnar
from velostream.serving.index.matching import matching_ids
from velostream.serving.table.record import Row, row_class

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from velostream.model.changes import Commit
    from velostream.model.tables import TableSpec
    from velostream.serving.columns.segments import Segment, SegmentView
    from velostream.serving.index.keys import KeyIndex, Link


class MemoryVersion(Columnar):
    """All rows of a table as of one commit, immutable; it keeps alive what only it still needs."""

    def __init__(
        self,
        spec: TableSpec,
        number: int,
        views: Views,
        limit: int,
        commit: Commit | None,
        index: KeyIndex | None,
        link: Link,
    ) -> None:
        self.spec = spec
        self.number = number
        self.commit = commit
        self.views = views
        self.limit = limit
        """Every row id of this version is below it; ids from it on belong to later versions."""
        self.index = index
        self.link = link
        self.answers: dict[tuple[str, str | None], Any] = {}
        """Cache of scalar results, by expression and condition."""
        self._snapshot: ref[pa.Table] | None = None
        self.lists: dict[tuple[str, str], list[Any]] = {}
        """Cache of column values, by column and condition; callers get copies."""

    def with_commit(self, commit: Commit) -> MemoryVersion:
        """The version with a later commit that changed no rows; caches are shared."""
        return self._same_rows(self.views, commit)

    def with_views(self, views: Views) -> MemoryVersion:
        """The version with the same rows, in the same order, in merged segments; caches are shared."""
        return self._same_rows(views, self.commit)

    def _same_rows(self, views: Views, commit: Commit | None) -> MemoryVersion:
        same = MemoryVersion(self.spec, self.number, views, self.limit, commit, self.index, self.link)
        same.answers, same.lists = self.answers, self.lists
        return same

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
        return sum(view.segment.nbytes for view in self.views)

    def snapshot(self) -> pa.Table:
        """The visible rows; the same object as long as a caller holds it, since it is cached weakly."""
        held = None if self._snapshot is None else self._snapshot()
        if held is None:
            held = plain(self.encoded)
            self._snapshot = ref(held)
        return held

    @cached_property
    def encoded(self) -> pa.Table:
        """The visible rows as stored: repeated texts are dictionary-encoded."""
        return together([view.visible for view in self.views], self.spec.visible_schema)

    def slice(self, offset: int, limit: int) -> pa.Table:
        """Up to `limit` visible rows after the first `offset`, without reading the others."""
        # With hidden rows a place is not known by counting; and what is encoded already costs nothing to
        # slice.
        if SHOWN in self.spec.schema.names or "encoded" in self.__dict__:
            return plain(self.encoded.slice(offset, limit))
        pieces = []
        for view in self.views:
            if offset < view.total and limit > 0:
                piece = view.slice(offset, limit).select(list(self.spec.visible))
                pieces.append(piece)
                limit -= piece.num_rows
            offset = max(0, offset - view.total)
        return plain(together(pieces, self.spec.visible_schema))

    def physical(self) -> pa.Table:
        """All rows with all columns, hidden ones included."""
        return plain(together([view.physical for view in self.views], self.spec.schema))

    def pieces(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns of all rows, hidden ones included, a batch per segment."""
        return (view.physical.select(list(columns)) for view in self.views)

    # --- by key -------------------------------------------------------------------------------------

    def find(self, key: Hashable) -> int | None:
        """The row id of a canonical key in this version; None when it has none."""
        assert self.index is not None
        return self.index.find(key, self.limit, self.link)

    def find_all(self, keys: list[Hashable]) -> Ids:
        """The row ids of canonical keys, -1 where absent."""
        assert self.index is not None
        return self.index.find_all(keys, self.limit, self.link)

    def take(self, ids: Ids) -> pa.Table:
        """Physical rows by id."""
        return plain(self.stored(ids))

    def stored(self, ids: Ids) -> pa.Table:
        """Physical rows by id as stored: repeated texts are dictionary-encoded."""
        return take(self.views, ids, self.spec.schema)

    def fetch_where(self, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """The visible rows whose `columns` equal a row of `keys`.

        Found by the key index when the columns are the key, else by an equality index, which is built on
        first use and maintained from then on.
        """
        rows = self.physical_where(columns, keys)
        if SHOWN in rows.schema.names:
            rows = rows.filter(rows.column(SHOWN).fill_null(False))
        return rows.select(list(self.spec.visible))

    def physical_where(self, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """As `fetch_where`, with hidden rows and all columns."""
        ids = matching_ids(self, columns, keys)
        rows = self.take(ids)
        counts = self.counts(ids)
        if bool((counts > 1).any()):
            rows = rows.take(pa.array(np.repeat(np.arange(len(ids)), counts)))
        return rows

    def counts(self, ids: Ids) -> Counts:
        """The multiplicity of the rows with these ids."""
        return counts_of(self.views, ids)

    def row(self, row_id: int) -> Row | None:
        """The visible columns of a row; None when it is hidden."""
        segment = self.views[bisect_right(self._starts, row_id) - 1].segment
        return self._row_at(segment, segment.place(row_id))

    def _row_at(self, segment: Segment, place: int, key: Hashable = None) -> Row | None:
        cells = segment.cells
        if SHOWN in cells and not cells[SHOWN](place):
            return None
        if type(key) is str and self._text_key is not None:
            # The caller's text equals the row's: using it saves making another, and comparisons by identity
            # are fast.
            own = self._text_key
            return self._make([key if name == own else cells[name](place) for name in self._names])
        return self._make([cells[name](place) for name in self._names])

    def rows(self, ids: Ids) -> list[Row | None]:
        """The visible columns of rows with these ids, which must exist; None for hidden rows."""
        taken = self.stored(ids)
        columns = [to_python(taken.column(name)) for name in self._names]
        return self._made(columns, to_python(taken.column(SHOWN)) if SHOWN in taken.schema.names else None)

    def _made(self, columns: list[list[Any]], shown: list[bool] | None) -> list[Row | None]:
        made: list[Row | None] = list(map(self._make, zip(*columns, strict=True)))
        if shown is not None:
            made = [row if there else None for row, there in zip(made, shown, strict=True)]
        return made

    def lookup(self, key: Hashable) -> Row | None:
        """The visible row with this canonical key; None when there is none."""
        link = self.link
        made = link.ready.by_key.get(key)
        index = self.index
        assert index is not None
        row_id = index.find(key, self.limit, link)
        if row_id is None:
            return None
        # Ready rows are shared by all versions and belong to the newest. This one is ours if the newest row
        # id of the key is the id that this version has. It was read before the index was asked: a writer that
        # came in between has changed the id.
        if made is not None and index.slots.get(key) == row_id:
            return made
        view = self.views[bisect_right(self._starts, row_id) - 1]
        place = view.segment.place(row_id)
        if link.newest and view.segment.asked(place):
            self._ready_block(view, place)
        row = self._row_at(view.segment, place, key)
        link.ready.keep(link, key, row)
        return row

    def lookup_many(self, keys: list[Hashable]) -> list[Row | None]:
        """The visible rows with these canonical keys; None where there is none."""
        link = self.link
        found = list(map(link.ready.by_key.get, keys))
        if not link.newest:
            found = self._of_this_version(keys, found)
        # Rows are never empty and so always true: `all` finds None without calling their comparison.
        missing = [] if all(found) else [place for place, row in enumerate(found) if row is None]
        if missing:
            wanted = [keys[place] for place in missing]
            ids = self.find_all(wanted)
            there = np.flatnonzero(ids >= 0).tolist()
            rows = self.rows(ids[ids >= 0])
            for number, row in zip(there, rows, strict=True):
                found[missing[number]] = row
            link.ready.keep_many(link, [wanted[number] for number in there], rows)
        return found

    def _of_this_version(self, keys: list[Hashable], found: list[Row | None]) -> list[Row | None]:
        """The rows just read from the shared cache, None where a later version has changed the key.

        The newest row id of a key is below this version's limit exactly when no later version wrote the key.
        """
        assert self.index is not None
        slots, limit = self.index.slots, self.limit
        return [
            row if row is not None and slots.get(key, limit) < limit else None
            for key, row in zip(keys, found, strict=True)
        ]

    def _ready_block(self, view: SegmentView, place: int) -> None:
        """Make all rows of a block ready at once.

        Called when 256 of its 1,024 rows were asked for: making those one by one has then cost as much as
        making all, which is column by column.
        """
        assert self.index is not None
        block = view.block(place)
        columns = [view.segment.values(name, block.column(name)) for name in self._names]
        rows = self._made(columns, to_python(block.column(SHOWN)) if SHOWN in block.schema.names else None)
        codec = self.index.codec
        if codec.plain and set(codec.columns) <= set(self._names):
            parts = [columns[self._names.index(name)] for name in codec.columns]
            keys: list[Hashable] = parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
        else:
            keys = codec.encode_columns(block)
        self.link.ready.keep_many(self.link, keys, rows)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return self.spec.visible

    @cached_property
    def _text_key(self) -> str | None:
        """The key column, where the key is a single text column."""
        key = self.spec.key
        return key[0] if len(key) == 1 and self.spec.schema.field(key[0]).type == pa.string() else None

    @cached_property
    def _make(self) -> type[Row]:
        return row_class(self.spec.visible)

    @cached_property
    def _starts(self) -> list[int]:
        return [view.segment.first for view in self.views]
