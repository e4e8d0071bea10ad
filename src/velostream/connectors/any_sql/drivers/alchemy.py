"""Every database that SQLAlchemy has a dialect for: its driver package has to be installed."""

from __future__ import annotations

import ssl
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from velostream.connectors.any_sql.drivers.base import Address, Connection, Driver
from velostream.connectors.any_sql.values import LOOSE_DECIMAL, decoded, type_of
from velostream.connectors.databases.rows import UTC_TIME
from velostream.errors import SourceConfigError, SourceMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection as Connected
    from sqlalchemy import Engine
    from sqlalchemy.types import TypeEngine

    from velostream.connectors.any_sql.options import SqlOptions
    from velostream.connectors.databases.text_rows import Decoded

_SAMPLE = 1000
"""Rows of a query that are looked at for the types of its columns."""
_MARK = "velostream_value_"
_IN_UTC = {"postgresql": "SET TIME ZONE 'UTC'", "mysql": "SET time_zone = '+00:00'"}
_READ_ONLY = {
    "postgresql": "SET default_transaction_read_only = on",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
}


class AlchemyDriver(Driver):
    """`sql://dialect+package://user@host/database`, as SQLAlchemy writes it."""

    packages: ClassVar[Mapping[str, str]] = {"sqlalchemy": "velostream[sql]"}
    takes: ClassVar[frozenset[str]] = Driver.takes | {"transaction_isolation"}
    dialect: str

    def __init__(self, dialect: str | None = None) -> None:
        if dialect is not None:
            self.dialect = dialect

    def check(self, address: Address) -> None:
        """See `Driver`."""
        host = self._url(address).host
        if host and "//" in address.text:
            address.reach.check_addresses(host)

    def connect(self, address: Address) -> Connection:
        """See `Driver`."""
        import sqlalchemy
        from sqlalchemy.exc import NoSuchModuleError

        given: dict[str, Any] = {"connect_args": self.arguments(address.options)}
        if (isolation := address.options.transaction_isolation) is not None:
            given["isolation_level"] = isolation.replace("_", " ").upper()
        try:
            engine = sqlalchemy.create_engine(self._url(address), poolclass=sqlalchemy.NullPool, **given)
        except NoSuchModuleError as exc:
            raise SourceConfigError(
                f'SQLAlchemy has no dialect "{self.dialect}"', hint="install the package that brings it"
            ) from exc
        except ModuleNotFoundError as exc:
            raise SourceConfigError(
                f'driver "{self.dialect}" needs the package {exc.name}', hint=f"pip install '{exc.name}'"
            ) from exc
        name = engine.dialect.name

        @sqlalchemy.event.listens_for(engine, "connect")
        def _prepare(raw: Any, _: Any) -> None:
            with closing(raw.cursor()) as cursor:
                limit = self.limit(raw, address.options)
                for statement in (_IN_UTC.get(name), _READ_ONLY.get(name), limit):
                    if statement is not None:
                        cursor.execute(statement)
            raw.commit()

        @sqlalchemy.event.listens_for(engine, "handle_error")
        def _broken(context: Any) -> None:
            if context.is_disconnect:
                _leave_nothing(getattr(context.execution_context, "cursor", None))

        return AlchemyConnection(engine)

    def arguments(self, options: SqlOptions) -> dict[str, Any]:
        """What the package is given to connect with, beside the address."""
        return {}

    def limit(self, raw: Any, options: SqlOptions) -> str | None:
        """The statement that limits how long a query may take; `raw` is a connection of the package's."""
        return None

    def _url(self, address: Address) -> Any:
        """The address of properties, or as it was written; a password may also be a property."""
        from sqlalchemy.engine import URL, make_url
        from sqlalchemy.exc import ArgumentError

        options = address.options
        if "//" not in address.text:
            return URL.create(
                self.dialect,
                options.username,
                options.password,
                options.host,
                options.port,
                options.database or address.text or None,
            )
        try:
            url = make_url(f"{self.dialect}:{address.text}")
        except ArgumentError:
            # The text may hold a password: neither it nor the cause is told.
            raise SourceConfigError(
                f'the address of driver "{self.dialect}" cannot be read',
                hint=f"sql://{self.dialect}://user@host:port/database?table=name",
            ) from None
        return url.set(username=options.username or url.username, password=options.password or url.password)


_OF_SERVERS = AlchemyDriver.takes | {
    *("ssl_mode", "ssl_root_cert", "ssl_cert", "ssl_key"),
    *("connect_timeout", "socket_timeout", "query_timeout"),
}


