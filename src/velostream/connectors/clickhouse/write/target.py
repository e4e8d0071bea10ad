"""The table that is written: found, or made, and what it can do with rows that change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from velostream.connectors.clickhouse.client.tables import OWN, Table, table_of
from velostream.connectors.clickhouse.client.types import quoted
from velostream.connectors.clickhouse.write.columns import type_name
from velostream.connectors.databases.write.sink import MISSING_COLUMN
from velostream.errors import SourceConfigError, SourceMissingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from velostream.connectors.clickhouse.client.connections import Client
    from velostream.connectors.clickhouse.options import ClickHouseOptions

VERSION, DELETED = f"{OWN}version", f"{OWN}deleted"
"""Columns of a table that is made for rows with a key: the last version of a key counts."""
_WINDOW = 1000
_COLUMNS = """
SELECT name, type FROM system.columns
WHERE database = {database:String} AND table = {table:String}
"""


@dataclass(frozen=True)
class Target:
    """A table, and how changes are written to it."""

    table: Table
    types: Mapping[str, str]
    """Its columns, with their types."""
    takes_changes: bool = False
    version: str | None = None
    """The column of versions: the highest of a key counts."""
    deleted: str | None = None
    """The column that marks deleted rows."""
    sign: str | None = None
    """The column that is 1 for a row and -1 for its retraction."""

    @property
    def idempotent(self) -> bool:
        """Whether a step that is written twice is there once."""
        return self.table.recognises_inserts or self.version is not None


def target(
    client: Client,
    options: ClickHouseOptions,
    schema: pa.Schema | None,
    key: tuple[str, ...],
    *,
    unique: bool,
    resumed: bool = False,
) -> Target:
    """The table that is written; made if it is missing and the options say so.

    A table that was made for these rows follows them when they get another column.
    """
    assert options.table is not None
    try:
        table = table_of(client, options.database_schema, options.table)
    except SourceMissingError as exc:
        if not options.create_table:
            raise SourceMissingError(
                exc.message, hint=f'{exc.hint or "create it"}; or WITH ("table.create.if.missing" = "true")'
            ) from exc
        if schema is None:
            return Target(Table(client.database, options.table, "", (), (), 0), {})
        client.run(_definition(client, options, schema, key, unique=unique))
        table = table_of(client, options.database_schema, options.table)
    found = client.rows(_COLUMNS, {"database": table.database, "table": table.name})
    types = {str(name): str(written) for name, written in found}
    for field in schema or ():
        if field.name in types:
            continue
        if not (resumed and options.create_table):
            raise SourceConfigError(f'{table} has no column "{field.name}"', hint=MISSING_COLUMN)
        types[field.name] = written = type_name(field.type, nullable=True)
        where = f"{quoted(table.database)}.{quoted(table.name)}"
        client.run(f"ALTER TABLE {where} ADD COLUMN IF NOT EXISTS {quoted(field.name)} {written}")
    return _with_changes(table, types, key, unique=unique)


def _with_changes(table: Table, types: Mapping[str, str], key: tuple[str, ...], *, unique: bool) -> Target:
    arguments = [each.strip("`") for each in table.arguments]
    if table.engine.endswith("CollapsingMergeTree") and "Versioned" not in table.engine:
        return Target(table, types, takes_changes=True, sign=arguments[0])
    # Rows are replaced by what they are sorted by: that has to be our key.
    if table.replaces and unique and key and sorted(table.sorting_key) == sorted(key):
        version, deleted = [*arguments, None, None][:2]
        return Target(table, types, takes_changes=True, version=version, deleted=deleted)
    return Target(table, types)


def _definition(
    client: Client, options: ClickHouseOptions, schema: pa.Schema, key: tuple[str, ...], *, unique: bool
) -> str:
    columns = [
        f"{quoted(field.name)} {type_name(field.type, nullable=field.name not in key)}" for field in schema
    ]
    order = ", ".join(quoted(name) for name in key)
    engine = "MergeTree"
    if key and unique:
        engine = f"ReplacingMergeTree({VERSION}, {DELETED})"
        columns += [f"{VERSION} UInt64", f"{DELETED} UInt8"]
    where = quoted(options.database_schema or client.database)
    assert options.table is not None
    return (
        f"CREATE TABLE IF NOT EXISTS {where}.{quoted(options.table)} ({', '.join(columns)}) "
        f"ENGINE = {engine} ORDER BY ({order}) SETTINGS non_replicated_deduplication_window = {_WINDOW}"
    )
