"""Relations without a log of changes: asked again and again, for what is new or for everything.

By a column that only grows, the rows after its last value are asked for, and deletes are not seen. Otherwise
everything is asked for each time, and the difference to the time before is what changed: rows are compared by
key, or, where there is none, by what they hold.
"""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.databases.change_log import SetAside
from velostream.connectors.databases.parallel import released
from velostream.connectors.databases.rows import log_rows, no_rows, same_moment
from velostream.connectors.databases.source import Described, Reader, stopped
from velostream.connectors.databases.text_rows import Bad, Decoded, key_text
from velostream.connectors.durable.sealed_json import replace_file
from velostream.disk.full_disk import storing
from velostream.model.columns import KEY

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Iterator, Mapping
    from datetime import timedelta
    from pathlib import Path

    import numpy.typing as npt

    from velostream.connectors.databases.change_log import ChangeLog
    from velostream.connectors.narrowing import Narrowing

_FILE = "polled.arrow"


class Asked(ABC):
    """A table or query that can be asked for its rows."""

    name: str

    @abstractmethod
    def describe(self) -> Described:
        """Its columns, and those that identify a row."""

    def narrow(self, narrowing: Narrowing) -> None:  # noqa: B027
        """See `Reader`."""

    @abstractmethod
    def rows(self, after: str | None) -> Iterator[Decoded]:
        """Its rows, some at a time; those after a value of the column that grows, if one is given."""

    def interrupt(self) -> None:  # noqa: B027
        """See `Reader`."""

    def close(self) -> None:  # noqa: B027
        """Close connections."""


class Polling(Reader):
    """See `Reader`. A position of the log is the last value of the column that grows, as text."""

    def __init__(self, asked: Asked, spool: Path, every: timedelta | None, grows: str | None) -> None:
        self._asked = asked
        self._every = every.total_seconds() if every is not None else None
        self._grows = grows
        self._path = spool / _FILE
        self._asked_at = 0.0
        self._answered = False
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
            last = self._append(changes, None, stop, divisible=True)
            changes.append(self._none(), {"last": last}, whole=True, divisible=True)
            return
        now = self._everything(stop)
        parts = [self._changes_of(now.rows, deleted=False), self._unfit(now.bad.values())]
        rows = pa.concat_tables(parts)
        first = changes.written + now.rows.num_rows
        aside = [
            SetAside(first + row, bad.reason, bad.raw) for row, bad in enumerate(now.bad.values(), start=1)
        ]
        changes.append(rows, {"last": None}, whole=True, divisible=True, aside=aside)
        self._save(now)

    def follow(self, changes: ChangeLog, stop: threading.Event) -> None:
        """See `Reader`."""
        while self._every is not None and not stop.wait(
            max(self._asked_at + self._every - time.monotonic(), 0)
        ):
            self._asked_at = time.monotonic()
            if self._grows is not None:
                before = changes.position["last"]
                last = self._append(changes, before, stop)
                if changes.written > changes.end:
                    changes.append(self._none(), {"last": last if last is not None else before}, whole=True)
            else:
                self._difference(changes, stop)
            self._answered = True

    # --- by a column that grows ---------------------------------------------------------------------------

    def _append(
        self, changes: ChangeLog, after: str | None, stop: threading.Event, *, divisible: bool = False
    ) -> str | None:
        """Write the rows after a value; returns the last value of the column that grows, if there is one."""
        described, last = self.describe(), after
        with released(self._asked.rows(after)) as answer:
            for found in answer:
                stopped(stop)
                count = len(next(iter(found.columns.values())))
                if not count:
                    continue
                there, now = np.zeros(count, dtype=bool), same_moment(time.time_ns() // 1000, count)
                rows, aside = log_rows(found, described.key, there, now, changes.written)
                changes.append(rows, whole=False, divisible=divisible, aside=aside)
                newest = pc.max(found.columns[self._grows]) if self._grows is not None else None
                if newest is not None and newest.is_valid:
                    last = newest.cast(pa.string()).as_py()
        return last

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
            whole = whole.set_column(whole.schema.get_field_index(KEY), KEY, _counted(whole[KEY]))
        return _Answer(whole, bad)

    def _difference(self, changes: ChangeLog, stop: threading.Event) -> None:
        before, now = self._saved(), self._everything(stop)
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
            self._save(now)

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

    def _save(self, now: _Answer) -> None:
        """Keep an answer for the next comparison.

        After a crash before this, the same changes come again, by key.
        """
        out = pa.BufferOutputStream()
        told = {"bad": json.dumps([[each.reason, each.raw] for each in now.bad.values()])}
        rows = now.rows.replace_schema_metadata(told)
        with pa.ipc.new_file(out, rows.schema) as writer:
            writer.write_table(rows)
        with storing(self._path):
            replace_file(self._path, out.getvalue().to_pybytes())

    def _saved(self) -> _Answer:
        try:
            rows = pa.ipc.open_file(self._path.read_bytes()).read_all()
        except FileNotFoundError:
            return _Answer(no_rows(self.describe().schema), {})
        told = json.loads(rows.schema.metadata[b"bad"])
        return _Answer(rows, {raw: Bad(reason, raw) for reason, raw in told})


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
            equal = np.array(
                [a == b for a, b in zip(new.to_pylist(), old.to_pylist(), strict=True)], dtype=bool
            )
        else:
            both = pc.and_(new.is_null(), old.is_null())
            equal = pc.or_(pc.equal(new, old).fill_null(fill_value=False), both).to_numpy()
        same &= equal
    return same


def _contents(columns: Mapping[str, pa.Array]) -> pa.Array:
    """What identifies a row by its contents."""
    lists = [column.to_pylist() for column in columns.values()]
    return pa.array(
        [hashlib.blake2b(repr(row).encode(), digest_size=16).hexdigest() for row in zip(*lists, strict=True)],
        pa.string(),
    )


def _counted(contents: pa.ChunkedArray) -> pa.Array:
    """The contents of each row, and how many rows before it are equal: equal rows are told apart."""
    seen: dict[str, int] = {}
    made = []
    for each in contents.to_pylist():
        number = seen[each] = seen.get(each, 0) + 1
        made.append(f"{each}#{number}")
    return pa.array(made, pa.string())
