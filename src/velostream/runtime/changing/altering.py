"""ALTER TABLE: another name, other properties, one more column; each is one write of the catalogue."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.errors import DataDirError, JobError, TableError, UnknownNameError, UnsupportedError
from velostream.model import statements as model
from velostream.model.table_storage import MEMORY
from velostream.runtime.catalog.catalog import Overlaid
from velostream.runtime.changing.group import Group, Member, dependents, refuse_sink
from velostream.runtime.changing.replacing import Built, column_field, stopped
from velostream.sql.text.edits import with_name, with_properties, with_table, written
from velostream.sql.text.generator import generate

if TYPE_CHECKING:
    from collections.abc import Callable

    from velostream.runtime.catalog.catalog import Catalog, Entry
    from velostream.runtime.changing.replacing import Replacing
    from velostream.runtime.jobs.job import Job
    from velostream.runtime.jobs.jobs import Jobs
    from velostream.serving.table.store import TableStore

WHILE_RUNNING = frozenset(
    {
        "idle.timeout",
        "join.on.timeout",
        "join.wait",
        "max.rows.per.batch",
        "on.error",
        "partition.strategy",
        "partitions",
        "trigger.interval",
    }
)
"""Properties that say how rows are processed from now on, and not which rows there are."""


@dataclass(frozen=True)
class Altering:
    """Alters tables."""

    catalog: Catalog
    store: TableStore
    jobs: Jobs
    replacing: Replacing

    # --- another name -----------------------------------------------------------------------------------

    def rename(self, statement: model.RenameTable, await_loaded: Callable[[Job], None]) -> list[str]:
        """Give a table another name; returns what is built on it, and was built anew under that name."""
        old = self.catalog.require(statement.name)
        text = with_name(old.text, statement.to)
        overlay = Overlaid(self.catalog, {old.name.casefold(): None})
        made = overlay.bound(text, statement.to, old.udfs)
        assert isinstance(made, model.CreateTable)
        new = replace(old, name=statement.to, text=text, statement=made, edition=0)
        overlay.put(new)
        members = [self._reading(entry, old, new) for entry in dependents(self.catalog, [old.name])]
        group = Group(tuple(members), old.name)
        built = Built(overlay, await_loaded, places={new.name: (old.name, old.edition)})
        self.catalog.announce(new)
        try:
            if not self.replacing.build(group, built):
                raise JobError(f'table "{old.name}" stays as it was: the database closes')
            affected = [old, *(member.old for member in members)]
            # Jobs that were built read the table by its old name: they are stopped too, and open it anew.
            with stopped(self.jobs, affected), self.replacing.resting(built):
                spec = self.store.open(old.name).spec
                owner = new.name if spec.owner is not None else None
                shown = self.catalog.secrets.hide(text) if spec.owner is not None else text
                self.store.copy_as(old.name, replace(spec, name=new.name, owner=owner, statement=shown))
                self.jobs.adopt([new, *built.entries], gone=old.name)
        except BaseException:
            self.replacing.discard(built)
            with suppress(UnknownNameError, DataDirError, OSError):
                self.store.drop(new.name, edition=new.edition)
            self.catalog.retract(new)
            raise
        job = self.jobs.get(old.job) if old.job is not None else None
        if job is not None:
            self.jobs.end(job.id)
            self.jobs.resume(new)
        self.replacing.finish(group, built)
        with suppress(UnknownNameError, DataDirError, OSError):
            # What cannot be deleted now is deleted when the directory is opened again.
            self.store.drop(old.name, edition=old.edition)
        return [member.statement_name for member in members]

    def _reading(self, entry: Entry, old: Entry, new: Entry) -> Member:
        """What is built on a table, reading it by its new name."""
        refuse_sink(entry, old.name)
        query = getattr(entry.statement, "query", None)
        if isinstance(query, model.Query) and query.sources and entry.job is not None:
            sources = ", ".join(str(ref.uri) for ref in query.sources)
            raise UnsupportedError(
                f'"{entry.name}" joins "{old.name}" to {sources}, and would have to read that anew',
                hint=f"write CREATE OR REPLACE TABLE {written(new.name)} and then {entry.name} over it, "
                f"or drop {entry.name} first",
            )
        return Member(replace(entry, text=with_table(entry.text, old.name, new.name)))

    # --- other properties -------------------------------------------------------------------------------

    def set_properties(self, statement: model.SetProperties) -> bool:
        """Change properties of a table; returns whether anything was different before."""
        old = self.catalog.require(statement.name)
        made = old.statement
        assert isinstance(made, model.CreateTable)
        changed = {
            name: value for name, value in statement.properties.items() if made.properties.get(name) != value
        }
        if not changed:
            return False
        text = with_properties(old.text, changed)
        bound = Overlaid(self.catalog, {old.name.casefold(): None}).bound(text, old.name, old.udfs)
        for name in changed:
            if name not in WHILE_RUNNING or made.query is None:
                raise UnsupportedError(
                    f'"{name}" of table "{old.name}" cannot be changed while it is there',
                    detail="it decides which rows the table holds, or how they are stored",
                    hint=_rebuild(old) if made.query is not None else _refill(old),
                    location=statement.location,
                )
        with stopped(self.jobs, [old]) as running:
            self.catalog.rewrite([replace(old, text=text, statement=bound)])
        for job in running:
            job.start()
        return True

    # --- one more column --------------------------------------------------------------------------------

    def add_column(self, statement: model.AddColumn) -> bool:
        """Add a column to a table filled by hand; returns whether it was not there before."""
        old = self.catalog.require(statement.name)
        made, column = old.statement, statement.column
        assert isinstance(made, model.CreateTable)
        table = self.store.open(old.name)
        if column.name.casefold() in {name.casefold() for name in table.spec.visible}:
            return False
        if not table.traits.in_memory:
            raise UnsupportedError(
                f'table "{old.name}" is in {table.traits.title}, where a column cannot be added',
                hint="create another table, and fill it with INSERT INTO … SELECT; "
                f'"table.storage" = "{MEMORY.name}" keeps tables where it can',
                location=statement.location,
            )
        column_field(column)
        wider = replace(made, columns=(*made.columns, column), or_replace=False, if_not_exists=False)
        before = table.spec.visible_schema
        new = replace(
            old,
            text=generate(wider),
            statement=wider,
            result=pa.schema([*before, pa.field(column.name, column.type)]),
        )
        users = [entry for entry in self.catalog if old.name in tables_of(entry)]
        knowing = [
            replace(entry, narrowed={old.name: before, **entry.narrowed}) for entry in users if entry.job
        ]
        with stopped(self.jobs, users) as running:
            self.catalog.rewrite([new, *knowing])
            fit(self.store, new)
        for job in running:
            job.start()
        return True


def fit(store: TableStore, entry: Entry) -> None:
    """Give a table filled by hand the columns that its statement has got, also after a crash in between."""
    statement = entry.statement
    assert isinstance(statement, model.CreateTable)
    known = store.spec(entry.name)
    missing = [column for column in statement.columns if column.name not in known.schema.names]
    if not missing:
        return
    hidden = [field for field in known.schema if field.name not in known.visible]
    shown = [*known.visible_schema, *map(column_field, missing)]
    store.open(entry.name).evolve(pa.schema([*shown, *hidden]))


def fit_all(catalog: Catalog, store: TableStore) -> None:
    """See `fit`, of every table filled by hand."""
    for entry in catalog:
        if isinstance(entry.statement, model.CreateTable) and entry.statement.query is None:
            # A damaged table is reported by whoever reads it.
            with suppress(DataDirError, UnknownNameError, TableError):
                fit(store, entry)


def tables_of(entry: Entry) -> tuple[str, ...]:
    """The tables that a statement reads."""
    query = getattr(entry.statement, "query", None)
    return query.tables if isinstance(query, model.Query) else ()


def _rebuild(entry: Entry) -> str:
    name = written(entry.name)
    return (
        f"write CREATE OR REPLACE TABLE {name} with that property (SHOW CREATE {name} shows the statement): "
        f"it is built anew beside the old one; ALTER changes {', '.join(sorted(WHILE_RUNNING))}"
    )


def _refill(entry: Entry) -> str:
    return "create another table, and fill it with INSERT INTO … SELECT * FROM " + written(entry.name)
