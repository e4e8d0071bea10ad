"""Replication slots and publications.

Made where they are missing, removed with the statement that made them.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from velostream.connectors.postgres.client.failures import error_of, translated
from velostream.connectors.postgres.read.replication import lsn_of
from velostream.errors import SourceConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from velostream.connectors.postgres.client.connections import Client
    from velostream.connectors.postgres.client.tables import Relation
    from velostream.connectors.postgres.options import PostgresOptions

_LEAST_VERSION = 100_000


@dataclass(frozen=True)
class Names:
    """A slot and a publication, and which of them are ours to remove."""

    slot: str
    publication: str
    own_slot: bool
    own_publication: bool

    def as_json(self) -> dict[str, Any]:
        """For the record of the job."""
        return dict(vars(self))

    @staticmethod
    def of(found: Mapping[str, Any]) -> Names:
        """From the record of the job."""
        return Names(**{field.name: found[field.name] for field in fields(Names)})


def names_for(options: PostgresOptions, owner: str, token: str) -> Names:
    """The names that the statement gives, or names of our own."""
    plain = re.sub(r"[^a-z0-9]+", "_", owner.lower()).strip("_")[:30]
    own = f"velostream_{plain}_{hashlib.sha256(token.encode()).hexdigest()[:12]}"
    return Names(
        options.slot_name or own,
        options.publication_name or own,
        options.slot_name is None,
        options.publication_name is None,
    )


def check_server(connection: psycopg.Connection) -> None:
    """Refuse servers that cannot replicate, with what to change."""
    if connection.info.server_version < _LEAST_VERSION:
        raise SourceConfigError("change data capture needs PostgreSQL 10 or later", hint=_POLL)
    level = connection.execute("SHOW wal_level").fetchone()
    if level is None or level[0] != "logical":
        raise SourceConfigError(
            "change data capture needs wal_level = logical, "
            f"and the server has {level[0] if level else 'none'}",
            hint="ALTER SYSTEM SET wal_level = logical, then restart the server; or poll: " + _POLL,
        )


_POLL = '"poll.interval" = "10s" in place of "cdc"'


def check_table(table: Relation) -> None:
    """Refuse tables whose changes do not tell which row they are about."""
    if table.kind not in "rp":
        raise SourceConfigError(f"{table} is a view: it has no changes of its own", hint=_POLL)
    if table.inherited:
        raise SourceConfigError(
            f"other tables inherit from {table}, and have rows of the same keys",
            hint=f"follow each of them, or poll: {_POLL}",
        )
    if not table.key:
        raise SourceConfigError(
            f"{table} has no primary key, so its changes do not tell which row they are about",
            hint=f"add a primary key, or poll: {_POLL}",
        )
    if table.identity == "n":
        raise SourceConfigError(
            f"{table} has REPLICA IDENTITY NOTHING, so its updates and deletes cannot be followed",
            hint=f"ALTER TABLE {table.schema}.{table.name} REPLICA IDENTITY DEFAULT",
        )


def will_make_publication(connection: psycopg.Connection, names: Names) -> bool:
    """Whether a publication is to be made for the statement: it is missing, and we may."""
    if names.own_publication:
        return True
    there = connection.execute("SELECT FROM pg_publication WHERE pubname = %s", (names.publication,))
    if there.fetchone() is not None:
        return False
    if not _may_create(connection):
        raise SourceConfigError(f'publication "{names.publication}" does not exist')
    return True


def make_publication(connection: psycopg.Connection, names: Names, table: Relation) -> None:
    """Create the publication of a table, in place of an earlier one of ours."""
    root = " WITH (publish_via_partition_root = true)" if connection.info.server_version >= 130_000 else ""
    name = sql.Identifier(names.publication)
    with (
        translated(
            f'cannot create publication "{names.publication}"',
            f'the owner of the table can create it, and "publication.name" names it; or poll: {_POLL}',
        ),
        connection.transaction(),
    ):
        connection.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(name))
        connection.execute(
            sql.SQL("CREATE PUBLICATION {} FOR TABLE {}{}").format(name, table.identifier, sql.SQL(root))
        )


def check_publication(connection: psycopg.Connection, name: str, table: Relation) -> None:
    """Refuse a publication that does not have all changes of a table."""
    found = connection.execute(
        "SELECT pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication WHERE pubname = %s", (name,)
    ).fetchone()
    if found is None:
        raise SourceConfigError(f'publication "{name}" does not exist')
    missing = [kind for kind, there in zip(_KINDS, found, strict=True) if not there]
    if missing:
        raise SourceConfigError(
            f'publication "{name}" does not publish {missing[0]}',
            hint=f"ALTER PUBLICATION {name} SET (publish = '{', '.join(_KINDS)}')",
        )
    leaves = _LEAVES if table.kind == "p" else sql.SQL("SELECT 0 WHERE {} IS NULL")
    query = sql.SQL(_PUBLISHED).format(leaves=leaves.format(table.oid), table=table.oid, name=name)
    published = connection.execute(query).fetchall()
    if not published or not all(there for there, _, _ in published):
        raise SourceConfigError(
            f'publication "{name}" does not publish {table}',
            hint=f"ALTER PUBLICATION {name} ADD TABLE {table.schema}.{table.name}",
        )
    for _, filtered, names in published:
        if filtered:
            raise SourceConfigError(
                f'publication "{name}" has a row filter, so rows that leave it could not be told apart',
                hint='leave "publication.name" out, and give the filter as "where"',
            )
        lacking = [each.name for each in table.columns if each.generated is None and each.name not in names]
        if names and lacking:
            raise SourceConfigError(f'publication "{name}" leaves out column "{lacking[0]}" of {table}')


_LEAVES = sql.SQL("SELECT relid FROM pg_partition_tree({}) WHERE isleaf")
_KINDS = ("insert", "update", "delete", "truncate")
_PUBLISHED = """
WITH asked AS (SELECT {table}::oid AS relid, true AS root
               UNION ALL SELECT l.relid, false FROM ({leaves}) l (relid)),
     found AS (SELECT a.root, p.pubname IS NOT NULL AS there,
                      coalesce(to_jsonb(p) ->> 'rowfilter', '') <> '' AS filtered,
                      coalesce(ARRAY(SELECT jsonb_array_elements_text(
                          CASE jsonb_typeof(to_jsonb(p) -> 'attnames') WHEN 'array'
                          THEN to_jsonb(p) -> 'attnames' ELSE '[]' END)), ARRAY[]::text[]) AS names
               FROM asked a JOIN pg_class c ON c.oid = a.relid JOIN pg_namespace n ON n.oid = c.relnamespace
               LEFT JOIN pg_publication_tables p
                 ON (p.schemaname, p.tablename, p.pubname) = (n.nspname, c.relname, {name}))
