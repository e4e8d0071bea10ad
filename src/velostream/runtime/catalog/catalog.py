"""The catalogue: durable record of every CREATE statement, and of the columns discovered for it."""

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
from velostream.sql.known_relations import Catalog as Relations
from velostream.sql.known_relations import Relation, RelationKind
from velostream.sql.types import parse_columns, schema_text

if TYPE_CHECKING:
    from pathlib import Path

Made = CreateTable | CreateStream | CreateSource | CreateView | InsertIntoSink


@dataclass(frozen=True)
class Entry:
    """One catalogue entry: a statement that created something in the data directory."""

    name: str
    text: str
    statement: Made = field(compare=False)
    created_at: datetime
    columns: Mapping[str, pa.Schema] = field(default_factory=dict)
    """The discovered columns of each source of the statement, by the source's id."""
    result: pa.Schema | None = None
    paused: bool = False
    job: str | None = None
    """Id of the job that runs the statement, which is also its folder; None where nothing runs."""
    udfs: tuple[str, ...] = ()
    """Python functions that the statement calls, and that a program must register before the job can run."""
    edition: int = 0
    """How often the name was replaced; a table's rows are stored in the folder of its edition."""
    narrowed: Mapping[str, pa.Schema] = field(default_factory=dict)
    """The columns that the statement knows of tables to which others were added since, by name."""

    @property
    def founded(self) -> bool:
        """Whether what the statement makes is there; not while its job waits for the first record."""
        return self.job is None or self.result is not None


