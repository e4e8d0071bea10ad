"""Tables of ClickHouse as a sink.

ClickHouse has no transactions, but it recognises an insert that comes again, by a token. So a step is kept
here, with its token, before it is sent; after a crash it is sent again as it was.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import structlog

from velostream.connectors.base import Delivery, Sink
from velostream.connectors.clickhouse.client.connections import Client
from velostream.connectors.clickhouse.client.failures import FAILURES, error_of, said
from velostream.connectors.clickhouse.client.types import quoted
from velostream.connectors.clickhouse.write.columns import checked, halves
from velostream.connectors.clickhouse.write.target import Target, target
from velostream.connectors.databases.text_rows import decode
from velostream.connectors.sinks import as_sink_errors, identity
from velostream.disk.full_disk import storing
from velostream.disk.sealed_json import replace_file
from velostream.errors import SinkConfigError, SourceDataError, UnsupportedError
from velostream.formats.json.writer import json_bytes
from velostream.formats.row_bytes import packed
from velostream.model.changes import BadRow
from velostream.model.columns import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from velostream.connectors.base import SinkContext
    from velostream.connectors.clickhouse.options import ClickHouseOptions

log = structlog.get_logger("velostream.connectors")

_BLOCK_ROWS = 1_000_000
"""Rows of one insert: ClickHouse takes them as one block, wholly or not at all."""
_PENDING = "pending.arrow"
_SETTINGS = {
    # An answer means that the rows are there, and a token counts for views of the table too.
    "async_insert": 0,
    "insert_deduplicate": 1,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    "distributed_foreground_insert": 1,
    # A NULL that a column cannot hold is an error, and not its default.
    "input_format_null_as_default": 0,
}


def await_table(options: ClickHouseOptions) -> None:
    """Raise where the table does not exist and is not to be made."""
    client = Client(options)
    try:
        with as_sink_errors():
            target(client, options, None, (), unique=False)
    finally:
        client.close()


class ClickHouseSink(Sink):
    """Appends rows, or, where the table replaces rows by key, writes versions of them."""

    delivery = Delivery.EXACTLY_ONCE

    def __init__(self, options: ClickHouseOptions, context: SinkContext) -> None:
        self._options = options
        self._context = context
        self._client = Client(options)
        self._name = f"velostream-{context.job}-{identity(context)}"
        self._pending = context.state / _PENDING
        self._found: Target | None = None
        self._version = 0
        self._token = ""

    # --- contract -----------------------------------------------------------------------------------------

    def recover(self, recorded: Mapping[str, Any] | None) -> None:
        """See `Sink`: nothing is undone; a step that was begun is finished by `settle`."""
        context = self._context
        with as_sink_errors():
            self._found = target(
                self._client,
                self._options,
                context.schema,
                context.key,
                unique=context.unique,
                resumed=context.resumed,
            )
            self.takes_deletes = self._found.takes_changes
            if self._found.version is not None:
                query = f"SELECT max({quoted(self._found.version)}) FROM {self._found.table.identifier}"
                self._version = int(self._client.rows(query)[0][0] or 0)
        if not self._found.idempotent:
            self.delivery = Delivery.AT_LEAST_ONCE
            self._tell_guarantee(self._found)

    def intend(self, batch: int, rows: pa.Table) -> Mapping[str, Any] | None:
        """See `Sink`: the rows are kept until the write is recorded."""
        if not rows.num_rows:
            return None
        self._token = f"{self._name}-{batch}-{uuid.uuid4().hex}"
        self._version = max(self._version + 1, time.time_ns() // 1000)
        told = {"token": self._token, "version": self._version}
        out = pa.BufferOutputStream()
        kept = rows.replace_schema_metadata({"step": json.dumps(told)})
        with pa.ipc.new_file(out, kept.schema) as writer:
            writer.write_table(kept)
        with storing(self._pending):
            replace_file(self._pending, out.getvalue().to_pybytes())
        return {"step": batch, **told}

    def settle(self, intended: Mapping[str, Any]) -> bool:
        """See `Sink`: what was begun is sent again, under its token, so that it is there once."""
        try:
            rows = pa.ipc.open_file(self._pending.read_bytes()).read_all()
        except FileNotFoundError:
            return False
        told = json.loads(rows.schema.metadata[b"step"])
        if told["token"] != intended["token"]:
            return False
        self._token, self._version = told["token"], max(self._version, told["version"])
        with as_sink_errors():
            self._write(rows.replace_schema_metadata(None), told["version"])
        return True

    def write(self, batch: int, rows: pa.Table) -> Mapping[str, Any]:
        """See `Sink`."""
        if rows.num_rows:
            if not self._token:
                self.intend(batch, rows)
            with as_sink_errors():
                self._write(rows, self._version)
            self._token = ""
        return {"step": batch}

    def committed(self, recorded: Mapping[str, Any]) -> None:
        """See `Sink`."""
        self._pending.unlink(missing_ok=True)

    def try_out(self, rows: pa.Table) -> None:
        """See `Sink`."""
        if rows.num_rows:
            with as_sink_errors():
                self._without_refused(self._fitting(self._to_write(rows, 0)))

    def close(self) -> None:
        """See `Sink`."""
        self._client.close()

    # --- a step -------------------------------------------------------------------------------------------

    def _write(self, rows: pa.Table, version: int) -> None:
        ready = self._fitting(self._to_write(rows, version))
        try:
            self._insert(self._target.table.identifier, ready)
        except FAILURES as exc:
            failure = error_of(exc, f"cannot write to {self._target.table} of {self._client.name}")
            if not isinstance(failure, SourceDataError):
                raise failure from exc
            self._insert(self._target.table.identifier, self._without_refused(ready))

    def _to_write(self, rows: pa.Table, version: int) -> pa.Table:
        """The rows of a step as the table holds them."""
        found = self._target
        added, removed = halves(rows, WEIGHT)
        if found.sign is not None:
            parts = [part.append_column(found.sign, _filled(part, sign, pa.int8())) for part, sign in (
                (removed, -1), (added, 1)) if part is not None]  # fmt: skip
            return pa.concat_tables(parts)
        if not found.takes_changes:
            return added
        key = list(self._context.key)
        if removed is not None and removed.num_rows:
            there = {tuple(row.values()) for row in added.select(key).to_pylist()}
            gone = [tuple(row.values()) not in there for row in removed.select(key).to_pylist()]
            removed = removed.filter(pa.array(gone, pa.bool_()))
        parts = [added] if removed is None else [removed, added]
        if found.deleted is None and removed is not None and removed.num_rows:
            raise UnsupportedError(
                f"a row was deleted, and {found.table} has no column that tells so",
                hint="give ReplacingMergeTree a second argument, a UInt8 that marks deleted rows",
            )
        if found.deleted is not None:
            parts = [
                part.append_column(found.deleted, _filled(part, int(part is removed), pa.uint8()))
                for part in parts
            ]
        whole = pa.concat_tables(parts)
        if found.version is not None:
            whole = whole.append_column(found.version, _filled(whole, version, pa.uint64()))
        return whole

    def _insert(self, table: str, rows: pa.Table) -> None:
        for number, start in enumerate(range(0, rows.num_rows, _BLOCK_ROWS)):
            settings = {**_SETTINGS, "insert_deduplication_token": f"{self._token}-{number}"}
            self._client.insert(table, rows.slice(start, _BLOCK_ROWS), settings)

    # --- rows that are refused ----------------------------------------------------------------------------

    def _fitting(self, rows: pa.Table) -> pa.Table:
        """The rows whose values the table's types can hold, as these types; others are set aside."""
        types = self._target.types
        columns = [checked(field, types[field.name]) for field in rows.schema]
        made = decode(columns, [column.combine_chunks() for column in rows.columns])
        self._refuse(rows, {row: bad.reason for row, bad in made.bad.items()})
        ready = pa.table(dict(made.columns))
        return _others(ready, made.bad.keys()) if made.bad else ready

    def _without_refused(self, rows: pa.Table) -> pa.Table:
        """The rows that the server takes; the others are set aside, each with the server's reason.

        They are tried on a table of the same columns and constraints that keeps nothing.
        """
        refused: dict[int, str] = {}
        table = self._target.table
        helper = f"{quoted(table.database)}.{quoted(f'velostream_try_{uuid.uuid4().hex}')}"
        self._client.run(f"CREATE TABLE {helper} AS {table.identifier} ENGINE = Null")
        try:
            _search(
                rows.num_rows, lambda low, high: self._tried(helper, rows.slice(low, high - low)), refused
            )
        finally:
            self._client.run(f"DROP TABLE IF EXISTS {helper}")
        self._refuse(rows, refused)
        return _others(rows, refused.keys())

    def _tried(self, helper: str, rows: pa.Table) -> str | None:
        """Why the server does not take these rows; None where it does."""
        try:
            self._insert(helper, rows)
        except FAILURES as exc:
            failure = error_of(exc, f"cannot write to {self._client.name}")
            if not isinstance(failure, SourceDataError):
                raise failure from exc
            return said(exc)
        return None

    def _refuse(self, rows: pa.Table, reasons: Mapping[int, str]) -> None:
        plain = rows.select([name for name in rows.column_names if name in self._context.schema.names])
        self._context.refuse(
            [
                BadRow(
                    reason,
                    str(self._target.table),
                    "",
                    "",
                    next(iter(json_bytes(plain.slice(place, 1)))),
                    row=packed(plain.slice(place, 1).cast(self._context.schema)),
                )
                for place, reason in sorted(reasons.items())
            ]
        )

    # --- inside -------------------------------------------------------------------------------------------

    @property
    def _target(self) -> Target:
        assert self._found is not None, "recover was called"
        return self._found

    def _tell_guarantee(self, found: Target) -> None:
        hint = (
            f"ALTER TABLE {found.table.identifier} MODIFY SETTING non_replicated_deduplication_window = 1000"
        )
        why = f"{found.table} does not recognise an insert that comes again"
        if self._context.delivery is Delivery.EXACTLY_ONCE:
            raise SinkConfigError(f'{why}: "delivery" = "exactly_once" cannot be kept', hint=hint)
        log.warning(
            "after a crash the rows of a step may be there twice", sink=self._name, reason=why, hint=hint
        )


def _search(count: int, tried: Callable[[int, int], str | None], refused: dict[int, str]) -> None:
    """Find rows that are refused, by halves: they are few."""
    left = [(0, count)] if count else []
    while left:
        low, high = left.pop()
        why = tried(low, high)
        if why is None:
            continue
        if high - low == 1:
            refused[low] = why
            continue
        middle = (low + high) // 2
        left += [(low, middle), (middle, high)]


def _filled(rows: pa.Table, value: int, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), rows.num_rows)


def _others(rows: pa.Table, without: Any) -> pa.Table:
    return rows.take(pa.array([place for place in range(rows.num_rows) if place not in without], pa.int64()))
