"""A relation of a database as a source.

A thread reads it into a durable log, of which the job reads ranges.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from velostream.connectors.base import Source
from velostream.connectors.capabilities import (
    Announcing,
    BadRecords,
    Counted,
    Narrowed,
    Provisioned,
    Widening,
)
from velostream.connectors.databases.change_log import ChangeLog
from velostream.errors import CorruptDataError, SourceDataError, SourceGapError, SourceNetworkError
from velostream.model.changes import BadRow
from velostream.model.columns import OFFSET, PARTITION, POSITION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from velostream.connectors.base import SourceContext
    from velostream.connectors.narrowing import Narrowing
    from velostream.model.changes import Offset

log = structlog.get_logger("velostream.connectors")

_SOON = 60.0
_LONGEST_PAUSE = 60.0
"""Seconds. Where changes are lost again so soon after everything was read, the next load waits, longer each
time."""
_FIRST_LOOK = 0.5
"""Seconds that the job's thread waits for the first load, before it asks again: it may have to stop."""
ONLY = "changes"
"""The name of the one partition."""
AGAIN = "CREATE OR REPLACE the tables that are built on it"
"""What to do where columns were altered so that tables would have to lose values."""


class ChangesLostError(Exception):
    """The database no longer has the changes that follow the log; its message is the reason."""


@dataclass(frozen=True)
class Described:
    """The columns of a relation, and those that identify a row."""

    schema: pa.Schema
    key: tuple[str, ...]
    others: tuple[str, ...] = ()
    """Columns that are there, and are not read."""
    sampled: bool = False
    """Whether types are those of the rows that were looked at: of others they may be other ones."""


class Reader(ABC):
    """Reads one relation of a database into a log. `load` and `follow` run in a thread of their own."""

    name: str
    """The relation, as messages name it."""

    @abstractmethod
    def describe(self) -> Described:
        """The columns, as the database has them now."""

    def narrow(self, narrowing: Narrowing) -> None:  # noqa: B027
        """Leave out what the statement does not need, where the database can; see `Narrowed`."""

    def begin(self) -> None:  # noqa: B027
        """Open what `follow` reads from, where it cannot be missed; called once, before `load`."""

    @abstractmethod
    def load(self, changes: ChangeLog, after: int, stop: threading.Event) -> None:
        """Write everything that is there into the log, as a load that begins after row `after`."""

    @abstractmethod
    def follow(self, changes: ChangeLog, stop: threading.Event) -> None:
        """Write changes into the log until `stop` is set.

        Raises ChangesLostError when changes after the log's position can no longer be read.
        """

    def caught_up(self, changes: ChangeLog) -> bool:
        """Whether the log has everything that the database has committed; called by the job's thread."""
        return True

    def release(self) -> None:  # noqa: B027
        """Remove what was made on the server for the statement, which is dropped."""

    def interrupt(self) -> None:  # noqa: B027
        """End queries that `load` and `follow` wait for: `stop` is set. Called by another thread."""

    def close(self) -> None:  # noqa: B027
        """Close connections; `load` and `follow` have returned."""


