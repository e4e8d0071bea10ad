"""The property `retention` of a table: what it means for its columns, and the thread that carries it out."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import structlog

from velostream.errors import PropertyError, VelostreamError, did_you_mean
from velostream.model.durations import format_duration
from velostream.model.moments import micros
from velostream.model.statements import CreateTable
from velostream.model.tables import EXPIRES, Retention

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from velostream.model.options import CommonOptions
    from velostream.runtime.catalog import Catalog
    from velostream.serving.store import TableStore

log = structlog.get_logger("velostream.retention")

_LOOK_SECONDS = 0.5
"""How often tables are asked for rows that are due."""
_EPOCHS = {"epoch_seconds": 1_000_000, "epoch_millis": 1000}


def retention_of(options: CommonOptions, columns: pa.Schema) -> Retention | None:
    """What the properties say of a table with these columns; PropertyError where that makes no sense."""
    if options.retention is None:
        return None
    length = options.retention // timedelta(microseconds=1)
    if length <= 0:
        raise PropertyError("retention must be longer than nothing", hint='write it like "1h" or "7d"')
    written = options.event_time_column or options.watermark_column
    if written is None:
        return Retention(length)
    found = [name for name in columns.names if name.casefold() == written.casefold()]
    if not found:
        raise PropertyError(
            f'retention counts from "{written}", which is not a column of the table',
            hint=did_you_mean(written, columns.names)
            or "select it, or leave event.time.column out: "
            "then rows leave that long after they were last written",
        )
    kind = columns.field(found[0]).type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return Retention(length, found[0])
    unit = _EPOCHS.get(options.event_time_format)
    if unit is None or not pa.types.is_integer(kind):
        raise PropertyError(
            f'retention counts from "{found[0]}", which is {kind}',
            hint="make it a TIMESTAMP or a DATE; whole numbers need "
            '"event.time.format" = "epoch_seconds" or "epoch_millis"',
        )
    return Retention(length, found[0], unit)


def stored(schema: pa.Schema, retention: Retention | None) -> pa.Schema:
    """What a table with this retention stores."""
    return schema if retention is None else schema.append(pa.field(EXPIRES, pa.int64()))


def told(options: CommonOptions) -> str | None:
    """What EXPLAIN says."""
    if options.retention is None:
        return None
    column = options.event_time_column or options.watermark_column
    since = f"their {column}" if column else "they were last written"
    return f"rows leave {format_duration(options.retention)} after {since}"


class Retainer:
    """Takes rows out of tables when their retention is over; it runs once there is such a table."""

    def __init__(self, catalog: Catalog, store: TableStore, clock: Callable[[], datetime]) -> None:
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Begin, if a table asks for it."""
        if self._thread is None and not self._stop.is_set() and self._names():
            self._thread = threading.Thread(target=self._run, name="retention", daemon=True)
            self._thread.start()

    def _names(self) -> list[str]:
        return [
            entry.name
            for entry in self._catalog
            if isinstance(entry.statement, CreateTable) and "retention" in entry.statement.properties
        ]

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            for name in self._names():
                # It may be dropped or closed meanwhile; what cannot be written is told, and tried again.
                try:
                    self._expire(name)
                except (VelostreamError, OSError) as exc:
                    log.warning("retention", table=name, reason=str(exc))

    def _expire(self, name: str) -> None:
        table = self._store.readable(name)
        if table is None:
            return
        due = table.next_due
        if due is not None and due <= micros(self._clock()):
            table.expire()

    def stop(self) -> None:
        """End after the commit in hand."""
        self._stop.set()
        if self._thread is not None:
            with suppress(RuntimeError):
                self._thread.join(30)
