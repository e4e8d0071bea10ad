"""JDBC drivers, which Spark runs: `sql://jdbc:postgresql://host/database`.

A driver is a class in jars from Maven, which are pinned by checksum and downloaded when first used. A result
is read as a whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from velostream.connectors.any_sql.drivers import spark_reader
from velostream.connectors.any_sql.drivers.base import Address, Connection, Driver
from velostream.connectors.any_sql.values import plain_type
from velostream.connectors.databases.marks import split_marks
from velostream.connectors.databases.text_rows import TextColumn, decode
from velostream.errors import SourceConfigError, did_you_mean
from velostream.spark.jars.maven import Jar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from velostream.connectors.databases.text_rows import Decoded

_HOST = re.compile(r"//([^/?;]+)|@([^/?;]+)")


@dataclass(frozen=True)
class JdbcClass:
    """The class of a JDBC driver, and the jars that it is in."""

    name: str
    jars: tuple[Jar, ...]
    quote: str = '"'
    """The mark that names are quoted with."""
    read_only: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's reader, and of the driver, by which the session only reads."""


MARIADB = JdbcClass(
    "org.mariadb.jdbc.Driver",
    (
        Jar(
            "org.mariadb.jdbc",
            "mariadb-java-client",
            "3.5.6",
            "a129703efd7b0f334564d46753de999f09b3a361489a2eb647e6020390981cc9",
        ),
    ),
    quote="`",
    read_only={"sessionInitStatement": "SET SESSION TRANSACTION READ ONLY"},
)
CLASSES: dict[str, JdbcClass] = {
    "postgresql": JdbcClass(
        "org.postgresql.Driver",
        (
            Jar(
                "org.postgresql",
                "postgresql",
                "42.7.8",
                "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
            ),
        ),
        read_only={"readOnly": "true", "readOnlyMode": "always"},
    ),
    "mariadb": MARIADB,
}
"""By what follows `jdbc:` in an address."""


class JdbcDriver(Driver):
    """`sql://jdbc:postgresql://host/database`.

    A driver of one's own has a class and jars: `register_driver(JdbcDriver("oracle:thin", JdbcClass(…)))` is
    used as `sql://oracle:thin:…`.
    """

    name = "jdbc"
    packages: ClassVar[Mapping[str, str]] = {}
    takes: ClassVar[frozenset[str]] = frozenset({"username", "password", "query_timeout"})

    def __init__(self, name: str = "jdbc", own: JdbcClass | None = None) -> None:
        self.name = name  # type: ignore[misc]
        self._own = own

    def check(self, address: Address) -> None:
        """See `Driver`: an address without a host may only be reached where everything may."""
        found = _HOST.search(address.text)
        address.reach.check_addresses((found[1] or found[2]) if found else address.text)
        if found is None and address.reach.roots is not None:
            address.reach.check_file(address.text)

    def connect(self, address: Address) -> Connection:
        """See `Driver`."""
        prefix = address.text.partition(":")[0]
        own = self._own or CLASSES.get(prefix)
        if own is None:
            raise SourceConfigError(
                f'no JDBC driver is known for "jdbc:{prefix}"',
                hint=did_you_mean(prefix, CLASSES)
                or f"there are: {', '.join(CLASSES)}; velostream.register_driver adds one",
            )
        text = address.text if self._own is None else f"{self.name}:{address.text}"
        return JdbcConnection(f"jdbc:{text}", own, address)


class JdbcConnection(Connection):
    """A database that Spark connects to for each query."""

    def __init__(self, url: str, driver: JdbcClass, address: Address) -> None:
        options = address.options
        told = {
            "url": url,
            "user": options.username,
            "password": options.password,
            "fetchsize": str(options.fetch_size or options.batch_size),
            "queryTimeout": str(round(options.query_timeout.total_seconds()))
            if options.query_timeout
            else None,
        }
        self._options = {name: value for name, value in told.items() if value is not None} | dict(
            driver.read_only
        )
        self._driver = driver

    def columns(self, query: str, values: Sequence[Any]) -> pa.Schema:
        """See `Connection`."""
        found = self._read(query, values, rows=False).schema
        return pa.schema([pa.field(field.name, plain_type(field.type)) for field in found])

    def rows(self, query: str, values: Sequence[Any], schema: pa.Schema, size: int) -> Iterator[Decoded]:
        """See `Connection`."""
        columns = [TextColumn(f.name, f.type, _to(f.type), str(f.type)) for f in schema]
        for batch in self._read(query, values, rows=True).combine_chunks().to_batches(max_chunksize=size):
            yield decode(columns, batch.columns)

    def quoted(self, name: str) -> str:
        """See `Connection`."""
        mark = self._driver.quote
        return mark + name.replace(mark, mark * 2) + mark

    def close(self) -> None:
        """See `Connection`: nothing is kept open."""

    def _read(self, query: str, values: Sequence[Any], *, rows: bool) -> pa.Table:
        parts = split_marks(query)
        text = parts[0] + "".join(_literal(v) + part for v, part in zip(values, parts[1:], strict=True))
        return spark_reader.read(text, self._options, self._driver.name, self._driver.jars, rows=rows)


def _literal(value: Any) -> str:
    """A value in the query's text: Spark's reader binds none. Quotes are doubled, as SQL has it.

    Some databases take a backslash for an escape, others not: a text with one is refused.
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, (int, float, Decimal)):
        return format(value, "f") if isinstance(value, Decimal) else repr(value)
    text = str(value)
    if "\\" in text or "\0" in text:
        raise SourceConfigError(
            "a JDBC driver cannot be given a text with a backslash", hint="use another driver"
        )
    return "'" + text.replace("'", "''") + "'"


def _to(target: pa.DataType) -> Any:
    return lambda array: array if array.type == target else array.cast(target)
