"""Rows from Python in each form that users have them, into a table that is there and into a new one."""

from __future__ import annotations

import tempfile
from dataclasses import make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars

import velostream
from benchmarks.tables import workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.tables.stopwatch import Stopwatch
    from velostream.runtime.instance import Instance

ROWS = 200_000
FORMS = ("dicts", "dicts of different keys", "tuples", "dataclasses", "pandas", "polars")
_TRIES = 3
_NAME = "transactions"


def insert_figure(form: str) -> str:
    return f"insert of {form}"


def create_figure(form: str) -> str:
    return f"create_table of {form}"


def handed_over(watch: Stopwatch) -> None:
    """Insert and create_table of all forms, with a key; a database of its own, without Spark."""
    with (
        tempfile.TemporaryDirectory(prefix="velostream-bench-") as folder,
        velostream.connect(Path(folder) / "data") as database,
    ):
        for form, rows in _forms():
            _measure(watch, database, form, rows)


def _measure(watch: Stopwatch, database: Instance, form: str, rows: Any) -> None:
    columns = {"schema": workload.SCHEMA} if form == "tuples" else {}

    def drop() -> None:
        database.sql(f"DROP TABLE IF EXISTS {_NAME}")

    def empty() -> None:
        drop()
        database.create_table(_NAME, key="txn", schema=workload.SCHEMA)

    watch.measure(
        insert_figure(form), ROWS, lambda: database.table(_NAME).insert(rows), tries=_TRIES, before=empty
    )
    watch.measure(
        create_figure(form),
        ROWS,
        lambda: database.create_table(_NAME, rows, key="txn", **columns),
        tries=_TRIES,
        before=drop,
    )
    drop()


def _forms() -> Iterator[tuple[str, Any]]:
    arrow = workload.transactions(np.arange(ROWS))
    dicts = arrow.to_pylist()
    tuples = [tuple(row.values()) for row in dicts]
    transaction: Any = make_dataclass("Transaction", workload.SCHEMA.names)
    lacking = [{k: v for k, v in row.items() if k != "category" or n % 3} for n, row in enumerate(dicts)]
    made = (
        dicts,
        lacking,
        tuples,
        [transaction(*row) for row in tuples],
        arrow.to_pandas(),
        polars.from_arrow(arrow),
    )
    yield from zip(FORMS, made, strict=True)
