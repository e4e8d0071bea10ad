"""Recovery of a table: the newest good snapshot, then the log since. Nothing is written here."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from velostream.errors import CorruptDataError
from velostream.model.changes import Commit
from velostream.model.columns import ROW_ID, WEIGHT
from velostream.serving.columns.dictionaries import joined, plain, together
from velostream.serving.columns.segments import Counts, Ids, Segment, SegmentView, Views, narrowed, subtract
from velostream.serving.durable import description, snapshots
from velostream.serving.durable.damage import corrupt
from velostream.serving.durable.log import Replay, files_in
from velostream.serving.table.schemas import align, to_batches

if TYPE_CHECKING:
    from pathlib import Path

    from velostream.model.tables import TableSpec
    from velostream.serving.columns.dictionaries import Dictionaries
    from velostream.serving.durable.description import Description

log = logging.getLogger("velostream.serving")

RECORD_WEIGHT = 32 << 10
"""The cost of replaying a record besides its bytes, in bytes: about 0.1 ms; a megabyte takes 1 ms."""


@dataclass(frozen=True)
class Recovered:
    """The newest version on disk."""

    version: int
    limit: int
    commit: Commit | None
    views: Views
    replay: Replay
    weight: int
    """Weight of the records since the snapshot, see `weight_of`."""
    closed: description.Closed
    """The state recorded at the last close."""
    damaged: tuple[Path, ...]
    """Snapshots that could not be read; an older one and the log replaced them."""


def weight_of(size: int) -> int:
    """What a record of so many bytes adds to the work of the next recovery."""
    return size + RECORD_WEIGHT


def recover(
    folder: Path,
    of: Description,
    dictionaries: Dictionaries,
    end: tuple[Path, int] | None = None,
) -> Recovered:
    """The newest version; raises CorruptDataError when the files on disk do not yield it.

    `end`: for a log that is being written, the newest file and how much of it counts.
    """
    damage: CorruptDataError | None = None
    damaged = []
    for path in snapshots.paths(folder):
        try:
            snapshot = snapshots.read(path, of=of.id)
        except CorruptDataError as exc:
            damage = damage or exc
            damaged.append(path)
            continue
        return since(folder, of, snapshot, dictionaries, end, tuple(damaged))
    if damage is not None and not _from_the_start(folder):
        raise damage
    return since(folder, of, None, dictionaries, end, tuple(damaged))


def since(
    folder: Path,
    of: Description,
    snapshot: snapshots.Snapshot | None,
    dictionaries: Dictionaries,
    end: tuple[Path, int] | None = None,
    damaged: tuple[Path, ...] = (),
) -> Recovered:
    """The newest version from this snapshot (None: from an empty table) and the log."""
    spec = of.spec
    views: Views = ()
    written_under = 0
    version, limit, commit, seq = 0, 0, None, 0
    if snapshot is not None:
        header = snapshot.header
        version, limit, commit = header["version"], header["limit"], _commit_from(header["commit"])
        seq = snapshot.seq
        _check_description(folder, of, header.get("description", 0))
        stored = [batch.select(physical(batch)) for batch in snapshot.batches]
        aligned = [
            _one_batch(dictionaries, align(batch, spec.schema, spec.name, stored=True)) for batch in stored
        ]
        views = snapshots.to_views(snapshot, aligned)
    if of.form > 1 and not files_in(folder):
        raise corrupt(f'the log in "{folder}" is missing')
    replay = Replay(folder, of.id, seq, end)
    bodies = []
    weight = 0
    for frame in replay.frames():
        version, limit = frame.header["version"], frame.header["limit"]
        commit = _commit_from(frame.header["commit"])
        rows = frame.rows()
        if rows is not None:
            bodies.append(rows)
        weight += weight_of(frame.end - frame.offset)
        written_under = max(written_under, frame.header.get("description", 0))
    closed = _check_end(folder, of, replay)
    _check_description(folder, of, max(written_under, closed.description))
    views = _applied(views, bodies, spec, dictionaries)
    return Recovered(version, limit, commit, views, replay, weight, closed, damaged)


def _check_description(folder: Path, of: Description, written_under: int) -> None:
    """Raise CorruptDataError if the description is older than one that records were written under."""
    if of.id is not None and written_under > of.number:
        path = folder / description.DESCRIPTION
        raise corrupt(f'file "{path}" is older than the table', "its columns may be others since")


def _from_the_start(folder: Path) -> bool:
    files = files_in(folder)
    return bool(files) and files[0].first == 1


def _check_end(folder: Path, of: Description, replay: Replay) -> description.Closed:
    """Detect a log that lost its end, by the state recorded at the last close; returns that state."""
    try:
        closed = description.read_closed(folder, of.id)
    except CorruptDataError as exc:
        log.warning("%s; it is not needed and will be written again", exc.message)
        return description.Closed()
    if replay.last < closed.seq:
        files = files_in(folder)
        newest = f'file "{files[-1].path}"' if files else f'the log in "{folder}"'
        raise corrupt(
            f"{newest} is cut off",
            f"it ends with record {replay.last}, but record {closed.seq} was there when it was closed",
        )
    return closed


def _applied(views: Views, bodies: list[pa.Table], spec: TableSpec, dictionaries: Dictionaries) -> Views:
    """Apply all records at once: every added row, minus every retraction. Row ids make order irrelevant."""
    if not bodies:
        return views
    runs = _runs(bodies)
    weights = np.concatenate([run.column(WEIGHT).combine_chunks().to_numpy() for run in runs])
    ids = np.concatenate([run.column(ROW_ID).combine_chunks().to_numpy() for run in runs])
    grown = weights > 0
    fresh, counts = ids[grown], weights[grown]
    gone, amounts = ids[~grown], -weights[~grown]
    # New row ids are consecutive from `first` on, so a retraction of a row added in the same records is
    # subtracted by position; only older rows have to be found in the snapshot's segments.
    first = int(fresh[0]) if len(fresh) else int(ids.max()) + 1
    recent = gone >= first
    np.subtract.at(counts, gone[recent] - first, amounts[recent])
    alive = grown.copy()
    alive[grown] = counts > 0
    start = 0
    pieces = []
    for run in runs:
        here = alive[start : start + run.num_rows]
        rows = run if bool(here.all()) else run.filter(pa.array(here))
        pieces += align(rows.select(physical(rows)), spec.schema, spec.name, stored=True).to_batches()
        start += run.num_rows
    views = subtract(views, gone[~recent], amounts[~recent])
    rows = dictionaries.encode(together(pieces, spec.schema))
    return views + _segments(rows, fresh[counts > 0], counts[counts > 0])


def _runs(bodies: list[pa.Table]) -> list[pa.Table]:
    """The records concatenated; in several runs where the schema widened in between."""
    try:
        return [pa.concat_tables(bodies).combine_chunks()]
    except pa.ArrowInvalid:
        # Or where some are dictionary-encoded and others are texts.
        runs = groupby(map(plain, bodies), key=lambda body: body.schema)
        return [pa.concat_tables(list(run)).combine_chunks() for _, run in runs]


def _segments(rows: pa.Table, ids: Ids, counts: Counts) -> Views:
    views = []
    start = 0
    for batch in to_batches(rows):
        here = ids[start : start + batch.num_rows]
        dense = int(here[-1]) - int(here[0]) + 1 == len(here)
        segment = Segment(batch, int(here[0]), None if dense else here)
        views.append(SegmentView(segment, narrowed(counts[start : start + batch.num_rows])))
        start += batch.num_rows
    return tuple(views)


def physical(rows: pa.Table | pa.RecordBatch) -> list[str]:
    """The table's own columns of stored rows."""
    return [name for name in rows.schema.names if name not in (WEIGHT, ROW_ID)]


def _one_batch(dictionaries: Dictionaries, rows: pa.Table) -> pa.RecordBatch:
    return joined(dictionaries.encode(rows).to_batches())


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
