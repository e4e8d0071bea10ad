"""Snapshots: all rows of one version in one file, written aside and renamed into place."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from velostream.disk.framing import encode
from velostream.disk.full_disk import storing
from velostream.disk.sealed_json import sync_folder
from velostream.errors import CorruptDataError
from velostream.model.columns import ROW_ID, WEIGHT
from velostream.serving.columns.dictionaries import for_disk
from velostream.serving.columns.segments import Segment, SegmentView, Views, narrowed
from velostream.serving.durable.damage import corrupt, table_frames
from velostream.serving.durable.log import foreign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

COUNT = WEIGHT

_NAME = re.compile(r"snapshot-(\d{16})\.frames")
_FRAME_BYTES = 128 << 20
"""Rows are written in frames of about this size, which bounds memory."""
SYNC_BYTES = 8 << 20
"""The most bytes waiting to be synced: a commit that syncs meanwhile has to wait for all of them."""


class StoppedError(Exception):
    """The table is closing: the snapshot was aborted."""


@dataclass(frozen=True)
class Snapshot:
    """The content of a snapshot file: the rows, and the newest log record that they contain."""

    seq: int
    header: dict[str, Any]
    batches: tuple[pa.RecordBatch, ...]


def write(
    folder: Path, header: dict[str, Any], views: Views, stopped: Callable[[], bool] = lambda: False
) -> Path:
    """Write the rows durably; `header["seq"]` is the newest log record that they contain.

    Raises StoppedError soon after `stopped` returns true. Whatever is raised, no file is left behind.
    """
    path = path_of(folder, header["seq"])
    aside = path.with_suffix(".new")
    with storing(path):
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            try:
                position = 0
                for part in _frames(header, views):
                    position += _write(descriptor, encode(*part, position), stopped)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            aside.rename(path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        sync_folder(folder)
    return path


def _write(descriptor: int, parts: list[bytes | pa.Buffer], stopped: Callable[[], bool]) -> int:
    total = 0
    waiting = 0
    for part in parts:
        view = memoryview(part)
        while view.nbytes:
            if stopped():
                raise StoppedError
            written = os.write(descriptor, view[:SYNC_BYTES])
            view = view[written:]
            total += written
            waiting += written
            if waiting >= SYNC_BYTES:
                os.fdatasync(descriptor)
                waiting = 0
    return total


def _frames(header: dict[str, Any], views: Views) -> Iterator[tuple[dict[str, Any], pa.Table | None]]:
    yield {"kind": "snapshot", **header}, None
    rows = 0
    for view in views:
        for piece in _pieces(view):
            rows += piece.num_rows
            yield {"kind": "rows"}, piece
    yield {"kind": "end", "rows": rows}, None


def _pieces(view: SegmentView) -> Iterator[pa.Table]:
    """The live rows of a segment with ids and counts, in parts of bounded size."""
    batch = view.segment.batch
    step = max(1, batch.num_rows * _FRAME_BYTES // max(1, batch.nbytes))
    ids = view.segment.all_ids()
    for start in range(0, batch.num_rows, step):
        rows = batch.slice(start, step)
        here = ids[start : start + step]
        counts = np.ones(len(here), dtype=np.int64)
        if view.counts is not None:
            counts = view.counts[start : start + step].astype(np.int64)
            live = counts != 0
            rows, here, counts = rows.filter(pa.array(live)), here[live], counts[live]
        if len(here):
            table = for_disk(pa.Table.from_batches([rows]))
            yield table.append_column(ROW_ID, pa.array(here)).append_column(COUNT, pa.array(counts))


def check(path: Path, stopped: Callable[[], bool]) -> None:
    """Raise CorruptDataError when a snapshot is damaged; StoppedError soon after `stopped` returns true."""
    read(path, stopped)


def read(path: Path, stopped: Callable[[], bool] = lambda: False, of: str | None = None) -> Snapshot:
    """Read and verify a snapshot; raises CorruptDataError naming the file and the byte.

    `of`: the id of the table that it must belong to.
    """
    header: dict[str, Any] | None = None
    batches: list[pa.RecordBatch] = []
    ended = False
    reader = table_frames(path)
    for frame in reader.frames():
        if stopped():
            raise StoppedError
        kind = frame.header["kind"]
        if kind == "snapshot":
            header = frame.header
        elif kind == "end":
            ended = frame.header["rows"] == sum(batch.num_rows for batch in batches)
        else:
            rows = frame.rows()
            batches.extend(rows.to_batches() if rows is not None else [])
    if header is None or not ended or reader.torn_at is not None:
        raise corrupt(f'file "{path}" is incomplete at byte {path.stat().st_size}')
    if foreign(header, of):
        raise corrupt(f'file "{path}" is of another table')
    if header["seq"] != seq_of(path):
        raise corrupt(f'file "{path}" has a wrong name', f"it holds record {header['seq']} last")
    return Snapshot(header["seq"], header, tuple(batch for batch in batches if batch.num_rows))


def path_of(folder: Path, seq: int) -> Path:
    """The path of the snapshot whose newest record is `seq`."""
    return folder / f"snapshot-{seq:016d}.frames"


def paths(folder: Path) -> list[Path]:
    """The snapshot files, newest first."""
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    return sorted(found, reverse=True)


def seq_of(path: Path) -> int:
    """The newest log record that a snapshot contains, from its name."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise CorruptDataError(f'file "{path}" is not a snapshot')
    return int(match[1])


def to_views(snapshot: Snapshot, batches: list[pa.RecordBatch]) -> Views:
    """The rows of a snapshot as segments; `batches` are its rows in the table's current schema."""
    views = []
    for stored, batch in zip(snapshot.batches, batches, strict=True):
        ids = stored.column(ROW_ID).to_numpy()
        counts = stored.column(COUNT).to_numpy()
        first = int(ids[0])
        dense = int(ids[-1]) - first + 1 == len(ids)
        segment = Segment(batch, first, None if dense else ids)
        views.append(SegmentView(segment, narrowed(counts)))
    return tuple(views)
