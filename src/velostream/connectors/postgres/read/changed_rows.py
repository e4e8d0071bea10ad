"""Row messages as rows of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.databases.rows import log_rows
from velostream.connectors.databases.text_rows import TextColumn, decode, needed
from velostream.connectors.postgres.client.tables import text_column
from velostream.connectors.postgres.read import pgoutput
from velostream.connectors.postgres.read.server_values import evaluated, values_now

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from velostream.connectors.databases.change_log import SetAside
    from velostream.connectors.narrowing import Narrowing
    from velostream.connectors.postgres.client.connections import Client
    from velostream.connectors.postgres.client.tables import Relation
    from velostream.connectors.postgres.read.following import Layout

    Flags = npt.NDArray[np.bool_]
    Texts = dict[str, pa.Array]

_NO_TEXT = pa.scalar(None, pa.string())


class ChangedRows:
    """What messages of one table say, with what the server is asked for because they do not say it.

    `where`: rows that do not pass it are deletions. It is not part of the publication: every column of such a
    filter must be in the replica identity, or the server refuses the updates and deletes of its own users.
    """

    def __init__(self, client: Client, table: Relation, where: str | None, narrowing: Narrowing) -> None:
        self._client, self._table, self._where, self._narrowing = client, table, where, narrowing

    def of(
        self, layout: Layout, messages: Sequence[bytes], entered: pa.Array, first: int
    ) -> tuple[pa.Table, list[SetAside]]:
        """Messages as rows of the log, which begin after row `first`."""
        columns = [*layout.columns, *self._generated(layout)]
        wanted = needed(columns, self._narrowing, self._table.key)
        found = pgoutput.read_rows(messages, len(layout.columns))
        names = [column.name for column in layout.columns]
        texts = {name: values.text(found.data) for name, values in zip(names, found.new, strict=True)}
        computed = [column.name for column in wanted if column.name not in texts]
        asked = self._where is not None or bool(computed)
        self._fill_unchanged(found, texts, names, set(names) if asked else {each.name for each in wanted})
        deleted = found.deleted
        if asked:
            deleted = self._ask(texts, deleted, computed)
        if deleted.any():
            # Of a deleted row only the key counts.
            there = pa.array(~deleted)
            for name in texts.keys() - set(self._table.key):
                texts[name] = pc.if_else(there, texts[name], _NO_TEXT)
        if found.has_old.any():
            deleted, entered = self._add_old_keys(found, texts, names, deleted, entered)
        return log_rows(
            decode(wanted, [texts[column.name] for column in wanted]),
            self._table.key,
            deleted,
            entered,
            first,
        )

    def _generated(self, layout: Layout) -> list[TextColumn]:
        """Columns that the server computes, and does not send."""
        sent = {column.name for column in layout.columns}
        missing = (c for c in self._table.columns if c.generated is not None and c.name not in sent)
        return [text_column(column.name, column.type) for column in missing]

    def _ask(self, texts: Texts, deleted: Flags, computed: Sequence[str]) -> Flags:
        """Add generated columns to the rows that are there; returns which are deleted, or fail the filter."""
        places = np.flatnonzero(~deleted)
        gone = np.ones(len(deleted), dtype=bool)
        made = {name: pa.nulls(len(deleted), pa.string()) for name in computed}
        if len(places):
            at = pa.array(places)
            rows = {name: text.take(at) for name, text in texts.items()}
            passes, values = evaluated(self._client, self._table, rows, self._where, computed)
            gone[places[passes]] = False
            for name, value in values.items():
                made[name] = pc.replace_with_mask(made[name], pa.array(~deleted), value)
        texts.update(made)
        return gone

    def _fill_unchanged(
        self, found: pgoutput.Changes, texts: Texts, names: Sequence[str], wanted: set[str]
    ) -> None:
        """Large values that an update did not change are not sent: they are in the old row, or asked for."""
        new = dict(zip(names, found.new, strict=True))
        missing = [name for name in names if name in wanted and new[name].unchanged.any()]
        if not missing:
            return
        if found.whole_old:
            old_values = dict(zip(names, found.old, strict=True))
            places = np.full(len(found.deleted), -1)
            places[found.has_old] = np.arange(int(found.has_old.sum()))
            for name in missing:
                lacks = new[name].unchanged & (places >= 0)
                old = old_values[name].text(found.data)
                at = pa.array(np.where(lacks, places, 0))
                texts[name] = pc.if_else(pa.array(lacks), old.take(at), texts[name])
            return
        rows = np.flatnonzero(np.any([new[name].unchanged for name in missing], axis=0))
        at = pa.array(rows)
        keys = {name: texts[name].take(at) for name in names if name in self._table.key}
        values = values_now(self._client, self._table, keys, missing)
        nothing = (None,) * len(missing)
        each = list(zip(*(column.to_pylist() for column in keys.values()), strict=True))
        for place, name in enumerate(missing):
            lacking = new[name].unchanged
            told = [values.get(each[row], nothing)[place] for row in np.flatnonzero(lacking[rows])]
            texts[name] = pc.replace_with_mask(texts[name], pa.array(lacking), pa.array(told, pa.string()))

    def _add_old_keys(
        self,
        found: pgoutput.Changes,
        texts: Texts,
        names: Sequence[str],
        deleted: Flags,
        entered: pa.Array,
    ) -> tuple[Flags, pa.Array]:
        """Before each update that changed the key of its row, the deletion of the old key."""
        places = np.flatnonzero(found.has_old)
        every = dict(zip(names, found.old, strict=True))
        old = {name: every[name].text(found.data) for name in names if name in self._table.key}
        same = np.ones(len(places), dtype=bool)
        for name, values in old.items():
            equal = pc.equal(values, texts[name].take(pa.array(places)))
            same &= equal.fill_null(fill_value=False).to_numpy(zero_copy_only=False)
        if same.all():
            return deleted, entered
        at = places[~same]
        rows = pa.array(np.insert(np.arange(len(deleted)), at, at))
        extra = np.insert(np.zeros(len(deleted), dtype=bool), at, True)
        which = pa.array(np.maximum(np.cumsum(extra) - 1, 0))
        mask = pa.array(extra)
        for name, text in texts.items():
            before = old[name].filter(pa.array(~same)).take(which) if name in old else _NO_TEXT
            texts[name] = pc.if_else(mask, before, text.take(rows))
        return deleted[rows.to_numpy()] | extra, entered.take(rows)
