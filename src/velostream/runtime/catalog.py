"""The catalogue: every statement that made something, durable, and what was discovered for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import RLock
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.errors import CorruptDataError, DataDirError, UnknownNameError, did_you_mean
from velostream.model.lifetime import Lifetime
from velostream.model.statements import (
    ColumnDef,
    CreateSource,
    CreateStream,
    CreateTable,
    CreateView,
    InsertIntoSink,
    Query,
)
from velostream.runtime.datadir import FORMAT, damaged, read_json, write_json
from velostream.sql.catalog import Relation, RelationKind
from velostream.sql.types import parse_columns, spark_ddl

if TYPE_CHECKING:
    from pathlib import Path

Made = CreateTable | CreateStream | CreateSource | CreateView | InsertIntoSink


@dataclass(frozen=True)
class Entry:
    """One statement that the data directory remembers."""

    name: str
    text: str
    statement: Made = field(compare=False)
    created_at: datetime
    columns: Mapping[str, pa.Schema] = field(default_factory=dict)
    """What each source of the statement was discovered to have, by its id."""
    result: pa.Schema | None = None
    paused: bool = False
    job: str | None = None
    """Id of the job that runs it, which is also its folder; None for what does not run."""
    udfs: tuple[str, ...] = ()
    """Python functions that it calls, and that a program must register before it can run."""
    edition: int = 0
    """How often the name was replaced; a table's rows lie in the folder of this edition."""


