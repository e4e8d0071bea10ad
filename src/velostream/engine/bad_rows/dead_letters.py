"""The table `dead_letters`: rows that could not be decoded, computed or written, with the reason."""

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
from velostream.formats.json.text import cell_text
from velostream.model.changes import BadRow, Commit, SourceOffsets
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
"""The value of the column `kind` for each stage of a batch that finds bad rows."""
_FOUND_ANEW = ("decoding", "deriving", "computing", "writing")
"""Stages whose bad rows every attempt at a batch finds again, so that letters of an earlier attempt which the
last one does not find are obsolete."""
_PER_LETTER = 300
"""Bytes of a letter besides its texts, estimated."""
_MOST_SHOWN = 500
"""The most characters of a bad row's record in an error."""
_ROOM = 0.9
"""When letters exceed their limit, the oldest are deleted down to this part of it."""


@dataclass
class _Shared:
    """State shared by all jobs' views of the table."""

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
        """Letters that the current attempt has kept or found again."""
        self._doubtful = True
        """Whether an uncommitted attempt may have left letters of the next batch."""
        self._shared = _Shared()
        self._measure()

    def of_job(self, job_id: str, part: str = "") -> DeadLetters:
        """A view of the table for one stage of a job: letters have the job's id, attempts are per stage.

        `part` distinguishes stages that begin at equal positions; the stage that writes the result has none.
        """
        view = copy.copy(self)
        view._part = part  # noqa: SLF001
        view._edition, view._attempt, view._doubtful = job_id, set(), True  # noqa: SLF001
        return view

    def of_part(self, part: str) -> DeadLetters:
        """A view of the table for another stage of the same job."""
        return self.of_job(self._edition, part)

    def when_kept(self, told: Callable[[], None]) -> None:
        """Call `told` after letters were kept."""
        self._shared.told = told

    # --- keeping ----------------------------------------------------------------------------------------

    def keep(self, job: str, stage: str, start: str, rows: Iterable[BadRow], at: datetime) -> int:
        """Keep the bad rows that one stage of a batch found, durably; returns how many are new.

        Idempotent over attempts: a batch that begins at `start` like the last one is another attempt at it,
        perhaps with a later end, and only adds letters that earlier attempts did not keep.
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
        """As `keep`, with the current time."""
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
        """The letters of these batches by identity, found by an index."""
        found: dict[tuple[Any, ...], list[int]] = {}
        rows = self.table.version_object.physical_where((BATCH,), pa.table({BATCH: batches}))
        names = (KEY, "source", "partition", "offset", "raw", POSITION)
        for number, *identity in zip(*(rows[name].to_pylist() for name in names), strict=True):
            found.setdefault(tuple(identity), []).append(number)
        return found

    # --- attempts at a batch ----------------------------------------------------------------------------

    def left_over(self, job: str, start: str) -> bool:
        """Begin an attempt at a batch; returns whether an uncommitted attempt at it left letters."""
        self._attempt.clear()
        if not self._doubtful:
            return False
        with self._shared.lock:
            found = self._before([self._batch(job, stage, start) for stage in KINDS])
        self._doubtful = bool(found)
        return self._doubtful

    def settle(self, job: str, start: str) -> None:
        """Delete letters that earlier attempts kept and this one did not find: their rows can be used by now.

        Must be called before the batch is committed: a crash in between would leave rows that are both in the
        result and dead letters.
        """
        with self._shared.lock:
            batches = [self._batch(job, stage, start) for stage in _FOUND_ANEW]
            stale = {n for numbers in self._before(batches).values() for n in numbers} - self._attempt
            self._remove(pa.table({KEY: pa.array(sorted(stale), pa.int64())}), datetime.now(UTC))

    def committed(self) -> None:
        """The current batch was committed: its letters are final."""
        self._doubtful = False

    def uncommitted(self, job: str, start: str) -> set[int]:
        """The letters of an uncommitted batch, which will be attempted again and so is not replayed."""
        with self._shared.lock:
            batches = [self._batch(job, stage, start) for stage in KINDS]
            return {number for numbers in self._before(batches).values() for number in numbers}

    # --- replayed and deleted letters -------------------------------------------------------------------

    def chosen(self, numbers: Iterable[int]) -> pa.Table:
        """The letters with these numbers, hidden columns included."""
        keys = pa.table({KEY: pa.array(sorted(numbers), pa.int64())})
        return self.table.version_object.physical_where((KEY,), keys)

    def of_edition(self, job_id: str) -> pa.Table:
        """All letters of one job."""
        return self.table.version_object.physical_where((EDITION,), pa.table({EDITION: [job_id]}))

    def answer(self, taken: Iterable[int], failing: Mapping[int, str], at: datetime) -> None:
        """After a replay: delete `taken` letters and update the reasons of `failing` ones, in one commit."""
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
        """Delete the letters of a job whose creation failed."""
        with self._shared.lock:
            self._remove(self.of_edition(job_id).select([KEY]), datetime.now(UTC))

    def expire(self, now: datetime) -> int:
        """Delete letters beyond their retention, and the oldest beyond the size limit; returns how many."""
        with self._shared.lock:
            shared = self._shared
            over = self._retention and shared.oldest is not None and shared.oldest < now - self._retention
            if not over and (self._most_bytes is None or shared.bytes <= self._most_bytes):
                return 0
            rows = pa.Table.from_batches(self.table.version_object.pieces([KEY, "at"])).sort_by("at")
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
        """How many of the oldest letters have to be deleted."""
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
        """Scan all letters for their total size, the oldest time and the next number."""
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
    """The identity of a bad row within its batch, without the reason, whose wording may differ later."""
    return (row.source, row.partition, row.offset, row.raw, row.position)


def _lengths(rows: pa.Table) -> pa.ChunkedArray:
    texts = (pc.fill_null(pc.binary_length(rows[n]), 0) for n in ("raw", ROW, "reason", "offset", POSITION))
    total = None
    for lengths in texts:
        total = lengths.cast(pa.int64()) if total is None else pc.add(total, lengths.cast(pa.int64()))
    return total


def _size(rows: pa.Table) -> int:
    return int(pc.sum(_lengths(rows)).as_py() or 0) + int(rows.num_rows) * _PER_LETTER


def _shown(raw: bytes) -> str:
    """The record of a bad row, in one line of an error."""
    text = " ".join(cell_text(raw).split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def keep_as_told(
    letters: DeadLetters | None, job: str, options: CommonOptions, stage: str, start: str, rows: list[BadRow]
) -> None:
    """Handle bad rows of a source as `on.error` says: keep them as dead letters, skip them, or raise."""
    if not rows:
        return
    if options.on_error == "fail":
        first = rows[0]
        raise SourceDataError(
            f"{first.source}: {first.reason}",
            detail=f"at {first.partition} {first.offset}: {_shown(first.raw)}",
            hint='keep such rows aside instead: WITH ("on.error" = "dead_letter")',
        )
    if options.on_error == "dead_letter" and letters is not None:
        letters.keep(job, stage, start, rows, datetime.now(UTC))


@dataclass(frozen=True)
class Untimely:
    """Handles rows that are late or have no event time as a statement says."""

    letters: DeadLetters | None
    job: str
    options: CommonOptions

    def refuse(self, rows: list[BadRow], stage: str, start: SourceOffsets | None) -> None:
        """`stage` is why: `late` or `timing`; `start` are the positions at which the step began.

        Late rows become dead letters whatever `on.error` says, unless it says to fail: `late.rows` has
        decided that.
        """
        if stage == "late" and self.options.on_error != "fail" and self.letters is not None:
            self.letters.keep_now(self.job, stage, f"{start}", rows)
        else:
            keep_as_told(self.letters, self.job, self.options, stage, f"{start}", rows)


class Refused:
    """Handles rows that a sink can never accept, as `on.error` says."""

    def __init__(self, job: str, options: CommonOptions, letters: DeadLetters | None) -> None:
        self._job = job
        self._options = options
        self._letters = letters
        self.output: JobOutput | None = None
        """The output whose positions distinguish another attempt at a batch from the next batch."""
        self.count = 0
        """Rows refused since the last `take_refused`."""
        self.aside: list[BadRow] | None = None
        """During a replay: collects rows that are refused again."""

    def __call__(self, rows: list[BadRow]) -> None:
        """Keep the rows as dead letters, skip them, or raise."""
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
