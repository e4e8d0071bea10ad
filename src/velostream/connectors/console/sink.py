"""Prints rows to standard output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TextIO

from velostream.connectors.base import Delivery, Sink
from velostream.formats.json.text import plain_text
from velostream.formats.json.writer import json_lines
from velostream.model.columns import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from velostream.connectors.console.options import ConsoleOptions


class ConsoleSink(Sink):
    """Prints each batch, at least once: what was printed before a crash cannot be undone.

    Retracted rows are printed too: as JSON with a `_weight` of -1, which added rows do not have; in a table
    with a leading `-`, and then added rows have a `+`.
    """

    delivery = Delivery.AT_LEAST_ONCE
    takes_deletes = True

    def __init__(self, options: ConsoleOptions, out: TextIO | None = None) -> None:
        self._options = options
        self._out = out

    def write(self, batch: int, rows: pa.Table) -> Mapping[str, Any]:
        """See `Sink`."""
        # Looked up at each write: a test or a terminal may have replaced standard output.
        out = self._out or sys.stdout
        if self._options.format == "json":
            out.writelines(f"{line}\n" for line in _lines(rows))
        elif rows.num_rows:
            out.write(_table(rows))
        out.flush()
        return {"batch": batch}

    def recover(self, recorded: Mapping[str, Any] | None) -> None:
        """See `Sink`; output on a screen cannot be undone."""


def _lines(rows: pa.Table) -> Iterator[str]:
    if WEIGHT not in rows.schema.names:
        yield from json_lines(rows)
        return
    for weight, line in zip(
        rows.column(WEIGHT).to_pylist(), json_lines(rows.drop_columns([WEIGHT])), strict=True
    ):
        yield line if weight > 0 else f'{line[:-1]},"{WEIGHT}":{weight}}}'


def _table(rows: pa.Table) -> str:
    names = rows.schema.names
    cells = [["" if v is None else plain_text(v) for v in row.values()] for row in rows.to_pylist()]
    if WEIGHT in names:
        place = names.index(WEIGHT)
        names = ["", *names[:place], *names[place + 1 :]]
        cells = [["-" if row.pop(place).startswith("-") else "+", *row] for row in cells]
    widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(names)]
    lines = [names, ["-" * width for width in widths], *cells]
    return "".join(
        "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() + "\n" for line in lines
    )
