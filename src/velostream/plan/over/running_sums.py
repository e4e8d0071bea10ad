"""Sums over the last rows as differences of running sums, where that is exact and costs less.

Spark adds a frame up anew for every row: over 100 decimals that costs as much as all the rest of the query. A
running sum less the one before the frame is the same number. Doubles stay, since they would be others, and so
do integers: Spark adds them up faster than it keeps running sums that cannot overflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import sqlglot
from sqlglot import exp

from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Mapping

_LEAST = 8
"""Frames of fewer rows are added up directly."""
_ADDED = 10
"""The digits that the type of a sum has more than the type of its argument."""
_MOST = 38


def summed(sql: str) -> list[str]:
    """The arguments of the sums and counts that can be replaced; the caller finds out their types."""
    select = sqlglot.parse_one(sql, dialect=SPARK)
    return [_argument(window).sql(dialect=SPARK) for window, _ in _windows(select)]


def with_running_sums(sql: str, types: Mapping[str, pa.DataType]) -> str:
    """The SELECT over one view with sums over ROWS frames computed from running sums; the same values."""
    select = sqlglot.parse_one(sql, dialect=SPARK)
    assert isinstance(select, exp.Select)
    view = select.args["from_"].this
    alias = view.alias_or_name
    inner: list[exp.Expr] = []
    for window, rows in _windows(select):
        argument = _argument(window)
        made = _Difference(window, argument, types[argument.sql(dialect=SPARK)], rows, alias, len(inner))
        value = made.value()
        if value is not None:
            inner += made.running
            window.replace(value)
    if not inner:
        return sql
    below = exp.Select(expressions=[exp.Star(), *inner]).from_(view.copy())
    select.set(
        "from_",
        exp.From(
            this=exp.Subquery(this=below, alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        ),
    )
    return str(select.sql(dialect=SPARK))


def _windows(select: exp.Expr) -> list[tuple[exp.Window, int]]:
    """The OVER clauses of SUM, AVG and COUNT over the last rows, each with the number of rows."""
    found = []
    for window in select.find_all(exp.Window):
        spec = window.args.get("spec")
        if (
            spec is None
            or str(spec.args.get("kind")).upper() != "ROWS"
            or spec.args.get("end") != "CURRENT ROW"
        ):
            continue
        start, call = spec.args.get("start"), window.this
        side = str(spec.args.get("start_side") or "").upper()
        counted = isinstance(start, exp.Literal) and start.is_int and side == "PRECEDING"
        if not counted or not isinstance(call, (exp.Sum, exp.Avg, exp.Count)):
            continue
        if isinstance(call.this, exp.Distinct) or call.expressions or int(start.this) + 1 < _LEAST:
            continue
        found.append((window, int(start.this) + 1))
    return found


def _argument(window: exp.Window) -> exp.Expr:
    inner = window.this.this
    plain: exp.Expr = exp.Literal.number(1) if inner is None or isinstance(inner, exp.Star) else inner
    return plain


class _Difference:
    """One OVER as a difference of running sums and counts."""

    def __init__(
        self, window: exp.Window, argument: exp.Expr, kind: pa.DataType, rows: int, alias: str, number: int
    ) -> None:
        self._window, self._argument, self._kind, self._rows = window, argument, kind, rows
        self._alias, self._number = alias, number
        self.running: list[exp.Expr] = []
        """Columns that the inner SELECT has to compute."""

    def value(self) -> exp.Expr | None:
        """SQL of the same value; None where the result could differ."""
        call, kind = self._window.this, self._kind
        if isinstance(call, exp.Count):
            return _parsed(self._count())
        if not isinstance(kind, pa.Decimal128Type) or kind.precision + _ADDED + 1 > _MOST:
            return None
        precision, scale = kind.precision, kind.scale
        total = f"CAST({{}} AS DECIMAL({precision + _ADDED},{scale}))"
        text = f"SUM({self._argument.sql(dialect=SPARK)})"
        if isinstance(call, exp.Sum):
            return self._where_some(total.format(self._less(text)))
        # Enough digits that rounding the quotient never turns it into an exact half.
        digits = len(str(self._rows)) + 4
        if precision + _ADDED + digits + 1 > _MOST:
            return None
        count = f"CAST({self._count()} AS DECIMAL({digits},0))"
        mean = f"CAST({total.format(self._less(text))} / {count} AS DECIMAL({precision + 4},{scale + 4}))"
        return self._where_some(mean)

    def _where_some(self, text: str) -> exp.Expr:
        return _parsed(f"CASE WHEN {self._count()} > 0 THEN {text} END")

    def _count(self) -> str:
        return self._less(f"COUNT({self._argument.sql(dialect=SPARK)})")

    def _less(self, aggregate: str) -> str:
        """The running aggregate minus its value before the frame."""
        names = {item.this.this.sql(dialect=SPARK): item.alias for item in self.running}
        key = _parsed(aggregate).sql(dialect=SPARK)
        if key not in names:
            name = f"__run{self._number + len(self.running) + 1}"
            over = self._over("ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW")
            self.running.append(exp.alias_(_parsed(f"{key} {over}"), name, quoted=True))
            names[key] = name
        column = f"`{self._alias}`.`{names[key]}`"
        return f"({column} - COALESCE(LAG({column}, {self._rows}) {self._over('')}, 0))"

    def _over(self, frame: str) -> str:
        keys = ", ".join(each.sql(dialect=SPARK) for each in self._window.args.get("partition_by") or [])
        order = self._window.args["order"].sql(dialect=SPARK)
        return f"OVER ({f'PARTITION BY {keys} ' if keys else ''}{order} {frame})"


def _parsed(text: str) -> exp.Expr:
    return sqlglot.parse_one(text, dialect=SPARK)
