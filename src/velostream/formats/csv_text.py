"""CSV as this project reads it: RFC 4180, columns matched by the names in the header."""

from __future__ import annotations

import csv
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
        rows = list(csv.reader([record], delimiter=self.delimiter, quotechar=self.quote, strict=False))
        return rows[0] if rows else [""]

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
