"""Relations without a log of changes: asked again and again, for what is new or for everything.

By a column that only grows, the rows from its last value on are asked for, and deletes are not seen. Rows
that have the last value come again: those that the log has are recognised by what they hold. Otherwise
everything is asked for each time, and the difference to the time before is what changed: rows are compared by
key, or, where there is none, by what they hold.
"""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from velostream.connectors.databases.change_log import SetAside
from velostream.connectors.databases.newest import Kept, Newest, Since, counted, digest
from velostream.connectors.databases.parallel import released
from velostream.connectors.databases.rows import SYSTEM_COLUMNS, log_rows, no_rows, same_moment
from velostream.connectors.databases.source import AGAIN, Described, Reader, stopped
from velostream.connectors.databases.text_rows import Bad, Decoded, key_text
from velostream.connectors.databases.wider_types import wider_than_written
from velostream.disk.full_disk import storing
from velostream.disk.sealed_json import replace_file
from velostream.errors import SourceConfigError
from velostream.model.columns import KEY

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Iterator, Mapping
    from datetime import timedelta
    from pathlib import Path

    import numpy.typing as npt

    from velostream.connectors.databases.change_log import ChangeLog
    from velostream.connectors.narrowing import Narrowing

log = structlog.get_logger("velostream.connectors")

_FILE = "polled.arrow"
_LOOK_EVERY = 1.0
"""Seconds between two looks at the columns, which may have been altered."""


class Asked(ABC):
    """A table or query that can be asked for its rows."""

    name: str

    @abstractmethod
    def describe(self) -> Described:
        """Its columns, and those that identify a row."""

    def narrow(self, narrowing: Narrowing) -> None:  # noqa: B027
        """See `Reader`."""

    def look(self) -> None:  # noqa: B027
        """Ask for the columns again; `describe` tells them from now on."""

    @abstractmethod
    def rows(self, since: Since | None) -> Iterator[Decoded]:
        """Its rows, some at a time; those since a value of the column that grows, if one is given.

        They are of one moment. Those since a value come in the order of that column, and so do all, where the
        column is a text: only the database knows the order of its texts.
        """

    def interrupt(self) -> None:  # noqa: B027
        """See `Reader`."""

    def close(self) -> None:  # noqa: B027
        """Close connections."""


