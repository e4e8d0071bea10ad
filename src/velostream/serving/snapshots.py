"""Snapshots: all rows of one version in one file, written aside and renamed into place."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from velostream.errors import CorruptDataError
from velostream.serving.frames import FrameFile, encode
from velostream.serving.log import sync_folder
from velostream.serving.segments import Segment, SegmentView, Views, narrowed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROW_ID = "_rowid"
COUNT = "_weight"

_NAME = re.compile(r"snapshot-(\d{16})\.frames")


@dataclass(frozen=True)
class Snapshot:
    """What a snapshot file says: the rows, and the record of the log that it contains last."""

    seq: int
    header: dict[str, Any]
    batches: tuple[pa.RecordBatch, ...]


def write(folder: Path, header: dict[str, Any], views: Views) -> Path:
    """Write the rows durably; `header["seq"]` names the newest log record that they contain."""
    path = folder / f"snapshot-{header['seq']:016d}.frames"
    aside = path.with_suffix(".new")
    position = 0
    with aside.open("wb") as file:
        for part in _frames(header, views):
            for piece in encode(*part, position):
                position += file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    aside.chmod(0o600)
    aside.rename(path)
    sync_folder(folder)
    return path


def _frames(header: dict[str, Any], views: Views) -> Iterator[tuple[dict[str, Any], pa.Table | None]]:
    yield {"kind": "snapshot", **header}, None
    rows = 0
    for view in views:
        counts = view.live_counts()
        batch = view.live_batch()
        ids = pa.array(view.live_ids())
        weights = pa.array(np.ones(len(ids), dtype=np.int64) if counts is None else counts.astype(np.int64))
        table = pa.Table.from_batches([batch]).append_column(ROW_ID, ids).append_column(COUNT, weights)
        rows += len(ids)
        yield {"kind": "rows"}, table
    yield {"kind": "end", "rows": rows}, None


def read(path: Path) -> Snapshot:
    """Read and check a snapshot; raises CorruptDataError naming the file and the byte."""
    header: dict[str, Any] | None = None
    batches: list[pa.RecordBatch] = []
    ended = False
    for frame in FrameFile(path).frames():
        kind = frame.header["kind"]
        if kind == "snapshot":
            header = frame.header
        elif kind == "end":
            ended = frame.header["rows"] == sum(batch.num_rows for batch in batches)
        else:
            rows = frame.rows()
            batches.extend(rows.to_batches() if rows is not None else [])
    if header is None or not ended:
        raise CorruptDataError(f'file "{path}" is incomplete at byte {path.stat().st_size}')
    return Snapshot(header["seq"], header, tuple(batch for batch in batches if batch.num_rows))


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


def newest(folder: Path) -> Snapshot | None:
    """The newest snapshot that is whole; None when there is none at all.

    Raises the newest one's CorruptDataError when there are snapshots but all are damaged.
    """
    damage: CorruptDataError | None = None
    for path in paths(folder):
        try:
            return read(path)
        except CorruptDataError as exc:
            damage = damage or exc
    if damage is not None:
        raise damage
    return None


def to_views(snapshot: Snapshot, batches: list[pa.RecordBatch]) -> Views:
    """The rows of a snapshot as segments; `batches` are its rows in the table's present schema."""
    views = []
    for stored, batch in zip(snapshot.batches, batches, strict=True):
        ids = stored.column(ROW_ID).to_numpy()
        counts = stored.column(COUNT).to_numpy()
        first = int(ids[0])
        dense = int(ids[-1]) - first + 1 == len(ids)
        segment = Segment(batch, first, None if dense else ids)
        views.append(SegmentView(segment, narrowed(counts)))
    return tuple(views)
