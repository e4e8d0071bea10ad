"""Rows that could not be used, kept with their reason in a table that anyone can query."""

from __future__ import annotations

import copy
import logging
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from threading import RLock
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.bad_rows.letter import BATCH, EDITION, KEY, NAME, POSITION, ROW, SCHEMA, letters_table
from velostream.errors import SinkConfigError, SourceDataError
from velostream.model.changes import BadRow, Commit
from velostream.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from velostream.engine.outputs.outputs import JobOutput
    from velostream.model.options import CommonOptions
    from velostream.serving.table.store import TableStore

log = logging.getLogger("velostream.dead_letters")

__all__ = ["NAME", "SCHEMA", "DeadLetters", "Refused", "keep_as_told"]

KINDS = {
    "decoding": "decode",
    "computing": "compute",
    "deriving": "compute",
    "summing": "overflow",
    "writing": "write",
    "late": "late",
}
"""What the column `kind` says of what each stage of a batch finds."""
_FOUND_ANEW = ("decoding", "deriving", "computing", "writing")
"""Stages whose letters an attempt at a batch keeps anew: all before the sink is offered its rows, and what
that refuses after."""
_PER_LETTER = 300
"""Bytes of a letter besides its texts, estimated."""
_ROOM = 0.9
"""When there are too many letters, so much of what is allowed is left."""


@dataclass
class _Shared:
    """What all views of the table know."""

    lock: RLock = field(default_factory=RLock)
    next: int = 1
    bytes: int = 0
    oldest: datetime | None = None
    kept: Counter[tuple[str, str]] = field(default_factory=Counter)
    counted: tuple[int, Mapping[tuple[str, str], int]] = (-1, {})
    told: Callable[[], None] = lambda: None


