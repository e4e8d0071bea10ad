"""Tables of databases as sinks: one transaction for each step, in which the step's token is recorded."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.base import Delivery, Sink
from velostream.connectors.databases.write.refused_rows import RefusedRowError, write_taken
from velostream.connectors.sinks import as_sink_errors, identity
from velostream.errors import SinkChangedError, SinkConfigError, SourceDataError
from velostream.formats.json.writer import json_bytes
from velostream.formats.row_bytes import packed
from velostream.model.changes import BadRow
from velostream.model.columns import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from velostream.connectors.base import SinkContext
    from velostream.errors import SourceError

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
    failure: ClassVar[type[Exception]]
    """What errors of the driver are."""

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
        """The step that was recorded last, and its token; a commit that is under way is waited for."""

    @abstractmethod
    def _transaction(self, *, undone: bool = False) -> AbstractContextManager[object]:
        """A transaction, which is undone after an error, or in any case."""

    @abstractmethod
    def _savepoint(self) -> AbstractContextManager[object]:
        """A part of a transaction, which is undone after an error."""

    def _check_late(self) -> None:
        """Let the server check now what it would check at the end of the transaction."""

    @abstractmethod
    def _refusal(self, exc: Exception) -> RefusedRowError | None:
        """What an error of the driver says about a row; None where it is not about one."""

    @abstractmethod
    def _error(self, exc: Exception) -> SourceError:
        """An error of the driver as one of ours."""

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
                except RefusedRowError:
                    self._write_taken(batch, rows)
        return {"step": batch}

    def _write(self, batch: int, rows: pa.Table) -> None:
        with self._about_rows(), self._transaction():
            _, added, removed = self._parts(rows)
            self._apply_numbered(rows, [*removed, *added])
            self._record(batch)

    def try_out(self, rows: pa.Table) -> None:
        """See `Sink`."""
        if rows.num_rows:
            with as_sink_errors(), self._told(), self._transaction(undone=True):
                self._refuse(rows)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turns errors of the driver into ours, also those about rows that could not be told apart."""
        try:
            yield
        except RefusedRowError as exc:
            cause = exc.__cause__
            raise (
                self._error(cause) if isinstance(cause, self.failure) else SourceDataError(str(exc))
            ) from exc
        except self.failure as exc:
            raise self._error(exc) from exc

    @contextmanager
    def _about_rows(self) -> Iterator[None]:
        try:
            yield
        except self.failure as exc:
            refusal = self._refusal(exc)
            if refusal is None:
                raise
            raise refusal from exc

    # --- rows that are refused ----------------------------------------------------------------------------

    def _write_taken(self, batch: int, rows: pa.Table) -> None:
        """Write the rows that the server takes; the others are set aside, each with the server's reason."""
        with self._about_rows(), self._transaction():
            self._refuse(rows)
            self._record(batch)

    def _refuse(self, rows: pa.Table) -> None:
        """Write the rows that the server takes, inside a transaction, and set the others aside."""
        outdated, added, removed = self._parts(rows)

        def attempt(numbers: Sequence[int]) -> RefusedRowError | None:
            try:
                with self._about_rows(), self._savepoint():
                    self._apply_numbered(rows, numbers)
                    self._check_late()
            except RefusedRowError as exc:
                return exc
            return None

        refused = write_taken([*removed, *added], outdated, attempt)
        self._context.refuse(
            [self._bad(str(error), rows.slice(number, 1)) for number, error in sorted(refused.items())]
        )

    def _parts(self, rows: pa.Table) -> tuple[dict[int, int], list[int], list[int]]:
        """The numbers of rows to add and of those to delete.

        The retracted row of a key that is added again is not deleted, but replaced: the first part of the
        answer is its number by that of the row that replaces it.
        """
        if WEIGHT not in rows.schema.names:
            return {}, list(range(rows.num_rows)), []
        weights = rows[WEIGHT].to_pylist()
        added = [number for number, weight in enumerate(weights) if weight > 0]
        removed = [number for number, weight in enumerate(weights) if weight < 0]
        keys = [tuple(row.values()) for row in rows.select(list(self._context.key)).to_pylist()]
        again = {keys[number]: number for number in added}
        outdated = {again[keys[number]]: number for number in removed if keys[number] in again}
        return outdated, added, [number for number in removed if keys[number] not in again]

    def _apply_numbered(self, rows: pa.Table, numbers: Sequence[int]) -> None:
        """Write rows with these numbers, deletions first."""
        chosen = rows if len(numbers) == rows.num_rows else rows.take(pa.array(numbers, pa.int64()))
        gone = None
        if WEIGHT in rows.schema.names:
            there = pc.greater(chosen[WEIGHT], 0)
            plain = chosen.drop_columns([WEIGHT])
            chosen, gone = plain.filter(there), plain.filter(pc.invert(there)).select(list(self._context.key))
        self._apply(chosen, gone)

    def _bad(self, reason: str, row: pa.Table) -> BadRow:
        return BadRow(reason, self._target_name, "", "", next(iter(json_bytes(row))), row=packed(row))

    def _check_columns(self, table: object, there: Collection[str]) -> None:
        missing = [name for name in self._columns if name not in there]
        if missing:
            raise SinkConfigError(f'{table} has no column "{missing[0]}"', hint=MISSING_COLUMN)

    def _check_scales(self, table: object, scales: Mapping[str, int]) -> None:
        """Refuse columns of the table that would round what is written: no server says a word of that."""
        for field in self._context.schema:
            places = scales.get(field.name)
            if places is not None and pa.types.is_decimal(field.type) and field.type.scale > places:
                raise SinkConfigError(
                    f'column "{field.name}" of {table} has {places} decimal places, and would round '
                    f"DECIMAL({field.type.precision},{field.type.scale})",
                    hint=f"alter its type; or select CAST({field.name} AS DECIMAL("
                    f"{field.type.precision},{max(places, 0)}))",
                )
