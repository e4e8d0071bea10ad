"""A table as a source of other jobs: its snapshot, then its changelog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.base import Source
from velostream.engine.inputs.consistency import BASES, VERSION, bases_of
from velostream.engine.rows.multisets import among, by_nulls, fitting
from velostream.errors import InternalError
from velostream.model.health import HEALTHY, WELL
from velostream.model.traits import SourceTraits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from velostream.model.changes import Offset
    from velostream.model.tables import TableSpec
    from velostream.serving.contract.table import Table
    from velostream.serving.contract.version import TableVersion

PARTITION = VERSION
_REMEMBERED = 8
"""How many versions are held for a table whose siblings lag behind."""


class TableSource(Source):
    """Changes of a table between two of its versions.

    A snapshot exists only for versions that this process announced and has not committed past; after a
    restart the job announces the table's current version, so it never asks for an older one.
    """

    traits = SourceTraits(only_grows=False, positioned=False)

    def __init__(
        self, table: Table, reader: str, *, forgotten: bool = True, columns: pa.Schema | None = None
    ) -> None:
        self._table = table
        self._columns = columns
        """The columns that the reader knows, where the table has got more since."""
        self._forgotten = forgotten
        """Whether rows that the table only forgot count as retracted."""
        self._reader = reader
        self._announced: dict[int, TableVersion] = {}
        self.key = visible_key(table.spec)

    def discover(self) -> pa.Schema:
        """The columns that readers see; of a table that has got more, those that this one knows."""
        schema = self._table.spec.visible_schema
        if self._columns is None:
            return schema
        return pa.schema([schema.field(name) for name in self._columns.names])

    def latest(self, after: Offset | None) -> Offset:
        """The table's current version, held until it is committed."""
        return self.candidates(after)[0]

    def candidates(self, after: Offset | None) -> list[Offset]:
        """The current version and some earlier ones, newest first, none older than `after`.

        The versions of tables below that each contains are part of the position.
        """
        version = self._table.version_object
        if after is None:
            self._table.register_reader(self._reader, version.number)
        else:
            self._announced = {n: v for n, v in self._announced.items() if n >= int(after[PARTITION])}
        # Also when it is not new: another input may have advanced,
        # and this table may advance before that is read.
        self._announced[version.number] = version
        for number in sorted(self._announced)[1:-_REMEMBERED]:
            del self._announced[number]
        newest_first = sorted(self._announced.values(), key=lambda each: -each.number)
        return [{PARTITION: each.number, BASES: bases_of(each.commit)} for each in newest_first]

    def read(self, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """The snapshot, or the net changes with weights."""
        if partition != PARTITION:
            return
        if start is None:
            yield from self._known(self._at(end).snapshot()).to_batches()
        else:
            changes = self._table.changes_between(int(start), int(end), forgotten=self._forgotten)
            yield from self._known(changes).to_batches()

    def _known(self, rows: pa.Table) -> pa.Table:
        """Rows without the columns that the table has got since."""
        if self._columns is None:
            return rows
        later = {*self._table.spec.visible} - {*self._columns.names}
        return rows.drop_columns([name for name in rows.schema.names if name in later])

    def where(self, offset: Offset, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """The visible rows whose columns, in this order, equal one of the keys; null equals null."""
        version = self._at(offset[PARTITION])
        found = [_where(version, columns, some) for some in by_nulls(keys.rename_columns(list(columns)))]
        return self._known(pa.concat_tables(found) if found else version.spec.visible_schema.empty_table())

    def health(self) -> tuple[str, str | None]:
        """See `Source`: a table whose own source is unhealthy still exists, and may be behind."""
        health, reason = self._table.health
        if health == HEALTHY:
            return WELL
        told = {"failed": "has failed", "file not found": "has no file"}.get(health, f"is {health}")
        return "degraded", f'table "{self._table.name}" {told}' + (f": {reason}" if reason else "")

    @property
    def loaded(self) -> bool:
        """Whether the table has completed its initial load."""
        return loaded(self._table)

    def changed_in_files(self, start: Offset, end: Offset) -> int:
        """How many rows changed between two positions that are not in memory: none, of a table that is."""
        return 0

    def size(self, offset: Offset) -> int:
        """The number of rows at a position."""
        return len(self._at(offset[PARTITION]))

    def _at(self, number: Any) -> TableVersion:
        try:
            return self._announced[int(number)]
        except KeyError:
            raise InternalError(
                f'version {number} of table "{self._table.name}" was asked for without having been announced'
            ) from None

    def commit(self, offset: Offset) -> None:
        """Release older versions and their log."""
        done = int(offset[PARTITION])
        self._table.register_reader(self._reader, done)
        for number in [n for n in self._announced if n < done]:
            del self._announced[number]


def visible_key(spec: TableSpec) -> tuple[str, ...]:
    """The key of a table, if all of its columns are visible to readers."""
    return spec.lookup_key if set(spec.lookup_key) <= set(spec.visible) else ()


class LookedUpSource(TableSource):
    """A table for lookup joins: its changes do not change earlier results."""

    def read(self, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """The snapshot; nothing after it."""
        if start is None:
            yield from super().read(partition, start, end)


def _where(version: TableVersion, columns: Sequence[str], keys: pa.Table) -> pa.Table:
    """Rows for keys with nulls in the same columns: no index holds nulls, so those columns are filtered."""
    named = dict.fromkeys(columns)
    filled = [name for name in named if keys.column(columns.index(name)).null_count == 0]
    if filled:
        wanted = pa.table({name: keys.column(columns.index(name)) for name in filled})
        rows = version.fetch_where(filled, fitting(wanted, version.spec.schema))
    else:
        rows = version.snapshot()
    for name in named:
        if name not in filled:
            rows = rows.filter(pc.is_null(rows.column(name)))
    return rows if len(named) == len(columns) else among(rows, columns, keys)


def loaded(table: Table) -> bool:
    """Whether a table holds what its source had when it was made; one that is filled by hand always does."""
    return table.spec.owner is None or table.last_commit is not None
