"""INSERT, UPDATE and DELETE on tables filled by hand: each is one durable commit.

Isolation: no other change happens between the read of a statement and its commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from velostream.engine.opening.once import declared
from velostream.errors import SqlError, TableError
from velostream.model.columns import OUTGOING_HEADERS
from velostream.model.statements import Delete, InsertInto, InsertIntoSink, Query, Update
from velostream.model.tables import lacking
from velostream.plan.sinks import outgoing
from velostream.runtime.statements.constants import Values, bound, constant_kinds, constant_row
from velostream.serving.table.rows import to_table
from velostream.sql.bind.row_queries import rows_query
from velostream.sql.text.spark_text import SPARK
from velostream.sql.types import spark_ddl

if TYPE_CHECKING:
    from velostream.runtime.answers.query import AdHoc
    from velostream.serving.contract.table import Table
    from velostream.serving.table.store import TableStore

Params = Mapping[str, Any] | tuple[Any, ...] | None


@dataclass(frozen=True)
class Dml:
    """Executes statements that change tables filled by hand."""

    store: TableStore
    adhoc: AdHoc

    def insert(self, statement: InsertInto, params: Params, identity: str | None = None) -> int:
        """Insert rows; a duplicate key is an error without OR REPLACE. Returns the number of rows."""
        table = self.store.open(statement.table)
        with table.exclusive():
            rows = self._inserted(statement, table, params)
            if table.spec.key and not statement.or_replace:
                table.check_new(rows)
            if table.spec.key:
                table.commit_keyed(rows, None, table.manual_commit(identity))
            else:
                table.commit_rows(rows, None, table.manual_commit(identity))
        return int(rows.num_rows)

    def _inserted(self, statement: InsertInto, table: Table, params: Params) -> pa.Table:
        names = statement.columns or table.spec.visible
        if statement.query is not None:
            return self._computed(statement.query, params, names, table)
        rows: Sequence[Values] = statement.values
        if params:
            try:
                rows, params = bound(rows, params), None
            except SqlError:
                # A value without a literal form, such as a list, is passed to the engine as a parameter.
                return self._computed(Query(rows_query(rows)), params, names, table)
        kinds = [table.spec.schema.field(name).type for name in names]
        known = [constant_row(row, kinds) if len(row) == len(names) else None for row in rows]
        given = to_table([dict(zip(names, row, strict=True)) for row in known if row is not None], table.spec)
        others = [row for row, constants in zip(rows, known, strict=True) if constants is None]
        if not others:
            return given
        computed = self._computed(Query(rows_query(others)), None, names, table)
        places = [n for n, row in enumerate(known) if row is not None]
        places += [n for n, row in enumerate(known) if row is None]
        return pa.concat_tables([given, computed]).take(np.argsort(np.array(places)))

    def _computed(self, query: Query, params: Params, names: Sequence[str], table: Table) -> pa.Table:
        found = self.adhoc.answer(query, params).arrow()
        if found.num_columns != len(names):
            raise SqlError(
                f'INSERT gives {found.num_columns} values for {len(names)} columns of "{table.name}"'
            )
        return _of_table(found.rename_columns(list(names)), table)

    def outgoing(
        self,
        statement: InsertIntoSink,
        params: Params,
        names: Callable[[], list[str]],
        answer: Callable[[Query], pa.Table],
    ) -> pa.Table:
        """The rows that INSERT INTO a URI writes, of which `answer` gives those of its SELECT.

        `names` tells their columns where the statement does not.
        Headers of outgoing records are a column of their own, the last.
        """
        if statement.values:
            found = self._values(statement.values, statement.query, params)
        else:
            found = answer(outgoing(statement.query))
        given = [name for name in found.schema.names if name != OUTGOING_HEADERS]
        wanted = declared(statement)
        chosen = list(statement.columns)
        if not chosen and statement.values:
            chosen = names() if wanted is None else wanted.names
        chosen = chosen or given
        if len(chosen) != len(given):
            raise SqlError(
                f"INSERT gives {len(given)} values for {len(chosen)} columns of {statement.uri}",
                hint=f"columns are {', '.join(chosen)}; name those you mean: "
                f"INSERT INTO {statement.uri} (a, b) VALUES …",
            )
        if len({name.casefold() for name in chosen}) < len(chosen):
            raise SqlError(f"columns of the rows have the same name: {', '.join(chosen)}")
        rows = found.rename_columns([*chosen, *found.schema.names[len(given) :]])
        return _typed(rows) if wanted is None else _fitted(rows, wanted, str(statement.uri))

    def _values(self, rows: Sequence[Values], query: Query, params: Params) -> pa.Table:
        """Rows of VALUES: constants as they are; where there is anything else, an engine computes them."""
        if params:
            try:
                rows, params = bound(rows, params), None
            except SqlError:
                # A value without a literal form, such as a list, is passed to the engine as a parameter.
                return self.adhoc.answer(_numbered(rows, query), params).arrow()
        kinds = constant_kinds(rows)
        if kinds is None:
            return self.adhoc.answer(_numbered(rows, query), params).arrow()
        known = [constant_row(row, kinds) or () for row in rows]
        arrays = [
            pa.array(column, kind) for column, kind in zip(zip(*known, strict=True), kinds, strict=True)
        ]
        return pa.table(arrays, names=[f"c{place}" for place in range(len(kinds))])

    def update(self, statement: Update, params: Params, identity: str | None = None) -> int:
        """Update rows where the condition holds. Returns the number of rows."""
        table = self.store.open(statement.table)
        spec = table.spec
        assigned = dict(statement.assignments)
        for name in assigned:
            if name in spec.key:
                raise TableError(f'key column "{name}" of table "{table.name}" cannot be updated')
        items: list[exp.Expr] = []
        for field in spec.visible_schema:
            value = assigned.get(field.name, exp.column(field.name, quoted=True)).copy()
            cast = exp.cast(value, spark_ddl(field.type), dialect=SPARK) if field.name in assigned else value
            items.append(exp.alias_(cast, field.name, quoted=True))
        with table.exclusive():
            new = _of_table(self._where(table, items, statement.where, params), table)
            commit = table.manual_commit(identity)
            if spec.key:
                table.commit_keyed(new, None, commit)
            else:
                old = _of_table(self._where(table, [exp.Star()], statement.where, params), table)
                weights = pa.array([-1] * old.num_rows + [1] * new.num_rows, pa.int64())
                table.commit_rows(pa.concat_tables([old, new]), weights, commit)
        return int(new.num_rows)

    def delete(self, statement: Delete, params: Params, identity: str | None = None) -> int:
        """Delete rows where the condition holds. Returns the number of rows."""
        table = self.store.open(statement.table)
        with table.exclusive():
            if statement.where is None:
                # There is nothing to choose, and the table may not fit into memory.
                count = len(table)
                table.truncate(table.manual_commit(identity))
                return count
            old = _of_table(self._where(table, [exp.Star()], statement.where, params), table)
            commit = table.manual_commit(identity)
            if table.spec.key:
                table.commit_keyed(None, old.select(list(table.spec.key)), commit)
            else:
                table.commit_rows(old, pa.array([-1] * old.num_rows, pa.int64()), commit)
        return int(old.num_rows)

    def _where(self, table: Table, items: list[exp.Expr], where: exp.Expr | None, params: Params) -> pa.Table:
        tree = exp.Select(expressions=items).from_(exp.to_table(table.name))
        if where is not None:
            tree = tree.where(where.copy(), copy=False)
        return self.adhoc.answer(Query(tree, tables=(table.name,)), params).arrow()


def _of_table(rows: pa.Table, table: Table) -> pa.Table:
    return _fitted(rows, table.spec.schema, f'table "{table.name}"')


def _fitted(rows: pa.Table, schema: pa.Schema, what: str) -> pa.Table:
    """Rows cast to these columns and types; the error names the column and type that do not fit."""
    arrays = []
    for field in schema:
        if field.name not in rows.schema.names:
            arrays.append(pa.chunked_array([lacking(field, rows.num_rows)]))
            continue
        column = rows.column(field.name)
        try:
            arrays.append(_cast(column, field.type))
        except pa.ArrowInvalid as exc:
            raise SqlError(
                f'a value does not fit column "{field.name}" of {what}',
                detail=f"{exc}",
                hint=f"the column is {spark_ddl(field.type)}",
            ) from exc
    return pa.table(arrays, schema=schema)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_integer(column.type) and pa.types.is_decimal(kind):
        # Arrow asks for room for every number of the type, not for those that are there.
        column = column.cast(pa.decimal128(38, kind.scale))
    return column if column.type == kind else column.cast(kind)


def _typed(rows: pa.Table) -> pa.Table:
    """The rows with a type for columns that hold nothing but NULL."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_null(field.type):
            rows = rows.set_column(place, field.name, rows.column(place).cast(pa.string()))
    return rows


def _numbered(rows: Sequence[Values], query: Query) -> Query:
    """A query that returns the rows, in columns that have different names."""
    first = [exp.alias_(value.copy(), f"c{place}") for place, value in enumerate(rows[0])]
    return replace(query, tree=rows_query([first, *rows[1:]]))
