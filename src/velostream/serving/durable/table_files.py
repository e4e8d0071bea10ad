"""The durable form of a table: its description, snapshots, log, and the registered readers of the log."""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import asdict, dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from velostream.disk.full_disk import storing
from velostream.disk.sealed_json import ASIDE, sync_folder
from velostream.errors import CorruptDataError, StorageError
from velostream.model.changes import FORGETS, Commit
from velostream.model.columns import ROW_ID, WEIGHT
from velostream.serving.columns.dictionaries import for_disk, together
from velostream.serving.durable import description, recovery, snapshots
from velostream.serving.durable.log import Log, first_file
from velostream.serving.table.schemas import align

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from velostream.model.tables import TableSpec
    from velostream.serving.columns.dictionaries import Dictionaries
    from velostream.serving.columns.segments import Counts, Ids
    from velostream.serving.durable.description import Description
    from velostream.serving.durable.recovery import Recovered
    from velostream.serving.memory.version import MemoryVersion

log = logging.getLogger("velostream.serving")


SNAPSHOT_BYTES = 16 << 20
"""A log that weighs less than this is not worth a snapshot."""
OVERRUN = 4
"""Backpressure: above so many times the weight that calls for a snapshot, the writer waits for it."""
_KEEP_VERSIONS = 100
_KEEP_BYTES = 256 << 20


@dataclass(frozen=True)
class Change:
    """The effect of one commit: rows retracted, by id, and rows added after them."""

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
        batches = [*self.removed.to_batches(), *self.added.to_batches()]
        rows = for_disk(together(batches, self.added.schema))
        return rows.append_column(WEIGHT, pa.array(weights)).append_column(ROW_ID, pa.array(ids))


@dataclass(frozen=True)
class Cut:
    """The version that a snapshot is to hold, and its log record; later records are in a new file."""

    seq: int
    written: int
    """Weight of all records up to it."""
    version: MemoryVersion


