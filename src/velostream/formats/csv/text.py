"""The CSV syntax: RFC 4180, columns matched by the names in the header."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


@dataclass(frozen=True)
class CsvDialect:
    """The dialect of a CSV text."""

    delimiter: str = ","
    quote: str = '"'
    null: str = ""
    header: bool = True

    @property
    def spark_options(self) -> dict[str, str]:
        """The same for Spark's parser; an empty field is NULL, quoted or not."""
        return {
            "sep": self.delimiter,
            "quote": self.quote,
            "escape": self.quote,
            # It would be the character zero otherwise, which then vanishes from quoted fields.
            "charToEscapeQuoteEscaping": self.quote,
            "nullValue": self.null,
            "emptyValue": self.null,
        }

    def field_pattern(self) -> str:
        """A Java regular expression for one field: quoted, with whatever follows it, or unquoted.

        All repetition is possessive, which Java evaluates in a loop and not by recursion.
        """
        quote, delimiter = (f"\\x{{{ord(mark):x}}}" for mark in (self.quote, self.delimiter))
        quoted = f"{quote}(?:[^{quote}]++|{quote}{quote})*+{quote}[^{delimiter}]*+"
        return f"(?:{quoted}|[^{quote}{delimiter}][^{delimiter}]*+|)"

    def fields(self, record: str) -> list[str]:
        """The fields of one record, quotes removed."""
        if self.quote not in record:
            return record.split(self.delimiter)
        return [text for text, _ in self._quoted_fields(record)]

    def unclosed(self, record: str) -> bool:
        """Whether a quote that begins a field is not closed, so that the end of the field is unknown."""
        return self.quote in record and any(opened for _, opened in self._quoted_fields(record))

    def _quoted_fields(self, record: str) -> Iterator[tuple[str, bool]]:
        """Each field, and whether it has an unclosed quote."""
        position = 0
        while position <= len(record):
            text, opened, position = self._field(record, position)
            yield text, opened

    def _field(self, record: str, start: int) -> tuple[str, bool, int]:
        """The field at an offset, whether its quote stays open, and the offset of the next field."""
        quote, after, opened = self.quote, start, False
        text: str | None = None
        if record.startswith(quote, start):
            closing = self._closing(record, start + 1)
            if closing is None:
                opened = True
            else:
                after = closing + 1
                text = record[start + 1 : closing].replace(quote * 2, quote)
        end = record.find(self.delimiter, after)
        end = len(record) if end < 0 else end
        if text is None or record[after:end].strip():
            # Not a quoted field after all: it is taken literally, like Spark's parser does.
            text = record[start:end]
        return text, opened, end + len(self.delimiter)

    def _closing(self, record: str, position: int) -> int | None:
        while True:
            found = record.find(self.quote, position)
            if found < 0:
                return None
            if not record.startswith(self.quote, found + 1):
                return found
            position = found + 2

    def values(self, record: str) -> list[str | None]:
        """The fields of one record with NULL as None; ValueError for an unclosed quote."""
        if self.unclosed(record):
            raise ValueError("a quote is not closed")
        return [None if text in ("", self.null) else text for text in self.fields(record)]

    def rows(self, records: Iterable[str], width: int) -> Iterator[list[str | None]]:
        """The values of the records that have so many fields."""
        found = (self.values(record) for record in records if not self.unclosed(record))
        return (values for values in found if len(values) == width)


def column_names(fields: Sequence[str]) -> tuple[str, ...]:
    """Names from a header line: trimmed, never empty, unique ignoring case."""
    taken: set[str] = set()
    names = []
    for number, text in enumerate(fields):
        base = text.strip() or f"_c{number}"
        name, again = base, 2
        while name.casefold() in taken:
            name, again = f"{base}_{again}", again + 1
        taken.add(name.casefold())
        names.append(name)
    return tuple(names)


def numbered_names(count: int) -> tuple[str, ...]:
    """Names for a file without a header, the same as Spark's."""
    return tuple(f"_c{number}" for number in range(count))