class DeadLetters:
    """The table `dead_letters`, written by all jobs; `of_job` is one job's view of it."""

    def __init__(
        self,
        store: TableStore,
        *,
        retention: timedelta = timedelta(0),
        most_bytes: int | None = None,
    ) -> None:
        self.table = letters_table(store)
        self._retention = retention
        self._most_bytes = most_bytes
        self._edition = ""
        self._part = ""
        self._attempt: set[int] = set()
        """Letters that the attempt in hand has told of."""
        self._doubtful = True
        """Whether an attempt that was not committed may have left letters of the batch that comes."""
        self._shared = _Shared()
        self._measure()

    def of_job(self, job_id: str, part: str = "") -> DeadLetters:
        """The same table for one piece of a job's work: letters have the job's id, attempts are its own.

        `part` tells pieces apart that begin at equal positions; the one that writes the result has none.
        """
        view = copy.copy(self)
        view._part = part  # noqa: SLF001
        view._edition, view._attempt, view._doubtful = job_id, set(), True  # noqa: SLF001
        return view

    def when_kept(self, told: Callable[[], None]) -> None:
        """Have somebody told after letters were kept."""
        self._shared.told = told

    # --- keeping ----------------------------------------------------------------------------------------

    def keep(self, job: str, stage: str, start: str, rows: Iterable[BadRow], at: datetime) -> int:
        """Keep the bad rows that one stage of a batch found; returns how many were not kept before.

        A batch that begins at `start` like the last one is another attempt at it, perhaps with a later end:
        it adds what the earlier attempts did not.
        """
        with self._shared.lock:
            batch = self._batch(job, stage, start)
            before = self._before([batch])
            new: list[tuple[Any, ...]] = []
            for row in rows:
                found = before.get(_identity(row))
                if found:
                    self._attempt.add(found.pop())
                    continue
                number = self._shared.next
                self._shared.next += 1
                self._attempt.add(number)
                new.append(self._values(number, job, stage, batch, row, at))
            if not new:
                return 0
            self._doubtful = True
            columns = [
                pa.array(column, f.type) for column, f in zip(zip(*new, strict=True), SCHEMA, strict=True)
            ]
            table = pa.table(columns, schema=SCHEMA)
            self.table.commit_keyed(table, None, self._commit(job, at))
            self._shared.bytes += _size(table)
            self._shared.oldest = self._shared.oldest or at
            self._shared.kept.update(zip(table["job"].to_pylist(), table["kind"].to_pylist(), strict=True))
        self.expire(at)
        self._shared.told()
        return len(new)

    def keep_now(self, job: str, stage: str, start: str, rows: Iterable[BadRow]) -> int:
        """As `keep`, at this moment."""
        return self.keep(job, stage, start, rows, datetime.now(UTC))

    def _values(
        self, number: int, job: str, stage: str, batch: int, row: BadRow, at: datetime
    ) -> tuple[Any, ...]:
        kind = row.kind or KINDS.get(stage, stage)
        where = (row.source, row.partition, row.offset, row.raw, row.event_time, at)
        return (
            number,
            job,
            kind,
            redact(row.reason),
            *where,
            self._edition,
            row.input,
            row.position,
            row.row,
            batch,
        )

    def _batch(self, job: str, stage: str, start: str) -> int:
        told = f"{self._edition}\0{self._part}\0{job}\0{stage}\0{start}"
        return int.from_bytes(blake2b(told.encode(), digest_size=8).digest(), "big", signed=True)

    def _before(self, batches: list[int]) -> dict[tuple[Any, ...], list[int]]:
        """Letters of these batches, by what tells them apart; the cost follows these letters."""
        found: dict[tuple[Any, ...], list[int]] = {}
        rows = self.table.version_object.physical_where((BATCH,), pa.table({BATCH: batches}))
        names = (KEY, "source", "partition", "offset", "raw", POSITION)
        for number, *identity in zip(*(rows[name].to_pylist() for name in names), strict=True):
            found.setdefault(tuple(identity), []).append(number)
        return found

    # --- attempts at a batch ----------------------------------------------------------------------------

    def left_over(self, job: str, start: str) -> bool:
        """Whether an attempt at this batch that was never committed left letters; begins another attempt."""
        self._attempt.clear()
        if not self._doubtful:
            return False
        with self._shared.lock:
            found = self._before([self._batch(job, stage, start) for stage in KINDS])
        self._doubtful = bool(found)
        return self._doubtful

    def settle(self, job: str, start: str) -> None:
        """Remove what earlier attempts kept of this batch and the one in hand, which can use it, does not.

        To be called before the batch is written: its rows would be there, and their letters too.
        """
        with self._shared.lock:
            batches = [self._batch(job, stage, start) for stage in _FOUND_ANEW]
            stale = {n for numbers in self._before(batches).values() for n in numbers} - self._attempt
            self._remove(pa.table({KEY: pa.array(sorted(stale), pa.int64())}), datetime.now(UTC))

    def committed(self) -> None:
        """The batch in hand is part of the result."""
        self._doubtful = False

    def uncommitted(self, job: str, start: str) -> set[int]:
        """The letters of a batch that has not been committed: it will be tried again by itself."""
        with self._shared.lock:
            batches = [self._batch(job, stage, start) for stage in KINDS]
            return {number for numbers in self._before(batches).values() for number in numbers}

    # --- letters that leave -----------------------------------------------------------------------------

    def chosen(self, numbers: Iterable[int]) -> pa.Table:
        """The letters with these numbers, hidden columns included."""
        keys = pa.table({KEY: pa.array(sorted(numbers), pa.int64())})
        return self.table.version_object.physical_where((KEY,), keys)

    def of_edition(self, job_id: str) -> pa.Table:
        """All letters of one job."""
        return self.table.version_object.physical_where((EDITION,), pa.table({EDITION: [job_id]}))

    def answer(self, taken: Iterable[int], failing: Mapping[int, str], at: datetime) -> None:
        """After a replay: letters that leave, and newer reasons of letters that stay, in one commit."""
        with self._shared.lock:
            gone = self.chosen(taken)
            stay = self.chosen(failing)
            reasons = pa.array([failing[number] for number in stay[KEY].to_pylist()], pa.string())
            place = SCHEMA.get_field_index("reason")
            stay = stay.set_column(place, SCHEMA.field(place), reasons)
            if gone.num_rows or stay.num_rows:
                self._shared.bytes -= _size(gone)
                self.table.commit_keyed(stay, gone.select([KEY]), self._commit("replay", at))

    def forget(self, job_id: str) -> None:
        """Remove the letters of a job that never became one."""
        with self._shared.lock:
            self._remove(self.of_edition(job_id).select([KEY]), datetime.now(UTC))

    def expire(self, now: datetime) -> int:
        """Remove letters whose time is over, and the oldest when they are too many; how many."""
        with self._shared.lock:
            shared = self._shared
            over = self._retention and shared.oldest is not None and shared.oldest < now - self._retention
            if not over and (self._most_bytes is None or shared.bytes <= self._most_bytes):
                return 0
            rows = self.table.version_object.encoded.select([KEY, "at"]).sort_by([("at", "ascending")])
            count = pc.sum(pc.less(rows["at"], pa.scalar(now - self._retention))).as_py() if over else 0
            late = rows.slice(0, count or 0)
            self._remove(late, now)
            self._measure()
            if self._most_bytes is not None and shared.bytes > self._most_bytes:
                left = rows.slice(late.num_rows)
                crowded = left.slice(0, self._too_many(left))
                log.warning(
                    "the oldest %d dead letters are removed: they take too much memory", crowded.num_rows
                )
                self._remove(crowded, now)
                late = pa.concat_tables([late, crowded])
                self._measure()
            return int(late.num_rows)

    def _too_many(self, oldest_first: pa.Table) -> int:
        """How many of the oldest have to leave."""
        assert self._most_bytes is not None
        sizes = pc.add(_lengths(self.chosen(oldest_first[KEY].to_pylist())), _PER_LETTER)
        excess = self._shared.bytes - int(self._most_bytes * _ROOM)
        return int(pc.sum(pc.less(pc.cumulative_sum(sizes), excess)).as_py() or 0) + 1

    def _remove(self, numbers: pa.Table, at: datetime) -> None:
        if numbers.num_rows:
            gone = self.chosen(numbers[KEY].to_pylist())
            self._shared.bytes -= _size(gone)
            self.table.commit_keyed(None, gone.select([KEY]), self._commit("retention", at))

    def _measure(self) -> None:
        """Look at all letters: how many bytes they take, which is the oldest, and which number is next."""
        shared, version = self._shared, self.table.version_object
        rows = version.physical()
        last = version.commit
        shared.bytes = _size(rows)
        shared.oldest = pc.min(rows["at"]).as_py() if rows.num_rows else None
        highest = pc.max(rows[KEY]).as_py() if rows.num_rows else 0
        said = int(last.extra.get("next", 1)) if last is not None else 1
        shared.next = max(shared.next, said, (highest or 0) + 1)

    def _commit(self, who: str, at: datetime) -> Commit:
        last = self.table.last_commit
        number = last.batch + 1 if last is not None else 0
        return Commit(who, number, {}, at, {"next": self._shared.next})

    # --- figures ----------------------------------------------------------------------------------------

    def counts(self) -> Mapping[tuple[str, str], int]:
        """How many letters there are of each job and kind."""
        version = self.table.version_object
        number, counts = self._shared.counted
        if number != version.number:
            rows = version.snapshot().select(["job", "kind"])
            found = rows.group_by(["job", "kind"], use_threads=False).aggregate([([], "count_all")])
            columns = (found[name].to_pylist() for name in ("job", "kind", "count_all"))
            counts = {(job, kind or ""): count for job, kind, count in zip(*columns, strict=True)}
            self._shared.counted = (version.number, counts)
        return counts

    def kept(self) -> Mapping[tuple[str, str], int]:
        """How many were kept of each job and kind since this process opened the table."""
        return dict(self._shared.kept)


