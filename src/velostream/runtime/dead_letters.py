"""Rows that could not be used, kept with their reason in a table that anyone can query."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.errors import SinkConfigError, SourceDataError
from velostream.model.changes import BadRow, Commit
from velostream.model.tables import TableSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from velostream.model.options import CommonOptions
    from velostream.runtime.outputs import JobOutput
    from velostream.serving.store import TableStore

NAME = "dead_letters"
SCHEMA = pa.schema(
    [
        ("job", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("reason", pa.string()),
        ("source", pa.string()),
        ("partition", pa.string()),
        ("offset", pa.string()),
        ("raw", pa.binary()),
    ]
)


class DeadLetters:
    """The table `dead_letters`, written by all jobs."""

    def __init__(self, store: TableStore) -> None:
        if NAME in store.names():
            self.table = store.open(NAME)
        else:
            self.table = store.create(TableSpec(NAME, SCHEMA, datasource_type="dead letters"))
        self._lock = Lock()

    def keep(self, job: str, stage: str, start: str, rows: Iterable[BadRow], at: datetime) -> int:
        """Keep the bad rows that one stage of a batch found; returns their number.

        A batch that begins at `start` like the last one is another attempt at it, perhaps with a later end:
        it adds what the earlier attempts did not.
        """
        with self._lock:
            last = self.table.last_commit
            batches = dict(last.extra.get("batches", {})) if last is not None else {}
            step = f"{job} {stage}"
            attempt = batches.get(step) or {}
            before = Counter[BadRow]()
            if attempt.get("start") == start:
                before = self._kept(job, datetime.fromisoformat(attempt["at"]))
            else:
                attempt = {"start": start, "at": at.isoformat()}
            kept = [row for row in rows if not _counted_off(before, row)]
            if not kept:
                return 0
            values = [(job, at, row.reason, row.source, row.partition, row.offset, row.raw) for row in kept]
            columns = [
                pa.array(column, f.type) for column, f in zip(zip(*values, strict=True), SCHEMA, strict=True)
            ]
            commit = Commit(
                checkpoint=job,
                batch=(last.batch + 1) if last is not None else 0,
                offsets={},
                at=at,
                extra={"batches": batches | {step: attempt}},
            )
            self.table.commit_rows(pa.table(columns, schema=SCHEMA), None, commit)
            return len(kept)

    def keep_now(self, job: str, stage: str, start: str, rows: Iterable[BadRow]) -> int:
        """As `keep`, at this moment."""
        return self.keep(job, stage, start, rows, datetime.now(UTC))

    def _kept(self, job: str, since: datetime) -> Counter[BadRow]:
        rows = self.table.snapshot().to_pylist()
        return Counter(
            BadRow(row["reason"], row["source"], row["partition"], row["offset"], row["raw"])
            for row in rows
            if row["job"] == job and row["at"] >= since
        )


def _counted_off(counts: Counter[BadRow], row: BadRow) -> bool:
    if counts[row] <= 0:
        return False
    counts[row] -= 1
    return True


def keep_as_told(
    letters: DeadLetters | None, job: str, options: CommonOptions, stage: str, start: str, rows: list[BadRow]
) -> None:
    """Do with bad rows of a source what the statement says; see `DeadLetters.keep`."""
    if not rows:
        return
    if options.on_error == "fail":
        first = rows[0]
        raise SourceDataError(
            f"{first.source}: {first.reason}",
            detail=f"at {first.partition} {first.offset}",
            hint='keep such rows aside instead: WITH ("on.error" = "dead_letter")',
        )
    if options.on_error == "dead_letter" and letters is not None:
        letters.keep(job, stage, start, rows, datetime.now(UTC))


class Refused:
    """Does what a statement says with rows that its sink can never take."""

    def __init__(self, job: str, options: CommonOptions, letters: DeadLetters | None) -> None:
        self._job = job
        self._options = options
        self._letters = letters
        self.output: JobOutput | None = None
        """Whose positions tell one attempt at a batch from the next batch."""

    def __call__(self, rows: list[BadRow]) -> None:
        """Keep, skip, or fail."""
        if self._options.on_error == "fail":
            raise SinkConfigError(
                f"{rows[0].source}: {rows[0].reason}",
                hint='keep such rows aside instead: WITH ("on.error" = "dead_letter")',
            )
        if self._options.on_error == "dead_letter" and self._letters is not None:
            start = self.output.offsets if self.output is not None else None
            self._letters.keep(self._job, "writing", f"{start}", rows, datetime.now(UTC))
