"""What only the server can tell about rows that changed.

Large values that an update did not change are not sent; generated columns are not, either; and only the
server knows what a condition in its SQL means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from psycopg import pq, sql
from psycopg.errors import error_from_result

from velostream.connectors.postgres.client.failures import translated
from velostream.connectors.postgres.client.types import array_literal
from velostream.connectors.postgres.client.user_sql import condition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    import psycopg

    from velostream.connectors.postgres.client.connections import Client
    from velostream.connectors.postgres.client.tables import Column, Relation

    Texts = Mapping[str, pa.Array]
    Key = tuple[str, ...]

_AT_ONCE = 500
"""Rows that are asked about by one query."""
_ROW = sql.Identifier("velostream_row")


def values_now(
    client: Client, table: Relation, keys: Texts, names: Sequence[str]
) -> Mapping[Key, tuple[str | None, ...]]:
    """The values of columns now, by key, as text; rows that are gone have none.

    What changed since then comes as a change of its own.
    """
    found: dict[Key, tuple[str | None, ...]] = {}
    wanted = sorted(set(zip(*(column.to_pylist() for column in keys.values()), strict=True)))
    same = sql.SQL(" AND ").join(
        sql.SQL("t.{} = k.{}").format(sql.Identifier(name), sql.Identifier(name)) for name in keys
    )
    # LIMIT makes the server look up each key by the index, whatever it expects of the table.
    query = sql.SQL(
        "SELECT k.{row}, v.* FROM {given} k "
        "CROSS JOIN LATERAL (SELECT {names} FROM {table} t WHERE {same} LIMIT 1) v"
    ).format(
        row=_ROW,
        given=_given([column for column in table.columns if column.name in keys]),
        names=sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(name)) for name in names),
        table=table.identifier,
        same=same,
    )
    order = [list(keys).index(column.name) for column in table.columns if column.name in keys]
    with client.session() as connection:
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            columns = list(zip(*some, strict=True))
            for number, *values in _answered(connection, query, [list(columns[place]) for place in order]):
                found[some[int(number or 0) - 1]] = tuple(values)
    return found


def evaluated(
    client: Client, table: Relation, texts: Texts, where: str | None, generated: Sequence[str]
) -> tuple[npt.NDArray[np.bool_], dict[str, pa.Array]]:
    """Which rows pass a condition, and their generated columns, as text. `texts` are the other columns."""
    given = [column for column in table.columns if column.name in texts]
    computed = [column for column in table.columns if column.generated is not None]
    computed = [column for column in computed if column.name not in texts]
    name = sql.Identifier(table.name)
    rows = sql.SQL("{} AS {}").format(_given(given), name)
    if computed:
        each = [
            sql.SQL("({})::{} AS {}").format(
                sql.SQL(str(column.generated)), sql.SQL(column.written), sql.Identifier(column.name)
            )
            for column in computed
        ]
        rows = sql.SQL("(SELECT *, {} FROM {}) AS {}").format(sql.SQL(", ").join(each), rows, name)
    asked = [sql.SQL("{}.{}").format(name, column) for column in (_ROW, *map(sql.Identifier, generated))]
    query = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(asked), rows)
    if where is not None:
        query += sql.SQL(" WHERE {}").format(condition(where))
    count = len(next(iter(texts.values())))
    passes = np.zeros(count, dtype=bool)
    made: list[list[str | None]] = [[None] * count for _ in generated]
    with client.session() as connection, translated(f"changes of {table} cannot be computed"):
        for start in range(0, count, _AT_ONCE):
            columns = [texts[column.name].slice(start, _AT_ONCE).to_pylist() for column in given]
            for number, *values in _answered(connection, query, columns):
                at = start + int(number or 0) - 1
                passes[at] = True
                for place, value in enumerate(values):
                    made[place][at] = value
    return passes, {
        column: pa.array(values, pa.string()) for column, values in zip(generated, made, strict=True)
    }


def _given(columns: Sequence[Column]) -> sql.Composed:
    """Rows whose columns are given as arrays of texts, with their types, and with their numbers from 1."""
    names = [sql.Identifier(f"c{number}") for number in range(len(columns))]
    typed = [
        sql.SQL("{}::{} AS {}").format(name, sql.SQL(column.written), sql.Identifier(column.name))
        for name, column in zip(names, columns, strict=True)
    ]
    return sql.SQL("(SELECT {}, {} FROM unnest({}) WITH ORDINALITY AS g({}, {}))").format(
        sql.SQL(", ").join(typed),
        _ROW,
        sql.SQL(", ").join(sql.SQL(f"${number}::text[]") for number in range(1, len(columns) + 1)),
        sql.SQL(", ").join(names),
        _ROW,
    )


def _answered(
    connection: psycopg.Connection, query: sql.Composed, columns: Sequence[Sequence[str | None]]
) -> list[list[str | None]]:
    """Rows as the texts that the server sends, which are those of its changes: a cast to text may differ.

    By libpq directly, since a `%` in a name or a condition is a placeholder to psycopg.
    """
    arrays = [array_literal(column).encode() for column in columns]
    result = connection.pgconn.exec_params(query.as_bytes(connection), arrays)
    if result.status != pq.ExecStatus.TUPLES_OK:
        raise error_from_result(result)
    every = range(result.nfields)
    values = ([result.get_value(row, column) for column in every] for row in range(result.ntuples))
    return [[None if value is None else value.decode() for value in row] for row in values]