def _identity(row: BadRow) -> tuple[Any, ...]:
    """What tells the rows of a batch apart; the reason may be told in other words the next time."""
    return (row.source, row.partition, row.offset, row.raw, row.position)


def _lengths(rows: pa.Table) -> pa.ChunkedArray:
    texts = (pc.fill_null(pc.binary_length(rows[n]), 0) for n in ("raw", ROW, "reason", "offset", POSITION))
    total = None
    for lengths in texts:
        total = lengths.cast(pa.int64()) if total is None else pc.add(total, lengths.cast(pa.int64()))
    return total


def _size(rows: pa.Table) -> int:
    return int(pc.sum(_lengths(rows)).as_py() or 0) + int(rows.num_rows) * _PER_LETTER


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
        self.count = 0
        """Rows refused since somebody asked."""
        self.aside: list[BadRow] | None = None
        """Where rows go that are refused again, while letters are replayed."""

    def __call__(self, rows: list[BadRow]) -> None:
        """Keep, skip, or fail."""
        if not rows:
            return
        if self.aside is not None:
            self.aside += rows
            return
        if self._options.on_error == "fail":
            raise SinkConfigError(
                f"{rows[0].source}: {rows[0].reason}",
                hint='keep such rows aside instead: WITH ("on.error" = "dead_letter")',
            )
        self.count += len(rows)
        if self._options.on_error == "dead_letter" and self._letters is not None:
            start = self.output.offsets if self.output is not None else None
            self._letters.keep(self._job, "writing", f"{start}", rows, datetime.now(UTC))
