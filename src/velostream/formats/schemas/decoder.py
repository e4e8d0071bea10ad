"""Decoders of records with a schema from a registry or a file, for all schema languages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic

from velostream.errors import SourceMissingError
from velostream.formats.columns.inference import merge_schemas
from velostream.formats.columns.python_dataframes import RowDecoder, decode_in_python, reasons_of
from velostream.formats.schemas.origins import S, SchemaLanguage, Schemas
from velostream.formats.schemas.wire import schema_ids

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from velostream.formats.decoder import FormatSettings


class SchemaDecoder(ABC, Generic[S]):
    """One record of a schema per record; see `Decoder` for the contract of its methods."""

    def __init__(self, language: SchemaLanguage[S], settings: FormatSettings) -> None:
        self.settings = settings
        self.schemas = Schemas(language, settings)

    @abstractmethod
    def columns_of(self, schema: S) -> pa.Schema:
        """The columns that a schema describes."""

    @abstractmethod
    def rows(self, fields: Sequence[pa.Field], reader: S, writers: Mapping[int, S] | None) -> RowDecoder:
        """The decoder of records into these columns; `writers` are the schemas by id."""

    def columns(self, sample: Sequence[bytes]) -> pa.Schema | None:
        """From the schema; see `Schemas.reader`."""
        reader = self.schemas.reader(sample)
        return None if reader is None else self.columns_of(reader)

    def frame(
        self, records: DataFrame, fields: Sequence[pa.Field], passed: Sequence[str] = (), *, careful: bool
    ) -> DataFrame:
        """See `Decoder.frame`: a careful frame first fetches the schemas that its records name."""
        if careful:
            self.schemas.learn_all(records)
        return decode_in_python(records, fields, passed, self.row_decoder(fields), careful=careful)

    def reasons(self, records: Sequence[bytes], fields: Sequence[pa.Field]) -> list[str | None]:
        """Without Spark."""
        self.schemas.learn(schema_ids(list(records)))
        return reasons_of(records, fields, self.row_decoder(fields))

    def widen(self, records: Sequence[bytes], schema: pa.Schema) -> pa.Schema | None:
        """New fields of the schemas that the records were written with, and wider numeric types."""
        ids = schema_ids(list(records))
        self.schemas.learn(ids)
        wide = schema
        for number in sorted(ids & self.schemas.known.keys()):
            wide = merge_schemas(wide, self.columns_of(self.schemas.known[number]))
        return None if wide == schema else wide

    def row_decoder(self, fields: Sequence[pa.Field]) -> RowDecoder:
        """`rows`, with the schemas that are known now; SourceMissingError when none is."""
        reader = self.schemas.reader() or next(iter(self.schemas.known.values()), None)
        if reader is None:
            raise SourceMissingError(f'the schema registry has no schema of "{self.settings.subject}" yet')
        framed = self.schemas.registry is not None
        return self.rows(fields, reader, dict(self.schemas.known) if framed else None)
