"""Rows on standard output: a table for people, JSON lines, CSV or Arrow for programs."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from velostream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import BinaryIO

    import pyarrow as pa
    from rich.console import RenderableType
    from rich.text import Text

_NULL, _PLAIN_NULL = "∅", "NULL"
MOST = 1000
"""The most rows that are shown on a terminal."""
_WIDEST = 60
_LEAST = 6
"""The fewest characters of a text that remain when the terminal is narrow."""


class Output:
    """Writes tables of rows in one format to stdout."""

    def __init__(self, form: str) -> None:
        self.form = form
        self._arrow: Any = None
        self._header: list[str] | None = None
        self._widths: list[int] = []
        self.expanded = False
        """Whether a terminal shows each row as a block of lines."""
        if form == "arrow" and sys.stdout.isatty():
            raise ConfigError("arrow is binary and stdout is a terminal", hint="redirect it: > rows.arrow")
        if form in {"json", "csv"} and isinstance(sys.stdout, TextIOWrapper):
            # For programs, which expect it whatever a terminal could show.
            sys.stdout.reconfigure(encoding="utf-8")

    @property
    def pretty(self) -> bool:
        """Whether a person looks at a terminal."""
        return self.form == "table" and sys.stdout.isatty()

    def write(self, rows: pa.Table) -> None:
        """Write the rows; in CSV and Arrow, a header whenever the columns change."""
        if self.form in {"json", "csv"}:
            rows = _readable(rows)
        if self.form == "json":
            from velostream.formats.json.writer import json_lines

            _lines(f"{line}\n" for line in json_lines(rows))
        elif self.form == "csv":
            self._csv(rows)
        elif self.form == "arrow":
            self._write_arrow(rows)
        elif self.pretty:
            from rich.console import Console

            console = Console()
            console.print(pretty_table(rows, console.width, most=MOST, expanded=self.expanded))
            if rows.num_rows > MOST:
                console.print(f"[bright_black]… and {rows.num_rows - MOST:,} more; --format csv has all[/]")
        else:
            sys.stdout.write(plain_table(rows))
        sys.stdout.flush()

    def write_more(self, rows: pa.Table) -> None:
        """Write rows of a stream that has no end: a header when the columns change, then only rows."""
        if self.form != "table" or self.expanded:
            self.write(rows)
            return
        names = list(rows.schema.names)
        lines, numeric = _plain_lines(rows)
        if self._header != names:
            self._header = names
            self._widths = [min(width, _WIDEST) for width in _plain_widths(names, lines)]
            lines = [names, ["-" * width for width in self._widths], *lines]
        sys.stdout.writelines(_line(line, self._widths, numeric) for line in lines)
        sys.stdout.flush()

    def _csv(self, rows: pa.Table) -> None:
        from velostream.formats.csv.text import CsvDialect
        from velostream.formats.csv.writer import csv_header, csv_lines

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


def null_mark() -> str:
    """The sign for NULL: one that no text looks like, where stdout can show it."""
    try:
        _NULL.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return _PLAIN_NULL
    return _NULL


def _readable(rows: pa.Table) -> pa.Table:
    """The rows with bytes as people see them: text where they are text. Arrow has the bytes themselves."""
    import pyarrow as pa

    from velostream.formats.json.text import cell_text

    for place, field in enumerate(rows.schema):
        if pa.types.is_binary(field.type):
            cells = [None if each is None else cell_text(each) for each in rows.column(place).to_pylist()]
            rows = rows.set_column(place, field.name, pa.array(cells, pa.string()))
    return rows


def _lines(lines: Iterable[str]) -> None:
    sys.stdout.writelines(lines)


def texts(rows: pa.Table) -> tuple[list[list[str | None]], list[bool]]:
    """Every cell as text (None for NULL), by row, and which columns are numbers."""
    import pyarrow as pa

    from velostream.formats.json.text import cell_text

    columns = [
        [None if value is None else cell_text(value) for value in column.to_pylist()]
        for column in rows.columns
    ]
    kinds = [field.type for field in rows.schema]
    numeric = [
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) for kind in kinds
    ]
    return [list(cells) for cells in zip(*columns, strict=True)], numeric


def plain_table(rows: pa.Table) -> str:
    """Aligned columns without decoration, every value whole, for files and pipes."""
    names = list(rows.schema.names)
    if not names:
        return ""
    lines, numeric = _plain_lines(rows)
    widths = _plain_widths(names, lines)
    rule = ["-" * width for width in widths]
    return "".join(_line(line, widths, numeric) for line in [names, rule, *lines])


def _plain_lines(rows: pa.Table) -> tuple[list[list[str]], list[bool]]:
    """Every cell on one line, by row, and which columns are numbers."""
    cells, numeric = texts(rows)
    null = null_mark()
    return [[null if cell is None else cell.replace("\n", "\\n") for cell in row] for row in cells], numeric


def _plain_widths(names: Sequence[str], lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(line[i]) for line in [names, *lines]) for i in range(len(names))]


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    )
    return "  ".join(padded).rstrip() + "\n"


def pretty_table(
    rows: pa.Table, width: int, *, most: int | None = None, expanded: bool = False
) -> RenderableType:
    """Rows for a terminal of that width: numbers right-aligned and never cut, NULL dim, long texts cut.

    `expanded`, or where not even that fits, each row is a block of lines.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells, numeric = texts(rows if most is None else rows.slice(0, most))
    names = list(rows.schema.names)
    widths = None if expanded else fitted(names, cells, numeric, width)
    if widths is None:
        return _blocks(names, cells)
    table = Table(box=box.ROUNDED, border_style="bright_black", header_style="bold")
    fold = len(names) <= 2
    for name, right, columns in zip(names, numeric, widths, strict=True):
        table.add_column(
            Text(name),
            justify="right" if right else "left",
            overflow="fold" if fold else "ellipsis",
            no_wrap=not fold,
            width=columns,
        )
    for row in cells:
        table.add_row(*(_cell(text) for text in row))
    return table