class Journal:
    """The folder of one table. One writer; a read-only journal never writes."""

    def __init__(self, folder: Path, *, read_only: bool) -> None:
        self.folder = folder
        self.read_only = read_only
        self._description = description.read_spec(folder)
        self._log = Log(folder, self._description.id)
        self._snapshot_seqs = sorted(snapshots.seq_of(path) for path in snapshots.paths(folder))
        self._damaged: tuple[Path, ...] = ()
        self._repair = False
        self._written = 0
        self._covered = 0
        """Weight of all records so far, and of those that the newest snapshot holds.

        The writer counts the first, the snapshot thread the second, so that neither waits for the other.
        """
        self._not_below = 0
        """Weight at which a snapshot is tried again after one failed."""
        self._noted = description.Closed()
        """The content of `closed.json`."""
        self._readers: dict[str, int] = {}
        self._readers_lock = Lock()
        try:
            self._readers = description.read_readers(folder, self._description.id)
        except CorruptDataError as exc:
            log.warning("%s; its readers register again, or start afresh from a snapshot", exc.message)
            self._save_readers()
        if not read_only:
            # Leftovers of a crash while a file was written aside.
            for left in folder.glob(f"*{ASIDE}"):
                left.unlink()

    @property
    def spec(self) -> TableSpec:
        """The table's specification."""
        return self._description.spec

    @staticmethod
    def create(folder: Path, spec: TableSpec) -> None:
        """Create the folder of a new, empty table, atomically."""
        aside = folder.with_name(f".new-{folder.name}")
        shutil.rmtree(aside, ignore_errors=True)
        with storing(folder):
            try:
                aside.mkdir(mode=0o700)
                first_file(aside).touch(mode=0o600)
                description.write_spec(aside, spec)
                aside.rename(folder)
            except BaseException:
                shutil.rmtree(aside, ignore_errors=True)
                raise
            sync_folder(folder.parent)

    def recover(self, dictionaries: Dictionaries) -> Recovered:
        """The newest version: the newest good snapshot, and the log since."""
        recovered = recovery.recover(self.folder, self._description, dictionaries)
        self._log.resume(recovered.replay, writing=not self.read_only)
        if self._description.id is None and not self.read_only:
            # A folder of an earlier format: from now on its files carry the table's id.
            self.write_spec(self.spec)
        self._noted = recovered.closed
        self._written = recovered.weight
        self._damaged = recovered.damaged
        self._repair = bool(recovered.damaged)
        gone = {snapshots.seq_of(path) for path in recovered.damaged}
        self._snapshot_seqs = [seq for seq in self._snapshot_seqs if seq not in gone]
        for path in recovered.damaged:
            log.warning('file "%s" is damaged; table "%s" was read from the one before', path, self.spec.name)
        return recovered

    # --- writing ------------------------------------------------------------------------------------

    def record(self, change: Change, version: int, limit: int, commit: Commit, base: int) -> None:
        """Make one commit durable; raises StorageError, and keeps nothing of it, when the disk refuses."""
        body = None if change.empty else change.body(limit)
        header = {
            **_origin(self._description),
            "version": version,
            "limit": limit + change.added.num_rows,
            "commit": recovery.commit_to_json(commit),
        }
        self._written += recovery.weight_of(self._log.append(header, body, base))

    def write_spec(self, spec: TableSpec) -> None:
        """Replace the description durably, for a schema that widened."""
        self._description = description.write_spec(self.folder, spec, self._description)
        self._log.of = self._description.id

    def close(self, *, dropped: bool = False) -> None:
        """Close the files, and record how far the log reaches."""
        now = description.Closed(self._log.last, self._description.number)
        if not self.read_only and not dropped and now != self._noted:
            try:
                of = self._description.id
                description.write(self.folder / description.CLOSED, asdict(now), of=of)
            except StorageError as exc:
                log.warning("%s; only a check is lost", exc.message)
        self._noted = now
        self._log.close()

    # --- snapshots ----------------------------------------------------------------------------------

    def snapshot_due(self, nbytes: int) -> bool:
        """Whether replaying the log costs more than reading the table, or a snapshot has to be replaced."""
        if self.read_only:
            return False
        return self._repair or self._weight > max(SNAPSHOT_BYTES, nbytes, self._not_below)

    def overrun(self, nbytes: int) -> bool:
        """Whether the log weighs several times what should have triggered a snapshot."""
        return self._weight > OVERRUN * max(SNAPSHOT_BYTES, nbytes)

    @property
    def _weight(self) -> int:
        """Weight of the records since the newest snapshot."""
        return self._written - self._covered

    def cut(self, version: MemoryVersion) -> Cut | None:
        """Let the log go on in a new file after `version`, the newest; None when a snapshot holds it already.

        Quick, and the only part of a snapshot that the writer has to wait for.
        """
        seq = self._log.last
        if self._snapshot_seqs and self._snapshot_seqs[-1] == seq:
            return None
        self._log.rotate(version.number)
        return Cut(seq, self._written, version)

    def snapshot(self, cut: Cut, stopped: Callable[[], bool]) -> None:
        """Write all rows, then delete snapshots and log files that are no longer needed.

        Commits may continue meanwhile, in another thread. A crash anywhere leaves the previous snapshots and
        the whole log since.
        """
        at = cut.version
        header: dict[str, Any] = {
            **_origin(self._description),
            "seq": cut.seq,
            "version": at.number,
            "limit": at.limit,
            "commit": None if at.commit is None else recovery.commit_to_json(at.commit),
        }
        snapshots.write(self.folder, header, at.views, stopped)
        self._snapshot_seqs = sorted({*self._snapshot_seqs, cut.seq})
        self._check_the_one_before(cut.seq, stopped)
        for path in self._damaged:
            if path != snapshots.path_of(self.folder, cut.seq):
                path.unlink(missing_ok=True)
        self._damaged = ()
        self._repair = False
        self._covered = cut.written
        self._not_below = 0
        self._trim(at.number)

    def _check_the_one_before(self, seq: int, stopped: Callable[[], bool]) -> None:
        """Read back the previous snapshot, the fallback for this one, before an older one is deleted.

        It is read by nobody unless the newest is damaged, so damage would go unnoticed. Reading costs less
        than writing one, and nobody waits. If it is damaged it is deleted, and the older one with the log
        since is kept, so that there are always two ways to recover.
        """
        before = [each for each in self._snapshot_seqs if each < seq]
        if not before:
            return
        path = snapshots.path_of(self.folder, before[-1])
        try:
            snapshots.check(path, stopped)
        except (CorruptDataError, StorageError, OSError) as exc:
            log.warning("%s; the snapshot before it is kept instead", exc)
            self._snapshot_seqs.remove(before[-1])
            path.unlink(missing_ok=True)

    def snapshot_failed(self, nbytes: int) -> None:
        """Try again when the log has grown by a quarter of what calls for a snapshot."""
        self._not_below = self._weight + max(SNAPSHOT_BYTES, nbytes) // 4
        self._repair = False

    def _trim(self, version: int) -> None:
        """Keep two snapshots, the log since the older, and the changes that readers may still ask for."""
        while len(self._snapshot_seqs) > 2:
            oldest, *self._snapshot_seqs = self._snapshot_seqs
            snapshots.path_of(self.folder, oldest).unlink(missing_ok=True)
        if len(self._snapshot_seqs) < 2:
            return
        options = self.spec.options
        keep_versions = int(options.get("changes.keep.versions", _KEEP_VERSIONS))
        keep_bytes = int(options.get("changes.keep.bytes", _KEEP_BYTES))
        wanted = min([version - keep_versions, *self._readers.values()])
        self._log.trim(self._snapshot_seqs[0], wanted, keep_bytes)

    # --- readers of changes -------------------------------------------------------------------------

    def register(self, reader: str, version: int) -> None:
        """Keep changes after `version` for `reader`, until it advances or is released."""
        with self._readers_lock:
            self._readers = {**self._readers, reader: version}
            self._save_readers()

    def release(self, reader: str) -> None:
        """Stop keeping changes for `reader` and for its parts, which are named `reader#…`."""
        with self._readers_lock:
            self._readers = {n: at for n, at in self._readers.items() if n.partition("#")[0] != reader}
            self._save_readers()

    def _save_readers(self) -> None:
        # Not synced: after a power failure each reader registers again, from its own record.
        if self.read_only:
            return
        try:
            content, of = {"readers": self._readers}, self._description.id
            description.write(self.folder / description.READERS, content, of=of, durable=False)
        except StorageError as exc:
            log.warning("%s; readers are known until the end", exc.message)

    @property
    def readers(self) -> dict[str, int]:
        """The registered readers and the version that each has."""
        return dict(self._readers)

    def changes(self, after: int, upto: int, *, forgotten: bool = True) -> pa.Table:
        """Physical rows with `_weight`, of the commits after version `after` up to `upto`, in order.

        `forgotten`: also of commits that only forgot rows (`FORGETS`).
        """
        pieces = [rows for _, rows in self.changes_by_version(after, upto, forgotten=forgotten)]
        return pa.concat_tables(pieces) if pieces else self._change_schema.empty_table()

    def changes_by_version(
        self, after: int, upto: int, *, forgotten: bool = True
    ) -> Iterator[tuple[int, pa.Table]]:
        """Like `changes`, one version at a time."""
        for frame in self._log.between(after, upto, self.spec.name):
            if not forgotten and FORGETS in frame.header["commit"]["extra"]:
                continue
            rows = frame.rows()
            if rows is not None:
                physical = rows.drop_columns([ROW_ID])
                yield frame.header["version"], align(physical, self._change_schema, self.spec.name)

    def only_forgot(self, after: int, upto: int) -> bool:
        """Whether all commits between two versions only forgot rows."""
        frames = self._log.between(after, upto, self.spec.name)
        return all(FORGETS in frame.header["commit"]["extra"] for frame in frames)

    @property
    def _change_schema(self) -> pa.Schema:
        return self.spec.schema.append(pa.field(WEIGHT, pa.int64()))

    # --- what is there ------------------------------------------------------------------------------

    @property
    def end(self) -> tuple[Path, int] | None:
        """The newest log file and how much of it is durable, while it is written."""
        return self._log.end

    @property
    def disk_bytes(self) -> int:
        """Bytes on disk."""
        try:
            with os.scandir(self.folder) as entries:
                return sum(entry.stat().st_size for entry in entries)
        except FileNotFoundError:
            # The writer deleted a file meanwhile, or the table was dropped.
            return sum(size for _, size in self._log.sizes()) if self.folder.is_dir() else 0


def _origin(of: Description) -> dict[str, Any]:
    """The identity of a record: its table, and the description it was written under."""
    return {"of": of.id, "description": of.number}


def with_schema(spec: TableSpec, schema: pa.Schema) -> TableSpec:
    """The same table with another schema."""
    return replace(spec, schema=schema)
