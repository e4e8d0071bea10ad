"""Replication slots and publications.

Made where they are missing, removed with the statement that made them.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from velostream.connectors.base import log
from velostream.connectors.postgres.client.failures import error_of, translated
from velostream.errors import SourceConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from velostream.connectors.postgres.client.catalog import Relation
    from velostream.connectors.postgres.client.connections import Client
    from velostream.connectors.postgres.options import PostgresOptions

_LEAST_VERSION = 100_000
_ROW_FILTERS = 150_000
_HELD_BACK = 1 << 30
"""A slot that holds back more WAL than this is warned of."""


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
        return Names(**found)


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


def make_publication(
    connection: psycopg.Connection, names: Names, table: Relation, where: str | None
) -> None:
    """Create the publication if it is missing, or check that it publishes the table."""
    there = connection.execute(
        "SELECT 1 FROM pg_publication WHERE pubname = %s", (names.publication,)
    ).fetchone()
    if there is None and not names.own_publication and not _may_create(connection):
        raise SourceConfigError(f'publication "{names.publication}" does not exist')
    if there is None:
        filtered: sql.Composable = sql.SQL("")
        if where is not None:
            if connection.info.server_version < _ROW_FILTERS:
                raise SourceConfigError(
                    '"cdc" with "where" needs PostgreSQL 15 or later',
                    hint='leave "where" out, and filter in the statement: SELECT … WHERE …',
                )
            filtered = sql.SQL(" WHERE ({})").format(sql.SQL(where))
        root = (
            " WITH (publish_via_partition_root = true)" if connection.info.server_version >= 130_000 else ""
        )
        text = sql.SQL("CREATE PUBLICATION {} FOR TABLE {}{}{}").format(
            sql.Identifier(names.publication),
            table.identifier,
            filtered,
            sql.SQL(root),
        )
        with translated(
            f'cannot create publication "{names.publication}"',
            'the owner of the table can create it, and "publication.name" names it',
        ):
            connection.execute(text)
        return
    published = connection.execute(
        "SELECT 1 FROM pg_publication_tables WHERE (pubname, schemaname, tablename) = (%s, %s, %s)",
        (names.publication, table.schema, table.name),
    ).fetchone()
    if published is None:
        raise SourceConfigError(
            f'publication "{names.publication}" does not publish {table}',
            hint=f"ALTER PUBLICATION {names.publication} ADD TABLE {table.schema}.{table.name}",
        )


def _may_create(connection: psycopg.Connection) -> bool:
    found = connection.execute("SELECT has_database_privilege(current_database(), 'CREATE')").fetchone()
    return bool(found and found[0])


def slot_there(connection: psycopg.Connection, name: str) -> bool:
    """Whether a slot exists and still has its WAL; one that another plugin reads is refused."""
    found = connection.execute(
        "SELECT plugin, database = current_database(), to_jsonb(s) ->> 'wal_status', "
        "pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) FROM pg_replication_slots s WHERE slot_name = %s",
        (name,),
    ).fetchone()
    if found is None:
        return False
    plugin, here, status, held = found
    if plugin != "pgoutput" or not here:
        raise SourceConfigError(
            f'replication slot "{name}" is of plugin {plugin}, or of another database',
            hint='give another "slot.name", or none',
        )
    if held is not None and held > _HELD_BACK:
        log.warning('replication slot "%s" holds back %d MB of WAL on the server', name, held >> 20)
    return bool(status != "lost")


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
