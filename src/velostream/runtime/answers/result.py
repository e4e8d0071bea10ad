"""Results: rows as Arrow, tuples or a dataframe."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import ConfigError
from velostream.serving.columns.html import html_table
from velostream.serving.columns.values import to_python
from velostream.serving.table.record import row_class

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    import polars as pl


@dataclass(frozen=True, repr=False)
class Result:
    """The result of one statement; `message` describes what a statement without rows did."""

    table: pa.Table = field(default_factory=lambda: pa.table({}))
    message: str | None = None
    engine: str = ""
    """The engine that computed it: duckdb, spark or velostream itself."""
    warnings: tuple[str, ...] = ()
    """Warnings about what was created, such as state that grows without bound."""
    notes: tuple[str, ...] = ()
    """The plan of what was replaced: what was built anew, from where, and how much there was."""

    def arrow(self) -> pa.Table:
        """The rows as an Arrow table."""
        return self.table

    def rows(self) -> list[Any]:
        """The rows as tuples with named fields."""
        return list(self)

    def df(self) -> pd.DataFrame:
        """The rows as a pandas dataframe (needs the `pandas` extra)."""
        with _installed("df()", "pandas"):
            return self.table.to_pandas()

    def pl(self) -> pl.DataFrame:
        """The rows as a polars dataframe (needs the `polars` extra)."""
        with _installed("pl()", "polars"):
            import polars
        frame = polars.from_arrow(self.table)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def scalar(self) -> Any:
        """The first value of the first row, or None when there is none."""
        if self.table.num_rows == 0 or self.table.num_columns == 0:
            return None
        return next(iter(self))[0]

    def __iter__(self) -> Iterator[Any]:
        make = row_class(tuple(self.table.schema.names))
        columns = (to_python(column) for column in self.table.columns)
        return (make(values) for values in zip(*columns, strict=True))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        if self.message is not None:
            return f"<Result: {self.message}>"
        names = ", ".join(self.table.schema.names)
        return f"<Result: {len(self):,} row{'' if len(self) == 1 else 's'} of {names or 'no columns'}>"

    def _repr_html_(self) -> str:
        """The first rows, in a notebook."""
        return f"<p>{escape(self.message)}</p>" if self.message is not None else html_table(self.table)


@contextmanager
def _installed(call: str, package: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as exc:
        if exc.name != package:
            raise
        raise ConfigError(
            f"{call} needs the package {package}", hint=f"pip install 'velostream[{package}]'"
        ) from exc