class Catalog:
    """All entries in the order of creation. Implements the catalogue interface of the SQL front end."""

    def __init__(self, file: CatalogFile, *, read_only: bool = False) -> None:
        self._file = file
        self._read_only = read_only
        self.secrets = KeptSecrets(file.root, read_only=read_only)
        self.lifetime = Lifetime()
        self._entries: dict[str, Entry] = {}
        self._hidden: dict[str, str] = {}
        """The statements as stored in the file; earlier versions wrote their secrets out."""
        self._done: list[str] = []
        self._jobs_made = 0
        self._making: set[str] = set()
        self.unfinished: frozenset[str] = frozenset()
        """Folders that belong to no entry (any more, or yet): leftovers of a crash, which may be deleted."""
        self.others: Sequence[str] = ()
        """Texts of others that refer to kept secrets."""
        self._lock = RLock()

    # --- keeping ------------------------------------------------------------------------------------

    def stored(self) -> Sequence[Mapping[str, object]]:
        """The entries as stored in the file; the caller binds them and passes them to `restore`."""
        data = self._file.read()
        if data is None:
            return ()
        self._done = list(data.get("done", ()))
        self._jobs_made = int(data.get("jobs_made", 0))
        self.unfinished = frozenset(data.get("unfinished", ()))
        return list(data["entries"])

    def restore(self, stored: Mapping[str, object], statement: Made) -> None:
        """Add one stored entry with its bound statement."""
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
            narrowed=narrowed_of(stored),
        )

    def check_folders(self, there: Iterable[str]) -> None:
        """Raise CorruptDataError where the catalogue lacks folders of the directory: foreign or old."""
        known = {folder for entry in self for folder in folders_of(entry)} | self.unfinished
        unknown = sorted(set(there) - known)
        if not unknown:
            return
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        missing = "" if self._file.path.exists() else "is missing: it "
        raise self._file.refusal(f"{missing}does not know {unknown[0]}{more}")

    def check_letters(self) -> None:
        """Raise CorruptDataError where the dead-letter table is missing: every directory has one."""
        tables = self._file.root / "tables"
        if self._file.sealed and not any((tables / folder_name(DEAD_LETTERS, n)).is_dir() for n in (0, 1)):
            raise CorruptDataError(
                f"folder {tables / DEAD_LETTERS} is missing",
                hint="put it back from a copy, or let velo doctor --repair "
                f"--data-dir {self._file.root} go on without the dead letters that it held",
            )

    def establish(self) -> None:
        """When the directory is locked: write a file with a checksum, and its copies, if they are missing."""
        texts = {entry.name: self.secrets.hide(entry.text) for entry in self}
        if self._file.sealed and self._hidden == texts:
            self._file.renew_copies()
        else:
            self._save()
        self.secrets.forget_others([*texts.values(), *self.others])

    def announce(self, entry: Entry) -> None:
        """Record the folders about to be created for an entry; until `put`, opening deletes them."""
        with self._lock:
            self._making |= folders_of(entry)
            self._save()

    def retract(self, entry: Entry) -> None:
        """Withdraw `announce`: the statement failed, and its folders are removed or may be removed."""
        with self._lock:
            self._making -= folders_of(entry)

    def _save(self, changed: dict[str, Entry] | None = None, *, done: list[str] | None = None) -> None:
        """Make entries durable, then visible; when the disk refuses, nothing changes."""
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
        """Refuse all later writes, after the write in progress."""
        with self._lock:
            self.lifetime.end(f'"{self._file.path}" is closed', hint="open its database again")

    # --- entries ------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def get(self, name: str) -> Entry | None:
        """The entry of that name, in any case; None when there is none."""
        return self._entries.get(name) or next(
            (e for e in self._entries.values() if e.name.casefold() == name.casefold()), None
        )

    def require(self, name: str) -> Entry:
        """The entry of that name; UnknownNameError suggests the nearest."""
        entry = self.get(name)
        if entry is None:
            raise UnknownNameError(
                f'"{name}" does not exist', hint=did_you_mean(name, self._entries) or self._what_there_is()
            )
        return entry

    def _what_there_is(self) -> str:
        names = ", ".join(self._entries)
        return f"there is: {names}" if names else "nothing was created yet"

    def awaited(self, name: str) -> bool:
        """Whether a table of that name waits for the first record of a source, which tells its columns."""
        entry = self.get(name)
        return entry is not None and isinstance(entry.statement, CreateTable) and not entry.founded

    def draft(self, statement: Made, name: str, *, job: str | None = None) -> Entry:
        """A new entry for a statement; `put` records it once everything it needs exists."""
        query = getattr(statement, "query", None)
        udfs = query.udfs if isinstance(query, Query) else ()
        old = self.get(name)
        edition = old.edition + 1 if old is not None else 0
        return Entry(name, statement.text, statement, datetime.now(UTC), job=job, udfs=udfs, edition=edition)

    def put(self, *entries: Entry, gone: str | None = None) -> None:
        """Record entries as the newest, replacing the entries of the same names, all in one step.

        `gone`: an entry that is removed in the same step.
        """
        with self._lock:
            folded = {entry.name.casefold() for entry in entries}
            folded |= {gone.casefold()} if gone is not None else set()
            others = {name: e for name, e in self._entries.items() if name.casefold() not in folded}
            self._save(others | {entry.name: entry for entry in entries})

    def rewrite(self, changed: Iterable[Entry]) -> None:
        """Record entries in the places that they have, all in one step."""
        with self._lock:
            self._save(self._entries | {entry.name: entry for entry in changed})

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
        """A new job id, never used in this directory, so that no job finds the folder of a dropped one."""
        with self._lock:
            self._jobs_made += 1
            return f"{self._jobs_made}-{name}"

    # --- statements that run once -------------------------------------------------------------------

    def done(self, identity: str) -> bool:
        """Whether a statement of a script has already run in this data directory."""
        return identity in self._done

    def mark_done(self, identity: str) -> None:
        """Record that it has."""
        with self._lock:
            self._save(done=[*self._done, identity])

    # --- the SQL front end's view ---------------------------------------------------------------------

    def names(self) -> tuple[str, ...]:
        """Every name that can be used in FROM."""
        return tuple(e.name for e in self._entries.values() if not isinstance(e.statement, InsertIntoSink))

    def lookup(self, name: str) -> Relation | None:
        """The relation called `name`, for binding."""
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


def schema_from_text(text: str) -> pa.Schema:
    """The schema that `schema_text` wrote."""
    return pa.schema([pa.field(column.name, column.type) for column in parse_columns(text)])


def folders_of(entry: Entry) -> set[str]:
    """The folders of the data directory that belong to an entry."""
    found = {f"jobs/{entry.job.partition('/')[0]}"} if entry.job is not None else set()
    if isinstance(entry.statement, CreateTable):
        found.add(f"tables/{folder_name(entry.name, entry.edition)}")
    return found


def _stored(entry: Entry, text: str) -> dict[str, object]:
    """An entry in the form of the file, with `text` as its statement."""
    return {
        "name": entry.name,
        "text": text,
        "created_at": entry.created_at.isoformat(),
        "columns": _texts(entry.columns),
        "result": schema_text(entry.result) if entry.result is not None else None,
        "paused": entry.paused,
        "job": entry.job,
        "udfs": list(entry.udfs),
        "edition": entry.edition,
        **({"narrowed": _texts(entry.narrowed)} if entry.narrowed else {}),
    }


