"""Rows that are only added: a thread receives them into a durable log, of which the job reads ranges."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.capabilities import Awaited, SparkReader
from velostream.connectors.databases.source import ONLY, DatabaseSource
from velostream.errors import CorruptDataError, InternalError, SourceEmptyError, VelostreamError
from velostream.formats.columns.dataframes import RECORD
from velostream.formats.decoder import decoder_for
from velostream.formats.json.lines import unknown_records
from velostream.formats.records import join_records
from velostream.model.changes import BadRow, Located
from velostream.model.columns import BAD, ENTERED, OFFSET, PARTITION, POSITION
from velostream.spark.dataframes import arrow_frame, empty_frame

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from datetime import timedelta

    from pyspark.sql import DataFrame, SparkSession

    from velostream.connectors.base import SourceContext
    from velostream.connectors.databases.change_log import ChangeLog
    from velostream.connectors.databases.source import Reader
    from velostream.connectors.http.options import HttpOptions
    from velostream.model.changes import Offset

_ID = "id"
_SAMPLE = 1000
REMEMBERED = 100_000
"""Rows among which one that comes again is recognised."""
_UTC_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([(RECORD, pa.binary()), (_ID, pa.string()), (ENTERED, _UTC_TIME)])


class RecordsSource(DatabaseSource, SparkReader, Awaited):
    """The records that a reader receives, decoded by Spark. They are never retracted."""

    def __init__(self, reader: Reader, options: HttpOptions, context: SourceContext) -> None:
        # What was acknowledged is nowhere else: a damaged log is an error, not a reason to begin anew.
        super().__init__(reader, context, reload=False, follows=True)
        self._options = options
        self._decoder = decoder_for("json")
        self._schema = context.schema
        self._used: Sequence[str] | None = None

    key = ()

    def retry_delay(self, attempt: int) -> timedelta:
        """See `Awaited`."""
        return self._options.retry_interval

    def discover(self) -> pa.Schema:
        """See `Source`: inferred from the first records. They are received from now on."""
        if self._schema is None:
            self._receive()
            self._schema = self._decoder.columns(self._first())
            if self._schema is None:
                raise SourceEmptyError(
                    f"{self._reader.name} has sent no row yet to tell its columns from",
                    hint="declare them: CREATE SOURCE name (column type, …) FROM …",
                )
        return self._schema

    def check(self) -> None:
        """See `Source`."""
        self._receive()

    def _receive(self) -> None:
        """Begin to receive; raises why that is not possible, and then it can be tried again."""
        try:
            self.latest(None)
        except VelostreamError:
            self._begin_again()
            raise

    def _first(self) -> list[bytes]:
        found: list[bytes] = []
        for _, batch in self._log.between(None, self._log.end):
            found += batch.column(RECORD).to_pylist()
            if len(found) >= _SAMPLE:
                break
        return found[:_SAMPLE]

    # --- reading ------------------------------------------------------------------------------------------

    def read(self, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """See `Source`: always decoded by Spark."""
        raise InternalError("records are decoded by Spark")

    def frame(
        self,
        spark: SparkSession,
        start: Offset | None,
        end: Offset,
        columns: Sequence[str] | None,
        *,
        careful: bool = False,
    ) -> DataFrame | None:
        """See `SparkReader`."""
        schema = self.discover()
        self.session, self._used = spark, columns
        system = [name for name in columns or () if name in _SYSTEM and name not in schema.names]
        return self._frame(spark, self._rows(start, end), self._fields(columns), system, careful=careful)

    def _frame(
        self,
        spark: SparkSession,
        rows: pa.Table,
        fields: Sequence[pa.Field],
        system: Sequence[str],
        *,
        careful: bool,
    ) -> DataFrame:
        records = rows.select([RECORD, *system])
        frame = arrow_frame(spark, records) if records.num_rows else empty_frame(spark, records.schema)
        return self._decoder.frame(frame, fields, system, careful=careful)

    def _rows(self, start: Offset | None, end: Offset) -> pa.Table:
        """The undecoded records of a range, with their places."""
        first = None if start is None else int(start[ONLY])
        return _placed(self._log.between(first, int(end[ONLY])))

    # --- records that are bad, or have more than is known ------------------------------------------------

    def has_bad_rows(self, start: Offset | None, end: Offset) -> bool:
        """See `BadRecords`: what is received is set aside only when it is decoded."""
        return False

    def bad_rows(self, start: Offset | None, end: Offset) -> Iterator[BadRow]:
        """See `BadRecords`."""
        bad = self._bad(start, end)
        reasons = self._decoder.reasons(bad[RECORD].to_pylist(), self._fields(self._used))
        for row, reason in zip(bad.to_pylist(), reasons, strict=True):
            yield BadRow(
                reason or row[BAD],
                self._reader.name,
                ONLY,
                str(row[OFFSET]),
                row[RECORD],
                position=row[POSITION],
                event_time=row[ENTERED],
            )

    def _bad(self, start: Offset | None, end: Offset) -> pa.Table:
        rows = self._rows(start, end)
        if self.session is None:
            return rows.slice(0, 0).append_column(BAD, pa.nulls(0, pa.string()))
        frame = self._frame(self.session, rows, self._fields(self._used), [POSITION], careful=True)
        told = frame.where(f"{BAD} IS NOT NULL").select(POSITION, BAD).toArrow()
        places = pc.index_in(rows[POSITION], told[POSITION].combine_chunks())
        found = rows.filter(places.is_valid())
        return found.append_column(BAD, told[BAD].combine_chunks().take(places.combine_chunks().drop_null()))

    def located(self, positions: Collection[str], end: Offset) -> dict[str, Located]:
        """See `BadRecords`."""
        rows = _placed(self._log.kept())
        found = rows.filter(pc.is_in(rows[POSITION], pa.array(list(positions), pa.string())))
        return {row[POSITION]: Located(ONLY, str(row[OFFSET]), row[RECORD]) for row in found.to_pylist()}

    def new_columns(self, start: Offset | None, end: Offset) -> bool:
        """See `Widening`."""
        return next(self._unknown(start, end), None) is not None

    def widen(self, start: Offset | None, end: Offset) -> pa.Schema | None:
        """See `Widening`; the wider schema is used from now on."""
        if self._context.declared:
            return None
        schema = self.discover()
        records = [*self._bad(start, end)[RECORD].to_pylist(), *self._unknown(start, end)]
        wider = self._decoder.widen(records, schema)
        if wider is None or wider.equals(schema):
            return None
        self._schema = wider
        return wider

    def _unknown(self, start: Offset | None, end: Offset) -> Iterator[bytes]:
        """Records with fields that no column has; of interest only where all columns are used."""
        known = self.discover()
        everything = self._used is None or set(known.names) <= set(self._used)
        if everything and not self._context.declared:
            text, separator = join_records(self._rows(start, end)[RECORD].to_pylist())
            yield from unknown_records(text, separator, known)

    def commit(self, offset: Offset) -> None:
        """See `Source`: the newest rows stay, since they may be delivered again."""
        self._log.forget(int(offset[ONLY]) - REMEMBERED)

    def _fields(self, columns: Sequence[str] | None) -> list[pa.Field]:
        schema = self.discover()
        if columns is None:
            return list(schema)
        wanted = {name.casefold() for name in columns}
        return [one for one in schema if one.name.casefold() in wanted]


def _placed(found: Iterator[tuple[int, pa.RecordBatch]]) -> pa.Table:
    """Records, each batch with the number of those before it, with their places as system columns."""
    parts = []
    for number, batch in found:
        numbers = np.arange(number + 1, number + 1 + batch.num_rows, dtype=np.int64)
        columns = {
            RECORD: batch.column(RECORD),
            ENTERED: batch.column(ENTERED),
            PARTITION: pa.array([ONLY]).take(pa.array(np.zeros(len(numbers), np.int32))),
            OFFSET: pa.array(numbers),
            POSITION: pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 20, "0"),
        }
        parts.append(pa.table(columns))
    return pa.concat_tables(parts) if parts else _NOTHING


class Received:
    """Writes records into the log, but for those that came before."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self._seen: OrderedDict[str, None] = OrderedDict()
        for _, batch in log.kept():
            self._remember(one for one in batch.column(_ID).to_pylist() if one is not None)

    @staticmethod
    def begin(log: ChangeLog, after: int, position: Any) -> None:
        """Begin the log of a new statement; raises for an older one, whose log is gone."""
        if after:
            raise CorruptDataError(
                f"the log of what was received is gone, of which {after:,} rows were read",
                hint="put it back; or begin anew with CREATE OR REPLACE",
            )
        log.begin_load(0)
        log.append(SCHEMA.empty_table(), position, whole=True)

    def take(self, records: Sequence[bytes], ids: Sequence[str | None], position: Any) -> list[bool]:
        """Make records durable, with the position after them; returns which of them are new."""
        new = []
        for one in ids:
            new.append(one is None or one not in self._seen)
            self._remember([one] if one is not None else ())
        fresh = [record for record, wanted in zip(records, new, strict=True) if wanted]
        given = [one for one, wanted in zip(ids, new, strict=True) if wanted]
        now = pa.array(np.full(len(fresh), time.time_ns() // 1000, dtype=np.int64)).cast(_UTC_TIME)
        rows = pa.table([pa.array(fresh, pa.binary()), pa.array(given, pa.string()), now], SCHEMA)
        try:
            if fresh or position != self._log.position:
                self._log.append(rows, position, whole=True, divisible=True)
        except BaseException:
            for one in given:
                self._seen.pop(one or "", None)
            raise
        return new

    def _remember(self, ids: Collection[str] | Iterator[str]) -> None:
        for one in ids:
            self._seen[one] = None
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)


_SYSTEM = (ENTERED, PARTITION, OFFSET, POSITION)
_NOTHING = pa.table(
    {
        RECORD: pa.nulls(0, pa.binary()),
        ENTERED: pa.nulls(0, _UTC_TIME),
        PARTITION: pa.nulls(0, pa.string()),
        OFFSET: pa.nulls(0, pa.int64()),
        POSITION: pa.nulls(0, pa.string()),
    }
)
