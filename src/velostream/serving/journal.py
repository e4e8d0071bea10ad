"""The durable form of a table: its description, snapshots, log, and who still reads the log."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from velostream.errors import CorruptDataError, DataDirError
from velostream.model.changes import WEIGHT, Commit
from velostream.model.tables import TableSpec
from velostream.serving import snapshots
from velostream.serving.log import Log, sync_folder
from velostream.serving.schemas import align, to_batches
from velostream.serving.segments import Counts, Ids, Views, compact, make_views, subtract

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
from threading import Lock

FORMAT = 1
ROW_ID = snapshots.ROW_ID

_DESCRIPTION = "table.json"
_READERS = "readers.json"
_ASIDE = ".new"
_SNAPSHOT_BYTES = 16 << 20
"""A log smaller than this is not worth a snapshot."""
_KEEP_VERSIONS = 100
_KEEP_BYTES = 256 << 20


@dataclass(frozen=True)
class Change:
    """One commit's effect: rows taken back, by id, and rows added after them."""

    removed: pa.Table
    removed_ids: Ids
    removed_amounts: Counts
    added: pa.Table
    added_counts: Counts | None = None

    @property
    def empty(self) -> bool:
        """Whether no row changes."""
        return not self.removed.num_rows and not self.added.num_rows

    def body(self, limit: int) -> pa.Table:
        """Before images, then after images, with weights and row ids; new ids start at `limit`."""
        count = self.added.num_rows
        added = np.ones(count, dtype=np.int64) if self.added_counts is None else self.added_counts
        weights = np.concatenate([-self.removed_amounts, added])
        ids = np.concatenate([self.removed_ids, np.arange(limit, limit + count, dtype=np.int64)])
        rows = pa.concat_tables([self.removed, self.added])
        return rows.append_column(WEIGHT, pa.array(weights)).append_column(ROW_ID, pa.array(ids))


@dataclass(frozen=True)
class Recovered:
    """What the disk holds: the newest version."""

    version: int
    limit: int
    commit: Commit | None
    views: Views