def _texts(schemas: Mapping[str, pa.Schema]) -> dict[str, str]:
    return {key: schema_text(schema) for key, schema in schemas.items()}


def narrowed_of(stored: Mapping[str, object]) -> dict[str, pa.Schema]:
    """The columns that a stored entry knows of tables that have more."""
    found = stored.get("narrowed") or {}
    assert isinstance(found, Mapping)
    return {name: schema_from_text(str(text)) for name, text in found.items()}


@dataclass(frozen=True)
class Overlaid:
    """A catalogue as it will be, once some entries are replaced; for binding."""

    catalog: Catalog
    changed: dict[str, Entry | None] = field(default_factory=dict)
    """By folded name; None where there will be no such name any more."""

    def put(self, entry: Entry) -> None:
        """Add what a statement will make."""
        self.changed[entry.name.casefold()] = entry

    def names(self) -> tuple[str, ...]:
        """Every name that can be used in FROM."""
        added = [entry.name for entry in self.changed.values() if entry is not None]
        kept = [name for name in self.catalog.names() if name.casefold() not in self.changed]
        return (*kept, *added)

    def lookup(self, name: str) -> Relation | None:
        """The relation called `name`."""
        if name.casefold() not in self.changed:
            return self.catalog.lookup(name)
        entry = self.changed[name.casefold()]
        return relation_of(entry) if entry is not None else None

    def bound(self, text: str, name: str, udfs: Iterable[str] = ()) -> Made:
        """A statement bound against what will be there; raises the error that prevents it."""
        return bound_text(self, text, name, udfs)


def udfs_of(stored: Mapping[str, object]) -> tuple[str, ...]:
    """The Python functions that a stored entry calls."""
    names = stored.get("udfs")
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


def bind_stored(catalog: Catalog, path: Path) -> None:
    """Bind every stored statement again, in the order of creation, and add it to the catalogue."""
    for stored in catalog.stored():
        catalog.restore(stored, bound(catalog, stored, path))


def bound(catalog: Catalog, stored: Mapping[str, object], path: Path) -> Made:
    """The bound statement of a stored entry; raises the error that prevents binding."""
    known = Narrowed(catalog, narrowed_of(stored))
    return bound_text(known, catalog.secrets.show(str(stored["text"])), str(path), udfs_of(stored))


@dataclass(frozen=True)
class Narrowed:
    """A catalogue in which some tables have only the columns that a statement knows."""

    catalog: Relations
    columns: Mapping[str, pa.Schema]

    def names(self) -> Iterable[str]:
        """Every name that can be used in FROM."""
        return self.catalog.names()

    def lookup(self, name: str) -> Relation | None:
        """The relation called `name`."""
        relation = self.catalog.lookup(name)
        known = self.columns.get(relation.name) if relation is not None else None
        if relation is None or known is None:
            return relation
        return replace(relation, columns=tuple(ColumnDef(f.name, f.type) for f in known))


def bound_text(catalog: Relations, text: str, name: str, udfs: Iterable[str]) -> Made:
    """The bound statement of a text; `name` is that of the text, in errors."""
    import os

    from velostream.connectors.registry import default_registry
    from velostream.location import SourceText
    from velostream.sql.check import check_script

    checked = check_script(
        SourceText(text, name), catalog, default_registry(), udfs=tuple(udfs), environment=os.environ
    )
    if checked.errors:
        raise checked.errors[0]
    statement = checked.statements[0]
    if not isinstance(statement, Made):
        raise CorruptDataError(f"{name} holds a statement that makes nothing")
    return statement


def open_catalog(directory: DataDirectory, *, read_only: bool) -> Catalog:
    """Open the catalogue of a data directory; raises CorruptDataError when it cannot be trusted."""
    # Listed before the catalogue is read: a process announces a folder before it creates it, so the
    # catalogue that is read afterwards knows every folder of this list.
    there = directory.folders()
    catalog = Catalog(CatalogFile(directory.root), read_only=read_only)
    bind_stored(catalog, directory.catalog)
    catalog.check_folders(there)
    catalog.check_letters()
    return catalog


def remembered(data_dir: Path) -> Catalog:
    """The catalogue of a data directory, read-only: nothing is locked, and nothing has to exist."""
    return open_catalog(DataDirectory(data_dir), read_only=True)
