"""Tables, views and queries that are asked for their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.connectors.databases.marks import parameter_values, percent_doubled
from velostream.connectors.databases.polling import Asked
from velostream.connectors.databases.source import Described
from velostream.connectors.databases.text_rows import decode, needed
from velostream.connectors.mysql.client.connections import quoted
from velostream.connectors.mysql.client.failures import translated
from velostream.connectors.mysql.client.packets import fields_of
from velostream.connectors.mysql.client.tables import relation, result_column, text_column
from velostream.connectors.mysql.client.user_sql import (
    check_condition,
    check_order,
    check_query,
    condition,
    derived,
)
from velostream.connectors.mysql.read.conditions import conditions
from velostream.connectors.mysql.read.load import fetched, isolated, parts_of, read_parts
from velostream.errors import SourceConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymysql.connections import Connection

    from velostream.connectors.databases.newest import Since
    from velostream.connectors.databases.text_rows import Decoded
    from velostream.connectors.mysql.client.connections import Client
    from velostream.connectors.mysql.client.tables import Column, Relation
    from velostream.connectors.mysql.options import MySqlOptions
    from velostream.connectors.narrowing import Narrowing


class MySqlRows(Asked):
    """See `Asked`: whole tables are read in parallel, everything else is a query with bound values."""

    def __init__(self, client: Client, options: MySqlOptions) -> None:
        self._client = client
        self._options = options
        self._found: tuple[list[Column], Relation | None] | None = None
        self._narrowing: Narrowing | None = None
        self._others: tuple[str, ...] = ()
        self._conditions: list[str] = []
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
        schema = pa.schema([pa.field(column.name, column.type.arrow) for column in columns])
        key = table.key if table is not None and set(table.key) <= set(names) else ()
        return Described(schema, key, self._others)

    def narrow(self, narrowing: Narrowing) -> None:
        """See `Asked`."""
        if self._options.poll_query is not None:
            return
        self._narrowing = narrowing
        columns, table = self._columns()
        self._conditions, exact = conditions(narrowing, columns)
        if exact and narrowing.most is not None and (self._most is None or narrowing.most < self._most):
            self._most = narrowing.most
        self._found = self._narrowed(columns, table)

    def look(self) -> None:
        """See `Asked`."""
        with self._client.session() as connection:
            self._found = self._narrowed(*self._looked_up(connection))

    def rows(self, since: Since | None) -> Iterator[Decoded]:
        """See `Asked`."""
        columns, table = self._columns()
        options, texts = self._options, [text_column(column) for column in columns]
        with translated(f"cannot read {self.name}"):
            # Queries of several connections are not of one moment: where a column grows, one is asked.
            divisible = options.incremental_column is None and options.order_by is None and self._most is None
            if table is not None and since is None and divisible:
                with self._client.session() as connection:
                    parts = parts_of(connection, table, columns, self._where(), options.readers)
                for found in read_parts(
                    self._client,
                    parts,
                    columns,
                    options.readers,
                    ahead=options.prefetch_count,
                    isolation=options.transaction_isolation,
                ):
                    yield decode(texts, found)
                return
            query, values = self._query(table, columns, since)
            with self._client.session() as connection:
                isolated(connection, options.transaction_isolation)
                size = options.fetch_size or options.batch_size
                for found in fetched(connection, query, values, columns, size):
                    yield decode(texts, found)

    def interrupt(self) -> None:
        """See `Asked`."""
        self._client.interrupt()

    def close(self) -> None:
        """See `Asked`."""
        self._client.close()

    def _query(
        self, table: Relation | None, columns: list[Column], since: Since | None
    ) -> tuple[str, list[Any]]:
        """The statement that is asked, and the values of its marks."""
        options = self._options
        names = ", ".join(column.asked for column in columns)
        grows = options.incremental_column
        order = f" ORDER BY {percent_doubled(quoted(grows))}" if grows is not None else ""
        if since is not None and options.poll_query is not None:
            return f"SELECT {percent_doubled(names)} FROM {derived(options.poll_query)}{order}", [since.value]
        values: list[Any] = []
        if table is None:
            assert options.query is not None
            values = parameter_values(options.query_params)
            text = f"SELECT {names} FROM {derived(options.query)}"
        else:
            text = f"SELECT {names} FROM {table.identifier}".replace("%", "%%")
        conditions = [percent_doubled(each) for each in self._where()]
        if since is not None and grows is not None:
            sign = since.sign(keyed=bool(self.describe().key))
            conditions.append(f"{percent_doubled(quoted(grows))} {sign} %s")
            values.append(since.value)
        if conditions:
            text = f"{text} WHERE {' AND '.join(conditions)}"
        if grows is not None:
            # Without an index the server would sort everything; what is sorted here is only looked at.
            sorted_there = since is not None or self._most is not None or self._told_by_the_server(columns)
            text = f"{text}{order}" if sorted_there else text
        elif options.order_by is not None:
            text = f"{text} ORDER BY {percent_doubled(options.order_by)}\n"
        if self._most is not None:
            text = f"{text} LIMIT {self._most + (since.again if since is not None else 0)}"
        return text, values

    def _told_by_the_server(self, columns: list[Column]) -> bool:
        """Whether only the server knows the order of the column that grows."""
        named = self._options.incremental_column
        return any(each.name == named and pa.types.is_string(each.type.arrow) for each in columns)

    def _where(self) -> list[str]:
        """The conditions of the user and of the statement."""
        own = self._options.where
        return [*([condition(own)] if own is not None else []), *self._conditions]

    def _columns(self) -> tuple[list[Column], Relation | None]:
        if self._found is None:
            self.look()
        assert self._found is not None
        return self._found

    def _narrowed(
        self, columns: list[Column], table: Relation | None
    ) -> tuple[list[Column], Relation | None]:
        """The columns that the statement needs."""
        if self._narrowing is None:
            return columns, table
        grows = self._options.incremental_column
        always = [*(table.key if table is not None else ()), *filter(None, [grows])]
        chosen = needed(columns, self._narrowing, always)
        names = {column.name for column in chosen}
        self._others = tuple(column.name for column in columns if column.name not in names)
        return chosen, table

    def _looked_up(self, connection: Connection) -> tuple[list[Column], Relation | None]:
        options = self._options
        if options.poll_query is not None:
            check_query(connection, options.poll_query, "poll.query")
        table, values = None, parameter_values(options.query_params)
        if options.table is not None:
            table = relation(connection, options.database_schema, options.table)
            columns, source = list(table.columns), percent_doubled(table.identifier)
        else:
            assert options.query is not None
            check_query(connection, options.query, "query")
            source = derived(options.query)
            fields = fields_of(connection, f"SELECT * FROM {source} LIMIT 0", values)
            columns = [result_column(field) for field in fields]
        if options.where is not None:
            check_condition(connection, options.where, source, values)
        if options.order_by is not None:
            check_order(connection, options.order_by, source, values)
        return columns, table
