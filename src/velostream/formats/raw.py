"""The format `raw`: records without decoding, with columns of the carrier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.formats.columns.dataframes import RECORD, all_looked_at
from velostream.formats.columns.types import spark_name
from velostream.model.columns import BAD, ENTERED, KEY, OFFSET, PARTITION
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame

_TIMESTAMP = "timestamp"
_NOT_TEXT = "not valid UTF-8 (declared as BINARY, it is taken as bytes)"
_GIVEN = {"key": KEY, _TIMESTAMP: ENTERED, "partition": PARTITION, "offset": OFFSET}
"""Columns of the frame of records that supply the others, where it has them."""


@dataclass(frozen=True)
class RawDecoder:
    """The record as `value`, and its metadata as `key`, `timestamp`, `partition`, `offset`.

    These are taken from the columns `_key`, `_timestamp`, `_partition` and `_offset` of the frame of records;
    missing ones are null. As text, key and value must be UTF-8, or the record is bad. A timestamp that is
    declared as a number is in milliseconds, as Kafka has it.
    """

    def columns(self, sample: Sequence[bytes]) -> pa.Schema | None:
        """Text, unless the sample has values that are not; the key, which is not given, is text."""
        return pa.schema(
            [
                pa.field("key", pa.string()),
                pa.field("value", text_or_bytes(sample)),
                pa.field(_TIMESTAMP, pa.timestamp("us", tz="UTC")),
                pa.field("partition", pa.int32()),
                pa.field("offset", pa.int64()),
            ]
        )

    def frame(
        self, records: DataFrame, fields: Sequence[pa.Field], passed: Sequence[str] = (), *, careful: bool
    ) -> DataFrame:
        """See `Decoder.frame`."""
        there = set(records.columns)
        values, texts, checked = [], [], []
        for field in fields:
            source = RECORD if field.name == "value" else _GIVEN.get(field.name, "")
            kind = spark_name(field.type)
            given = source if source in there else "NULL"
            if field.name == _TIMESTAMP and pa.types.is_integer(field.type) and source in there:
                given = f"unix_millis({source})"
            value = f"CAST({given} AS {kind})"
            if kind == "STRING" and source in (RECORD, KEY) and source in there:
                texts.append(value)
                checked.append(field.name)
                value = value if careful else f"validate_utf8({value})"
            values.append(f"{value} AS {quote(field.name)}")
        if careful:
            invalid = " OR ".join(f"NOT is_valid_utf8({text})" for text in texts) or "false"
            values.append(f"CASE WHEN {invalid} THEN '{_NOT_TEXT}' END AS {BAD}")
        frame = records.selectExpr(*values, *(quote(name) for name in passed))
        return frame if careful else all_looked_at(frame, checked)

    def reasons(self, records: Sequence[bytes], fields: Sequence[pa.Field]) -> list[str | None]:
        """See `Decoder.reasons`; of the value, as the key is not given."""
        text = any(field.name == "value" and pa.types.is_string(field.type) for field in fields)
        return [_not_text(record) if text else None for record in records]

    def widen(self, records: Sequence[bytes], schema: pa.Schema) -> pa.Schema | None:
        """Never."""
        return None


def text_or_bytes(sample: Iterable[bytes]) -> pa.DataType:
    """STRING where all of these are text, else BINARY."""
    return pa.binary() if any(_not_text(each) for each in sample) else pa.string()


def _not_text(record: bytes) -> str | None:
    try:
        record.decode("utf-8")
    except UnicodeDecodeError as exc:
        return f"{_NOT_TEXT}: {exc.reason} at byte {exc.start}"
    return None
