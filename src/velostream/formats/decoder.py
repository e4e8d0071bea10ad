"""Decoders of records to columns, independent of the carrier: one per format, made by `decoder_for`.

A frame of records has a BINARY column `record` and any further columns. A null record gives a row of nulls:
its meaning is up to the carrier.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from velostream.errors import SourceConfigError, did_you_mean
from velostream.formats.csv.text import CsvDialect

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

FORMATS = ("json", "avro", "protobuf", "csv", "debezium", "raw")


class Decoder(Protocol):
    """Turns the records of one source into columns."""

    def columns(self, sample: Sequence[bytes]) -> pa.Schema | None:
        """The columns of such records, from their schema where there is one; None when unknown."""

    def frame(
        self, records: DataFrame, fields: Sequence[pa.Field], passed: Sequence[str] = (), *, careful: bool
    ) -> DataFrame:
        """The columns `fields` of each record, and those of `passed` unchanged.

        A careful frame also has `_bad`: a text in rows whose record cannot be decoded, and whose other
        columns are undefined; null in the others. If not careful, Spark fails at the first such record
        (`BAD_ROW`, or an error of its own); it may also fail at a good one that only the careful way can read
        exactly.
        """

    def reasons(self, records: Sequence[bytes], fields: Sequence[pa.Field]) -> list[str | None]:
        """Why each record cannot be decoded, None where it can. Without Spark."""

    def widen(self, records: Sequence[bytes], schema: pa.Schema) -> pa.Schema | None:
        """A schema that holds what these records have beyond `schema`; None when nothing has to change."""


@dataclass(frozen=True)
class FormatSettings:
    """The format settings of a statement's records."""

    schema_file: str | None = None
    registry_url: str | None = field(default=None, repr=False)
    subject: str | None = None
    """The registry's subject for the schema of the records: of topic `t`, `t-value` or `t-key`."""
    message: str | None = None
    """The message of a Protobuf schema; by default the first."""
    names: Sequence[str] | None = None
    """Declared columns, in order; CSV records have no header."""
    dialect: CsvDialect = field(default_factory=lambda: CsvDialect(header=False))


def decoder_for(form: str, settings: FormatSettings | None = None) -> Decoder:
    """The decoder of a format; SourceConfigError when the settings do not fit it."""
    settings = settings or FormatSettings()
    if form == "json":
        from velostream.formats.json.records import JsonDecoder

        return JsonDecoder()
    if form == "csv":
        from velostream.formats.csv.records import CsvDecoder

        return CsvDecoder(settings.dialect, settings.names)
    if form == "raw":
        from velostream.formats.raw import RawDecoder

        return RawDecoder()
    if form == "avro":
        from velostream.formats.avro.records import AvroDecoder

        return AvroDecoder(settings)
    if form == "debezium":
        from velostream.formats.debezium.envelopes import DebeziumDecoder

        return DebeziumDecoder(settings)
    if form == "protobuf":
        from velostream.formats.protobuf.records import ProtobufDecoder

        return ProtobufDecoder(settings)
    raise SourceConfigError(f'format "{form}" is not known', hint=did_you_mean(form, FORMATS))