class Polling(Reader):
    """See `Reader`. A position of the log is where the column that grows was, or nothing."""

    def __init__(self, asked: Asked, spool: Path, every: timedelta | None, grows: str | None) -> None:
        self._asked = asked
        self._every = every.total_seconds() if every is not None else None
        self._grows = grows
        self._path = spool / _FILE
        self._kept = Kept(spool)
        self._asked_at = self._looked_at = -math.inf
        self._answered = False
        self._warned = False
        self.name = asked.name

    def describe(self) -> Described:
        """See `Reader`."""
        return self._asked.describe()

    def narrow(self, narrowing: Narrowing) -> None:
        """See `Reader`."""
        self._asked.narrow(narrowing)

    def interrupt(self) -> None:
        """See `Reader`."""
        self._asked.interrupt()

    def close(self) -> None:
        """See `Reader`."""
        self._asked.close()

    def caught_up(self, changes: ChangeLog) -> bool:
        """See `Reader`: once it was asked, since this start; what comes later is for the next time."""
        return self._answered

    def load(self, changes: ChangeLog, after: int, stop: threading.Event) -> None:
        """See `Reader`."""
        self._load(changes, after, stop)
        self._answered = True

    def _load(self, changes: ChangeLog, after: int, stop: threading.Event) -> None:
        changes.begin_load(after)
        self._asked_at = time.monotonic()
        if self._grows is not None or self._every is None:
            # Nothing will be compared with these rows: they are written as they come.
            self._append(changes, None, stop, divisible=True)
            return
        now = self._everything(stop)
        parts = [self._changes_of(now.rows, deleted=False), self._unfit(now.bad.values())]
        rows = pa.concat_tables(parts)
        first = changes.written + now.rows.num_rows
        aside = [
            SetAside(first + row, bad.reason, bad.raw) for row, bad in enumerate(now.bad.values(), start=1)
        ]
        changes.append(rows, {"last": None}, whole=True, divisible=True, aside=aside)
        self._save(now, changes.end)

    def follow(self, changes: ChangeLog, stop: threading.Event) -> None:
        """See `Reader`."""
        while self._every is not None and not stop.wait(
            max(self._asked_at + self._every - time.monotonic(), 0)
        ):
            self._asked_at = time.monotonic()
            try:
                self._poll(changes, stop)
            except SourceConfigError:
                self._altered(changes)  # it tells more about a column that is gone
                raise
            finally:
                changes.abandon()
            self._answered = True

    def _poll(self, changes: ChangeLog, stop: threading.Event) -> None:
        if time.monotonic() - self._looked_at >= _LOOK_EVERY and self._altered(changes):
            log.warning("everything is read again", source=self.name, reason="its columns were altered")
            self._load(changes, changes.end, stop)
        elif self._grows is not None:
            since = self._kept.of(changes.end, changes.position["last"])
            self._append(changes, since, stop)
        else:
            self._difference(changes, stop)

    def _altered(self, changes: ChangeLog) -> bool:
        """Whether columns of the log are other ones now: some were added, or their types became wider.

        Refuses columns by which rows that are there would lose values.
        """
        asked_before = self._looked_at > -math.inf
        if asked_before and self._asked.describe().sampled:
            return False
        self._asked.look()
        self._looked_at = time.monotonic()
        described = self._asked.describe()
        now = {field.name: field.type for field in described.schema}
        before = {name: kind for name, kind in changes.last_columns if name not in SYSTEM_COLUMNS}
        for name, kind in before.items():
            told = f'column "{name}" of {self.name}'
            if name not in now and name not in described.others:
                raise SourceConfigError(f"{told} was dropped or renamed", hint=AGAIN)
            if name in now and not described.sampled and not wider_than_written(kind, now[name]):
                raise SourceConfigError(f"{told} is {now[name]} now, and was {kind}", hint=AGAIN)
        return before != {name: str(kind) for name, kind in now.items()}

    # --- by a column that grows ---------------------------------------------------------------------------

    def _append(
        self, changes: ChangeLog, since: Since | None, stop: threading.Event, *, divisible: bool = False
    ) -> None:
        """Write the rows since a value that the log does not have."""
        described = self.describe()
        newest = Newest(self._grows, described.key, since)
        with released(self._asked.rows(since)) as answer:
            for found in answer:
                stopped(stop)
                new = newest.take(found)
                count = len(next(iter(new.columns.values())))
                if not count:
                    continue
                there, now = np.zeros(count, dtype=bool), same_moment(time.time_ns() // 1000, count)
                rows, aside = log_rows(new, described.key, there, now, changes.written)
                changes.append(rows, whole=False, divisible=divisible, aside=aside)
        if since is None or changes.written > changes.end:
            self._end(changes, newest.since, divisible=divisible)
        if newest.unrecognised and not described.key and not self._warned:
            self._warned = True
            log.warning(
                "rows that come later with the same value are not read",
                source=self.name,
                column=self._grows,
                reason="rows without a key: many have its last value, or it is a text",
            )

    def _end(self, changes: ChangeLog, since: Since | None, *, divisible: bool) -> None:
        """End what was written: the log is where the column that grows is then."""
        end = changes.written
        if self._grows is not None:
            self._kept.before(end, since)
        position = {"last": since.value if since is not None else None}
        changes.append(self._none(), position, whole=True, divisible=divisible)
        self._kept.after(end)

    def _none(self) -> pa.Table:
        return no_rows(self.describe().schema)

    # --- by comparing -------------------------------------------------------------------------------------

    def _everything(self, stop: threading.Event) -> _Answer:
        """All rows, with what identifies each."""
        described = self.describe()
        parts = [no_rows(described.schema).select([*described.schema.names, KEY])]
        bad: dict[str, Bad] = {}
        with released(self._asked.rows(None)) as answer:
            for found in answer:
                stopped(stop)
                keys = key_text([found.columns[name] for name in described.key]) if described.key else None
                rows = pa.table(
                    {**found.columns, KEY: keys if keys is not None else _contents(found.columns)}
                )
                good = np.ones(rows.num_rows, dtype=bool)
                good[list(found.bad)] = False
                parts.append(rows.filter(pa.array(good)))
                bad |= {each.raw: each for each in found.bad.values()}
        whole = pa.concat_tables(parts).combine_chunks()
        if not described.key:
            names = counted(whole[KEY].to_pylist(), {})
            whole = whole.set_column(whole.schema.get_field_index(KEY), KEY, pa.array(names, pa.string()))
        return _Answer(whole, bad)

    def _difference(self, changes: ChangeLog, stop: threading.Event) -> None:
        before = self._saved(changes.end)
        if before is None:
            # We were killed between the log and the answer that it was compared with: what went back to what
            # it was would be in no difference.
            self._load(changes, changes.end, stop)
            return
        now = self._everything(stop)
        gone = before.rows.filter(pc.invert(pc.is_in(before.rows[KEY], now.rows[KEY].combine_chunks())))
        place = pc.index_in(now.rows[KEY], before.rows[KEY].combine_chunks())
        changed = now.rows.filter(pa.array(~_same(now.rows, before.rows, place)))
        bad = [each for raw, each in now.bad.items() if raw not in before.bad]
        parts = [
            self._changes_of(gone, deleted=True),
            self._changes_of(changed, deleted=False),
            self._unfit(bad),
        ]
        rows = pa.concat_tables(parts)
        if rows.num_rows:
            first = changes.written + rows.num_rows - len(bad)
            aside = [SetAside(first + row, each.reason, each.raw) for row, each in enumerate(bad, start=1)]
            changes.append(rows, {"last": None}, whole=True, aside=aside)
        if rows.num_rows or now.bad.keys() != before.bad.keys():
            self._save(now, changes.end)

    def _changes_of(self, rows: pa.Table, *, deleted: bool) -> pa.Table:
        plain = Decoded({name: rows[name].combine_chunks() for name in rows.column_names if name != KEY}, {})
        moment = same_moment(time.time_ns() // 1000, rows.num_rows)
        made, _ = log_rows(plain, (), np.full(rows.num_rows, deleted), moment, 0, rows[KEY].combine_chunks())
        return made

    def _unfit(self, bad: Collection[Bad]) -> pa.Table:
        """A place in the log for each row that does not fit: a deletion of nothing."""
        plain = {field.name: pa.nulls(len(bad), field.type) for field in self.describe().schema}
        moment = same_moment(time.time_ns() // 1000, len(bad))
        made, _ = log_rows(Decoded(plain, {}), (), np.ones(len(bad), dtype=bool), moment, 0)
        return made

    def _save(self, now: _Answer, end: int) -> None:
        """Keep an answer for the next comparison; the log has what it changed, up to row `end`."""
        out = pa.BufferOutputStream()
        bad = json.dumps([[each.reason, each.raw] for each in now.bad.values()])
        rows = now.rows.replace_schema_metadata({"bad": bad, "end": str(end)})
        with pa.ipc.new_file(out, rows.schema) as writer:
            writer.write_table(rows)
        with storing(self._path):
            replace_file(self._path, out.getvalue().to_pybytes())

    def _saved(self, end: int) -> _Answer | None:
        """The answer that belongs to the end of the log; None where that is another one."""
        try:
            rows = pa.ipc.open_file(self._path.read_bytes()).read_all()
        except (FileNotFoundError, pa.ArrowInvalid):
            return None
        told = rows.schema.metadata
        if told.get(b"end") != str(end).encode():
            return None
        return _Answer(rows, {raw: Bad(reason, raw) for reason, raw in json.loads(told[b"bad"])})


@dataclass(frozen=True)
class _Answer:
    """Everything that a relation had when it was asked."""

    rows: pa.Table
    bad: Mapping[str, Bad]
    """Rows that do not fit their columns, by what the database sent."""


def _same(now: pa.Table, before: pa.Table, place: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Which rows were there before, with the same values; `place` is the row of before with the same key."""
    there: npt.NDArray[np.bool_] = place.is_valid().to_numpy()
    at = place.fill_null(0)
    if not before.num_rows:
        return there
    same = there.copy()
    for name in now.column_names:
        new, old = now[name], before[name].take(at)
        if pa.types.is_nested(new.type):
            # As text, in which NaN is equal to itself.
            pairs = zip(new.to_pylist(), old.to_pylist(), strict=True)
            equal = np.array([repr(a) == repr(b) for a, b in pairs], dtype=bool)
        else:
            alike = [pc.and_(new.is_null(), old.is_null())]
            if pa.types.is_floating(new.type):
                alike.append(pc.and_(pc.is_nan(new), pc.is_nan(old)).fill_null(fill_value=False))
            equal = pc.equal(new, old).fill_null(fill_value=False)
            for each in alike:
                equal = pc.or_(equal, each)
            equal = equal.to_numpy()
        same &= equal
    return same


def _contents(columns: Mapping[str, pa.Array]) -> pa.Array:
    """What identifies a row by its contents."""
    lists = [column.to_pylist() for column in columns.values()]
    return pa.array([digest(row) for row in zip(*lists, strict=True)], pa.string())
