"""Rows on standard output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TextIO

from velostream.connectors.base import Delivery, Sink
from velostream.formats.json_text import json_lines, plain_text
from velostream.model.changes import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from velostream.connectors.console.options import ConsoleOptions


class ConsoleSink(Sink):
    """Prints each batch; what was printed before a crash cannot be taken back, so at least once.

    Rows that are taken back are printed too, with their `_weight` of -1.
    """

    delivery = Delivery.AT_LEAST_ONCE
    takes_deletes = True

    def __init__(self, options: ConsoleOptions, out: TextIO | None = None) -> None:
        self._options = options
        self._out = out

    def write(self, batch: int, rows: pa.Table) -> Mapping[str, Any]:
        """See `Sink`."""
        # Looked up at each write: a test or a terminal may replace standard output meanwhile.
        out = self._out or sys.stdout
        if self._options.format == "json":
            out.writelines(f"{line}\n" for line in json_lines(rows))
        elif rows.num_rows:
            out.write(_table(rows))
        out.flush()
        return {"batch": batch}

    def recover(self, recorded: Mapping[str, Any] | None) -> None:
        """See `Sink`; there is nothing to undo on a screen."""


def _table(rows: pa.Table) -> str:
    names = [("" if name == WEIGHT else name) for name in rows.schema.names]
    cells = [["" if v is None else plain_text(v) for v in row.values()] for row in rows.to_pylist()]
    widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(names)]
    lines = [names, ["-" * width for width in widths], *cells]
    return "".join(
        "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() + "\n" for line in lines
    )