SELECT there, filtered, names FROM found f
WHERE f.root = EXISTS (SELECT FROM found WHERE root AND there)
"""
"""Of a partitioned table: itself, or all of its partitions, as the publication has it."""


def _may_create(connection: psycopg.Connection) -> bool:
    found = connection.execute("SELECT has_database_privilege(current_database(), 'CREATE')").fetchone()
    return bool(found and found[0])


@dataclass(frozen=True)
class Slot:
    """A slot on the server."""

    confirmed: int
    """Changes before this LSN are gone."""
    held: int
    """How many bytes of WAL the server keeps for it."""


def slot_of(connection: psycopg.Connection, name: str) -> Slot | None:
    """A slot that still has its WAL; None where it does not exist. One of another plugin is refused."""
    found = connection.execute(
        "SELECT plugin, database = current_database(), to_jsonb(s) ->> 'wal_status', "
        "confirmed_flush_lsn::text, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint "
        "FROM pg_replication_slots s WHERE slot_name = %s",
        (name,),
    ).fetchone()
    if found is None:
        return None
    plugin, here, status, confirmed, held = found
    if plugin != "pgoutput" or not here:
        raise SourceConfigError(
            f'replication slot "{name}" is of plugin {plugin}, or of another database',
            hint='give another "slot.name", or none',
        )
    if status == "lost" or confirmed is None:
        return None
    return Slot(lsn_of(confirmed), held or 0)


def drop_slot(connection: psycopg.Connection, name: str) -> None:
    """Remove a slot; a connection of ours that still uses it is ended first."""
    connection.execute(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
        "WHERE slot_name = %s AND active_pid IS NOT NULL",
        (name,),
    )
    for _ in range(50):
        try:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
                (name,),
            )
        except psycopg.errors.ObjectInUse as exc:
            in_use = exc
            connection.execute("SELECT pg_sleep(0.1)")
        else:
            return
    raise error_of(in_use, f'replication slot "{name}" cannot be removed')


def release(client: Client, names: Names) -> None:
    """Remove the slot and the publication that were made for a statement."""
    with client.session() as connection:
        if names.own_slot:
            drop_slot(connection, names.slot)
        if names.own_publication:
            connection.execute(
                sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(names.publication))
            )