class Journal:
    """The folder of one table. One writer; a read-only journal never writes anything."""

    def __init__(self, folder: Path, *, read_only: bool) -> None:
        self.folder = folder
        self.read_only = read_only
        self.spec = _read_spec(folder)
        self._log = Log(folder, read_only=read_only)
        self._snapshot_seqs = sorted(snapshots.seq_of(path) for path in snapshots.paths(folder))
        self._since_snapshot = 0
        self._readers: dict[str, int] = _read_json(folder / _READERS, {})
        self._readers_lock = Lock()
        if not read_only:
            # A crash while a file was written aside leaves it behind.
            for left in folder.glob(f"*{_ASIDE}"):
                left.unlink()

    @staticmethod
    def create(folder: Path, spec: TableSpec) -> None:
        """Make the folder of a new, empty table; it exists whole or not at all."""
        aside = folder.with_name(f".new-{folder.name}")
        if aside.exists():
            _remove_folder(aside)
        aside.mkdir(mode=0o700)
        _write_json(aside / _DESCRIPTION, _spec_to_json(spec))
        aside.rename(folder)
        sync_folder(folder.parent)

    def recover(self) -> Recovered:
        """The newest version: the newest good snapshot, and the log since."""
        snapshot = snapshots.newest(self.folder)
        views: Views = ()
        version, limit, commit, seq = 0, 0, None, 0
        if snapshot is not None:
            header = snapshot.header
            version, limit, commit = header["version"], header["limit"], _commit_from(header["commit"])
            seq = snapshot.seq
            stored = [batch.select(_physical(batch)) for batch in snapshot.batches]
            aligned = [_one_batch(align(batch, self.spec.schema, self.spec.name)) for batch in stored]
            views = snapshots.to_views(snapshot, aligned)
        bodies = []
        for frame in self._log.replay(seq):
            version, limit = frame.header["version"], frame.header["limit"]
            commit = _commit_from(frame.header["commit"])
            rows = frame.rows()
            if rows is not None:
                bodies.append(rows)
            self._since_snapshot += frame.end - frame.offset
        return Recovered(version, limit, commit, self._replayed(views, bodies))

    def _replayed(self, views: Views, bodies: list[pa.Table]) -> Views:
        """All records at once: every added row, then every removal; row ids make the order irrelevant."""
        if not bodies:
            return views
        schema = self.spec.schema
        weights = np.concatenate([body.column(WEIGHT).to_numpy() for body in bodies])
        ids = np.concatenate([body.column(ROW_ID).to_numpy() for body in bodies])
        added = []
        for body in bodies:
            fresh = body.filter(pa.compute.greater(body.column(WEIGHT), 0))
            added.append(align(fresh.select(_physical(fresh)), schema, self.spec.name))
        grown = weights > 0
        fresh_ids = ids[grown]
        if len(fresh_ids):
            rows = pa.concat_tables(added)
            views += make_views(to_batches(rows), int(fresh_ids[0]), weights[grown])
        return compact(subtract(views, ids[~grown], -weights[~grown]))

    # --- writing ------------------------------------------------------------------------------------

    def record(self, change: Change, version: int, limit: int, commit: Commit, base: int) -> None:
        """Make one commit durable; raises TableError and keeps nothing of it when the disk refuses."""
        body = None if change.empty else change.body(limit)
        header = {
            "version": version,
            "limit": limit + change.added.num_rows,
            "commit": commit_to_json(commit),
        }
        self._log.append(header, body, base)
        self._since_snapshot += 0 if body is None else body.nbytes

    def snapshot_due(self, nbytes: int) -> bool:
        """Whether the log since the last snapshot outgrew twice the table."""
        return self._since_snapshot > max(_SNAPSHOT_BYTES, 2 * nbytes)

    def snapshot(self, version: int, limit: int, commit: Commit | None, views: Views) -> None:
        """Write all rows, then let go of snapshots and log files that nothing needs any more."""
        header: dict[str, Any] = {
            "seq": self._log.last,
            "version": version,
            "limit": limit,
            "commit": None if commit is None else commit_to_json(commit),
        }
        snapshots.write(self.folder, header, views)
        self._since_snapshot = 0
        self._log.rotate(version)
        self._snapshot_seqs = sorted({*self._snapshot_seqs, header["seq"]})
        self._trim(version)

    def _trim(self, version: int) -> None:
        """Keep two snapshots, the log since the older, and the changes that readers may still ask for."""
        while len(self._snapshot_seqs) > 2:
            gone = self._snapshot_seqs.pop(0)
            (self.folder / f"snapshot-{gone:016d}.frames").unlink(missing_ok=True)
        options = self.spec.options
        keep_versions = int(options.get("changes.keep.versions", _KEEP_VERSIONS))
        keep_bytes = int(options.get("changes.keep.bytes", _KEEP_BYTES))
        wanted = min([version - keep_versions, *self._readers.values()])
        if len(self._snapshot_seqs) < 2:
            return
        older = self._snapshot_seqs[0]
        self._log.trim(older, wanted)
        # Readers that lag hold the log back only up to a size.
        sizes = self._log.sizes()
        while (
            len(sizes) > 1 and sum(size for _, size in sizes) > keep_bytes and sizes[1][0].first <= older + 1
        ):
            self._log.trim(older, sizes[1][0].base)
            sizes = self._log.sizes()

    def write_spec(self, spec: TableSpec) -> None:
        """Replace the description durably, for a schema that widened."""
        _write_json(self.folder / _DESCRIPTION, _spec_to_json(spec))
        self.spec = spec

    def close(self) -> None:
        """Let go of files."""
        self._log.close()

    # --- readers of changes -------------------------------------------------------------------------

    def register(self, reader: str, version: int) -> None:
        """Keep changes after `version` for `reader`, until it moves on or is released."""
        with self._readers_lock:
            self._readers = {**self._readers, reader: version}
            self._save_readers()

    def release(self, reader: str) -> None:
        """Stop keeping changes for `reader`."""
        with self._readers_lock:
            self._readers = {name: at for name, at in self._readers.items() if name != reader}
            self._save_readers()

    def _save_readers(self) -> None:
        # Not synced: after a power failure each reader registers again, from its own record.
        if not self.read_only:
            aside = (self.folder / _READERS).with_suffix(_ASIDE)
            aside.write_text(json.dumps(self._readers))
            aside.rename(self.folder / _READERS)

    @property
    def readers(self) -> dict[str, int]:
        """Registered readers and the version that each has."""
        return dict(self._readers)

    def changes(self, after: int, upto: int) -> pa.Table:
        """Physical rows with `_weight`, of the commits after version `after` up to `upto`, in order."""
        pieces = [rows for _, rows in self.changes_by_version(after, upto)]
        return pa.concat_tables(pieces) if pieces else self._change_schema.empty_table()

    def changes_by_version(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        """The same, one version after the other."""
        for frame in self._log.between(after, upto, self.spec.name):
            rows = frame.rows()
            if rows is not None:
                physical = rows.drop_columns([ROW_ID])
                yield frame.header["version"], align(physical, self._change_schema, self.spec.name)

    @property
    def _change_schema(self) -> pa.Schema:
        return self.spec.schema.append(pa.field(WEIGHT, pa.int64()))

    @property
    def oldest_change(self) -> int:
        """The oldest version after which all changes are still kept."""
        return self._log.oldest

    @property
    def disk_bytes(self) -> int:
        """Bytes on disk."""
        try:
            with os.scandir(self.folder) as entries:
                return sum(entry.stat().st_size for entry in entries)
        except FileNotFoundError:
            # The writer removed a file in between, or the table was dropped.
            return sum(size for _, size in self._log.sizes()) if self.folder.is_dir() else 0


def _physical(rows: pa.Table | pa.RecordBatch) -> list[str]:
    return [name for name in rows.schema.names if name not in (WEIGHT, ROW_ID)]


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    return rows.combine_chunks().to_batches()[0]


def commit_to_json(commit: Commit) -> dict[str, Any]:
    """A commit as the log's header holds it."""
    return {
        "checkpoint": commit.checkpoint,
        "batch": commit.batch,
        "offsets": {source: dict(offset) for source, offset in commit.offsets.items()},
        "at": commit.at.isoformat(),
        "extra": dict(commit.extra),
    }


def _commit_from(data: dict[str, Any] | None) -> Commit | None:
    if data is None:
        return None
    return Commit(
        data["checkpoint"], data["batch"], data["offsets"], datetime.fromisoformat(data["at"]), data["extra"]
    )


def _spec_to_json(spec: TableSpec) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "name": spec.name,
        "key": list(spec.key),
        "options": spec.options,
        "datasource_type": spec.datasource_type,
        "owner": spec.owner,
        "schema": base64.b64encode(spec.schema.serialize().to_pybytes()).decode(),
    }


def _read_spec(folder: Path) -> TableSpec:
    path = folder / _DESCRIPTION
    data = _read_json(path, None)
    if data is None:
        raise CorruptDataError(f'file "{path}" is missing')
    if data.get("format") != FORMAT:
        raise DataDirError(
            f'table in "{folder}" has format {data.get("format")}; this version reads {FORMAT}'
        )
    return TableSpec(
        name=data["name"],
        schema=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(data["schema"]))),
        key=tuple(data["key"]),
        options=data["options"],
        datasource_type=data["datasource_type"],
        owner=data["owner"],
    )


def with_schema(spec: TableSpec, schema: pa.Schema) -> TableSpec:
    """The same table with another schema."""
    return replace(spec, schema=schema)


def _read_json(path: Path, default: Any) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return default
    except ValueError as exc:
        raise CorruptDataError(f'file "{path}" is damaged', detail=str(exc)) from exc


def _write_json(path: Path, data: dict[str, Any]) -> None:
    aside = path.with_suffix(_ASIDE)
    with aside.open("w") as file:
        json.dump(data, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
    sync_folder(path.parent)


def _remove_folder(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
