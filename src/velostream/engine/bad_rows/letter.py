"""The columns of a dead letter, and the table `dead_letters`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import UnknownNameError
from velostream.model import columns
from velostream.model.changes import Commit
from velostream.model.tables import DEAD_LETTERS, TableSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from velostream.serving.contract.table import Table
    from velostream.serving.table.store import TableStore

NAME = DEAD_LETTERS
KEY = "letter"
EDITION, INPUT, POSITION = columns.LETTER_JOB, columns.LETTER_INPUT, columns.LETTER_POSITION
ROW, BATCH = columns.LETTER_ROW, columns.LETTER_BATCH
SCHEMA = pa.schema(
    [
        (KEY, pa.int64()),
        ("job", pa.string()),
        ("kind", pa.string()),
        ("reason", pa.string()),
        ("source", pa.string()),
        ("partition", pa.string()),
        ("offset", pa.string()),
        ("raw", pa.binary()),
        ("event_time", pa.timestamp("us", tz="UTC")),
        ("at", pa.timestamp("us", tz="UTC")),
        (EDITION, pa.string()),
        (INPUT, pa.string()),
        (POSITION, pa.string()),
        (ROW, pa.binary()),
        (BATCH, pa.int64()),
    ]
)
_MIGRATED = 1
"""Edition of the table in directories whose first had no numbers."""


@dataclass(frozen=True)
class Letter:
    """One dead letter, with what a replay needs."""

    number: int
    job: str
    kind: str | None
    reason: str
    edition: str | None
    input: str | None
    position: str | None
    row: bytes | None
    raw: bytes
    offset: str

    @classmethod
    def all(cls, rows: pa.Table) -> Iterator[Letter]:
        """The letters of rows of the table, hidden columns included."""
        names = (KEY, "job", "kind", "reason", EDITION, INPUT, POSITION, ROW, "raw", "offset")
        for values in zip(*(rows[name].to_pylist() for name in names), strict=True):
            yield cls(*values)


def edition(tables: Path) -> int:
    """The current edition of the table in a data directory: 0 until a migration has completed."""
    old, new = tables / NAME, tables / f"{NAME}@{_MIGRATED}"
    return _MIGRATED if new.is_dir() and not old.is_dir() else 0


def letters_table(store: TableStore) -> Table:
    """The table, created if it does not exist; one of an earlier version is migrated."""
    spec = TableSpec(NAME, SCHEMA, (KEY,), datasource_type="dead letters")
    if NAME not in store.names():
        return store.create(spec)
    table = store.open(NAME)
    if table.spec.key:
        if table.spec.schema != SCHEMA:
            table.evolve(SCHEMA)
        return table
    # The new table is complete before the old one is dropped: after a crash the migration starts again.
    with suppress(UnknownNameError):
        store.drop(NAME, edition=_MIGRATED)
    made = store.create(spec, edition=_MIGRATED)
    rows = table.snapshot()
    if rows.num_rows:
        commit = Commit("migration", 0, {}, datetime.now(UTC), {"next": rows.num_rows + 1})
        made.commit_keyed(_numbered(rows), None, commit)
    store.publish(NAME, _MIGRATED)
    store.drop(NAME, edition=0)
    return made


def _numbered(rows: pa.Table) -> pa.Table:
    """Letters of an earlier version with numbers, the oldest first; columns they did not have are null."""
    rows = rows.sort_by([("at", "ascending")])
    arrays: list[Any] = []
    for each in SCHEMA:
        if each.name == KEY:
            arrays.append(pa.array(range(1, rows.num_rows + 1), pa.int64()))
        elif each.name in rows.schema.names:
            arrays.append(rows[each.name].cast(each.type))
        else:
            arrays.append(pa.nulls(rows.num_rows, each.type))
    return pa.table(arrays, schema=SCHEMA)