class PostgresDriver(AlchemyDriver):
    """PostgreSQL, by psycopg."""

    name = "postgresql"
    dialect = "postgresql+psycopg"
    packages: ClassVar[Mapping[str, str]] = {
        "sqlalchemy": "velostream[sql]",
        "psycopg": "velostream[postgres]",
    }
    takes: ClassVar[frozenset[str]] = _OF_SERVERS

    def arguments(self, options: SqlOptions) -> dict[str, Any]:
        """See `AlchemyDriver`: the parameters of libpq."""
        silent = options.socket_timeout
        told = {
            "sslmode": options.ssl_mode if "ssl_mode" in options.model_fields_set else None,
            "sslrootcert": options.ssl_root_cert,
            "sslcert": options.ssl_cert,
            "sslkey": options.ssl_key,
            "connect_timeout": _seconds(options),
            "tcp_user_timeout": round(silent.total_seconds() * 1000) if silent is not None else None,
        }
        return {name: value for name, value in told.items() if value is not None}

    def limit(self, raw: Any, options: SqlOptions) -> str | None:
        """See `AlchemyDriver`."""
        longest = options.query_timeout
        return f"SET statement_timeout = {round(longest.total_seconds() * 1000)}" if longest else None


class MySqlDriver(AlchemyDriver):
    """MySQL and MariaDB, by PyMySQL."""

    name = "mysql"
    dialect = "mysql+pymysql"
    packages: ClassVar[Mapping[str, str]] = {"sqlalchemy": "velostream[sql]", "pymysql": "velostream[mysql]"}
    takes: ClassVar[frozenset[str]] = _OF_SERVERS

    def arguments(self, options: SqlOptions) -> dict[str, Any]:
        """See `AlchemyDriver`."""
        told: dict[str, Any] = {"connect_timeout": _seconds(options)}
        if options.socket_timeout is not None:
            told["read_timeout"] = options.socket_timeout.total_seconds()
        return told | _encrypted(options)

    def limit(self, raw: Any, options: SqlOptions) -> str | None:
        """See `AlchemyDriver`: the two servers call it differently."""
        longest = options.query_timeout
        if longest is None:
            return None
        if "mariadb" in str(raw.get_server_info()).lower():
            return f"SET SESSION max_statement_time = {longest.total_seconds()}"
        return f"SET SESSION max_execution_time = {round(longest.total_seconds() * 1000)}"


def _seconds(options: SqlOptions) -> int:
    return max(2, round(options.connect_timeout.total_seconds()))


def _encrypted(options: SqlOptions) -> dict[str, Any]:
    """How PyMySQL encrypts; without any of these it prefers to."""
    mode, files = options.ssl_mode, (options.ssl_root_cert, options.ssl_cert, options.ssl_key)
    if mode == "disable":
        return {"ssl_disabled": True}
    if mode in ("allow", "prefer") and not any(files):
        return {}
    try:
        context = ssl.create_default_context(cafile=options.ssl_root_cert)
        if options.ssl_cert is not None:
            context.load_cert_chain(options.ssl_cert, options.ssl_key)
    except (OSError, ssl.SSLError) as exc:
        raise SourceConfigError(
            f"the certificates cannot be used: {exc.strerror or exc}",
            hint='"ssl.root.cert", "ssl.cert" and "ssl.key" are PEM files',
        ) from exc
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = mode == "verify-full"
    context.verify_mode = ssl.CERT_REQUIRED if mode.startswith("verify") else ssl.CERT_NONE
    return {"ssl": context}


_OF_PACKAGES: Mapping[str, type[AlchemyDriver]] = {
    "postgresql+psycopg": PostgresDriver,
    "postgresql+psycopg2": PostgresDriver,
    "mysql+pymysql": MySqlDriver,
    "mariadb+pymysql": MySqlDriver,
}
"""Dialects whose package takes more than an address."""


def dialect_driver(name: str) -> Driver | None:
    """The driver of one of SQLAlchemy's dialects, such as `mysql+pymysql`; None where it has no such one."""
    made = _OF_PACKAGES.get(name, AlchemyDriver)(name)
    if find_spec("sqlalchemy") is None:
        return made if "+" in name else None
    from sqlalchemy.dialects import registry
    from sqlalchemy.exc import NoSuchModuleError

    try:
        registry.load(name.replace("+", "."))
    except (NoSuchModuleError, ValueError):
        return None
    return made


