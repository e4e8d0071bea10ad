"""SQL conditions and expressions over one table, as the Python API takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from velostream.errors import SqlSyntaxError, UnsupportedError
from velostream.model.statements import Query
from velostream.serving.queries import NeedsSpark, QueryEngine
from velostream.sql.dialect import Velostream

if TYPE_CHECKING:
    import pyarrow as pa

    from velostream.serving.version import TableVersion

_TEXTS = 4096

SparkAnswer = Callable[[Query, "Mapping[str, TableVersion]", "Mapping[str, Any]"], "pa.Table"]
"""Answers a query over versions of tables on Spark."""


class Questions:
    """Answers SQL: on the fast engine where it agrees with Spark, otherwise on Spark if there is one."""

    def __init__(self) -> None:
        self.engine = QueryEngine()
        self.spark: SparkAnswer | None = None
        """Lent by the runtime; without it, what needs Spark is refused."""

    def answer(
        self, query: Query, versions: Mapping[str, TableVersion], params: Mapping[str, Any] | None = None
    ) -> pa.Table:
        """The result of a query over versions that belong together."""
        try:
            return self.engine.answer(query, versions, params or {})
        except NeedsSpark as exc:
            if self.spark is not None:
                return self.spark(query, versions, params or {})
            raise UnsupportedError(
                "this query needs Spark, which is not running here",
                detail=exc.reason,
                hint="ask the process that runs the tables, or start one with velo run",
            ) from exc

    def ask(self, version: TableVersion, projection: str, where: str | None) -> pa.Table:
        """SELECT projection FROM the table WHERE where."""
        name = version.spec.name
        return self.answer(_question(name, projection, where), {name: version})

    def counts(self, name: str) -> tuple[int, int]:
        """Queries of one table, and how many found their plan ready."""
        return self.engine.counts(name)


@lru_cache(maxsize=_TEXTS)
def _question(table: str, projection: str, where: str | None) -> Query:
    select = exp.Select(
        expressions=_expressions(projection),
        from_=exp.From(this=exp.Table(this=exp.to_identifier(table, quoted=True))),
    )
    if where is not None:
        conditions = _expressions(where)
        if len(conditions) != 1:
            raise SqlSyntaxError(f'"{where}" is not one condition')
        select.set("where", exp.Where(this=conditions[0]))
    return Query(select, tables=(table,))


def _expressions(text: str) -> list[exp.Expr]:
    """The expressions of a SELECT list; nothing may follow them."""
    try:
        tree = sqlglot.parse_one(f"SELECT {text}", dialect=Velostream)
    except SqlglotError as exc:
        raise SqlSyntaxError(f'"{text}" is not a SQL expression', detail=str(exc)) from exc
    only = isinstance(tree, exp.Select) and not any(
        value for key, value in tree.args.items() if key not in ("expressions", "kind", "hint")
    )
    if not only or not tree.expressions:
        raise SqlSyntaxError(f'"{text}" is more than a SQL expression')
    return list(tree.expressions)
