"""Tables and queries of any SQL database that are asked for their rows."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from velostream.connectors.any_sql.failures import translated
from velostream.connectors.databases.marks import marked, parameter_values
from velostream.connectors.databases.polling import Asked
from velostream.connectors.databases.source import Described
from velostream.connectors.databases.user_sql import check_user_sql
from velostream.errors import SourceConfigError, SourceMissingError, SourceNetworkError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from velostream.connectors.any_sql.drivers.base import Address, Connection, Driver
    from velostream.connectors.databases.newest import Since
    from velostream.connectors.databases.text_rows import Decoded


class SqlRows(Asked):
    """See `Asked`: every read is one query, with bound values."""

    def __init__(self, driver: Driver, address: Address, declared: pa.Schema | None) -> None:
        self._driver = driver
        self._address = address
        self._options = address.options
        self._declared = declared
        self._open: Connection | None = None
        self._found: Described | None = None
        self._checked = False
        self._interrupted = False
        what = f'table "{self._options.table}"' if self._options.table else "a query"
        self.name = f'driver "{self._options.driver}", {what}'

    def describe(self) -> Described:
        """See `Asked`."""
        if self._found is None:
            self.look()
        assert self._found is not None
        return self._found

    def look(self) -> None:
        """See `Asked`."""
        with translated(f"cannot read {self.name}"), self._let_go():
            self._found = self._looked_up()

    def rows(self, since: Since | None) -> Iterator[Decoded]:
        """See `Asked`."""
        schema = self.describe().schema
        try:
            with translated(f"cannot read {self.name}"), self._let_go():
                query, values = self._query(since)
                size = self._options.fetch_size or self._options.batch_size
                yield from self._connection().rows(query, values, schema, size)
        except SourceNetworkError:
            self.close()
            raise

    def interrupt(self) -> None:
        """See `Asked`."""
        self._interrupted = True
        if (opened := self._open) is not None:
            with suppress(Exception):  # it may be closed meanwhile
                opened.interrupt()

    @contextmanager
    def _let_go(self) -> Iterator[None]:
        """Close the database afterwards where nobody else may write to it while it is open."""
        try:
            yield
        finally:
            if self._open is not None and self._open.shuts_out:
                self.close()

    def close(self) -> None:
        """See `Asked`."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _looked_up(self) -> Described:
        options, connection = self._options, self._connection()
        key: tuple[str, ...] = ()
        sampled = False
        if not self._checked:
            check_user_sql(options)
        try:
            if options.table is not None:
                schema = self._declared or connection.table_columns(options.table, options.database_schema)
                key = connection.key(options.table, options.database_schema)
            else:
                schema = self._declared or connection.columns(*self._relation())
            sampled = self._declared is None and connection.sampled(options.table, options.database_schema)
        except Exception as exc:
            raise self._missing(exc, connection) from exc
        if not self._checked:
            self._check(connection)
            self._checked = True
        names = schema.names
        for said, given in (
            ("incremental.column", [options.incremental_column]),
            ("key", options.key_columns),
        ):
            for name in given:
                if name is not None and name not in names:
                    raise SourceConfigError(
                        f'{self.name} has no column "{name}", which "{said}" names',
                        hint=did_you_mean(name, names),
                    )
        key = options.key_columns or (key if set(key) <= set(names) else ())
        return Described(schema, key, sampled=sampled)

    def _check(self, connection: Connection) -> None:
        """Refuse SQL of the user's that is more than it has to be; no rows are read."""
        options = self._options
        if options.where is None and options.order_by is None and options.poll_query is None:
            return
        query, values = self._relation()
        nothing = f"FROM ({query}\n) q WHERE 1 = 0"
        if options.where is not None:
            with translated(f'"where" = "{options.where}" is no condition on the rows'):
                # No text ends both of these and goes on with something else.
                connection.columns(f"SELECT 1 AS x {nothing} AND ({options.where}\n)", values)
                connection.columns(f"SELECT CASE WHEN ({options.where}\n) THEN 1 END AS x {nothing}", values)
        if options.order_by is not None:
            with translated(f'"order.by" = "{options.order_by}" is no order of the rows'):
                connection.columns(f"SELECT * {nothing} ORDER BY {options.order_by}\n", values)
                number = f"ROW_NUMBER() OVER (ORDER BY {options.order_by}\n)"
                connection.columns(f"SELECT {number} AS x {nothing}", values)
        if options.poll_query is not None:
            text = marked(options.poll_query, 1, connection.mark.format)
            with translated('"poll.query" is no query'):
                connection.columns(f"SELECT * FROM ({text}\n) q WHERE 1 = 0", [None])

    def _missing(self, exc: Exception, connection: Connection) -> Exception:
        """The error of a table that is not there tells the nearest that is."""
        from velostream.connectors.any_sql.failures import kind_of

        table = self._options.table
        missing = isinstance(exc, SourceMissingError) or kind_of(exc) is SourceMissingError
        if table is None or not missing:
            return exc
        near = connection.tables()
        return SourceMissingError(
            f"{self.name} does not exist",
            hint=did_you_mean(table, near) or f"there are: {', '.join(sorted(near)[:20]) or 'none'}",
        )

    def _relation(self) -> tuple[str, list[Any]]:
        """What is read, as a query, and the values of its marks."""
        options, connection = self._options, self._connection()
        if options.table is not None:
            return f"SELECT * FROM {connection.table(options.table, options.database_schema)}", []
        assert options.query is not None
        values = parameter_values(options.query_params)
        return marked(options.query, len(values), connection.mark.format), values

    def _query(self, since: Since | None) -> tuple[str, list[Any]]:
        options, connection = self._options, self._connection()
        schema = self.describe().schema
        query, values = self._relation()
        conditions = [f"({options.where}\n)"] if options.where is not None else []
        grows = schema.field(options.incremental_column) if options.incremental_column is not None else None
        columns = ", ".join(connection.quoted(name) for name in schema.names)
        if since is not None and grows is not None:
            bound = connection.after(grows, since.value)
            if options.poll_query is not None:
                own = marked(options.poll_query, 1, connection.mark.format)
                return f"SELECT {columns} FROM ({own}\n) q ORDER BY {connection.quoted(grows.name)}", [bound]
            sign = since.sign(keyed=bool(self.describe().key))
            conditions.append(connection.grows(grows, sign, connection.mark.format(len(values))))
            values = [*values, bound]
        text = f"SELECT {columns} FROM ({query}\n) q"
        if conditions:
            text += f" WHERE {' AND '.join(conditions)}"
        if grows is not None:
            text += f" ORDER BY {connection.quoted(grows.name)}"
        elif options.order_by is not None:
            text += f" ORDER BY {options.order_by}\n"
        if options.limit is not None:
            text += f" LIMIT {options.limit + (since.again if since is not None else 0)}"
        return text, values

    def _connection(self) -> Connection:
        if self._interrupted:
            raise SourceNetworkError("reading was stopped")
        if self._open is None:
            with translated(f'cannot connect with driver "{self._options.driver}"'):
                self._driver.check(self._address)
                self._open = self._driver.connect(self._address)
        return self._open
