"""Decoding of records whose schema a registry or a file knows, whatever the language of the schema."""

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
        """What decodes records into these columns; `writers` are the schemas by the ids of records."""

    def columns(self, sample: Sequence[bytes]) -> pa.Schema | None:
        """From the schema; see `Schemas.reader`."""
        reader = self.schemas.reader(sample)
        return None if reader is None else self.columns_of(reader)

    def frame(
        self, records: DataFrame, fields: Sequence[pa.Field], passed: Sequence[str] = (), *, careful: bool
    ) -> DataFrame:
        """A careful frame looks which schemas the records have and asks for them."""
        if careful:
            self.schemas.learn_all(records)
        return decode_in_python(records, fields, passed, self._rows(fields), careful=careful)

    def reasons(self, records: Sequence[bytes], fields: Sequence[pa.Field]) -> list[str | None]:
        """Without Spark."""
        self.schemas.learn(schema_ids(list(records)))
        return reasons_of(records, fields, self._rows(fields))

    def widen(self, records: Sequence[bytes], schema: pa.Schema) -> pa.Schema | None:
        """New fields of the schemas that the records were written with, and wider numbers."""
        ids = schema_ids(list(records))
        self.schemas.learn(ids)
        wide = schema
        for number in sorted(ids & self.schemas.known.keys()):
            wide = merge_schemas(wide, self.columns_of(self.schemas.known[number]))
        return None if wide == schema else wide

    def _rows(self, fields: Sequence[pa.Field]) -> RowDecoder:
        reader = self.schemas.reader() or next(iter(self.schemas.known.values()), None)
        if reader is None:
            raise SourceMissingError(f'the schema registry has no schema of "{self.settings.subject}" yet')
        framed = self.schemas.registry is not None
        return self.rows(fields, reader, dict(self.schemas.known) if framed else None)
