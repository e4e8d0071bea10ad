"""Rows of queries, read in parallel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.connectors.databases.parallel import in_parallel
from velostream.connectors.mysql.client.connections import quoted, run
from velostream.connectors.mysql.client.packets import answered, ended, failed, text_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pymysql.connections import Connection

    from velostream.connectors.mysql.client.connections import Client
    from velostream.connectors.mysql.client.tables import Column, Relation

_CHUNK = 4 << 20
"""Bytes of rows that are read into columns at a time."""
_LEAST_ROWS = 20_000
"""A part of a table has at least about this many rows."""
_PARTS_PER_READER = 4


def parts_of(
    connection: Connection, table: Relation, columns: Sequence[Column], where: Sequence[str], readers: int
) -> list[str]:
    """Queries that together read a table, each a range of the first column of its key if that is a number."""
    plain = f"SELECT {', '.join(column.asked for column in columns)} FROM {table.identifier}"
    bounds = _bounds(connection, table, readers)
    made = []
    for low, high in zip([None, *bounds], [*bounds, None], strict=True):
        conditions = list(where)
        if low is not None:
            conditions.append(f"{quoted(table.key[0])} >= {low}")
        if high is not None:
            conditions.append(f"{quoted(table.key[0])} < {high}")
        made.append(f"{plain} WHERE {' AND '.join(conditions)}" if conditions else plain)
    return made


def _bounds(connection: Connection, table: Relation, readers: int) -> list[int]:
    """Values of the key between which parts lie; none where the key is not a number, or the table small."""
    kinds = {column.name: column.type.name for column in table.columns}
    parts = min(readers * _PARTS_PER_READER, table.rows // _LEAST_ROWS)
    if parts < 2 or not table.key or not kinds[table.key[0]].endswith("int"):
        return []
    column = quoted(table.key[0])
    low, high = run(connection, f"SELECT MIN({column}), MAX({column}) FROM {table.identifier}")[0]
    if low is None:
        return []
    step = max((int(high) - int(low)) // parts, 1)
    return [int(low) + step * part for part in range(1, parts) if int(low) + step * part <= int(high)]


def read_parts(
    client: Client,
    parts: Sequence[str],
    columns: Sequence[Column],
    readers: int,
    *,
    ahead: int | None = None,
    isolation: str | None = None,
) -> Iterator[list[pa.Array]]:
    """The texts of all rows, by column, read by some connections at the same time."""

    def reading(left: Iterator[str]) -> Iterator[list[pa.Array]]:
        with client.session() as connection:
            isolated(connection, isolation)
            for part in left:
                yield from fetched(connection, part, None, columns)

    yield from in_parallel(reading, parts, readers, ahead)


def isolated(connection: Connection, level: str | None) -> None:
    """Let the reads that follow see what this isolation level shows."""
    if level is not None:
        run(connection, f"SET SESSION TRANSACTION ISOLATION LEVEL {level.replace('_', ' ').upper()}")


def fetched(
    connection: Connection,
    query: str,
    values: Sequence[Any] | None,
    columns: Sequence[Column],
    most_rows: int | None = None,
) -> Iterator[list[pa.Array]]:
    """The texts of a query's rows, by column, as many at a time as are read in one go."""
    with answered(connection, query, values) as packets:
        rows: list[bytes] = []
        size = 0
        while True:
            for packet in packets.read():
                if ended(packet):
                    if rows:
                        yield _texts(rows, columns)
                    return
                failed(packet)
                rows.append(packet)
                size += len(packet)
                if size >= _CHUNK or len(rows) == most_rows:
                    yield _texts(rows, columns)
                    rows, size = [], 0


def _texts(rows: Sequence[bytes], columns: Sequence[Column]) -> list[pa.Array]:
    found = text_rows(rows, len(columns))
    return [
        values if pa.types.is_binary(column.type.arrow) else values.cast(pa.string())
        for values, column in zip(found, columns, strict=True)
    ]