class DatabaseSource(Source, Announcing, Narrowed, Counted, BadRecords, Widening, Provisioned):
    """The rows of the relation and their changes, by key: a later row replaces the earlier one of its key."""

    def __init__(self, reader: Reader, context: SourceContext, *, reload: bool, follows: bool) -> None:
        self._reader = reader
        self._context = context
        self._reload = reload
        self._follows = follows and not context.once
        self._log = ChangeLog(context.spool, context.owner)
        self._described: Described | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._loaded = threading.Event()
        self._failure: BaseException | None = None
        self._news = threading.Event()
        self._loaded_at: float | None = None
        self._pause = 0.0

    # --- the contract -------------------------------------------------------------------------------------

    def check(self) -> None:
        """See `Source`."""
        self._describe()

    def discover(self) -> pa.Schema:
        """See `Source`."""
        if self._context.schema is not None:
            return self._context.schema
        return self._describe().schema

    @property
    def key(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `Source`: the primary key."""
        return self._describe().key

    def latest(self, after: Offset | None) -> Offset:
        """See `Source`: what the thread has written, up to the end of a transaction."""
        have = int(after[ONLY]) if after else 0
        self._start(have)
        while not self._loaded.wait(_FIRST_LOOK):
            if not self._context.once:
                return after or {ONLY: 0}
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return {ONLY: self._log.step(have, self._context.most_rows)}

    def settled(self) -> bool:
        """See `Source`."""
        return self._loaded.is_set() and (not self._follows or self._reader.caught_up(self._log))

    def listen(self, news: threading.Event) -> None:
        """See `Announcing`: the thread has written to the log, or failed."""
        self._news = self._log.news = news

    def narrow(self, narrowing: Narrowing) -> None:
        """See `Narrowed`."""
        self._reader.narrow(narrowing)

    def release(self) -> None:
        """See `Provisioned`."""
        self._reader.release()

    def finished(self, offset: Offset) -> bool:
        """See `Source`: what is not followed ends with its first load."""
        return not self._follows and self._loaded.is_set() and int(offset[ONLY]) >= self._log.end

    def read(self, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """See `Source`."""
        schema = self.discover()
        for number, batch in self._log.between(None if start is None else int(start), int(end)):
            numbers = np.arange(number + 1, number + 1 + batch.num_rows, dtype=np.int64)
            system = {name: batch.column(name) for name in batch.schema.names if name not in schema.names}
            plain = {field.name: _fitting(batch, field) for field in schema}
            yield pa.RecordBatch.from_pydict(
                {
                    **plain,
                    **{name: values for name, values in system.items() if name.startswith("_")},
                    PARTITION: pa.array([ONLY]).take(pa.array(np.zeros(len(numbers), np.int32))),
                    OFFSET: pa.array(numbers),
                    POSITION: pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 20, "0"),
                }
            )

    def count(self, start: Offset | None, end: Offset) -> int:
        """See `Counted`."""
        return int(end[ONLY]) - (int(start[ONLY]) if start else 0)

    def lags(self, offset: Offset) -> dict[str, int]:
        """See `Counted`."""
        return {ONLY: max(self._log.end - int(offset.get(ONLY, 0)), 0)}

    def has_bad_rows(self, start: Offset | None, end: Offset) -> bool:
        """See `BadRecords`: also where known columns have other types than before, which may be wider."""
        known = set(self.discover().names)
        return bool(self._log.aside(*_range(start, end))) or bool(self._others(start, end) & known)

    def bad_rows(self, start: Offset | None, end: Offset) -> Iterator[BadRow]:
        """See `BadRecords`."""
        for row in self._log.aside(*_range(start, end)):
            yield BadRow(row.reason, self._reader.name, ONLY, str(row.number), row.raw.encode())

    def new_columns(self, start: Offset | None, end: Offset) -> bool:
        """See `Widening`."""
        known = set(self.discover().names)
        return any(name not in known for name in self._others(start, end))

    def widen(self, start: Offset | None, end: Offset) -> pa.Schema | None:
        """See `Widening`: columns that were added, and types that have become wider."""
        if self._context.declared:
            return None
        before, others = self.discover(), self._others(start, end)
        if not others:
            return None
        now = self._reader.describe().schema
        fields = [now.field(f.name) if f.name in others and f.name in now.names else f for f in before]
        added = [field for field in now if field.name not in before.names and field.name in others]
        wider = pa.schema([*fields, *added])
        return wider if wider != before else None

    def _others(self, start: Offset | None, end: Offset) -> set[str]:
        """Columns of a range that the job does not know, or knows with another type."""
        known = {(field.name, str(field.type)) for field in self.discover()}
        found = self._log.columns(*_range(start, end))
        return {name for name, _ in found - known if not name.startswith("_")}

    def commit(self, offset: Offset) -> None:
        """See `Source`."""
        self._log.forget(int(offset[ONLY]))

    def close(self) -> None:
        """See `Source`."""
        self._stop.set()
        if self._thread is not None:
            self._reader.interrupt()
            self._thread.join()
        self._reader.close()
        self._log.close()

    # --- the thread ---------------------------------------------------------------------------------------

    def _describe(self) -> Described:
        if self._described is None:
            self._described = self._reader.describe()
        return self._described

    def _start(self, have: int) -> None:
        if self._thread is not None:
            return
        try:
            self._log.open()
        except CorruptDataError as exc:
            if not self._reload:
                raise
            log.warning("everything is read again", source=self._reader.name, reason=exc.message)
            for path in self._context.spool.glob("changes-*.frames"):
                path.unlink()
            self._log = ChangeLog(self._context.spool, self._context.owner)
            self._log.news = self._news
        self._thread = threading.Thread(
            target=self._run, args=(have,), name=f"reads {self._reader.name}", daemon=True
        )
        self._thread.start()

    def _begin_again(self) -> None:
        """After a failure: the next call of `latest` starts another thread."""
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        self._loaded.clear()

    def _run(self, have: int) -> None:
        try:
            if self._follows:
                self._reader.begin()
            if self._log.position is None or have > self._log.end:
                if have > 0 and not self._reload:
                    raise self._gap(f'the log of them in "{self._context.spool}" is gone')
                self._load(have)
            self._loaded.set()
            while self._follows and not self._stop.is_set():
                try:
                    self._reader.follow(self._log, self._stop)
                except ChangesLostError as exc:
                    self._load_again(str(exc))
        except BaseException as exc:
            self._failure = exc
            self._loaded.set()
            self._news.set()

    def _load(self, have: int) -> None:
        self._reader.load(self._log, have, self._stop)

    def _gap(self, reason: str) -> SourceGapError:
        return SourceGapError(
            f"changes of {self._reader.name} were lost: {reason}",
            hint='"on.gap" = "reload" reads everything again, and applies the difference',
        )

    def _load_again(self, reason: str) -> None:
        if not self._reload:
            raise self._gap(reason)
        soon = self._loaded_at is not None and time.monotonic() - self._loaded_at < _SOON
        self._pause = min(max(1.0, 2 * self._pause), _LONGEST_PAUSE) if soon else 0.0
        log.warning("everything is read again", source=self._reader.name, reason=reason, after=self._pause)
        if not self._stop.wait(self._pause):
            self._load(self._log.end)
            self._loaded_at = time.monotonic()


def stopped(stop: threading.Event) -> None:
    """Raise where the job does not want to read on."""
    if stop.is_set():
        raise SourceNetworkError("reading was stopped")


def _fitting(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """A column as the job knows it; null where rows of that time had none."""
    place = batch.schema.get_field_index(field.name)
    if place < 0:
        return pa.nulls(batch.num_rows, field.type)
    values = batch.column(place)
    if values.type == field.type:
        return values
    try:
        return values.cast(field.type)
    except pa.ArrowInvalid as exc:
        raise SourceDataError(
            f'column "{field.name}" is {values.type} there, and {field.type} cannot hold all of it',
            hint="declare the column with a wider type",
        ) from exc


def _range(start: Offset | None, end: Offset) -> tuple[int | None, int]:
    return None if start is None else int(start[ONLY]), int(end[ONLY])
