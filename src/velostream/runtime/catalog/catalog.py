"""The catalogue: every statement that made something, durable, and what was discovered for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from velostream.model.tables import DEAD_LETTERS
from velostream.runtime.catalog.file import CatalogFile
from velostream.runtime.catalog.secrets import KeptSecrets
from velostream.runtime.datadir import DataDirectory
from velostream.serving.durable.folders import folder_name
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

    def __init__(self, file: CatalogFile, *, read_only: bool = False) -> None:
        self._file = file
        self._read_only = read_only
        self.secrets = KeptSecrets(file.root, read_only=read_only)
        self.lifetime = Lifetime()
        self._entries: dict[str, Entry] = {}
        self._hidden: dict[str, str] = {}
        """The statements as they stood in the file: those of an earlier version hold their secrets."""
        self._done: list[str] = []
        self._jobs_made = 0
        self._making: set[str] = set()
        self.unfinished: frozenset[str] = frozenset()
        """Folders that no entry speaks of any more, or yet: what a crash left of them may be deleted."""
        self._lock = RLock()

    # --- keeping ------------------------------------------------------------------------------------

    def stored(self) -> Sequence[Mapping[str, object]]:
        """The entries as they stand in the file, to be bound by the caller and given to `restore`."""
        data = self._file.read()
        if data is None:
            return ()
        self._done = list(data.get("done", ()))
        self._jobs_made = int(data.get("jobs_made", 0))
        self.unfinished = frozenset(data.get("unfinished", ()))
        return list(data["entries"])

    def restore(self, stored: Mapping[str, object], statement: Made) -> None:
        """Put back one stored entry with its bound statement."""
        columns = stored.get("columns") or {}
        result = stored.get("result")
        assert isinstance(columns, Mapping)
        self._hidden[str(stored["name"])] = str(stored["text"])
        self._entries[str(stored["name"])] = Entry(
            name=str(stored["name"]),
            text=self.secrets.show(str(stored["text"])),
            statement=statement,
            created_at=datetime.fromisoformat(str(stored["created_at"])),
            columns={key: schema_from_text(str(text)) for key, text in columns.items()},
            result=schema_from_text(str(result)) if result else None,
            paused=bool(stored.get("paused")),
            job=str(stored["job"]) if stored.get("job") else None,
            udfs=udfs_of(stored),
            edition=int(str(stored.get("edition", 0))),
        )

    def check_folders(self, there: Iterable[str]) -> None:
        """Refuse a catalogue that does not know what is in the directory: it is another's, or too old."""
        known = {folder for entry in self for folder in folders_of(entry)} | self.unfinished
        unknown = sorted(set(there) - known)
        if not unknown:
            return
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        missing = "" if self._file.path.exists() else "is missing: it "
        raise self._file.refusal(f"{missing}does not know {unknown[0]}{more}")

    def check_letters(self) -> None:
        """Refuse a directory whose dead letters are gone: it has had a table of them since it was made."""
        tables = self._file.root / "tables"
        if self._file.sealed and not any((tables / folder_name(DEAD_LETTERS, n)).is_dir() for n in (0, 1)):
            raise CorruptDataError(
                f"folder {tables / DEAD_LETTERS} is missing",
                hint="put it back from a copy, or let velo doctor --repair "
                f"--data-dir {self._file.root} go on without the dead letters that it held",
            )

    def establish(self) -> None:
        """Once the directory is held: have a file with a checksum, and copies of it."""
        texts = {entry.name: self.secrets.hide(entry.text) for entry in self}
        if self._file.sealed and self._hidden == texts:
            self._file.renew_copies()
        else:
            self._save()
        self.secrets.forget_others(texts.values())

    def announce(self, entry: Entry) -> None:
        """Say what is about to be made for an entry: until it is put, opening deletes what is left of it."""
        with self._lock:
            self._making |= folders_of(entry)
            self._save()

    def retract(self, entry: Entry) -> None:
        """What was announced has come to nothing, and nothing is left of it, or what is left may go."""
        with self._lock:
            self._making -= folders_of(entry)

    def _save(self, changed: dict[str, Entry] | None = None, *, done: list[str] | None = None) -> None:
        """Make entries durable, then visible: when the disk refuses, everything is as it was."""
        self.lifetime.check()
        kept = self._entries if changed is None else changed
        done = self._done if done is None else done
        if self._read_only:
            raise DataDirError(f"{self._file.root} is open for reading only")
        used = {folder for entry in kept.values() for folder in folders_of(entry)}
        gone = {folder for entry in self for folder in folders_of(entry)} | self.unfinished
        left = {folder for folder in gone if (self._file.root / folder).exists()}
        unfinished = frozenset((left | self._making) - used)
        self._file.write(
            {
                "entries": [_stored(entry, self.secrets.hide(entry.text)) for entry in kept.values()],
                "done": done,
                "jobs_made": self._jobs_made,
                "unfinished": sorted(unfinished),
            }
        )
        self._entries, self._done, self.unfinished = kept, done, unfinished
        self._making -= used

    def close(self) -> None:
        """Write nothing any more, after what is being written."""
        with self._lock:
            self.lifetime.end(f'"{self._file.path}" is closed', hint="open its database again")

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
            self._save(done=[*self._done, identity])

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


def folders_of(entry: Entry) -> set[str]:
    """The folders of the data directory that are an entry's own."""
    found = {f"jobs/{entry.job.partition('/')[0]}"} if entry.job is not None else set()
    if isinstance(entry.statement, CreateTable):
        found.add(f"tables/{folder_name(entry.name, entry.edition)}")
    return found


def _stored(entry: Entry, text: str) -> dict[str, object]:
    """An entry as it stands in the file, its statement as `text`."""
    return {
        "name": entry.name,
        "text": text,
        "created_at": entry.created_at.isoformat(),
        "columns": {key: schema_text(schema) for key, schema in entry.columns.items()},
        "result": schema_text(entry.result) if entry.result is not None else None,
        "paused": entry.paused,
        "job": entry.job,
        "udfs": list(entry.udfs),
        "edition": entry.edition,
    }


def udfs_of(stored: Mapping[str, object]) -> tuple[str, ...]:
    """Python functions that a stored entry calls."""
    names = stored.get("udfs")
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


def bind_stored(catalog: Catalog, path: Path) -> None:
    """Bind every stored statement again, in the order of creation, and put it into the catalogue."""
    for stored in catalog.stored():
        catalog.restore(stored, bound(catalog, stored, path))


def bound(catalog: Catalog, stored: Mapping[str, object], path: Path) -> Made:
    """The statement of a stored entry; raises what keeps it from being bound."""
    import os

    from velostream.connectors.registry import default_registry
    from velostream.location import SourceText
    from velostream.sql.check import check_script

    checked = check_script(
        SourceText(catalog.secrets.show(str(stored["text"])), str(path)),
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
    return statement


def open_catalog(directory: DataDirectory, *, read_only: bool) -> Catalog:
    """What a data directory holds; raises when that cannot be told from its catalogue."""
    # Listed first: what a process makes meanwhile is announced before it is there.
    there = directory.folders()
    catalog = Catalog(CatalogFile(directory.root), read_only=read_only)
    bind_stored(catalog, directory.catalog)
    catalog.check_folders(there)
    catalog.check_letters()
    return catalog


def remembered(data_dir: Path) -> Catalog:
    """What a data directory holds, for reading only; nothing is opened and nothing has to exist."""
    return open_catalog(DataDirectory(data_dir), read_only=True)
