"""CSV as this project reads it: RFC 4180, columns matched by the names in the header."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class CsvDialect:
    """How a CSV text is written."""

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
            "nullValue": self.null,
            "emptyValue": self.null,
        }

    def fields(self, record: str) -> list[str]:
        """The fields of one record, quotes removed."""
        if self.quote not in record:
            return record.split(self.delimiter)
        fields: list[str] = []
        position = 0
        while position <= len(record):
            text, position = self._field(record, position)
            fields.append(text)
        return fields

    def _field(self, record: str, start: int) -> tuple[str, int]:
        """The field that begins at a place, and where the next one does."""
        quote, after = self.quote, start
        text: str | None = None
        if record.startswith(quote, start):
            closing = self._closing(record, start + 1)
            if closing is not None:
                after = closing + 1
                text = record[start + 1 : closing].replace(quote * 2, quote)
        end = record.find(self.delimiter, after)
        end = len(record) if end < 0 else end
        if text is None or record[after:end].strip():
            # Not a quoted field after all: it stands as it is, as Spark's parser has it.
            text = record[start:end]
        return text, end + len(self.delimiter)

    def _closing(self, record: str, position: int) -> int | None:
        while True:
            found = record.find(self.quote, position)
            if found < 0:
                return None
            if not record.startswith(self.quote, found + 1):
                return found
            position = found + 2

    def values(self, record: str) -> list[str | None]:
        """The fields of one record with NULL as None."""
        return [None if text in ("", self.null) else text for text in self.fields(record)]


def column_names(fields: Sequence[str]) -> tuple[str, ...]:
    """Names from a header line: trimmed, never empty, never twice (compared without case)."""
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
    """Names for a file without a header, as Spark gives them."""
    return tuple(f"_c{number}" for number in range(count))
