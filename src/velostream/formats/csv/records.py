"""CSV records without a header: the declared columns by place, or `_c0`, `_c1`, …"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from velostream.formats.columns.dataframes import BAD_ROW, RECORD, decode_csv
from velostream.formats.columns.inference import infer_csv
from velostream.formats.columns.values import text_value
from velostream.formats.columns.widening import with_room
from velostream.formats.csv.text import CsvDialect, numbered_names
from velostream.model.columns import BAD
from velostream.sql.types import literal, quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

_ENDS = "\r\n"
_UNFIT = literal("the record cannot be decoded")


@dataclass
class CsvDecoder:
    """One CSV record per record of the carrier."""

    dialect: CsvDialect
    names: Sequence[str] | None = None

    def columns(self, sample: Sequence[bytes]) -> pa.Schema | None:
        """Columns by position, typed by the sample's fields; the longest records decide their number."""
        rows = [values for values in map(self._values, sample) if values is not None]
        if not rows:
            return None
        count = len(self.names) if self.names else max(map(len, rows))
        self.names = self.names or numbered_names(count)
        return infer_csv(self.names, [row for row in rows if len(row) == count])

    def frame(
        self, records: DataFrame, fields: Sequence[pa.Field], passed: Sequence[str] = (), *, careful: bool
    ) -> DataFrame:
        """See `Decoder.frame`. One line end after a record is not part of it."""
        names = self.names or [field.name for field in fields]
        text = f"rtrim('\\r\\n', CAST({RECORD} AS STRING))"
        through = [quote(name) for name in passed]
        texts = records.selectExpr(f"{text} AS {RECORD}", f"{RECORD} IS NULL AS __null", *through)
        valid = f"__null OR (is_valid_utf8({RECORD}) AND {RECORD} <> '')"
        if not careful:
            refused = f"raise_error({literal(f'{BAD_ROW}: a record is empty or not UTF-8')})"
            return decode_csv(
                texts.where(f"{valid} OR {refused}"), names, fields, self.dialect, passed, careful=False
            )
        checked = texts.selectExpr(RECORD, f"NOT ({valid}) AS __invalid", *through)
        frame = decode_csv(checked, names, fields, self.dialect, [*passed, "__invalid"], careful=True)
        others = [quote(name) for name in frame.columns if name not in (BAD, "__invalid")]
        return frame.selectExpr(
            *others, f"CASE WHEN __invalid OR {BAD} IS NOT NULL THEN {_UNFIT} END AS {BAD}"
        )

    def reasons(self, records: Sequence[bytes], fields: Sequence[pa.Field]) -> list[str | None]:
        """See `Decoder.reasons`."""
        names = self.names or [field.name for field in fields]
        return [self._reason(record, names, fields) for record in records]

    def widen(self, records: Sequence[bytes], schema: pa.Schema) -> pa.Schema | None:
        """Wider types for numbers that do not fit; never more columns."""
        names = list(self.names or schema.names)
        wide = schema
        for record in records:
            values = self._values(record)
            if values is not None and len(values) == len(names):
                wide = with_room(wide, dict(zip(names, values, strict=True)), texts=True)
        return None if wide == schema else wide

    def _values(self, record: bytes) -> list[str | None] | None:
        try:
            text = record.decode("utf-8").rstrip(_ENDS)
        except UnicodeDecodeError:
            return None
        return self.dialect.values(text) if text and not self.dialect.unclosed(text) else None

    def _reason(self, record: bytes, names: Sequence[str], fields: Sequence[pa.Field]) -> str | None:
        try:
            text = record.decode("utf-8").rstrip(_ENDS)
        except UnicodeDecodeError as exc:
            return f"not valid UTF-8: {exc.reason} at byte {exc.start}"
        if not text:
            return "empty"
        try:
            values = self.dialect.values(text)
        except ValueError as exc:
            return str(exc)
        if len(values) != len(names):
            return f"{len(values)} fields where {len(names)} are expected"
        by_name = {name.casefold(): value for name, value in zip(names, values, strict=True)}
        for field in fields:
            value = by_name.get(field.name.casefold())
            try:
                if value is not None:
                    text_value(value, field.type)
            except ValueError as exc:
                return f'column "{field.name}": {exc}'
        return None
