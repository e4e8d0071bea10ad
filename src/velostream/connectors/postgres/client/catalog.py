"""What PostgreSQL's catalogue says about a table: its columns, its key, and how its changes identify rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from psycopg import sql

from velostream.connectors.databases.text_rows import TextColumn
from velostream.connectors.postgres.client.types import Type, type_of
from velostream.errors import SourceMissingError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import psycopg

_RELATION = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relreplident::text, c.relpages::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
_COLUMNS = """
SELECT a.attname, a.atttypid::bigint, a.atttypmod, t.typname, t.typtype::text, t.typelem::bigint,
       coalesce(e.typname, b.typname), coalesce(e.typtype, b.typtype)::text,
       CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
LEFT JOIN pg_type b ON b.oid = t.typbasetype AND t.typtype = 'd'
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_KEY = """
SELECT a.attname FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = %s AND i.{which} ORDER BY k.place
"""
_NEAR = """
SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND nspname NOT IN ('pg_catalog', 'information_schema')
"""
_LEAVES = """
SELECT n.nspname, c.relname, c.relpages::bigint FROM pg_partition_tree(%s) t
JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE t.isleaf ORDER BY 1, 2
"""


_TYPES = """
SELECT t.oid::bigint, t.typname, t.typtype::text,
       coalesce(e.typname, b.typname), coalesce(e.typtype, b.typtype)::text
FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
LEFT JOIN pg_type b ON b.oid = t.typbasetype AND t.typtype = 'd' WHERE t.oid = ANY(%s)
"""


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    type: Type


@dataclass(frozen=True)
class Relation:
    """A table, a partitioned table, or a view."""

    oid: int
    schema: str
    name: str
    kind: str
    """`r` table, `p` partitioned, `v` view, `m` materialized view, `f` foreign table."""
    identity: str
    """How changes identify a row.

    `d` by the primary key, `f` by all columns, `i` by an index, `n` not at all.
    """
    pages: int
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def identifier(self) -> sql.Identifier:
        """Its quoted name."""
        return sql.Identifier(self.schema, self.name)

    def __str__(self) -> str:
        return f'table "{self.schema}.{self.name}"'


def relation(connection: psycopg.Connection, schema: str | None, name: str) -> Relation:
    """What the catalogue says about a table; SourceMissingError with the nearest name otherwise."""
    written = sql.Identifier(*filter(None, (schema, name))).as_string(connection)
    found = connection.execute(_RELATION, (written,)).fetchone()
    if found is None and schema is None and "." in name:
        return relation(connection, *name.split(".", 1))
    if found is None:
        near = [row[0] for row in connection.execute(_NEAR).fetchall()]
        raise SourceMissingError(
            f'table "{name}" does not exist' + (f' in schema "{schema}"' if schema else ""),
            hint=did_you_mean(name, near) or f"there are: {', '.join(sorted(near)[:20]) or 'none'}",
        )
    oid, space, table, kind, identity, pages = found
    columns = tuple(
        Column(column, type_of(type_name, type_kind, element, element_kind, modifier))
        for column, _, _, type_name, type_kind, _, element, element_kind, modifier in connection.execute(
            _COLUMNS, (oid,)
        )
    )
    which = "indisreplident" if identity == "i" else "indisprimary"
    query = sql.SQL(_KEY).format(which=sql.SQL(which))
    key = tuple(row[0] for row in connection.execute(query, (oid,)).fetchall())
    return Relation(oid, space, table, kind, identity, pages, columns, key)


def leaves(connection: psycopg.Connection, table: Relation) -> list[tuple[sql.Identifier, int]]:
    """The tables that hold the rows of a table, several where it is partitioned, and their pages."""
    if table.kind != "p":
        return [(table.identifier, table.pages)]
    found = connection.execute(_LEAVES, (table.oid,)).fetchall()
    return [(sql.Identifier(schema, name), pages) for schema, name, pages in found]


def types_by_oid(connection: psycopg.Connection, oids: Sequence[int]) -> dict[int, Callable[[int], Type]]:
    """Types by their numbers; each is made with the modifier of a column."""
    found = connection.execute(_TYPES, (list(oids),)).fetchall()
    return {oid: partial(type_of, *told) for oid, *told in found}


def text_column(name: str, kind: Type) -> TextColumn:
    """A column whose values come as text."""
    return TextColumn(name, kind.arrow, kind.decode, kind.name)
