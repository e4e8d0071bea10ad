"""Tables of a lake as sinks: one commit for each step, which carries the number of the step.

The table itself holds, in the same commit as the rows, which step of this job was written last. After a crash
it is asked, and a commit that was not recorded is recognised.
"""

from __future__ import annotations

import random
import secrets
import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import structlog

from velostream.connectors.base import Delivery, Sink
from velostream.connectors.lakes.changes import Changes, changes, halves
from velostream.connectors.lakes.columns import aligned, check_fits, check_key, check_types, without_value
from velostream.connectors.sinks import identity
from velostream.errors import SinkChangedError, SinkConfigError, SinkError, SinkMissingError
from velostream.formats.json.writer import json_bytes
from velostream.formats.row_bytes import packed
from velostream.model.changes import BadRow

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from contextlib import AbstractContextManager

    from velostream.connectors.base import SinkContext
    from velostream.connectors.lakes.options import LakeOptions

log = structlog.get_logger("velostream.connectors")

_ATTEMPTS = 20
_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 2.0
_CHANCE_BITS = 32


class ConflictError(Exception):
    """Another writer committed first, and nothing was written: the commit may be tried again."""


class LakeSink(Sink):
    """Writes rows by key, or appends them where they have none.

    A commit carries a number: that of the step, and chance below, so that two attempts at one step differ.
    What is recorded is the number of the last commit of the job and the identity of the table.
    """

    delivery = Delivery.EXACTLY_ONCE

    def __init__(self, options: LakeOptions, context: SinkContext, table: str) -> None:
        self._context = context
        self._table_name = table
        self._makes = options.create_table
        self._upserts = _upserts(options, context, table)
        self.takes_deletes = self._upserts
        self._owner = f"velostream-{context.job}-{identity(context)}"
        self._number: int | None = None
        """The number of the last commit that is known here."""
        self._next: int | None = None
        """The number that was intended."""
        self._known: str | None = None
        """The identity of the table that is written."""
        check_types(context.schema)
        if self._upserts:
            check_key(context.schema, context.key)

    # --- what a kind of table does ------------------------------------------------------------------------

    @abstractmethod
    def _open(self, *, make: bool) -> None:
        """Open the table, after making it, if `make`, or adding columns to it where that is asked for."""

    @abstractmethod
    def _columns(self) -> pa.Schema:
        """The columns of the opened table."""

    @abstractmethod
    def _identity(self) -> str:
        """What tells the opened table from another one at the same place."""

    @abstractmethod
    def _newest(self) -> int | None:
        """The number of this job's last commit, in the table as it is now; None where there is none."""

    @abstractmethod
    def _commit(self, number: int, step: Changes) -> None:
        """Write a step to the table as `_newest` found it; raises ConflictError where it has changed since.

        The columns are those of the table.
        """

    @abstractmethod
    def _told(self) -> AbstractContextManager[None]:
        """Turns errors of the library into those of sinks."""

    def _sync(self, number: int) -> None:
        """Make a commit durable that was found after a crash, where commits are not durable at once."""

    def _refused(self, added: pa.Table) -> dict[int, str]:
        """The rows that the table cannot hold, each with the reason."""
        return without_value(added, self._columns())

    # --- contract -----------------------------------------------------------------------------------------

    def recover(self, recorded: Mapping[str, Any] | None) -> None:
        """See `Sink`: a step is there as a whole or not at all, so there is nothing to undo."""
        try:
            with self._told():
                # A table that was written before is not made anew: it would lack what was written.
                self._open(make=self._makes and recorded is None)
        except SinkMissingError as exc:
            if recorded is None:
                raise
            raise SinkMissingError(
                f"{self._table_name} does not exist any more", detail=exc.message, hint=_ANEW
            ) from exc
        check_fits(self._table_name, self._context.schema, self._columns())
        self._number = recorded["number"] if recorded else None
        self._known = recorded["table"] if recorded else self._identity()
        self._check_same()

    def intend(self, batch: int, rows: pa.Table) -> Mapping[str, Any] | None:
        """See `Sink`."""
        if not rows.num_rows:
            return None
        self._next = (batch << _CHANCE_BITS) + secrets.randbits(_CHANCE_BITS)
        return self._record(self._next)

    def settle(self, intended: Mapping[str, Any]) -> bool:
        """See `Sink`: the table knows the number, or the step was not written."""
        with self._told():
            found = self._newest()
            if found != intended["number"]:
                return False
            self._sync(intended["number"])
        self._number = found
        return True

    def write(self, batch: int, rows: pa.Table) -> Mapping[str, Any]:
        """See `Sink`."""
        if rows.num_rows:
            if self._next is None:
                self.intend(batch, rows)
            assert self._next is not None
            with self._told():
                self._write(self._next, *halves(rows))
            self._number, self._next = self._next, None
        return self._record(self._number)

    def try_out(self, rows: pa.Table) -> None:
        """See `Sink`."""
        with self._told():
            # What the table demands may have changed since it was opened.
            self._newest()
            self._set_aside(halves(rows)[0], {})

    @staticmethod
    def step_of(number: int) -> int:
        """The step that a commit's number is for."""
        return number >> _CHANCE_BITS

    # --- inside -------------------------------------------------------------------------------------------

    def _record(self, number: int | None) -> dict[str, Any]:
        return {"number": number, "table": self._identity()}

    def _check_same(self) -> None:
        if self._known != self._identity():
            raise SinkChangedError(f"{self._table_name} was replaced by another table", hint=_ANEW)

    def _write(self, number: int, added: pa.Table, removed: pa.Table) -> None:
        step, columns, refused = None, None, dict[int, str]()
        reason = ""
        for attempt in range(_ATTEMPTS):
            found = self._newest()
            self._check_same()
            if found == number:
                return
            if found != self._number:
                raise self._elsewhere(found)
            if step is None or columns != self._columns():
                # The table may have been altered since it was opened.
                columns = self._columns()
                check_fits(self._table_name, self._context.schema, columns)
                self._set_aside(added, refused)
                step = self._step(_without(added, refused), removed, columns)
            try:
                self._commit(number, step)
            except ConflictError as exc:
                reason = str(exc)
                log.info("written by others", table=self._table_name, attempt=attempt + 1, reason=reason)
                pause = min(_PAUSE_SECONDS * 2**attempt, _LONGEST_PAUSE_SECONDS)
                time.sleep(pause * random.uniform(0.5, 1))
            else:
                return
        raise SinkError(
            f"{self._table_name} was written by others {_ATTEMPTS} times while a step was to be committed",
            detail=reason,
            hint="give writers of the same rows a longer trigger.interval",
        )

    def _step(self, added: pa.Table, removed: pa.Table, columns: pa.Schema) -> Changes:
        kept = aligned(added, columns)
        if not self._upserts:
            return Changes(kept)
        key = list(self._context.key)
        types = pa.schema([kept.schema.field(name) for name in key])
        return changes(kept, removed.select(key).cast(types), key)

    def _set_aside(self, added: pa.Table, refused: dict[int, str]) -> None:
        """Refuse the rows that the table cannot hold, but not those of `refused` again."""
        new = {place: why for place, why in self._refused(added).items() if place not in refused}
        if new:
            self._context.refuse(
                [self._bad(reason, added.slice(place, 1)) for place, reason in sorted(new.items())]
            )
        refused |= new

    def _bad(self, reason: str, row: pa.Table) -> BadRow:
        return BadRow(reason, self._table_name, "", "", next(iter(json_bytes(row))), row=packed(row))

    def _elsewhere(self, found: int | None) -> SinkChangedError:
        if found is None:
            return SinkChangedError(
                f"{self._table_name} has forgotten which step of this job it holds", hint=_ANEW
            )
        known = self._number
        if known is not None and found < known:
            return SinkChangedError(
                f"{self._table_name} holds step {self.step_of(found)} of this job, "
                f"and step {self.step_of(known)} was written",
                detail="the table was put back to an earlier state",
                hint=_ANEW,
            )
        return SinkChangedError(
            f"{self._table_name} holds step {self.step_of(found)} of this job, "
            f"which is not the last that is known here",
            detail="what was written came from another copy of the data directory",
            hint="go on with the copy that wrote last, or begin anew with CREATE OR REPLACE",
        )


def _without(rows: pa.Table, places: Collection[int]) -> pa.Table:
    if not places:
        return rows
    return rows.take(pa.array([place for place in range(rows.num_rows) if place not in places], pa.int64()))


_ANEW = "put the table back, or begin anew with CREATE OR REPLACE"


def _upserts(options: LakeOptions, context: SinkContext, table: str) -> bool:
    keyed = context.unique and bool(context.key)
    if options.mode == "upsert" and not keyed:
        raise SinkConfigError(
            f'"mode" = "upsert" needs a key, and the rows that {table} gets have none',
            hint="write from a table with a key, and select the key",
        )
    return keyed and options.mode != "append"
