"""Rows on standard output: a table for people, JSON lines, CSV or Arrow for programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from velostream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import BinaryIO

    import pyarrow as pa
    from rich.table import Table as RichTable

NULL = "∅"
_WIDEST = 60


class Output:
    """Writes any number of tables of rows in one format to stdout."""

    def __init__(self, form: str) -> None:
        self.form = form
        self._arrow: Any = None
        self._header: list[str] | None = None
        if form == "arrow" and sys.stdout.isatty():
            raise ConfigError("arrow is binary and stdout is a terminal", hint="redirect it: > rows.arrow")

    @property
    def pretty(self) -> bool:
        """Whether a person looks at a terminal."""
        return self.form == "table" and sys.stdout.isatty()

    def write(self, rows: pa.Table) -> None:
        """Write the rows; in CSV and Arrow, a header whenever the columns change."""
        if self.form == "json":
            from velostream.formats.json_text import json_lines

            _lines(f"{line}\n" for line in json_lines(rows))
        elif self.form == "csv":
            self._csv(rows)
        elif self.form == "arrow":
            self._write_arrow(rows)
        elif self.pretty:
            from rich.console import Console

            Console().print(pretty_table(rows))
        else:
            sys.stdout.write(plain_table(rows))
        sys.stdout.flush()

    def _csv(self, rows: pa.Table) -> None:
        from velostream.formats.csv_text import CsvDialect
        from velostream.formats.csv_writing import csv_header, csv_lines

        dialect = CsvDialect()
        if self._header != rows.schema.names:
            self._header = list(rows.schema.names)
            sys.stdout.write(csv_header(self._header, dialect))
        _lines(csv_lines(rows, dialect))

    def _write_arrow(self, rows: pa.Table) -> None:
        import pyarrow as pa

        out: BinaryIO = sys.stdout.buffer
        if self._arrow is None or self._arrow[0] != rows.schema:
            self.close()
            self._arrow = (rows.schema, pa.ipc.new_stream(out, rows.schema))
        self._arrow[1].write_table(rows)
        out.flush()

    def close(self) -> None:
        """End an Arrow stream properly."""
        if self._arrow is not None:
            self._arrow[1].close()
            self._arrow = None
            sys.stdout.flush()


def _lines(lines: Iterable[str]) -> None:
    sys.stdout.writelines(lines)


def texts(rows: pa.Table) -> tuple[list[list[str | None]], list[bool]]:
    """Every cell as text (None for NULL), by row, and which columns are numbers."""
    import pyarrow as pa

    columns = [[_text(value) for value in column.to_pylist()] for column in rows.columns]
    kinds = [field.type for field in rows.schema]
    numeric = [
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) for kind in kinds
    ]
    return [list(cells) for cells in zip(*columns, strict=True)], numeric


def _text(value: Any) -> str | None:
    from velostream.formats.json_text import json_value, plain_text

    if value is None:
        return None
    return json_value(value) if isinstance(value, dict | list) else plain_text(value)


def plain_table(rows: pa.Table) -> str:
    """Aligned columns without decoration, every value whole, for files and pipes."""
    names = list(rows.schema.names)
    if not names:
        return ""
    cells, numeric = texts(rows)
    shown = [[NULL if cell is None else cell.replace("\n", "\\n") for cell in row] for row in cells]
    widths = [max(len(line[i]) for line in [names, *shown]) for i in range(len(names))]
    rule = ["-" * width for width in widths]
    return "".join(_line(line, widths, numeric) for line in [names, rule, *shown])


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    )
    return "  ".join(padded).rstrip() + "\n"


def pretty_table(rows: pa.Table, *, most: int | None = None, title: str | None = None) -> RichTable:
    """A table for a terminal: numbers to the right, NULL dim, long values cut to the width there is."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ROUNDED, border_style="bright_black", header_style="bold", title=title)
    shown = rows if most is None else rows.slice(0, most)
    cells, numeric = texts(shown)
    for name, right in zip(rows.schema.names, numeric, strict=True):
        table.add_column(
            Text(name),
            justify="right" if right else "left",
            overflow="fold" if rows.num_columns <= 2 else "ellipsis",
            no_wrap=rows.num_columns > 2,
            max_width=None if rows.num_columns <= 2 else _WIDEST,
        )
    for row in cells:
        table.add_row(*(Text(NULL, "bright_black") if cell is None else Text(cell) for cell in row))
    return table
