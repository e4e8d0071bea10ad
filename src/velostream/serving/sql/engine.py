"""SQL over tables on DuckDB, for queries that give the same result as on Spark."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock, local
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from velostream.serving.contract.version import Columnar
from velostream.serving.sql.duckdb.translation import Translation, Translator
from velostream.serving.sql.duckdb.types import NeedsSpark, parameter_kind
from velostream.sql.names.usage import resolved
from velostream.sql.parse.dialect import Velostream

if TYPE_CHECKING:
    from sqlglot import exp

    from velostream.model.statements import Query
    from velostream.serving.contract.version import TableVersion

__all__ = ["NeedsSpark", "QueryEngine"]

_PLANS = 1024
_LARGE = 8 << 20


class QueryEngine:
    """Answers queries over versions of tables; thread safe.

    Plans are cached by query text, table schemas and parameter types (LRU). Every thread has its own DuckDB
    cursor. DuckDB can read registered Arrow memory and nothing else: no files, no extensions, no variables of
    Python.
    """

    def __init__(self, *, plans: int = _PLANS) -> None:
        self._capacity = plans
        self._plans: OrderedDict[Any, Translation] = OrderedDict()
        self._texts: OrderedDict[int, tuple[exp.Query, str]] = OrderedDict()
        self._lock = Lock()
        self._local = local()
        self._database: duckdb.DuckDBPyConnection | None = None
        self._asked: dict[str, list[int]] = {}

    def answer(
        self,
        query: Query,
        versions: Mapping[str, TableVersion],
        params: Mapping[str, Any] | Sequence[Any] | None = None,
    ) -> pa.Table:
        """The result with Spark's names, types and values; raises NeedsSpark when that is not certain."""
        if query.continuous or query.udfs:
            raise NeedsSpark("a source, a stream or a Python function")
        here = {name: version for name, version in versions.items() if isinstance(version, Columnar)}
        if len(here) < len(versions):
            raise NeedsSpark("a table whose rows are not in memory")
        values = _named(params)
        plan = self._plan(query, versions, values)
        cursor = self._cursor()
        for internal, name in plan.tables.items():
            self._show(cursor, internal, here[name])
        bound = {internal: values[name] for internal, name in plan.parameters.items()}
        try:
            found = cursor.sql(plan.sql, params=bound).to_arrow_table()
        except duckdb.Error as exc:
            # Overflow, division by zero, or a guard of the translation: Spark gives the result or the error.
            raise NeedsSpark(str(exc).partition("\n")[0]) from exc
        finally:
            self._hide_large(cursor)
        return _shaped(found, plan)

    def counts(self, table: str) -> tuple[int, int]:
        """The number of queries over a table, and of those that found their plan in the cache."""
        queries, hits = self._asked.get(table, (0, 0))
        return queries, hits

    # --- plans --------------------------------------------------------------------------------------

    def _plan(
        self, query: Query, versions: Mapping[str, TableVersion], values: Mapping[str, Any]
    ) -> Translation:
        key = (
            self._text(query),
            tuple((name, version.spec.visible_schema) for name, version in sorted(versions.items())),
            tuple((name, parameter_kind(value)) for name, value in sorted(values.items())),
        )
        with self._lock:
            plan = self._plans.get(key)
            if plan is not None:
                self._plans.move_to_end(key)
            self._note(versions, hit=plan is not None)
        if plan is not None:
            return plan
        schemas = {name: version.spec.visible_schema for name, version in versions.items()}
        found = resolved(query, {name: schema.names for name, schema in schemas.items()})
        plan = Translator(schemas, values).translate(found.tree)
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > self._capacity:
                self._plans.popitem(last=False)
        return plan

    def _text(self, query: Query) -> str:
        """The query as text, cached per tree: generating it takes longer than many queries."""
        known = self._texts.get(id(query.tree))
        if known is not None and known[0] is query.tree:
            return known[1]
        text = query.tree.sql(dialect=Velostream)
        with self._lock:
            self._texts[id(query.tree)] = (query.tree, text)
            while len(self._texts) > self._capacity:
                self._texts.popitem(last=False)
        return text

    def _note(self, versions: Mapping[str, TableVersion], *, hit: bool) -> None:
        for name in versions:
            asked = self._asked.setdefault(name, [0, 0])
            asked[0] += 1
            asked[1] += hit

    # --- DuckDB -------------------------------------------------------------------------------------

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        cursor = getattr(self._local, "cursor", None)
        if cursor is None:
            with self._lock:
                if self._database is None:
                    self._database = duckdb.connect(":memory:", config=dict(_SETTINGS))
                cursor = self._database.cursor()
            cursor.execute("SET TimeZone = 'UTC'")
            cursor.execute("SET python_enable_replacements = false")
            self._local.cursor = cursor
            self._local.shown = {}
        return cursor

    def _show(self, cursor: duckdb.DuckDBPyConnection, internal: str, version: Columnar) -> None:
        rows = version.encoded
        shown = self._local.shown
        if shown.get(internal) is rows:
            return
        names = [f"c{place}" for place in range(rows.num_columns)]
        cursor.register(internal, _with_micros(rows.rename_columns(names)))
        shown[internal] = rows

    def _hide_large(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Unregister large tables, which would be kept alive; keeping small ones saves half a millisecond."""
        shown = self._local.shown
        for internal in [name for name, rows in shown.items() if rows.nbytes > _LARGE]:
            cursor.unregister(internal)
            del shown[internal]


_SETTINGS: Mapping[str, Any] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
}


def _named(params: Mapping[str, Any] | Sequence[Any] | None) -> Mapping[str, Any]:
    if params is None:
        return {}
    if isinstance(params, Mapping):
        return params
    return {str(place): value for place, value in enumerate(params, start=1)}


def _with_micros(rows: pa.Table) -> pa.Table:
    """The rows with intervals as microseconds: DuckDB's intervals have months and return another type."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_duration(field.type):
            rows = rows.set_column(place, field.name, rows.column(place).cast(pa.int64()))
    return rows


def _shaped(found: pa.Table, plan: Translation) -> pa.Table:
    """The answer in Spark's types and names."""
    arrays = [
        found.column(place)
        if found.column(place).type == column.type
        else found.column(place).cast(column.type)
        for place, column in enumerate(plan.columns)
    ]
    schema = pa.schema([pa.field(column.name, column.type) for column in plan.columns])
    return pa.Table.from_arrays(arrays, schema=schema)
