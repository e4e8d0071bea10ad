"""Encoders of rows to records: one per format, made by `encoder_for`; the inverse of `decoder`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from velostream.errors import ConfigError, did_you_mean
from velostream.formats.csv.writer import csv_lines
from velostream.formats.decoder import FormatSettings
from velostream.formats.json.text import json_value, plain_text
from velostream.formats.json.writer import json_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.formats.csv.text import CsvDialect

FORMATS = ("json", "avro", "protobuf", "csv", "raw")


class RecordEncoder(Protocol):
    """Encodes rows of one schema as records."""

    def records(self, rows: pa.Table) -> Sequence[bytes | None]:
        """One record per row; ValueError when a row cannot be represented in this format."""


def encoder_for(
    form: str,
    schema: pa.Schema,
    settings: FormatSettings | None = None,
    *,
    decimals_as_text: bool = False,
) -> RecordEncoder:
    """The encoder of rows with these columns; ConfigError when the format cannot represent them.

    Avro and Protobuf are written with the schema of `schema_file`, else with one derived from the columns.
    With a registry it is registered under the subject at once, and its id is in every record.
    """
    settings = settings or FormatSettings()
    if form == "json":
        return JsonEncoder(decimals_as_text)
    if form == "csv":
        return CsvEncoder(settings.dialect)
    if form == "raw":
        if len(schema) != 1:
            raise ConfigError(
                f"the format raw writes one column as it is, and there are {', '.join(schema.names)}",
                hint="select one column, or take another format",
            )
        return RawEncoder()
    if form == "avro":
        from velostream.formats.avro.writer import AvroEncoder

        return AvroEncoder(schema, settings)
    if form == "protobuf":
        from velostream.formats.protobuf.writer import ProtobufEncoder

        return ProtobufEncoder(schema, settings)
    raise ConfigError(f'format "{form}" cannot be written', hint=did_you_mean(form, FORMATS))


@dataclass(frozen=True)
class JsonEncoder:
    """One object per row, every digit kept."""

    decimals_as_text: bool = False

    def records(self, rows: pa.Table) -> Sequence[bytes]:
        """See `RecordEncoder`."""
        return list(json_bytes(rows, self.decimals_as_text))


@dataclass(frozen=True)
class CsvEncoder:
    """One CSV record per row, without a line end."""

    dialect: CsvDialect

    def records(self, rows: pa.Table) -> Sequence[bytes]:
        """See `RecordEncoder`."""
        return [line.removesuffix("\n").encode() for line in csv_lines(rows, self.dialect)]


@dataclass(frozen=True)
class RawEncoder:
    """The one column unchanged: bytes, or the text of its value; null stays null."""

    def records(self, rows: pa.Table) -> Sequence[bytes | None]:
        """See `RecordEncoder`."""
        column = rows.column(0)
        if pa.types.is_string(column.type) or pa.types.is_integer(column.type):
            return column.cast(pa.string()).cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
        return [None if value is None else _raw(value) for value in column.to_pylist()]


def _raw(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return (json_value(value) if isinstance(value, dict | list) else plain_text(value)).encode()
