"""A SELECT with LIMIT over a source: a question of what the source has now, which ends.

The rows are those of the query without ORDER BY, LIMIT and OFFSET; these are applied to the rows when they
have been read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.plan.query.stateless import one_row_each, why_not_stateless

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.model.statements import Query

_CLAUSES = ("order", "limit", "offset")
_SORT_KEY = "sort key "
"""Prefix of the columns by which rows are ordered, and which are not in the result."""

_ONE_EACH = 1000
_AT_A_TIME = 100_000
"""How many rows are read at a time at least: where each gives one, and where they may give fewer."""


@dataclass(frozen=True)
class Limited:
    """The two parts of such a SELECT."""

    rows: Query
    enough: int | None
    """How many rows are needed, whichever they are; None where all have to be looked at."""
    _clauses: exp.Select

    def last(self, table: str, names: Sequence[str]) -> exp.Select:
        """The query over the rows, in a table with these columns, that gives the answer."""
        shown = [exp.column(name, quoted=True) for name in names if not name.startswith(_SORT_KEY)]
        tree = self._clauses.copy()
        tree.set("expressions", shown)
        return tree.from_(exp.Table(this=exp.to_identifier(table, quoted=True)), copy=False)


def limited(query: Query) -> Limited:
    """The parts of a query that ends with LIMIT."""
    tree = query.tree.copy()
    clauses = exp.Select()
    for name in _CLAUSES:
        clause = tree.args.pop(name, None)
        if clause is not None:
            clauses.set(name, clause)
    order = clauses.args.get("order")
    for number, term in enumerate(order.expressions if order is not None else (), start=1):
        _sort_by(term, tree, f"{_SORT_KEY}{number}")
    enough = _enough(clauses) if order is None and not _set_operation(tree) else None
    return Limited(replace(query, tree=tree), enough, clauses)


def few_at_a_time(asked: Limited) -> Query:
    """The rows, read in steps after which there may be enough of them."""
    tree = asked.rows.tree
    if asked.enough is None or asked.rows.window is not None or why_not_stateless(tree) is not None:
        return asked.rows
    one_each = not tree.args.get("where") and not tree.args.get("joins")
    (*_, last) = asked.rows.sources
    each = isinstance(tree, exp.Select) and len(asked.rows.sources) == 1 and one_row_each(tree, last.id)
    step = str(max(asked.enough, _ONE_EACH if one_each else _AT_A_TIME))
    sources = (
        replace(ref, properties={"max.rows.per.batch": step, **ref.properties}) for ref in asked.rows.sources
    )
    return replace(asked.rows, sources=tuple(sources), enough=asked.enough if each else None)


def _sort_by(term: exp.Expr, tree: exp.Query, name: str) -> None:
    """Make a term of ORDER BY refer to a column of the rows, which get one for it where they have none."""
    by = term.this
    if isinstance(by, exp.Literal):
        return
    if isinstance(by, exp.Column) and (not by.table or _distinct(tree)):
        shown = next((n for n in tree.named_selects if n.casefold() == by.name.casefold()), None)
        if shown is not None or _distinct(tree):
            term.set("this", exp.column(shown or by.name, quoted=True))
            return
    if isinstance(tree, exp.Select) and not _distinct(tree):
        tree.select(exp.alias_(by.copy(), name, quoted=True), copy=False)
        term.set("this", exp.column(name, quoted=True))


def _distinct(tree: exp.Query) -> bool:
    """Whether the rows can only be ordered by what they show."""
    return _set_operation(tree) or tree.args.get("distinct") is not None


def _set_operation(tree: exp.Query) -> bool:
    return isinstance(tree, exp.SetOperation)


def _enough(clauses: exp.Select) -> int | None:
    counts = [_number(clauses.args.get(name)) for name in ("limit", "offset")]
    return None if None in counts else sum(count or 0 for count in counts)


def _number(clause: exp.Expr | None) -> int | None:
    if clause is None:
        return 0
    count = clause.args.get("count") if isinstance(clause, exp.Fetch) else clause.expression
    return int(count.this) if isinstance(count, exp.Literal) and count.is_int else None
