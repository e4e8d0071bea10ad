"""The layout of one file: its format, its compression, and how it is split into records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from velostream.formats.compression import COMPRESSIONS, compression
from velostream.formats.csv.text import CsvDialect
from velostream.formats.json.lines import set_tails_aside
from velostream.formats.json.numbers import keep_digits
from velostream.formats.records import Records, split_records

if TYPE_CHECKING:
    from velostream.connectors.files.options import FilesOptions

_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".avro": "avro",
    ".orc": "orc",
}
BINARY = ("parquet", "avro", "orc")


@dataclass(frozen=True)
class Layout:
    """What is needed to read one file."""

    format: str
    packed: str | None
    dialect: CsvDialect | None

    @property
    def binary(self) -> bool:
        """Whether a library reads it as a whole, instead of splitting it into records."""
        return self.format in BINARY

    @property
    def marks(self) -> dict[str, bytes]:
        """The quote and the delimiter of CSV, for `split_records`."""
        if self.dialect is None:
            return {}
        return {"quote": self.dialect.quote.encode(), "delimiter": self.dialect.delimiter.encode()}

    def split(self, raw: bytes, final: bool) -> Records:
        """The complete records at the beginning of `raw`."""
        records = split_records(raw, final=final, **self.marks)
        return records if self.dialect is not None else keep_digits(set_tails_aside(records))


@dataclass(frozen=True)
class Dialects:
    """The CSV dialect of each file of a source: a file name may imply tabs as delimiters."""

    options: FilesOptions

    @property
    def header(self) -> bool:
        """Whether the files begin with a header line."""
        return self.options.header

    def of(self, path: str) -> CsvDialect:
        """The dialect of one file."""
        form = self.options.format or format_of(path)
        delimiter = self.options.delimiter or ("\t" if form == "tsv" else ",")
        return CsvDialect(delimiter, self.options.quote, self.options.null, self.options.header)


def format_of(path: str) -> str | None:
    """The format that a file name implies, without its compression suffix; None when it implies none."""
    name = PurePath(path)
    if name.suffix.lower() in COMPRESSIONS:
        name = name.with_suffix("")
    return _SUFFIXES.get(name.suffix.lower())


def layout_of(path: str, options: FilesOptions) -> Layout | None:
    """How to read a file; None when neither the options nor its name say."""
    form = options.format or format_of(path)
    if form is None:
        return None
    dialect = Dialects(options).of(path) if form in ("csv", "tsv") else None
    packed = None if form in BINARY else compression(path)
    return Layout(form, packed, dialect)
