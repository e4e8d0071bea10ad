"""Verification of a table's durable files: every byte of each, and whether they agree."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from velostream.disk.sealed_json import ASIDE
from velostream.errors import CorruptDataError, DataDirError, TableError
from velostream.serving.columns.dictionaries import Dictionaries, plain, together
from velostream.serving.columns.values import canonical
from velostream.serving.durable import description, recovery, snapshots
from velostream.serving.durable.damage import REMEDY, corrupt, table_frames
from velostream.serving.durable.log import LogFile, files_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from velostream.model.tables import TableSpec
    from velostream.serving.columns.segments import Views
    from velostream.serving.durable.description import Description

    Found = tuple["FileState", int | None]
    """The state of a file, and how many records or rows it holds."""
    Check = Callable[[], Found]


class FileState(StrEnum):
    """The state of a verified file."""

    GOOD = "good"
    UNFINISHED = "unfinished"
    """Ends with a record whose commit was never acknowledged: a crash in mid-write, cut off on opening."""
    LEFT_OVER = "left over"
    """Written aside when a process died; deleted on opening."""
    DAMAGED = "damaged"


@dataclass(frozen=True)
class FileReport:
    """One file: its state, and what is wrong with it."""

    name: str
    state: FileState
    bytes: int
    records: int | None = None
    detail: str | None = None


@dataclass(frozen=True)
class TableReport:
    """All files of a table, and what opening it would give."""

    name: str
    files: tuple[FileReport, ...]
    version: int | None
    """The version that it opens at; None when it does not open."""
    rows: int | None = None
    problem: str | None = None
    """Why the files do not yield the table, or what is lost with damaged ones; None when all is well."""
    hint: str | None = None

    @property
    def good(self) -> bool:
        """Whether nothing is damaged."""
        return self.problem is None

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON-ready data, for the socket."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> TableReport:
        """The inverse of `as_dict`."""
        files = (FileReport(**{**file, "state": FileState(file["state"])}) for file in data["files"])
        return TableReport(**{**data, "files": tuple(files)})


def verify(folder: Path, end: tuple[Path, int] | None = None) -> TableReport:
    """Read everything; raises nothing: failures are in the report.

    `end`: for a table that is being written, the newest log file and how much of it counts.
    """
    files = tuple(_files(folder, end))
    name = folder.name
    try:
        of = description.read_spec(folder)
        name = of.spec.name
        recovered = recovery.recover(folder, of, Dictionaries(of.spec), end)
        _compare(folder, of, recovered, end)
    except (DataDirError, TableError) as exc:
        told = exc.message + (f" ({exc.detail})" if exc.detail else "")
        hint = REMEDY if isinstance(exc, CorruptDataError) else exc.hint
        return TableReport(name, files, None, None, told, hint)
    rows = sum(view.total for view in recovered.views)
    report = TableReport(name, files, recovered.version, rows)
    damaged = [file for file in files if file.state is FileState.DAMAGED]
    if not damaged:
        return report
    return replace(
        report,
        problem=f"{', '.join(file.name for file in damaged)} damaged, but no row is lost",
        hint="nothing to do: the other files hold the whole table; writing to it replaces the damaged ones",
    )


def _files(folder: Path, end: tuple[Path, int] | None) -> Iterator[FileReport]:
    """Verify each file by itself."""
    logs = files_in(folder)
    checks: dict[Path, Check] = {
        folder / description.DESCRIPTION: partial(_small, description.read_spec, folder),
        folder / description.READERS: partial(_small, description.read_readers, folder),
        folder / description.CLOSED: partial(_small, description.read_closed, folder),
    }
    checks |= {path: partial(_snapshot, path) for path in snapshots.paths(folder)}
    for file, later in zip(logs, (*logs[1:], None), strict=False):
        size = end[1] if end is not None and end[0] == file.path else None
        checks[file.path] = partial(_log, file, later, size)
    for path in sorted(folder.iterdir()):
        if path in checks:
            yield _checked(path, checks[path])
        elif path.suffix == ASIDE and end is None:
            yield FileReport(path.name, FileState.LEFT_OVER, path.stat().st_size)


def _checked(path: Path, check: Check) -> FileReport:
    size = 0
    try:
        size = path.stat().st_size
        state, records = check()
    except DataDirError as exc:
        told = exc.message.removeprefix(f'file "{path}" ') + (f": {exc.detail}" if exc.detail else "")
        return FileReport(path.name, FileState.DAMAGED, size, None, told)
    except OSError as exc:
        return FileReport(path.name, FileState.DAMAGED, size, None, exc.strerror or str(exc))
    return FileReport(path.name, state, size, records)


def _small(read: Callable[[Path], object], folder: Path) -> Found:
    read(folder)
    return FileState.GOOD, None


def _snapshot(path: Path) -> Found:
    return FileState.GOOD, sum(batch.num_rows for batch in snapshots.read(path).batches)


def _log(file: LogFile, later: LogFile | None, size: int | None) -> Found:
    reader = table_frames(file.path, size)
    records = 0
    for frame in reader.frames():
        if frame.header["seq"] != file.first + records:
            raise corrupt(
                f'file "{file.path}" is damaged at byte {frame.offset}',
                f"record {frame.header['seq']} stands where {file.first + records} belongs",
            )
        records += 1
    if later is not None and (reader.torn_at is not None or file.first + records != later.first):
        raise corrupt(
            f'file "{file.path}" is cut off',
            f"it ends with record {file.first + records - 1}, the next file starts with {later.first}",
        )
    return (FileState.GOOD if reader.torn_at is None else FileState.UNFINISHED), records


def _compare(
    folder: Path,
    of: Description,
    newest: recovery.Recovered,
    end: tuple[Path, int] | None,
) -> None:
    """Raise CorruptDataError unless every good snapshot, with the log since, yields the same rows."""
    spec = of.spec
    expected = _rows(newest.views, spec)
    for path in snapshots.paths(folder)[1:]:
        try:
            snapshot = snapshots.read(path, of=of.id)
            other = recovery.since(folder, of, snapshot, Dictionaries(spec), end)
        except DataDirError:
            # Reported with its file; the newest snapshot does not need it.
            continue
        if (other.version, other.limit) != (newest.version, newest.limit) or not _equal(
            _rows(other.views, spec), expected
        ):
            raise corrupt(
                f'"{path}" and the log since do not lead to the rows of the newest snapshot',
                f"version {newest.version}",
            )


def _rows(views: Views, spec: TableSpec) -> pa.Table:
    """All rows with their ids and counts, in one table, for comparison."""
    if not views:
        empty = pa.array([], pa.int64())
        return spec.schema.empty_table().append_column("_id", empty).append_column("_count", empty)
    rows = plain(together([view.live_batch() for view in views], spec.schema))
    counts = [view.live_counts() for view in views]
    weights = [
        np.ones(view.live, np.int64) if each is None else each.astype(np.int64)
        for view, each in zip(views, counts, strict=True)
    ]
    ids = np.concatenate([view.live_ids() for view in views])
    return rows.append_column("_id", pa.array(ids)).append_column("_count", pa.array(np.concatenate(weights)))


def _equal(left: pa.Table, right: pa.Table) -> bool:
    """Whether all rows are equal; Arrow's own comparison treats NaN as different from itself."""
    return left.num_rows == right.num_rows and all(
        one.equals(other) or canonical(one) == canonical(other)
        for one, other in zip(left.columns, right.columns, strict=True)
    )
