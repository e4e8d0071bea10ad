"""Tables, views and queries of PostgreSQL that are asked for their rows."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from psycopg import sql

from velostream.connectors.databases.marks import parameter_values, percent_doubled, percent_marked
from velostream.connectors.databases.polling import Asked
from velostream.connectors.databases.source import Described
from velostream.connectors.databases.text_rows import decode, needed
from velostream.connectors.postgres.client.failures import translated
from velostream.connectors.postgres.client.tables import relation, text_column, types_by_oid
from velostream.connectors.postgres.client.user_sql import (
    check_condition,
    check_order,
    condition,
    derived,
    described_query,
)
from velostream.connectors.postgres.read.conditions import conditions
from velostream.connectors.postgres.read.load import LASTING, begin_at, parts_of, read_parts
from velostream.errors import SourceConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from velostream.connectors.databases.newest import Since
    from velostream.connectors.databases.text_rows import Decoded, TextColumn
    from velostream.connectors.narrowing import Narrowing
    from velostream.connectors.postgres.client.connections import Client
    from velostream.connectors.postgres.client.tables import Relation
    from velostream.connectors.postgres.options import PostgresOptions


class PostgresRows(Asked):
    """See `Asked`: whole tables are copied in parallel, everything else is a query with bound values."""

    def __init__(self, client: Client, options: PostgresOptions) -> None:
        self._client = client
        self._options = options
        self._found: tuple[list[TextColumn], Relation | None] | None = None
        self._narrowing: Narrowing | None = None
        self._others: tuple[str, ...] = ()
        self._checked = False
        self._conditions: list[sql.Composed] = []
        self._most = options.limit
        self.name = f'{client.name}, table "{options.table}"' if options.table else f"{client.name}, a query"

    def describe(self) -> Described:
        """See `Asked`."""
        columns, table = self._columns()
        grows = self._options.incremental_column
        names = [column.name for column in columns]
        if grows is not None and grows not in names:
            raise SourceConfigError(
                f'{self.name} has no column "{grows}", which "incremental.column" names',
                hint=did_you_mean(grows, names),
            )
        schema = pa.schema([pa.field(column.name, column.type) for column in columns])
        key = table.key if table is not None and set(table.key) <= set(names) else ()
        return Described(schema, key, self._others)

    def narrow(self, narrowing: Narrowing) -> None:
        """See `Asked`."""
        if self._options.poll_query is not None:
            return
        self._narrowing = narrowing
        columns, table = self._columns()
        self._conditions, every = conditions(narrowing, columns)
        if every and narrowing.most is not None and (self._most is None or narrowing.most < self._most):
            self._most = narrowing.most
        self._found = self._narrowed(columns, table)

    def look(self) -> None:
        """See `Asked`."""
        with self._client.session() as connection:
            self._found = self._narrowed(*self._looked_up(connection))

    def rows(self, since: Since | None) -> Iterator[Decoded]:
        """See `Asked`."""
        columns, table = self._columns()
        options = self._options
        with translated(f"cannot read {self.name}"):
            if table is not None and since is None and self._divisible(columns):
                with self._client.session() as connection:
                    parts = parts_of(connection, table, columns, self._where(), options.readers)
                yield from read_parts(
                    self._client,
                    parts,
                    columns,
                    None,
                    options.readers,
                    ahead=options.prefetch_count,
                    isolation=options.transaction_isolation,
                )
                return
            text, values = self._query(table, columns, since)
            yield from self._fetched(text, values, columns)

    def _divisible(self, columns: list[TextColumn]) -> bool:
        """Whether the table may be read in parts, which come in any order."""
        options = self._options
        if options.order_by is not None or self._most is not None:
            return False
        grows = next((each for each in columns if each.name == options.incremental_column), None)
        # What a part shows must not be from before another part's last value.
        at_once = options.transaction_isolation in LASTING or options.readers == 1
        return grows is None or (at_once and not pa.types.is_string(grows.type))

    def interrupt(self) -> None:
        """See `Asked`."""
        self._client.interrupt()

    def close(self) -> None:
        """See `Asked`."""
        self._client.close()

    def _query(
        self, table: Relation | None, columns: list[TextColumn], since: Since | None
    ) -> tuple[sql.Composable, list[Any]]:
        options = self._options
        names = sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)
        grows = options.incremental_column
        if since is not None and options.poll_query is not None:
            assert grows is not None
            text = sql.SQL("SELECT {} FROM ({}\n) q ORDER BY {}")
            return text.format(names, _marked(options.poll_query), sql.Identifier(grows)), [since.value]
        values: list[Any] = []
        if table is None:
            assert options.query is not None
            values = parameters(options.query_params)
            inner: sql.Composable = sql.SQL("SELECT {} FROM ({}\n) q").format(names, _marked(options.query))
        else:
            inner = sql.SQL("SELECT {} FROM {}").format(names, table.identifier)
        where: list[sql.Composable] = list(self._where(marked=True))
        if since is not None and grows is not None:
            sign = sql.SQL(since.sign(keyed=bool(self.describe().key)))
            where.append(sql.SQL("{} {} %s").format(sql.Identifier(grows), sign))
            values.append(since.value)
        if where:
            inner = sql.SQL("{} WHERE {}").format(inner, sql.SQL(" AND ").join(where))
        if grows is not None:
            inner = sql.SQL("{} ORDER BY {}").format(inner, sql.Identifier(grows))
        elif options.order_by is not None:
            inner = sql.SQL("{} ORDER BY {}\n").format(inner, _plain(options.order_by))
        if self._most is not None:
            most = self._most + (since.again if since is not None else 0)
            inner = sql.SQL("{} LIMIT {}").format(inner, sql.Literal(most))
        return inner, values

    def _where(self, *, marked: bool = False) -> list[sql.Composed]:
        """The conditions of the statement and of the user; `marked`: for a query with bound values."""
        own = self._options.where
        given = [condition(percent_doubled(own) if marked else own)] if own else []
        if not marked:
            return [*given, *self._conditions]
        plain = [sql.Composed([_plain(each.as_string())]) for each in self._conditions]
        return [*given, *plain]

    def _fetched(
        self, text: sql.Composable, values: list[Any], columns: list[TextColumn]
    ) -> Iterator[Decoded]:
        """The rows of a query, through a cursor of the server: as many at a time as the options say."""
        size = self._options.fetch_size or self._options.batch_size
        with self._client.session() as connection:
            begin_at(connection, None, self._options.transaction_isolation)
            with _closed(connection.cursor(name="velostream")) as cursor:
                _as_text(cursor)
                cursor.execute(sql.Composed([text]), values)
                while rows := cursor.fetchmany(size):
                    texts = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
                    yield decode(columns, texts)

    def _columns(self) -> tuple[list[TextColumn], Relation | None]:
        if self._found is None:
            self.look()
        assert self._found is not None
        return self._found

    def _narrowed(
        self, columns: list[TextColumn], table: Relation | None
    ) -> tuple[list[TextColumn], Relation | None]:
        """The columns that the statement needs."""
        if self._narrowing is None:
            return columns, table
        grows = self._options.incremental_column
        always = [*(table.key if table is not None else ()), *filter(None, [grows])]
        chosen = needed(columns, self._narrowing, always)
        names = {column.name for column in chosen}
        self._others = tuple(column.name for column in columns if column.name not in names)
        return chosen, table

    def _looked_up(self, connection: psycopg.Connection) -> tuple[list[TextColumn], Relation | None]:
        options = self._options
        checked, self._checked = self._checked, True
        if options.poll_query is not None and not checked:
            described_query(connection, options.poll_query, "poll.query")
        table: Relation | None = None
        source: sql.Composable
        if options.table is not None:
            table = relation(connection, options.database_schema, options.table)
            columns, source = [text_column(each.name, each.type) for each in table.columns], table.identifier
        else:
            assert options.query is not None
            told = described_query(connection, options.query, "query")
            types = types_by_oid(connection, [oid for _, oid, _ in told])
            columns = [text_column(name, types[oid](modifier)) for name, oid, modifier in told]
            source = derived(options.query)
        if options.where is not None and not checked:
            check_condition(connection, options.where, source)
        if options.order_by is not None and not checked:
            check_order(connection, options.order_by, source)
        return columns, table


def parameters(text: str | None) -> list[Any]:
    """The values of `query.params` as texts, which the server takes for the types that it needs."""
    return [None if each is None else str(each) for each in parameter_values(text)]


@contextmanager
def _closed(cursor: psycopg.ServerCursor[Any]) -> Iterator[psycopg.ServerCursor[Any]]:
    """A cursor that is closed in the end, also where the server, which is asked to, is gone by then."""
    try:
        yield cursor
    finally:
        try:
            cursor.close()
        except psycopg.Error:
            cursor.connection.close()
            cursor.close()


def _marked(text: str) -> sql.SQL:
    return sql.SQL(percent_marked(text))


def _plain(text: str) -> sql.SQL:
    return sql.SQL(percent_doubled(text))


def _as_text(cursor: psycopg.ServerCursor[Any]) -> None:
    """Hand over every value as the text that the server sends."""
    from psycopg.types.string import TextLoader

    for info in cursor.adapters.types:
        cursor.adapters.register_loader(info.oid, TextLoader)
        if info.array_oid:
            cursor.adapters.register_loader(info.array_oid, TextLoader)
