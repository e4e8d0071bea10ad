"""All tables of a data directory, one folder each."""

from __future__ import annotations

import shutil
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from velostream.errors import DuplicateNameError, TableError, UnknownNameError, did_you_mean
from velostream.serving.journal import Journal
from velostream.serving.log import sync_folder
from velostream.serving.questions import Questions
from velostream.serving.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from velostream.model.tables import TableSpec

_ASIDE = "."
"""Folders being made or removed start with it; table folders never do."""


class TableStore:
    """Creates, opens and drops tables under one folder. Thread safe.

    One process may have it open for writing; with `read_only` nothing on disk is ever changed, not even an
    unfinished record at the end of a log, which is ignored.
    """

    def __init__(self, root: Path, *, read_only: bool = False) -> None:
        self._root = root
        self._read_only = read_only
        self._open: dict[str, Table] = {}
        self._lock = RLock()
        self.questions = Questions()
        """Answers SQL over single tables; the runtime lends it Spark."""
        if not read_only:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in root.glob(f"{_ASIDE}*"):
                shutil.rmtree(folder)

    def create(self, spec: TableSpec) -> Table:
        """Make a new, empty table durably and open it; raises DuplicateNameError when the name is taken."""
        self._check_writable()
        _check_spec(spec)
        with self._lock:
            folder = self._folder(spec.name)
            if folder.exists():
                raise DuplicateNameError(f'table "{spec.name}" already exists')
            Journal.create(folder, spec)
            return self.open(spec.name)

    def open(self, name: str) -> Table:
        """The table as its disk files leave it; the same object each time."""
        with self._lock:
            table = self._open.get(name)
            if table is not None:
                return table
            folder = self._folder(name)
            if not folder.is_dir():
                raise UnknownNameError(
                    f'table "{name}" does not exist', hint=did_you_mean(name, self.names())
                )
            table = Table(Journal(folder, read_only=self._read_only), self.questions)
            self._open[name] = table
            return table

    def names(self) -> list[str]:
        """The names of all tables, sorted."""
        if not self._root.is_dir():
            return []
        folders = (path.name for path in self._root.iterdir() if path.is_dir())
        return sorted(unquote(name) for name in folders if not name.startswith(_ASIDE))

    def tables(self) -> Mapping[str, Table]:
        """All tables by name, opened."""
        return MappingProxyType({name: self.open(name) for name in self.names()})

    def drop(self, name: str) -> None:
        """Remove a table for good; a version that someone holds stays readable."""
        self._check_writable()
        with self._lock:
            folder = self._folder(name)
            if not folder.is_dir():
                raise UnknownNameError(
                    f'table "{name}" does not exist', hint=did_you_mean(name, self.names())
                )
            table = self._open.pop(name, None)
            if table is not None:
                table.close(dropped=True)
            aside = self._root / f"{_ASIDE}dropped-{folder.name}"
            folder.rename(aside)
            sync_folder(self._root)
            shutil.rmtree(aside)

    def close(self) -> None:
        """Close every table."""
        with self._lock:
            for table in self._open.values():
                table.close()
            self._open.clear()

    def __enter__(self) -> TableStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _folder(self, name: str) -> Path:
        folder = quote(name, safe="")
        if folder.startswith("."):
            folder = "%2E" + folder[1:]
        if not folder or len(folder) > 200:
            raise TableError(f'"{name}" cannot be the name of a table', hint="use a shorter name")
        return self._root / folder

    def _check_writable(self) -> None:
        if self._read_only:
            raise TableError(f'tables in "{self._root}" were opened read-only')


def _check_spec(spec: TableSpec) -> None:
    names = spec.schema.names
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TableError(f'table "{spec.name}" has two columns "{twice}"')
    missing = [name for name in spec.key if name not in names]
    if missing:
        raise TableError(f'key column "{missing[0]}" is not a column of table "{spec.name}"')