def fitted(
    names: Sequence[str], cells: Sequence[Sequence[str | None]], numeric: Sequence[bool], width: int
) -> list[int] | None:
    """Column widths that make the table fit, taken from the widest texts first; None if impossible."""
    widths = [
        min(
            max(len(name), *(len(row[i] or null_mark()) for row in cells), 1),
            10**9 if numeric[i] else _WIDEST,
        )
        for i, name in enumerate(names)
    ]
    if len(names) <= 2:
        return (
            [min(w, max(_LEAST, width - 8)) for w in widths]
            if len(names) == 1
            else widths_of_two(widths, width)
        )
    excess = sum(widths) + 3 * len(names) + 1 - width
    while excess > 0:
        index = max(range(len(names)), key=lambda i: -1 if numeric[i] else widths[i])
        if numeric[index] or widths[index] <= _LEAST:
            return None
        widths[index] -= 1
        excess -= 1
    return widths


def widths_of_two(widths: list[int], width: int) -> list[int]:
    """Widths of two columns, such as a name and a long text: the second is folded into the rest."""
    return [widths[0], min(widths[1], max(_LEAST, width - widths[0] - 7))]


def _cell(text: str | None) -> Text:
    from rich.text import Text

    return Text(null_mark(), "bright_black") if text is None else Text(text)


def _blocks(names: Sequence[str], cells: Sequence[Sequence[str | None]]) -> RenderableType:
    from rich.console import Group
    from rich.rule import Rule
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = []
    for number, row in enumerate(cells, start=1):
        grid = Table.grid(padding=(0, 2))
        for name, text in zip(names, row, strict=True):
            grid.add_row(Text(name, "bold"), _cell(text))
        parts += [Rule(f"row {number}", align="left", style="bright_black"), grid]
    return Group(*parts)


def counted(number: int, noun: str) -> str:
    """`1 record`, `1,200 records`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
