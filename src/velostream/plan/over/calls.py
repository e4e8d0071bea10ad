"""OVER clauses that numpy can compute: plain functions of a column over a ROWS frame.

Sending the rows to Spark and back costs several times what a moving average does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.plan.over.clauses import column_name, function_name, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_AGGREGATES = {
    "sum": "sum",
    "avg": "avg",
    "mean": "avg",
    "count": "count",
    "min": "min",
    "max": "max",
    "first": "first",
    "first_value": "first",
    "last": "last",
    "last_value": "last",
}
_ORDERED_ALONE = frozenset({"first", "last"})
"""Functions with a default frame of all rows up to the current one; the order has no ties here."""


@dataclass(frozen=True)
class OverCall:
    """One function over rows of a key from `start` to `end`, counted from the current row."""

    function: str
    """sum, avg, count, min, max, first, last or row_number."""
    column: str | None
    """The kept column that is the argument; None where rows are counted."""
    start: int | None
    """None: from the first row of the key."""
    end: int | None
    """None: to the last row of the key."""


def plain_calls(
    items: Iterable[exp.Expr], relation: str, columns: Mapping[str, str], group: str, order: str
) -> tuple[OverCall, ...] | None:
    """The items as plain functions; None when one of them has to be computed by Spark.

    `columns` maps columns of the source to kept columns. `group` is the column that numbers keys, `order` the
    column that numbers rows in the order of time.
    """
    reader = _Reader(relation, {name.casefold(): kept for name, kept in columns.items()}, group, order)
    found = []
    for item in items:
        window = item.unalias()
        call = reader.call(window) if isinstance(window, exp.Window) else None
        if call is None:
            return None
        found.append(call)
    return tuple(found)


@dataclass(frozen=True)
class _Reader:
    relation: str
    columns: Mapping[str, str]
    group: str
    order: str

    def call(self, window: exp.Window) -> OverCall | None:
        """The plain function that an OVER is; None where it is more than that."""
        name, call = function_name(window) or "", window.this
        if not self._in_order(window) or isinstance(call, exp.IgnoreNulls):
            return None
        if isinstance(call, exp.RespectNulls):
            call = call.this
        if name == "row_number":
            return OverCall("row_number", None, None, 0)
        column = column_name(call.this, self.relation) if call.this is not None else None
        kept = self.columns.get(column.casefold()) if column is not None else None
        if name in {"lag", "lead"}:
            steps = whole_number(call.args.get("offset"), 1)
            if kept is None or steps is None or call.args.get("default") is not None:
                return None
            at = -steps if name == "lag" else steps
            return OverCall("first", kept, at, at)
        return self._framed(window, call, _AGGREGATES.get(name), kept)

    def _framed(
        self, window: exp.Window, call: exp.Expr, function: str | None, kept: str | None
    ) -> OverCall | None:
        more = [name for name, value in call.args.items() if value and name not in {"this", "big_int"}]
        counts_rows = function == "count" and (
            call.this is None or isinstance(call.this, (exp.Star, exp.Literal))
        )
        if function is None or more or (kept is None and not counts_rows):
            return None
        spec = window.args.get("spec")
        if spec is None:
            return OverCall(function, kept, None, 0) if function in _ORDERED_ALONE else None
        if str(spec.args.get("kind")).upper() != "ROWS" or spec.args.get("exclude"):
            return None
        try:
            return OverCall(function, kept, _bound(spec, "start"), _bound(spec, "end"))
        except ValueError:
            return None

    def _in_order(self, window: exp.Window) -> bool:
        """Whether the OVER is partitioned and ordered exactly like the kept rows, which have no ties."""
        keys, order = window.args.get("partition_by") or [], window.args.get("order")
        given = order.expressions if order is not None else []
        return (
            len(keys) <= 1
            and all(column_name(key, self.relation) == self.group for key in keys)
            and len(given) == 1
            and column_name(given[0].this, self.relation) == self.order
            and not given[0].args.get("desc")
        )


def _bound(spec: exp.WindowSpec, which: str) -> int | None:
    """The offset of a frame's start or end from the current row; ValueError where it is not a number."""
    value, side = spec.args.get(which), str(spec.args.get(f"{which}_side") or "").upper()
    if value is None or value == "CURRENT ROW":
        return 0
    if value == "UNBOUNDED":
        if (side == "PRECEDING") != (which == "start"):
            raise ValueError(side)
        return None
    steps = whole_number(value, None)
    if steps is None:
        raise ValueError(value)
    return -steps if side == "PRECEDING" else steps
