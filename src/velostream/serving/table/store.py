"""All tables of a data directory, one folder each: materialized views, and the state stores of jobs."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING

from velostream.disk.full_disk import storing
from velostream.disk.private import make_folder
from velostream.disk.sealed_json import sync_folder
from velostream.errors import (
    ClosedError,
    DataDirError,
    DuplicateNameError,
    SourceEmptyError,
    TableError,
    UnknownNameError,
    did_you_mean,
)
from velostream.model.lifetime import Lifetime
from velostream.model.table_storage import MEMORY, STORAGE
from velostream.model.tables import Retention, TableSpec
from velostream.serving.durable import description
from velostream.serving.durable.damage import corrupt
from velostream.serving.durable.folders import ASIDE, folder_name, name_and_edition
from velostream.serving.memory.storage import MemoryStorage
from velostream.serving.sql.questions import Questions
from velostream.serving.table.end import End

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from velostream.serving.contract.storage import Storage
    from velostream.serving.contract.table import Table
    from velostream.serving.contract.version import TableVersion
    from velostream.serving.durable.verification import TableReport
    from velostream.serving.memory.budget import MemoryBudget
    from velostream.serving.table.stats import TableStats


class TableStore:
    """Creates, opens and drops tables under one folder. Thread safe.

    One process may have it open for writing; with `read_only` nothing on disk is ever changed, not even an
    unfinished record at the end of a log, which is ignored.

    A table may be rebuilt beside the current one of its name, as its next edition. The caller records which
    edition is current: it passes `editions` of all tables that should exist, and later calls `publish`.
    """

    def __init__(
        self,
        root: Path,
        *,
        read_only: bool = False,
        editions: Mapping[str, int] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        complete: bool = False,
    ) -> None:
        self._root = root
        self._complete = complete
        """Whether every table that is opened must exist already."""
        self._read_only = read_only
        self._open: dict[tuple[str, int], Table] = {}
        self._ids: dict[tuple[str, int], str | None] = {}
        self._editions = dict(editions or {})
        self._lock = RLock()
        self.lifetime = Lifetime()
        self.questions = Questions()
        """Answers SQL over single tables; the runtime gives it Spark."""
        self._memory = MemoryStorage(self.questions, clock)
        self.storages: dict[str, Storage] = {MEMORY.name: self._memory}
        """The storages by name; the runtime adds those outside memory."""
        self.awaited: Callable[[str], bool] = lambda _: False
        """Whether a table that is not there will be made when its columns are known; set by the runtime."""
        if not read_only:
            with storing(root):
                make_folder(root)
                for folder in root.glob(f"{ASIDE}*"):
                    shutil.rmtree(folder)

    @property
    def budget(self) -> MemoryBudget:
        """The memory that all tables together may use."""
        return self._memory.budget

    @budget.setter
    def budget(self, budget: MemoryBudget) -> None:
        self._memory.budget = budget

    def create(self, spec: TableSpec, *, edition: int | None = None) -> Table:
        """Create a new, empty table durably and open it; raises DuplicateNameError when it exists."""
        _check_spec(spec)
        with self._lock:
            self._check_writable()
            folder = self._folder(spec.name, self._edition(spec.name, edition))
            if folder.exists():
                raise DuplicateNameError(f'table "{spec.name}" already exists')
            storage = self._storage_of(spec)
            if Retention.of(spec) is not None and not storage.traits.expires:
                raise TableError(f'rows of table "{spec.name}" cannot age out in {storage.traits.title}')
            storage.create(folder, spec)
            return self.open(spec.name, edition=edition)

    def open(self, name: str, *, edition: int | None = None) -> Table:
        """The table, opened on first use; the same object each time."""
        with self._lock:
            self.lifetime.check()
            number = self._edition(name, edition)
            table = self._open.get((name, number))
            if table is None:
                folder = self._existing(name, number)
                described = description.read_spec(folder)
                spec = described.spec
                if spec.name != name:
                    path = folder / description.DESCRIPTION
                    raise corrupt(f'file "{path}" is of table "{spec.name}", not of "{name}"')
                table = self._storage_of(spec).open(folder, read_only=self._read_only)
                self._open[name, number] = table
                self._ids[name, number] = described.id
            return table

    def identity(self, name: str) -> str:
        """Differs between tables that had the name one after the other, also across restarts."""
        with self._lock:
            self.open(name)
            number = self._edition(name, None)
            return f"{number}-{self._ids[name, number] or ''}"

    def spec(self, name: str) -> TableSpec:
        """The specification of a table, without reading its rows."""
        with self._lock:
            number = self._edition(name, None)
            table = self._open.get((name, number))
            return (
                table.spec if table is not None else description.read_spec(self._existing(name, number)).spec
            )

    def publish(self, name: str, edition: int) -> None:
        """Make this edition the current one of the name."""
        self.publish_all({name: edition})

    def publish_all(self, editions: Mapping[str, int]) -> None:
        """Make these editions the current ones of their names, all at the same moment for readers."""
        with self._lock:
            self.lifetime.check()
            for name, edition in editions.items():
                self._existing(name, edition)
            self._editions.update(editions)

    def versions(self, names: Iterable[str]) -> dict[str, TableVersion]:
        """The newest versions of tables; none is dropped or replaced while they are collected."""
        with self._lock:
            return {name: self.open(name).version_object for name in names}

    def names(self) -> list[str]:
        """The names of all tables, sorted."""
        self.lifetime.check()
        return sorted(name for name, edition in self._there() if edition == self._edition(name, None))

    def tables(self) -> Mapping[str, Table]:
        """All tables by name, opened."""
        return MappingProxyType({name: self.open(name) for name in self.names()})

    def readable(self, name: str) -> Table | None:
        """The table, or None when its files are damaged: `open` raises why, `verify` reports the extent."""
        try:
            return self.open(name)
        except DataDirError:
            return None

    def figures(self) -> dict[str, tuple[TableSpec, TableStats] | None]:
        """Spec and statistics of every table by name; None for a table whose files are damaged."""
        found: dict[str, tuple[TableSpec, TableStats] | None] = {}
        for name in self.names():
            # Tables may be dropped and replaced meanwhile.
            with suppress(UnknownNameError, ClosedError):
                table = self.readable(name)
                found[name] = (table.spec, table.stats()) if table is not None else None
        self.lifetime.check()
        return found

    def drop(self, name: str, *, edition: int | None = None) -> None:
        """Delete a table and its files; versions that callers hold stay readable."""
        with self._lock:
            self._check_writable()
            self._remove(name, self._edition(name, edition))

    def copy_as(self, name: str, spec: TableSpec) -> None:
        """Close a table, and make a second table of the same files, with this description.

        The files are shared and not copied where the file system can. The caller drops one of the two, and
        writes to neither before: they would write to the same files.
        """
        with self._lock:
            self._check_writable()
            number = self._edition(name, None)
            table = self._open.pop((name, number), None)
            if table is not None:
                table.close(End.RENAMED)
            folder, made = self._existing(name, number), self._folder(spec.name, 0)
            if made.exists():
                raise DuplicateNameError(f'table "{spec.name}" already exists')
            aside = self._root / f"{ASIDE}renamed-{made.name}"
            with storing(made):
                shutil.copytree(folder, aside, copy_function=_linked)
                description.write_spec(aside, spec, description.read_spec(folder))
                aside.rename(made)
                sync_folder(self._root)

    def _remove(self, name: str, edition: int) -> None:
        table = self._open.pop((name, edition), None)
        if table is not None:
            replaced = self._edition(name, None) != edition
            table.close(End.REPLACED if replaced else End.DROPPED)
        folder = self._existing(name, edition)
        aside = self._root / f"{ASIDE}dropped-{folder.name}"
        with storing(folder):
            folder.rename(aside)
        if self._editions.get(name) == edition:
            del self._editions[name]
        with storing(aside):
            sync_folder(self._root)
            shutil.rmtree(aside)

    def verify(self, name: str) -> TableReport:
        """Check every durable file of a table, even one too damaged to open, while commits go on."""
        with self._lock:
            self.lifetime.check()
            number = self._edition(name, None)
            table = self._open.get((name, number))
            if table is None:
                folder = self._existing(name, number)
                storage: Storage = self._memory
                with suppress(DataDirError):
                    storage = self._storage_of(description.read_spec(folder).spec)
                return replace(storage.verify(folder), name=name)
        return table.verify()

    def _storage_of(self, spec: TableSpec) -> Storage:
        name = spec.options.get(STORAGE, MEMORY.name)
        if name not in self.storages:
            raise TableError(f'table "{spec.name}" lives in {name}, which is not there')
        return self.storages[name]

    def close(self) -> None:
        """Close every table, after its current commit; further calls raise."""
        with self._lock:
            self.lifetime.end(f'the tables in "{self._root}" are closed', hint="open their database again")
            with ExitStack() as all_of_them:
                for table in self._open.values():
                    all_of_them.callback(table.close)
            self._open.clear()

    def __enter__(self) -> TableStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _there(self) -> list[tuple[str, int]]:
        """Names and editions of all folders."""
        paths = self._root.iterdir() if self._root.is_dir() else ()
        return [
            name_and_edition(path.name) for path in paths if path.is_dir() and not path.name.startswith(ASIDE)
        ]

    def _edition(self, name: str, edition: int | None) -> int:
        return self._editions.get(name, 0) if edition is None else edition

    def _folder(self, name: str, edition: int) -> Path:
        folder = folder_name(name, edition)
        if not name:
            raise TableError("the name of a table cannot be empty")
        if len(folder) > 200:
            raise TableError(f'"{name[:40]}…" is too long for the name of a table', hint="use a shorter name")
        return self._root / folder

    def _existing(self, name: str, edition: int) -> Path:
        folder = self._folder(name, edition)
        if folder.is_dir():
            return folder
        if self.awaited(name):
            raise SourceEmptyError(
                f'table "{name}" has no columns yet: it waits for its first record',
                hint="SHOW JOBS says why; or declare the columns: CREATE SOURCE name (column type, …) FROM …",
            )
        if self._complete or self._editions.get(name) == edition:
            raise corrupt(f'folder "{folder}" of table "{name}" is missing')
        raise UnknownNameError(f'table "{name}" does not exist', hint=did_you_mean(name, self.names()))

    def _check_writable(self) -> None:
        self.lifetime.check()
        if self._read_only:
            raise TableError(f'tables in "{self._root}" were opened read-only')


def _linked(source: str, target: str) -> None:
    """Another name for a file, or a copy of it where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _check_spec(spec: TableSpec) -> None:
    names = spec.schema.names
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TableError(f'table "{spec.name}" has two columns "{twice}"')
    missing = [name for name in spec.key if name not in names]
    if missing:
        raise TableError(f'key column "{missing[0]}" is not a column of table "{spec.name}"')