class AlchemyConnection(Connection):
    """One connection, held while it is used."""

    mark = f":{_MARK}{{}}"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: Connected | None = None
        self._result: Any = None
        """The result that is being read: one that is left unfinished is closed before its connection."""

    def columns(self, query: str, values: Sequence[Any]) -> pa.Schema:
        """See `Connection`: from what the first rows hold."""
        with self._executed(query, values, _SAMPLE) as result:
            told = result.cursor.description
            rows = result.fetchmany(_SAMPLE)
        fields = []
        for place, each in enumerate(told):
            digits = _digits(each[4], each[5])
            fields.append(pa.field(each[0], type_of([row[place] for row in rows], digits)))
        return pa.schema(fields)

    def sampled(self, table: str | None, schema: str | None) -> bool:
        """See `Connection`: of queries."""
        return table is None

    def table_columns(self, table: str, schema: str | None) -> pa.Schema:
        """See `Connection`: as the catalogue tells them."""
        import sqlalchemy

        try:
            found = sqlalchemy.inspect(self._connection()).get_columns(table, schema)
        except sqlalchemy.exc.NoSuchTableError as exc:
            raise SourceMissingError(f'table "{table}" does not exist') from exc
        finally:
            self._connection().rollback()
        return pa.schema([pa.field(each["name"], arrow_type(each["type"])) for each in found])

    def key(self, table: str, schema: str | None) -> tuple[str, ...]:
        """See `Connection`."""
        import sqlalchemy

        found = sqlalchemy.inspect(self._connection()).get_pk_constraint(table, schema)
        self._connection().rollback()
        return tuple(found.get("constrained_columns") or ())

    def tables(self) -> list[str]:
        """See `Connection`."""
        import sqlalchemy

        inspected = sqlalchemy.inspect(self._connection())
        return [*inspected.get_table_names(), *inspected.get_view_names()]

    def quoted(self, name: str) -> str:
        """See `Connection`."""
        return str(self._engine.dialect.identifier_preparer.quote_identifier(name))

    def rows(self, query: str, values: Sequence[Any], schema: pa.Schema, size: int) -> Iterator[Decoded]:
        """See `Connection`."""
        with self._executed(query, values, size) as result:
            while rows := result.fetchmany(size):
                yield decoded(schema, [tuple(row) for row in rows])

    def interrupt(self) -> None:
        """See `Connection`: where the package can, or the server by another connection."""
        opened = self._open
        if opened is None or opened.closed:
            return
        with suppress(Exception):
            raw: Any = opened.connection.driver_connection
            if hasattr(raw, "cancel"):
                raw.cancel()
            elif self._engine.dialect.name in ("mysql", "mariadb"):
                with self._engine.connect() as other:
                    other.exec_driver_sql(f"KILL QUERY {raw.thread_id()}")

    def close(self) -> None:
        """See `Connection`."""
        if self._result is not None:
            self._result.close()
            self._result = None
        if self._open is not None:
            self._open.close()
            self._open = None
        self._engine.dispose()

    @contextmanager
    def _executed(self, query: str, values: Sequence[Any], size: int) -> Iterator[Any]:
        """The result of a query; its transaction ends with it, also where the query fails."""
        import sqlalchemy

        # Marks are the only names in it: any other colon is a colon.
        escaped = query.replace(":", "\\:").replace(f"\\:{_MARK}", f":{_MARK}")
        bound = {f"{_MARK}{number}": value for number, value in enumerate(values)}
        # For this statement: options of the connection would hold for those of the catalogue too.
        streamed = {"stream_results": True, "max_row_buffer": size}
        connection, cursor = self._connection(), None
        try:
            self._result = connection.execute(sqlalchemy.text(escaped), bound, execution_options=streamed)
            cursor = self._result.cursor
            with closing(self._result) as result:
                yield result
        finally:
            self._result = None
            _leave_nothing(cursor)
            if not connection.closed:
                connection.rollback()

    def _connection(self) -> Connected:
        if self._open is None or self._open.closed or self._open.invalidated:
            self._open = self._engine.connect()
        return self._open


def _leave_nothing(cursor: Any) -> None:
    """Close a cursor that SQLAlchemy could not close: one of the server's, which is asked to, and may be gone
    or interrupted. A driver minds what is left open.
    """
    with suppress(Exception):
        if cursor is not None and not getattr(cursor, "closed", True):
            cursor.connection.close()
            cursor.close()


def _digits(precision: Any, scale: Any) -> pa.DataType | None:
    if (
        isinstance(precision, int)
        and isinstance(scale, int)
        and 0 < precision <= 38
        and 0 <= scale <= precision
    ):
        return pa.decimal128(precision, scale)
    return None


def arrow_type(kind: TypeEngine[Any]) -> pa.DataType:
    """The type of a column that SQLAlchemy tells about; everything that is not below is text."""
    from sqlalchemy import types

    if isinstance(kind, types.ARRAY):
        return pa.list_(arrow_type(kind.item_type))
    if isinstance(kind, types.Boolean):
        return pa.bool_()
    if isinstance(kind, types.Integer):
        return _integer(kind)
    if isinstance(kind, types.Float):
        return pa.float64()
    if isinstance(kind, types.Numeric):
        return _digits(kind.precision, kind.scale or 0) or LOOSE_DECIMAL
    if isinstance(kind, types.DateTime):
        return UTC_TIME
    if isinstance(kind, types.Date):
        return pa.date32()
    return pa.binary() if isinstance(kind, types._Binary) else pa.string()  # noqa: SLF001


def _integer(kind: TypeEngine[Any]) -> pa.DataType:
    from sqlalchemy import types

    unsigned = bool(getattr(kind, "unsigned", False))
    if isinstance(kind, types.BigInteger):
        return pa.decimal128(20, 0) if unsigned else pa.int64()
    if isinstance(kind, types.SmallInteger):
        return pa.int32() if unsigned else pa.int16()
    return pa.int64() if unsigned else pa.int32()
