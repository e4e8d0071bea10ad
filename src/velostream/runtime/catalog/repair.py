"""`velo doctor --repair`: restores a data directory so that it opens, without deleting anything."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from velostream.disk.private import make_folder
from velostream.engine.bad_rows.letter import edition as letters_edition
from velostream.engine.bad_rows.letter import letters_table
from velostream.errors import CorruptDataError, DataDirError, VelostreamError
from velostream.model.tables import DEAD_LETTERS
from velostream.runtime.catalog.catalog import Catalog, bound, folders_of
from velostream.runtime.catalog.file import CatalogFile
from velostream.runtime.datadir import DataDirectory
from velostream.serving.durable import description
from velostream.serving.durable.folders import folder_name, name_and_edition
from velostream.serving.table.store import TableStore
from velostream.sql.types import schema_text

if TYPE_CHECKING:
    from pathlib import Path

    from velostream.disk.sealed_json import Sealed
    from velostream.model.tables import TableSpec

Stored = dict[str, Any]


def repair(data_dir: Path) -> list[str]:
    """Rebuild the catalogue from its copies and from the tables' own descriptions; returns a report by lines.

    Raises DataDirError when another process holds the directory. Files that are damaged or unexplained are
    moved to the folder `aside`; nothing is deleted.
    """
    directory = DataDirectory(data_dir)
    if not directory.root.is_dir():
        raise DataDirError(f"there is no data directory {directory.root}")
    directory.hold()
    try:
        work = _Repair(directory)
        work.letters()
        work.catalogue()
        return work.done
    finally:
        directory.release()


class _Repair:
    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._root = directory.root
        self._file = CatalogFile(directory.root)
        self._aside = directory.root / "aside" / datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        self.done: list[str] = []

    def catalogue(self) -> None:
        """Ensure a catalogue that covers every table and every job in the directory."""
        before, trusted = self._basis()
        data = before.value if before is not None else {"entries": []}
        entries: list[Stored] = list(data["entries"])
        catalog = Catalog(self._file, read_only=True)
        # Folders that an older catalogue announced, or was about to delete, may be in use by now.
        unfinished = list(data.get("unfinished", ())) if trusted else []
        known = set(unfinished)
        for entry in entries:
            known |= self._restored(catalog, entry)
        strangers = [folder for folder in self._directory.folders() if folder not in known]
        if trusted and not strangers:
            return
        found, strangers = self._described(catalog, entries, strangers)
        for folder in strangers:
            self._set_aside(folder, "no statement is known that made it")
        if before is None and found:
            self.done.append("INSERT, UPDATE and DELETE of scripts that ran before will run again")
        jobs = (self._root / "jobs").iterdir() if (self._root / "jobs").is_dir() else ()
        numbers = [int(job.name.partition("-")[0]) for job in jobs if job.name.partition("-")[0].isdigit()]
        self._file.replace(
            {
                "entries": entries,
                "done": data.get("done", []),
                "jobs_made": max([int(data.get("jobs_made", 0)), *numbers]),
                "unfinished": unfinished,
            },
            before,
        )
        self.done.append(f"{self._file.path} was written again; it holds {_counted(len(entries))}")

    def _basis(self) -> tuple[Sealed | None, bool]:
        """The newest trustworthy catalogue, and whether it is the one in place."""
        try:
            value = self._file.read()
        except CorruptDataError as exc:
            self.done.append(exc.message)
        else:
            if value is not None:
                return self._file.content, True
        if self._file.path.exists():
            self._set_aside(self._file.path.name, "it is not the catalogue of what is here")
        last = self._file.last_copy()
        if last is not None:
            self.done.append(f"the catalogue is taken from {last.path}")
        return (last.content if last is not None else None), False

    def _restored(self, catalog: Catalog, entry: Stored) -> set[str]:
        """Add an entry to the catalogue; returns the folders that belong to it."""
        try:
            catalog.restore(entry, bound(catalog, entry, self._file.path))
        except VelostreamError:
            # Perhaps an environment variable is not set here: the entry is kept unbound.
            return {f"jobs/{entry['job']}", f"tables/{folder_name(entry['name'], entry.get('edition', 0))}"}
        return folders_of(catalog.require(str(entry["name"])))

    def _described(
        self, catalog: Catalog, entries: list[Stored], strangers: list[str]
    ) -> tuple[list[Stored], list[str]]:
        """Add entries for tables whose description names their statement; returns the other folders."""
        found: list[Stored] = []
        waiting = {folder: entry for folder in strangers if (entry := self._entry(folder)) is not None}
        progress = True
        # A statement that reads a table can be bound only after that table's statement, hence the rounds.
        while progress:
            progress = False
            for folder, entry in list(waiting.items()):
                name = str(entry["name"])
                old = catalog.get(name)
                if old is not None and any((self._root / each).is_dir() for each in folders_of(old)):
                    continue
                try:
                    catalog.restore(entry, bound(catalog, entry, self._file.path))
                except VelostreamError:
                    continue
                entries[:] = [each for each in entries if each["name"] != name] + [entry]
                found.append(entry)
                self.done.append(f'table "{name}" is known again, from {folder}')
                del waiting[folder]
                strangers = [each for each in strangers if each not in folders_of(catalog.require(name))]
                progress = True
        return found, strangers

    def _entry(self, folder: str) -> Stored | None:
        """A catalogue entry from a table's own description; None where the description is not enough."""
        kind, _, name = folder.partition("/")
        if kind != "tables":
            return None
        try:
            spec = description.read_spec(self._root / folder).spec
        except DataDirError:
            return None
        text = spec.statement or (_by_hand(spec) if spec.owner is None else None)
        named, edition = name_and_edition(name)
        if text is None or spec.name != named:
            return None
        return {
            "name": spec.name,
            "text": text,
            "created_at": datetime.now(UTC).isoformat(),
            "result": schema_text(spec.visible_schema),
            "job": spec.job,
            "edition": edition,
        }

    def letters(self) -> None:
        """Ensure a dead-letter table."""
        edition = letters_edition(self._directory.tables)
        with TableStore(self._directory.tables, editions={DEAD_LETTERS: edition}) as store:
            there = DEAD_LETTERS in store.names()
            try:
                if there:
                    store.open(DEAD_LETTERS)
                    return
            except DataDirError as exc:
                self.done.append(exc.message)
        if there:
            self._set_aside(f"tables/{folder_name(DEAD_LETTERS, edition)}", "it cannot be opened")
        elif not self._file.path.exists() and not self._file.good_copies():
            return
        with TableStore(self._directory.tables) as store:
            letters_table(store)
        self.done.append(f"table {DEAD_LETTERS} begins anew, empty")

    def _set_aside(self, name: str, why: str) -> None:
        target = self._aside / name
        make_folder(target.parent)
        shutil.move(self._root / name, target)
        self.done.append(f"{self._root / name} was moved to {target}: {why}")


def _by_hand(spec: TableSpec) -> str:
    """CREATE TABLE for a table that users fill with INSERT."""
    key = ", ".join(f"`{name.replace('`', '``')}`" for name in spec.key)
    primary = f", PRIMARY KEY ({key})" if key else ""
    name = spec.name.replace("`", "``")
    return f"CREATE TABLE `{name}` ({schema_text(spec.visible_schema)}{primary})"


def _counted(number: int) -> str:
    return f"{number} statement{'' if number == 1 else 's'}"
