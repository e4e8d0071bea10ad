"""SQL conditions and expressions over one table, for the Python API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from velostream.errors import SqlSyntaxError, UnsupportedError
from velostream.model.statements import Query, SelectStatement
from velostream.serving.sql.engine import NeedsSpark, QueryEngine
from velostream.sql.check import bind_one
from velostream.sql.known_relations import Relation, RelationKind
from velostream.sql.types import quote

if TYPE_CHECKING:
    import pyarrow as pa

    from velostream.model.tables import TableSpec
    from velostream.serving.contract.version import TableVersion

_TEXTS = 4096

SparkAnswer = Callable[[Query, "Mapping[str, TableVersion]", "Mapping[str, Any]"], "pa.Table"]
"""Answers a query over versions of tables on Spark."""


class Questions:
    """Answers SQL: on DuckDB where it agrees with Spark, otherwise on Spark if there is one."""

    def __init__(self) -> None:
        self.engine = QueryEngine()
        self.spark: SparkAnswer | None = None
        """Set by the runtime; without it, queries that need Spark are refused."""

    def answer(
        self, query: Query, versions: Mapping[str, TableVersion], params: Mapping[str, Any] | None = None
    ) -> pa.Table:
        """The result of a query over versions of one moment."""
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
        return self.answer(_question(name, version.spec.visible, projection, where), {name: version})

    def bound(self, spec: TableSpec, projection: str, where: str | None) -> exp.Expr:
        """The bound query of the same projection and condition, its names and functions checked."""
        return _question(spec.name, spec.visible, projection, where).tree

    def counts(self, name: str) -> tuple[int, int]:
        """The number of queries over one table, and of those that found their plan in the cache."""
        return self.engine.counts(name)


@lru_cache(maxsize=_TEXTS)
def _question(table: str, columns: tuple[str, ...], projection: str, where: str | None) -> Query:
    """The bound query; raises for unknown columns and functions, and for unsafe ones."""
    condition = "" if where is None else f"\nWHERE {where}"
    statement = bind_one(
        f"SELECT {projection}\nFROM {quote(table)}{condition}", _OneTable(table, columns), environment={}
    )
    if not isinstance(statement, SelectStatement) or not _plain(statement.query.tree, where):
        raise SqlSyntaxError(f'"{projection}" or "{where or ""}" is more than a SQL expression')
    return statement.query


def _plain(tree: exp.Expr, where: str | None) -> bool:
    wanted = {"expressions", "from_"} if where is None else {"expressions", "from_", "where"}
    return isinstance(tree, exp.Select) and {key for key, value in tree.args.items() if value} == wanted


@dataclass(frozen=True)
class _OneTable:
    """A catalogue with one table."""

    table: str
    columns: tuple[str, ...]

    def lookup(self, name: str) -> Relation | None:
        if name.casefold() != self.table.casefold():
            return None
        return Relation(RelationKind.TABLE, self.table, names=self.columns)

    def names(self) -> Iterable[str]:
        return (self.table,)
