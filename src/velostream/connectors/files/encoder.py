"""Rows in the format of a file."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from velostream.formats.csv.text import CsvDialect
from velostream.formats.csv.writer import csv_header, csv_lines
from velostream.formats.json.writer import json_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from velostream.connectors.files.options import FilesOptions


class Encoder:
    """Encodes rows in the format of the file."""

    def __init__(self, form: str, options: FilesOptions, decimal_format: str) -> None:
        self.form = "jsonl" if form == "json" else form
        self._text = decimal_format == "string"
        delimiter = options.delimiter or ("\t" if form == "tsv" else ",")
        self._dialect = CsvDialect(delimiter, options.quote, options.null, options.header)

    def header(self, schema: pa.Schema) -> bytes:
        """The bytes at the beginning of a file."""
        if self.form in ("csv", "tsv") and self._dialect.header:
            return csv_header(schema.names, self._dialect).encode()
        return b""

    def write(self, rows: pa.Table, out: IO[bytes]) -> None:
        """Append rows; Parquet is a whole file."""
        if self.form == "parquet":
            import pyarrow.parquet as pq

            pq.write_table(rows, out)
        elif self.form == "jsonl":
            out.writelines(line + b"\n" for line in json_bytes(rows, self._text))
        else:
            out.writelines(line.encode() for line in csv_lines(rows, self._dialect))
