"""What PostgreSQL's catalogue says about a table: its columns, its key, and how its changes identify rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from psycopg import sql

from velostream.connectors.databases.text_rows import TextColumn
from velostream.connectors.postgres.client.types import Type, array_of, type_of
from velostream.errors import SourceMissingError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import psycopg

_PAGES = "coalesce(pg_relation_size(c.oid), 0) / current_setting('block_size')::bigint"
"""`relpages` is 0 until a table is analysed."""
_RELATION = f"""
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relreplident::text, {_PAGES},
       c.relkind <> 'p' AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
_COLUMNS = """
SELECT a.attname, a.atttypid::bigint, a.atttypmod, format_type(a.atttypid, a.atttypmod),
       CASE WHEN to_jsonb(a) ->> 'attgenerated' <> '' THEN pg_get_expr(d.adbin, d.adrelid) END
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_KEY = """
SELECT a.attname FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = %s AND i.{which} AND k.place <= {columns} ORDER BY k.place
"""
KEY_COLUMNS = "coalesce((to_jsonb(i) ->> 'indnkeyatts')::int, i.indnatts)"
"""How many columns of index `i` identify a row: those that INCLUDE adds do not. PostgreSQL 10 has none."""
_NEAR = """
SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND nspname NOT IN ('pg_catalog', 'information_schema')
"""
_LEAVES = f"""
SELECT n.nspname, c.relname, {_PAGES} FROM pg_partition_tree(%s) t
JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE t.isleaf ORDER BY 1, 2
"""
_TYPES = """
WITH RECURSIVE found AS (
    SELECT * FROM pg_type WHERE oid = ANY(%s)
    UNION ALL
    SELECT t.* FROM found f JOIN pg_type t ON t.oid IN (f.typbasetype, f.typelem)
)
SELECT oid::bigint, typname,
       CASE WHEN typtype = 'd' THEN typbasetype::bigint END, typtypmod,
       CASE WHEN typcategory = 'A' AND typname LIKE '\\_%%' THEN typelem::bigint END, typdelim::text
FROM found
"""
"""With what domains and arrays are made of."""


@dataclass(frozen=True)
class _Told:
    """What the catalogue says about a type."""

    name: str
    base: int | None
    """What a domain is made of."""
    modifier: int
    """That of a domain's base."""
    element: int | None
    """What an array has."""
    delimiter: str


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    type: Type
    written: str
    """The type as SQL writes it."""
    generated: str | None
    """The expression that the server computes it by."""


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
    """Empty where other tables inherit from it: their rows are its rows, with keys of their own."""
    inherited: bool

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
    oid, space, table, kind, identity, pages, inherited = found
    told = connection.execute(_COLUMNS, (oid,)).fetchall()
    types = types_by_oid(connection, [kind for _, kind, *_ in told])
    columns = tuple(
        Column(column, types[kind](modifier), written, generated)
        for column, kind, modifier, written, generated in told
    )
    key = () if inherited else key_of(connection, oid, identity)
    return Relation(oid, space, table, kind, identity, pages, columns, key, inherited)


def relation_oid(connection: psycopg.Connection, table: Relation) -> int | None:
    """The table that has the name of one now; None where there is none."""
    name = table.identifier.as_string(connection)
    found = connection.execute("SELECT to_regclass(%s)::oid::bigint", (name,)).fetchone()
    return found[0] if found else None


def key_of(connection: psycopg.Connection, oid: int, identity: str) -> tuple[str, ...]:
    """The columns by which changes identify a row of a table."""
    which = "indisreplident" if identity == "i" else "indisprimary"
    query = sql.SQL(_KEY).format(which=sql.SQL(which), columns=sql.SQL(KEY_COLUMNS))
    return tuple(row[0] for row in connection.execute(query, (oid,)).fetchall())


def leaves(connection: psycopg.Connection, table: Relation) -> list[tuple[sql.Identifier, int]]:
    """The tables that hold the rows of a table, several where it is partitioned, and their pages."""
    if table.kind != "p":
        return [(table.identifier, table.pages)]
    found = connection.execute(_LEAVES, (table.oid,)).fetchall()
    return [(sql.Identifier(schema, name), pages) for schema, name, pages in found]


def types_by_oid(connection: psycopg.Connection, oids: Sequence[int]) -> dict[int, Callable[[int], Type]]:
    """Types by their numbers; each is made with the modifier of a column. A domain has its own."""
    found = connection.execute(_TYPES, (list(oids),)).fetchall()
    told = {oid: _Told(*row) for oid, *row in found}
    return {oid: partial(_typed, told, oid) for oid in oids if oid in told}


def _typed(told: Mapping[int, _Told], oid: int, modifier: int) -> Type:
    found = told[oid]
    if found.base is not None:
        return _typed(told, found.base, found.modifier)
    if found.element is not None:
        return array_of(_typed(told, found.element, modifier), found.delimiter)
    return type_of(found.name, modifier)


def text_column(name: str, kind: Type) -> TextColumn:
    """A column whose values come as text."""
    return TextColumn(name, kind.arrow, kind.decode, kind.name)
