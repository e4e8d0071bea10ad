"""What no message of the replication tells: that a table was rewritten, replaced, or lost a partition.

The state of a table is kept with the slot, and compared with the server's whenever changes begin to be
followed, every few seconds, and when the server announces columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from velostream.connectors.databases.source import AGAIN, ChangesLostError
from velostream.connectors.postgres.client.tables import key_of
from velostream.errors import SourceConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

_STATE = """
SELECT c.relreplident::text, pg_relation_filenode(c.oid)::bigint,
       c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid),
       (SELECT md5(string_agg(a.attnum || ' ' || a.xmin::text, ',' ORDER BY a.attnum))
        FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0),
       ARRAY(SELECT a.attname::text FROM pg_attribute a
             WHERE a.attrelid = c.oid AND (to_jsonb(a) ->> 'atthasmissing')::boolean ORDER BY 1),
       (SELECT concat_ws(' ', p.oid, p.xmin, r.oid, r.xmin, s.oid) FROM pg_publication p
        LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
        LEFT JOIN {schemas} s ON s.pnpubid = p.oid AND s.pnnspid = c.relnamespace WHERE p.pubname = %s)
FROM pg_class c WHERE c.oid = %s
"""
_SCHEMAS, _NO_SCHEMAS = "pg_publication_namespace", "(SELECT 0 AS oid, 0 AS pnpubid, 0 AS pnnspid)"
_PUBLISHES_SCHEMAS = 150_000
_LEAVES = """
SELECT l.relid::oid::bigint, pg_relation_filenode(l.relid)::bigint, n.nspname, c.relname
FROM pg_partition_tree(%s) l JOIN pg_class c ON c.oid = l.relid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE l.isleaf
"""


@dataclass(frozen=True)
class State:
    """What a table is stored as; all of it changes only by statements about the table itself."""

    oid: int
    stored: int | None
    """The file of its rows: another one after TRUNCATE, VACUUM FULL, and what rewrites all rows."""
    attributes: str
    """Changes with every change of a column."""
    filled: tuple[str, ...]
    """Columns whose value of the rows that were there is kept apart, and told by no message."""
    key: tuple[str, ...]
    inherited: bool
    publication: str
    """Changes with the publication, and when the table leaves it and comes back."""
    leaves: Mapping[int, int | None]
    """The partitions with rows, and their files."""

    def as_json(self) -> dict[str, Any]:
        """For the record of the slot."""
        leaves = {str(oid): stored for oid, stored in self.leaves.items()}
        return {**vars(self), "leaves": leaves, "filled": list(self.filled), "key": list(self.key)}

    @staticmethod
    def of(found: Mapping[str, Any]) -> State:
        """From the record of the slot."""
        leaves = {int(oid): stored for oid, stored in found["leaves"].items()}
        return State(
            **{**found, "leaves": leaves, "filled": tuple(found["filled"]), "key": tuple(found["key"])}
        )

    @property
    def oids(self) -> frozenset[int]:
        """The tables whose messages are about it: itself, or its partitions."""
        return frozenset((self.oid, *self.leaves))

    def check_since(self, before: State, empty: frozenset[int]) -> None:
        """Raise ChangesLostError where it was changed by what no message tells; `empty` are leaves without
        rows. A change that cannot be followed is a SourceConfigError.
        """
        if self.oid != before.oid:
            raise ChangesLostError("the table was replaced by another one of its name")
        if self.key != before.key:
            raise SourceConfigError(
                f"the primary key is ({', '.join(self.key)}) now, and was ({', '.join(before.key)})",
                hint=AGAIN,
            )
        if self.inherited and not before.inherited:
            raise ChangesLostError("another table inherits from the table now")
        if self.publication != before.publication:
            raise ChangesLostError("the publication was changed")
        gone = before.leaves.keys() - self.leaves.keys()
        if gone:
            raise ChangesLostError("a partition was detached or dropped")
        if (self.leaves.keys() - before.leaves.keys()) - empty:
            raise ChangesLostError("a partition was attached that has rows")
        if any(self.leaves[oid] != stored for oid, stored in before.leaves.items()):
            raise ChangesLostError("a partition was truncated or rewritten")
        if self.attributes != before.attributes and self.stored != before.stored:
            raise ChangesLostError("all rows were rewritten by a change of the columns")
        filled = sorted(set(self.filled) - set(before.filled))
        if filled:
            raise ChangesLostError(
                f'column "{filled[0]}" was added with a value for the rows that were there'
            )


def state_of(connection: psycopg.Connection, oid: int, kind: str, publication: str) -> State | None:
    """The state of a table now; None where it does not exist."""
    schemas = _SCHEMAS if connection.info.server_version >= _PUBLISHES_SCHEMAS else _NO_SCHEMAS
    query = sql.SQL(_STATE).format(schemas=sql.SQL(schemas))
    found = connection.execute(query, (publication, oid)).fetchone()
    if found is None:
        return None
    identity, stored, inherited, attributes, filled, published = found
    leaves = connection.execute(_LEAVES, (oid,)).fetchall() if kind == "p" else []
    return State(
        oid,
        stored,
        attributes,
        tuple(filled),
        key_of(connection, oid, identity),
        inherited,
        published or "",
        {leaf: file for leaf, file, _, _ in leaves},
    )


def empty_leaves(connection: psycopg.Connection, now: State, before: State) -> frozenset[int]:
    """The partitions that are new and have no rows: what is in them later, comes as changes."""
    new = now.leaves.keys() - before.leaves.keys()
    if not new:
        return frozenset()
    names = {
        leaf: sql.Identifier(schema, name)
        for leaf, _, schema, name in connection.execute(_LEAVES, (now.oid,)).fetchall()
        if leaf in new
    }
    asked = sql.SQL("SELECT EXISTS (SELECT FROM ONLY {})")
    return frozenset(
        leaf for leaf, name in names.items() if connection.execute(asked.format(name)).fetchone() == (False,)
    )
