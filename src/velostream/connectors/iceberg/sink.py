"""Tables of Iceberg as a sink.

A commit sets, with the rows, a property of the table that names the job and the number of its step.
Properties outlive snapshots, which the owner of the table may let expire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
    ValidationException,
)
from pyiceberg.io.pyarrow import _dataframe_to_data_files as data_files

from velostream.connectors.iceberg.catalog import check_reach, identifier, open_catalog, told
from velostream.connectors.iceberg.partitions import (
    check_format,
    check_partition_types,
    check_partitions,
    partition,
    partitions,
)
from velostream.connectors.iceberg.rewriting import filled, rewritten
from velostream.connectors.lakes.columns import fits, missing, without_demands
from velostream.connectors.lakes.sink import ConflictError, LakeSink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from velostream.connectors.base import SinkContext
    from velostream.connectors.iceberg.options import IcebergOptions
    from velostream.connectors.lakes.changes import Changes

_NEW_TABLE = {
    "format-version": "2",
    # Each commit writes the metadata anew: old ones would be as many as there were steps.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
}
_NO_RETRIES = {"commit.retry.num-retries": "0"}


def await_table(options: IcebergOptions) -> None:
    """Raise where the table does not exist and is not to be made."""
    name = ".".join(identifier(options))
    with told(f"table {name} cannot be opened"):
        catalog = open_catalog(options, make=options.create_table)
        try:
            if not options.create_table:
                catalog.load_table(identifier(options))
        finally:
            catalog.close()


class IcebergSink(LakeSink):
    """See `LakeSink`."""

    def __init__(self, options: IcebergOptions, context: SinkContext) -> None:
        self._options = options
        self._name = identifier(options)
        super().__init__(options, context, f"table {'.'.join(self._name)}")
        self._partitions = partitions(options.partition_by)
        self._catalog: Catalog | None = None
        self._found: Table | None = None

    def close(self) -> None:
        """See `Sink`."""
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

    # --- what a kind of table does ------------------------------------------------------------------------

    def _open(self, *, make: bool) -> None:
        """See `LakeSink`."""
        self.close()
        self._catalog = open_catalog(self._options, make=make)
        try:
            self._load()
        except (NoSuchTableError, NoSuchNamespaceError):
            if not make:
                raise
            self._make(self._catalog)
            self._load()
        check_reach(self._options, self._catalog, self._table, self._context.reach)
        check_partitions(self._table_name, self._table, self._partitions)
        check_format(self._table_name, self._table)
        if self._makes and self._context.resumed:
            self._widen()

    def _columns(self) -> pa.Schema:
        """See `LakeSink`."""
        return self._table.schema().as_arrow().remove_metadata()

    def _identity(self) -> str:
        """See `LakeSink`."""
        return str(self._table.metadata.table_uuid)

    def _newest(self) -> int | None:
        """See `LakeSink`."""
        self._load()
        found = self._table.properties.get(self._owner)
        return None if found is None else int(found)

    def _commit(self, number: int, step: Changes) -> None:
        """See `LakeSink`."""
        table, added = self._table, step.added
        made: list[str] = []
        about = {"velostream.job": self._context.job, "velostream.step": str(self.step_of(number))}
        try:
            with table.transaction() as transaction:
                transaction.set_properties({self._owner: str(number)})
                update = transaction.update_snapshot(snapshot_properties=about)
                gone, kept, found = self._replaced(step, made)
                if found is not None:
                    added = filled(added, found, self._context.key, self._context.schema.names)
                snapshot = update.overwrite() if gone else update.merge_append()
                with snapshot:
                    for file in gone:
                        snapshot.delete_data_file(file)
                    for file in (*kept, *self._written(added, made)):
                        snapshot.append_data_file(file)
        except (CommitFailedException, ValidationException) as exc:
            # A request that was sent twice is refused the second time: then its files are those of the table.
            if self._newest() == number:
                return
            for path in made:
                table.io.delete(path)
            raise ConflictError(str(exc)) from exc

    def _told(self) -> AbstractContextManager[None]:
        """See `LakeSink`."""
        return told(f"{self._table_name} cannot be written")

    # --- inside -------------------------------------------------------------------------------------------

    @property
    def _table(self) -> Table:
        assert self._found is not None, "recover was called"
        return self._found

    def _load(self) -> None:
        assert self._catalog is not None, "recover was called"
        self._found = table = self._catalog.load_table(self._name)
        metadata = table.metadata
        newest = table.current_snapshot()
        table.metadata = metadata.model_copy(
            update={
                # A commit that fails is tried again by us, who first look whether it took place.
                "properties": {**metadata.properties, **_NO_RETRIES},
                # pyiceberg copies all of this about 15 times for a commit, which the catalogue then applies
                # to what it has itself: with 1,000 snapshots that took a second.
                "snapshots": [] if newest is None else [newest],
                "snapshot_log": [],
                "metadata_log": [],
            }
        )

    def _make(self, catalog: Catalog) -> None:
        check_partition_types(self._context.schema, [column for column, _ in self._partitions])
        for depth in range(1, len(self._name)):
            catalog.create_namespace_if_not_exists(self._name[:depth])
        schema = without_demands(self._context.schema)
        try:
            with (
                catalog.create_table_transaction(self._name, schema, properties=_NEW_TABLE) as transaction,
                transaction.update_spec() as update,
            ):
                partition(update, self._partitions)
        except TableAlreadyExistsError:
            return

    def _widen(self) -> None:
        """Add columns that the rows have and the table has not, and widen the types of others."""
        ours, theirs = self._context.schema, self._columns()
        narrow = [f for f in ours if f.name in theirs.names and not fits(f.type, theirs.field(f.name).type)]
        if not missing(ours, theirs) and not narrow:
            return
        try:
            with self._table.update_schema() as update:
                update.union_by_name(without_demands(ours))
        except ValidationError:
            # The column that cannot be widened is told when columns are compared.
            return
        self._load()

    def _replaced(
        self, step: Changes, made: list[str]
    ) -> tuple[list[DataFile], list[DataFile], pa.Table | None]:
        """Files that go, those with their other rows, and the rows of the keys that they held."""
        if step.gone is None:
            return [], [], None
        key = list(self._context.key)
        keys = pa.concat_tables([step.added.select(key), step.gone])
        gone: list[DataFile] = []
        kept: list[DataFile] = []
        found: list[pa.Table] = []
        for each in rewritten(self._table, keys):
            gone.append(each.file)
            kept += self._written(each.kept, made)
            found.append(each.found)
        return gone, kept, pa.concat_tables(found) if found else None

    def _written(self, rows: pa.Table, made: list[str]) -> Iterator[DataFile]:
        """The files of these rows; their places are added to `made`."""
        if not rows.num_rows:
            return
        table = self._table
        for file in data_files(table.metadata, rows, table.io):
            made.append(file.file_path)
            yield file
