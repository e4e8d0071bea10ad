"""JSON records that were not checked before Spark reads them.

Spark's parser is lenient where it costs rows: it replaces bytes that are not UTF-8, stops where the first
object ends, and rounds decimals. Here each of these makes a record bad.

The fast way parses a decimal with all the places that 38 digits leave and compares it with the column's
value, so that lost digits are noticed without a text per value. Only digits beyond those places could still
hide: after as many zeros or nines, or by a negative exponent. Records that may contain such a number fail in
the fast way, and are parsed as texts in the careful one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from velostream.formats.columns.inference import infer_json, load_json
from velostream.formats.columns.values import json_value
from velostream.formats.columns.widening import with_room
from velostream.formats.json.columns import decode_fast, decode_with_care

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class JsonDecoder:
    """One JSON object per record."""

    def columns(self, sample: Sequence[bytes]) -> pa.Schema | None:
        """Columns inferred from the fields of the sample's objects."""
        return infer_json(sample) or None

    def frame(
        self, records: DataFrame, fields: Sequence[pa.Field], passed: Sequence[str] = (), *, careful: bool
    ) -> DataFrame:
        """See `Decoder.frame`."""
        decode = decode_with_care if careful else decode_fast
        return decode(records, fields, passed)

    def reasons(self, records: Sequence[bytes], fields: Sequence[pa.Field]) -> list[str | None]:
        """See `Decoder.reasons`."""
        return [_reason(record, fields) for record in records]

    def widen(self, records: Sequence[bytes], schema: pa.Schema) -> pa.Schema | None:
        """New fields, and wider types for numbers that do not fit."""
        wide = schema
        for record in records:
            try:
                wide = with_room(wide, parse_object(record))
            except ValueError:
                continue
        return None if wide == schema else wide


def parse_object(record: bytes) -> dict[str, Any]:
    """The object that a record is, digits of its numbers kept; ValueError says why it is none."""
    try:
        text = record.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise ValueError(f"not valid UTF-8: {exc.reason} at byte {exc.start}") from exc
    if not text.strip():
        raise ValueError("empty")
    value = load_json(text)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - a bad row, not a bug
    return value


def _reason(record: bytes, fields: Sequence[pa.Field]) -> str | None:
    try:
        values = parse_object(record)
        for field in fields:
            try:
                json_value(values.get(field.name), field.type)
            except ValueError as exc:
                raise ValueError(f'column "{field.name}": {exc}') from exc
    except ValueError as exc:
        return str(exc)
    return None