class Catalog:
    """All entries in the order of creation. Implements the SQL front end's view of it."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._read_only = read_only
        self.lifetime = Lifetime()
        self._entries: dict[str, Entry] = {}
        self._done: list[str] = []
        self._jobs_made = 0
        self._lock = RLock()

    # --- keeping ------------------------------------------------------------------------------------

    def stored(self) -> Sequence[Mapping[str, object]]:
        """The entries as they stand in the file, to be bound by the caller and given to `restore`."""
        data = read_json(self._path)
        if data is None:
            return ()
        if not isinstance(data, dict) or not isinstance(data.get("entries"), list):
            raise damaged(self._path, "it holds no entries")
        if data.get("format", 0) > FORMAT:
            raise DataDirError(
                f"data directory {self._path.parent} has format {data['format']}, this version reads {FORMAT}",  # noqa: E501
                hint="use a newer velostream",
            )
        self._done = list(data.get("done", ()))
        self._jobs_made = int(data.get("jobs_made", 0))
        return list(data["entries"])

    def restore(self, stored: Mapping[str, object], statement: Made) -> None:
        """Put back one stored entry with its bound statement."""
        columns = stored.get("columns") or {}
        result = stored.get("result")
        assert isinstance(columns, Mapping)
        self._entries[str(stored["name"])] = Entry(
            name=str(stored["name"]),
            text=str(stored["text"]),
            statement=statement,
            created_at=datetime.fromisoformat(str(stored["created_at"])),
            columns={key: schema_from_text(str(text)) for key, text in columns.items()},
            result=schema_from_text(str(result)) if result else None,
            paused=bool(stored.get("paused")),
            job=str(stored["job"]) if stored.get("job") else None,
            udfs=udfs_of(stored),
            edition=int(str(stored.get("edition", 0))),
        )

    def _save(self, changed: dict[str, Entry] | None = None) -> None:
        """Make entries durable, then visible: when the disk refuses, everything is as it was."""
        self.lifetime.check()
        kept = self._entries if changed is None else changed
        if self._read_only:
            raise DataDirError(f"{self._path.parent} is open for reading only")
        entries = [
            {
                "name": e.name,
                "text": e.text,
                "created_at": e.created_at.isoformat(),
                "columns": {key: schema_text(schema) for key, schema in e.columns.items()},
                "result": schema_text(e.result) if e.result is not None else None,
                "paused": e.paused,
                "job": e.job,
                "udfs": list(e.udfs),
                "edition": e.edition,
            }
            for e in kept.values()
        ]
        write_json(
            self._path,
            {"format": FORMAT, "entries": entries, "done": self._done, "jobs_made": self._jobs_made},
        )
        self._entries = kept

    def close(self) -> None:
        """Write nothing any more, after what is being written."""
        with self._lock:
            self.lifetime.end(f'"{self._path}" is closed', hint="open its database again")

    # --- entries ------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def get(self, name: str) -> Entry | None:
        """The entry of that name (any case), or None."""
        return self._entries.get(name) or next(
            (e for e in self._entries.values() if e.name.casefold() == name.casefold()), None
        )

    def require(self, name: str) -> Entry:
        """The entry of that name; UnknownNameError names the nearest."""
        entry = self.get(name)
        if entry is None:
            raise UnknownNameError(
                f'"{name}" does not exist', hint=did_you_mean(name, self._entries) or self._what_there_is()
            )
        return entry

    def _what_there_is(self) -> str:
        names = ", ".join(self._entries)
        return f"there is: {names}" if names else "nothing was created yet"

    def draft(self, statement: Made, name: str, *, job: str | None = None) -> Entry:
        """An entry for a statement, to be remembered with `put` when what it needs is there."""
        query = getattr(statement, "query", None)
        udfs = query.udfs if isinstance(query, Query) else ()
        old = self.get(name)
        edition = old.edition + 1 if old is not None else 0
        return Entry(name, statement.text, statement, datetime.now(UTC), job=job, udfs=udfs, edition=edition)

    def put(self, entry: Entry) -> None:
        """Remember an entry as the newest, in one step instead of what its name stood for."""
        with self._lock:
            folded = entry.name.casefold()
            others = {name: e for name, e in self._entries.items() if name.casefold() != folded}
            self._save(others | {entry.name: entry})

    def update(self, name: str, **changes: object) -> Entry:
        """Replace fields of an entry."""
        with self._lock:
            entry = replace(self._entries[name], **changes)  # type: ignore[arg-type]
            self._save(self._entries | {name: entry})
        return entry

    def remove(self, name: str) -> None:
        """Forget an entry."""
        with self._lock:
            self._save({other: e for other, e in self._entries.items() if other != name})

    def new_job(self, name: str) -> str:
        """A job id that was never used here: folders of dropped jobs are not taken over."""
        with self._lock:
            self._jobs_made += 1
            return f"{self._jobs_made}-{name}"

    # --- statements that run once -------------------------------------------------------------------

    def done(self, identity: str) -> bool:
        """Whether a statement of a script was already carried out in this data directory."""
        return identity in self._done

    def mark_done(self, identity: str) -> None:
        """Remember that it was."""
        with self._lock:
            self._done.append(identity)
            self._save()

    # --- the SQL front end's view ---------------------------------------------------------------------

    def names(self) -> tuple[str, ...]:
        """Every name that a FROM may use."""
        return tuple(e.name for e in self._entries.values() if not isinstance(e.statement, InsertIntoSink))

    def lookup(self, name: str) -> Relation | None:
        """What `name` is, for binding."""
        entry = self.get(name)
        if entry is None or isinstance(entry.statement, InsertIntoSink):
            return None
        return relation_of(entry)


def relation_of(entry: Entry) -> Relation:
    """An entry as the SQL front end sees it."""
    statement = entry.statement
    columns = _columns(entry)
    if isinstance(statement, CreateView):
        return Relation(RelationKind.VIEW, entry.name, columns, view=statement.query)
    if isinstance(statement, CreateSource):
        return Relation(RelationKind.SOURCE, entry.name, columns, source=statement)
    if isinstance(statement, CreateStream):
        return Relation(RelationKind.STREAM, entry.name, columns)
    assert isinstance(statement, CreateTable)
    by_hand = statement.query is None
    return Relation(RelationKind.TABLE, entry.name, columns, key=statement.key, by_hand=by_hand)


def _columns(entry: Entry) -> tuple[ColumnDef, ...] | None:
    if entry.result is not None:
        return tuple(ColumnDef(f.name, f.type) for f in entry.result)
    statement = entry.statement
    if isinstance(statement, (CreateTable, CreateSource)) and statement.columns:
        return statement.columns
    return None


def schema_text(schema: pa.Schema) -> str:
    """A schema as readable text that `schema_from_text` reads back."""
    return ", ".join(f"`{f.name.replace('`', '``')}` {spark_ddl(f.type)}" for f in schema)


def schema_from_text(text: str) -> pa.Schema:
    """The schema that `schema_text` wrote."""
    return pa.schema([pa.field(column.name, column.type) for column in parse_columns(text)])


def udfs_of(stored: Mapping[str, object]) -> tuple[str, ...]:
    """Python functions that a stored entry calls."""
    names = stored.get("udfs")
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


def bind_stored(catalog: Catalog, path: Path) -> None:
    """Bind every stored statement again, in the order of creation, and put it into the catalogue."""
    import os

    from velostream.connectors.registry import default_registry
    from velostream.model.location import SourceText
    from velostream.sql.check import check_script

    for stored in catalog.stored():
        checked = check_script(
            SourceText(str(stored["text"]), str(path)),
            catalog,
            default_registry(),
            udfs=udfs_of(stored),
            environment=os.environ,
        )
        if checked.errors:
            raise checked.errors[0]
        statement = checked.statements[0]
        if not isinstance(statement, Made):
            raise CorruptDataError(f"{path} holds a statement that makes nothing")
        catalog.restore(stored, statement)


def remembered(data_dir: Path) -> Catalog:
    """What a data directory holds, for reading only; nothing is opened and nothing has to exist."""
    path = data_dir / "catalog.json"
    catalog = Catalog(path, read_only=True)
    bind_stored(catalog, path)
    return catalog
