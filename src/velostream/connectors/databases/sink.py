"""Tables of databases as sinks: one transaction for each step, in which the step's token is recorded."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.base import Delivery, Sink
from velostream.connectors.sinks import as_sink_errors, identity
from velostream.errors import SinkChangedError, SinkConfigError
from velostream.formats.json.writer import json_bytes
from velostream.formats.row_bytes import packed
from velostream.model.changes import BadRow
from velostream.model.columns import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from contextlib import AbstractContextManager

    from velostream.connectors.base import SinkContext

PROGRESS = "velostream_sinks"
"""The table that holds the token of the last step of each job, beside the table that is written."""

MISSING_COLUMN = (
    "name the columns as the table does, with AS; or add it to the table, if it is new in what is written"
)


class TableSink(Sink):
    """Writes rows by key, or appends them where they have none.

    Whether a step was written is recorded by the server, in the same transaction: if the answer to a commit
    is lost, the server is asked for the token before the step is written again.
    """

    delivery = Delivery.EXACTLY_ONCE
    refused: ClassVar[tuple[type[Exception], ...]]
    """Errors of the driver that may be about a row."""

    def __init__(self, context: SinkContext) -> None:
        self._context = context
        self._name = f"velostream-{context.job}-{identity(context)}"
        self._upserts = context.unique and bool(context.key)
        self.takes_deletes = self._upserts
        self._columns = [field.name for field in context.schema]
        self._token = ""
        self._target_name = ""

    # --- what a database does -----------------------------------------------------------------------------

    @abstractmethod
    def _connected(self) -> str:
        """Connect, make what is missing, and check the table; returns its name, as messages have it."""

    @abstractmethod
    def _apply(self, added: pa.Table, gone: pa.Table | None) -> None:
        """Write rows, and delete those that are gone by key, inside a transaction."""

    @abstractmethod
    def _record(self, batch: int) -> None:
        """Record the step with its token, inside a transaction."""

    @abstractmethod
    def _written(self) -> tuple[int, str] | None:
        """The step that was recorded last, and its token."""

    @abstractmethod
    def _transaction(self, *, undone: bool = False) -> AbstractContextManager[object]:
        """A transaction, which is rolled back after an error, or in any case where it is `undone`."""

    @abstractmethod
    def _told(self) -> AbstractContextManager[None]:
        """Turns errors of the driver into those of sources; errors about rows stay as they are."""

    @abstractmethod
    def _reason(self, exc: Exception) -> str:
        """Why the server refuses a row."""

    # --- contract -----------------------------------------------------------------------------------------

    def recover(self, recorded: Mapping[str, Any] | None) -> None:
        """See `Sink`: a step is there as a whole or not at all, so there is nothing to undo."""
        with as_sink_errors():
            table = self._connected()
            found = self._written()
        have = int(recorded["step"]) if recorded and recorded.get("step") is not None else -1
        if found is not None and found[0] > have + 1:
            raise SinkChangedError(
                f"{table} holds step {found[0]} of this job, and {max(have, 0)} are known here",
                detail="what was written came from another copy of the data directory",
                hint="go on with the copy that wrote last, or begin anew with CREATE OR REPLACE",
            )
        self._target_name = table

    def intend(self, batch: int, rows: pa.Table) -> Mapping[str, Any] | None:
        """See `Sink`."""
        if not rows.num_rows:
            return None
        self._token = uuid.uuid4().hex
        return {"step": batch, "token": self._token}

    def settle(self, intended: Mapping[str, Any]) -> bool:
        """See `Sink`: the token is in the table of steps, or the step was not written."""
        with as_sink_errors():
            found = self._written()
        return found is not None and found[1] == intended["token"]

    def write(self, batch: int, rows: pa.Table) -> Mapping[str, Any]:
        """See `Sink`."""
        if rows.num_rows:
            with as_sink_errors(), self._told():
                try:
                    self._write(batch, rows)
                except self.refused:
                    self._write(batch, self._without_refused(rows))
        return {"step": batch}

    def _write(self, batch: int, rows: pa.Table) -> None:
        with self._transaction():
            self._step(rows)
            self._record(batch)

    def try_out(self, rows: pa.Table) -> None:
        """See `Sink`."""
        if rows.num_rows:
            with as_sink_errors(), self._told():
                self._without_refused(rows)

    def _step(self, rows: pa.Table) -> None:
        added, removed = _halves(rows)
        gone = _keys_without(removed, added, list(self._context.key)) if self._upserts else None
        self._apply(added, gone)

    # --- rows that are refused ----------------------------------------------------------------------------

    def _without_refused(self, rows: pa.Table) -> pa.Table:
        """The rows that the server takes; the others are set aside, each with the server's reason."""
        refused: dict[int, str] = {}
        places = _added(rows)

        def search(part: list[int]) -> None:
            try:
                with self._transaction(undone=True):
                    self._step(rows.take(part))
            except self.refused as exc:
                if len(part) == 1:
                    refused[part[0]] = self._reason(exc)
                    return
                middle = len(part) // 2
                search(part[:middle])
                search(part[middle:])

        if places:
            search(places)
        self._context.refuse(
            [self._bad(reason, rows.slice(place, 1)) for place, reason in sorted(refused.items())]
        )
        return rows.take([place for place in range(rows.num_rows) if place not in refused])

    def _bad(self, reason: str, row: pa.Table) -> BadRow:
        return BadRow(reason, self._target_name, "", "", next(iter(json_bytes(row))), row=packed(row))

    def _check_columns(self, table: object, there: Collection[str]) -> None:
        missing = [name for name in self._columns if name not in there]
        if missing:
            raise SinkConfigError(f'{table} has no column "{missing[0]}"', hint=MISSING_COLUMN)


def _added(rows: pa.Table) -> list[int]:
    """Which rows are added."""
    if WEIGHT not in rows.schema.names:
        return list(range(rows.num_rows))
    return [place for place, weight in enumerate(rows[WEIGHT].to_pylist()) if weight > 0]


def _halves(rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
    if WEIGHT not in rows.schema.names:
        return rows, None
    added = pc.greater(rows[WEIGHT], 0)
    plain = rows.drop_columns([WEIGHT])
    return plain.filter(added), plain.filter(pc.invert(added))


def _keys_without(removed: pa.Table | None, added: pa.Table, key: list[str]) -> pa.Table | None:
    """Keys of retracted rows that no added row has."""
    if removed is None or not removed.num_rows:
        return None
    there = {tuple(row.values()) for row in added.select(key).to_pylist()}
    stays = [tuple(row.values()) not in there for row in removed.select(key).to_pylist()]
    return removed.filter(pa.array(stays)).select(key)
