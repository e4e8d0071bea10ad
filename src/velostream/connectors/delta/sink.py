"""Tables of Delta Lake as a sink.

A commit names the job and the number of its step as an application's transaction of Delta's protocol: it is
kept through checkpoints, and two commits of one job that do not know each other exclude each other.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)

from velostream.connectors.delta.constraints import conditions, unpartitionable, violations
from velostream.connectors.delta.merge import merge
from velostream.connectors.delta.place import (
    check_place,
    check_whole,
    commit_mark,
    commit_of,
    folder_of,
    sync_commits,
    table_there,
)
from velostream.connectors.delta.support import (
    check_names,
    check_partition_types,
    check_partitions,
    check_support,
)
from velostream.connectors.lakes.changes import Changes
from velostream.connectors.lakes.columns import aligned, missing, names_of, without_demands
from velostream.connectors.lakes.sink import ConflictError, LakeSink
from velostream.errors import SinkConfigError, SinkError, SinkMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from velostream.connectors.base import SinkContext
    from velostream.connectors.delta.options import DeltaOptions

_NO_ROW = "Invalid data found"
_ARROW = "↳"
_COLOUR = re.compile(r"\x1b\[\d*m")


class DeltaSink(LakeSink):
    """See `LakeSink`."""

    def __init__(self, options: DeltaOptions, context: SinkContext) -> None:
        self._options = options
        self._folder = folder_of(options)
        context.reach.check_file(self._folder)
        super().__init__(options, context, f'"{self._folder}"')
        self._found: DeltaTable | None = None
        self._mark: object = None
        """What tells the newest commit that is known from another one of the same number."""

    # --- what a kind of table does ------------------------------------------------------------------------

    def _open(self, *, make: bool) -> None:
        """See `LakeSink`."""
        made = not table_there(self._folder)
        if made:
            check_place(self._folder, make=make)
            self._make()
        self._load()
        check_support(self._table_name, self._table, upserts=self._upserts)
        check_partitions(self._table_name, self._table, self._partitions())
        if self._makes and (made or self._context.resumed):
            self._widen()

    def _columns(self) -> pa.Schema:
        """See `LakeSink`."""
        return pa.schema(self._table.schema().to_arrow())

    def _identity(self) -> str:
        """See `LakeSink`."""
        return str(self._table.metadata().id)

    def _newest(self) -> int | None:
        """See `LakeSink`."""
        # Commits are read on from the newest that is known, unless it is that of another table by now.
        if self._mark is None or commit_mark(self._folder, self._table.version()) != self._mark:
            self._load()
        else:
            self._table.update_incremental()
            self._mark = commit_mark(self._folder, self._table.version())
        return self._table.transaction_version(self._owner)

    def _refused(self, added: pa.Table) -> dict[int, str]:
        """See `LakeSink`."""
        table, columns = self._table, self._columns()
        found = super()._refused(added) | unpartitionable(added, table.metadata().partition_columns)
        wanted = conditions(table)
        if not wanted:
            return found
        return violations(aligned(added, columns), wanted, self._context.state) | found

    def _sync(self, number: int) -> None:
        """See `LakeSink`."""
        # Only a step that was killed needs this, so the commit is one of the last.
        check_whole(sync_commits(self._folder, [self._version_of(number)]), self._table_name)

    def _commit(self, number: int, step: Changes) -> None:
        """See `LakeSink`."""
        before = self._table.version()
        commit = CommitProperties(
            custom_metadata=self._about(number), app_transactions=[Transaction(self._owner, number)]
        )
        try:
            if step.replaces and self._table.file_uris():
                written = self._context.schema.names
                merge(self._table, step, self._context.key, written, commit)
                step = Changes(step.added.slice(0, 0))
            # A merge that changes nothing makes no commit, and the number of the step has to be there.
            if self._table.version() == before:
                write_deltalake(self._table, step.added, mode="append", commit_properties=commit)
        except CommitFailedError as exc:
            raise ConflictError(_said(exc)) from exc
        sync_commits(self._folder, range(before + 1, self._table.version() + 1))
        self._mark = commit_mark(self._folder, self._table.version())

    @contextmanager
    def _told(self) -> Iterator[None]:
        """See `LakeSink`."""
        try:
            yield
        except TableNotFoundError as exc:
            raise SinkMissingError(f"{self._table_name} holds no Delta Lake table") from exc
        except (DeltaProtocolError, SchemaMismatchError) as exc:
            raise SinkConfigError(f"{self._table_name} cannot be written: {_said(exc)}") from exc
        except DeltaError as exc:
            if _NO_ROW in str(exc):
                raise SinkConfigError(
                    f"{self._table_name} has a constraint that a row violates",
                    detail=str(exc).partition(_NO_ROW)[2].lstrip(": "),
                    hint="leave such rows out with WHERE",
                ) from exc
            raise SinkError(f"{self._table_name} cannot be written: {_said(exc)}") from exc
        except OSError as exc:
            raise SinkError(f"{self._table_name} cannot be written: {_said(exc)}") from exc

    # --- inside -------------------------------------------------------------------------------------------

    @property
    def _table(self) -> DeltaTable:
        assert self._found is not None, "recover was called"
        return self._found

    def _load(self) -> None:
        self._found = DeltaTable(self._folder.as_uri())
        self._mark = commit_mark(self._folder, self._found.version())

    def _version_of(self, number: int) -> int:
        """The version of the table that this commit made."""
        for version in range(self._table.version(), -1, -1):
            if commit_of(self._folder, version, self._owner) == number:
                return version
        raise SinkError(f"{self._table_name} does not have the commit that its log names")

    def _about(self, number: int) -> dict[str, str]:
        return {"velostream.job": self._context.job, "velostream.step": str(self.step_of(number))}

    def _make(self) -> None:
        schema, partitions = without_demands(self._context.schema), self._partitions()
        check_names(schema)
        check_partition_types(schema, partitions)
        DeltaTable.create(self._folder.as_uri(), schema, mode="ignore", partition_by=partitions)
        sync_commits(self._folder, [0])

    def _widen(self) -> None:
        """Add columns that the rows have and the table has not."""
        new = missing(self._context.schema, self._columns())
        if new:
            rows = without_demands(pa.schema(new)).empty_table()
            write_deltalake(self._table, rows, mode="append", schema_mode="merge")
            self._load()
            sync_commits(self._folder, [self._table.version()])

    def _partitions(self) -> list[str]:
        return names_of(self._options.partition_by)


def _said(exc: Exception) -> str:
    """What went wrong, and the cause, which stands in the last of the lines that an arrow begins."""
    lines = [_COLOUR.sub("", line).strip() for line in str(exc).splitlines()]
    causes = [line.removeprefix(_ARROW).strip() for line in lines if line.startswith(_ARROW)]
    text = next((line for line in lines if line and not line.startswith(_ARROW)), type(exc).__name__)
    text = text.removeprefix("Generic DeltaTable error: ").rstrip(".")
    return ": ".join([text[:1].lower() + text[1:], *causes[-1:]])
