"""Everything that a table or a query has, read in parallel under one snapshot."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from psycopg import OperationalError, pq, sql
from psycopg.errors import error_from_result
from pyarrow import csv

from velostream.connectors.databases.parallel import in_parallel, released
from velostream.connectors.databases.sockets import readable
from velostream.connectors.databases.text_rows import decode
from velostream.connectors.postgres.client.tables import leaves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg

    from velostream.connectors.databases.text_rows import Decoded, TextColumn
    from velostream.connectors.postgres.client.connections import Client
    from velostream.connectors.postgres.client.tables import Relation

_CHUNK = 4 << 20
"""Bytes of text that are read into columns at a time."""
LASTING = (None, "repeatable_read", "serializable")
"""Isolation under which all queries of a transaction see the same rows; None is the first of them."""
LEAST_PAGES = 256
"""A part of a table has at least this many pages."""


def parts_of(
    connection: psycopg.Connection,
    table: Relation,
    columns: Sequence[TextColumn],
    where: Sequence[sql.Composed],
    readers: int,
) -> list[sql.Composed]:
    """Queries that together read a table, each a range of its pages."""
    names = sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)
    made = []
    for leaf, pages in leaves(connection, table):
        size = max(LEAST_PAGES, -(-pages // readers))
        alone = table.kind in "rp" and not table.inherited
        bounds = [*range(0, pages, size)][1:] if alone else []
        for low, high in zip([None, *bounds], [*bounds, None], strict=True):
            conditions = list(where)
            if low is not None:
                conditions.append(sql.SQL("ctid >= {}::tid").format(sql.Literal(f"({low},0)")))
            if high is not None:
                conditions.append(sql.SQL("ctid < {}::tid").format(sql.Literal(f"({high},0)")))
            text = sql.SQL("SELECT {} FROM ONLY {}" if alone else "SELECT {} FROM {}")
            text = text.format(names, leaf)  # type: ignore[assignment]
            if conditions:
                text = sql.SQL("{} WHERE {}").format(text, sql.SQL(" AND ").join(conditions))  # type: ignore[assignment]
            made.append(text)
    return made  # type: ignore[return-value]


def read_parts(
    client: Client,
    parts: Sequence[sql.Composed],
    columns: Sequence[TextColumn],
    snapshot: str | None,
    readers: int,
    *,
    ahead: int | None = None,
    isolation: str | None = None,
) -> Iterator[Decoded]:
    """All rows, read and decoded by some connections at the same time at one snapshot.

    Without a `snapshot`, at one that is taken now, where the isolation lasts for a transaction.
    """
    with ExitStack() as stack:
        if snapshot is None and len(parts) > 1 and isolation in LASTING:
            keeper = stack.enter_context(client.session())
            begin_at(keeper, None, isolation)
            (snapshot,) = keeper.execute("SELECT pg_export_snapshot()").fetchone() or (None,)

        def read(left: Iterator[sql.Composed]) -> Iterator[Decoded]:
            with client.session() as connection:
                begin_at(connection, snapshot, isolation)
                for part in left:
                    for texts in copied(connection, part, len(columns)):
                        yield decode(columns, texts)

        with released(in_parallel(read, parts, readers, ahead)) as found:
            yield from found


def begin_at(connection: psycopg.Connection, snapshot: str | None, isolation: str | None = None) -> None:
    """Begin to read what a snapshot shows; None: what is there now."""
    level = sql.SQL((isolation or "repeatable_read").replace("_", " ").upper())
    connection.execute(sql.SQL("BEGIN ISOLATION LEVEL {} READ ONLY").format(level))
    if snapshot is not None:
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))


def copied(connection: psycopg.Connection, query: sql.Composed, columns: int) -> Iterator[list[pa.Array]]:
    """The texts of a query's rows, by column; the server writes them as CSV."""
    chunk: list[Any] = []
    size = 0
    for row in _copied(connection, sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(query)):
        chunk.append(row)
        size += len(row)
        if size >= _CHUNK:
            yield texts_of(b"".join(chunk), columns)
            chunk, size = [], 0
    if chunk:
        yield texts_of(b"".join(chunk), columns)


def _copied(connection: psycopg.Connection, text: sql.Composed) -> Iterator[memoryview]:
    """The rows that the server copies, each in a message of its own.

    By libpq directly: psycopg's own iteration costs three times as much for each row. Other threads go on
    while it waits.
    """
    raw = connection.pgconn
    # The protocol with parameters takes one statement only.
    raw.send_query_params(text.as_bytes(connection), None)
    result = _result(raw)
    if result is None or result.status != pq.ExecStatus.COPY_OUT:
        _drained(raw)
        raise error_from_result(result) if result is not None else OperationalError("no answer")
    whole = False
    try:
        while True:
            size, data = raw.get_copy_data(1)
            if size > 0:
                yield data
            elif size < 0:
                whole = True
                break
            else:
                _await_input(raw)
    finally:
        if not whole:
            # Nobody takes the rest: what is under way cannot be stopped but by ending the connection.
            connection.close()
    result = _result(raw)
    _drained(raw)
    if result is not None and result.status != pq.ExecStatus.COMMAND_OK:
        raise error_from_result(result)


def _result(raw: pq.abc.PGconn) -> pq.abc.PGresult | None:
    while raw.is_busy():
        _await_input(raw)
    return raw.get_result()


def _drained(raw: pq.abc.PGconn) -> None:
    while raw.get_result() is not None:
        pass


def _await_input(raw: pq.abc.PGconn) -> None:
    readable(raw.socket, 1.0)
    raw.consume_input()


def texts_of(text: bytes, columns: int) -> list[pa.Array]:
    """The columns of CSV. Empty is null, and quoted empty is an empty text."""
    names = [f"c{number}" for number in range(columns)]
    read = csv.read_csv(
        pa.BufferReader(text),
        csv.ReadOptions(column_names=names, use_threads=False, block_size=max(len(text), 1)),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return [column.combine_chunks() for column in read.columns]
