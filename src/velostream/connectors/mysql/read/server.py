"""What a server must be set to for its changes to be followed, and where its binlog is."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pymysql

from velostream.connectors.base import log
from velostream.connectors.mysql.client.connections import mariadb, run
from velostream.connectors.mysql.client.failures import number_of, translated
from velostream.connectors.mysql.read.binlog.protocol import FORMAT, Binlog, Position, earliest, here
from velostream.errors import SourceConfigError

if TYPE_CHECKING:
    import threading

    from pymysql.connections import Connection

    from velostream.connectors.mysql.client.connections import Client
    from velostream.connectors.mysql.client.tables import Relation

POLL = '"poll.interval" = "10s" in place of "cdc"'
RIGHTS = "the user needs rights: GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO …"
_NEEDED = {
    "log_bin": ("ON", "start the server with log_bin and a server_id"),
    "binlog_format": ("ROW", "SET GLOBAL binlog_format = 'ROW'"),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image = 'FULL'"),
    "binlog_row_metadata": ("FULL", "SET GLOBAL binlog_row_metadata = 'FULL'"),
    "binlog_row_value_options": ("", "SET GLOBAL binlog_row_value_options = ''"),
    "binlog_transaction_compression": ("OFF", "SET GLOBAL binlog_transaction_compression = OFF"),
}
_OPTIONAL = frozenset({"binlog_row_value_options", "binlog_transaction_compression", "binlog_format"})
_SECONDS_TO_SETTLE = 1.0


def check_server(connection: Connection, table: Relation) -> None:
    """Refuse servers whose binlog does not tell every change, with what to set."""
    names = ", ".join(f"'{name}'" for name in _NEEDED)
    found = dict(run(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"))
    for name, (wanted, how) in _NEEDED.items():
        if name not in found and name in _OPTIONAL:
            continue
        value = str(found.get(name, "missing"))
        if value.upper() not in {wanted, {"ON": "1", "OFF": "0"}.get(wanted, wanted)}:
            raise SourceConfigError(
                f"change data capture needs {name} = {wanted or 'nothing'}, "
                f"and the server has {value or 'nothing'}",
                hint=f"{how}; or poll: {POLL}",
            )
    with translated("the binlog cannot be followed", RIGHTS):
        _, only, ignored = here(connection)
    if (only and table.schema not in only.split(",")) or table.schema in ignored.split(","):
        raise SourceConfigError(
            f'the server leaves database "{table.schema}" out of its binlog',
            hint=f"change binlog_do_db or binlog_ignore_db; or poll: {POLL}",
        )


def check_table(table: Relation) -> None:
    """Refuse tables whose changes do not tell which row they are about."""
    if table.kind != "BASE TABLE":
        what = "a view: it has no changes of its own" if "VIEW" in table.kind else "system-versioned"
        raise SourceConfigError(f"{table} is {what}, and cannot be followed", hint=POLL)
    if not table.key:
        raise SourceConfigError(
            f"{table} has no primary key, so its changes do not tell which row they are about",
            hint=f"add a primary key, or poll: {POLL}",
        )


def check_cascades(connection: Connection, table: Relation) -> None:
    """Refuse tables whose rows are changed by the storage engine alone, which the binlog does not tell."""
    found = run(
        connection,
        "SELECT CONSTRAINT_NAME, REFERENCED_TABLE_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS "
        "WHERE CONSTRAINT_SCHEMA = %s AND TABLE_NAME = %s "
        "AND (DELETE_RULE IN ('CASCADE', 'SET NULL') OR UPDATE_RULE IN ('CASCADE', 'SET NULL'))",
        (table.schema, table.name),
    )
    if found:
        name, parent = found[0]
        raise SourceConfigError(
            f'{table} has the foreign key "{name}" to "{parent}" with CASCADE or SET NULL: '
            "what that changes is not in the binlog",
            hint=f"poll: {POLL}",
        )


def identity(connection: Connection) -> str:
    """Which server it is: positions of one mean nothing to another."""
    names = "'server_id', 'server_uuid'"
    found = dict(run(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"))
    return str(found.get("server_uuid") or found.get("server_id"))


def start_of_load(connection: Connection, table: Relation, start: str, stop: threading.Event) -> Position:
    """A place in the binlog such that every transaction before it can be read from now on."""
    if start == "earliest":
        return earliest(connection)
    if start != "latest":
        file, _, at = start.rpartition(":")
        return Position.of(file, int(at))
    if mariadb(connection):
        run(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        found = dict(run(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
        connection.rollback()
        if found.get("Binlog_snapshot_file"):
            return Position.of(found["Binlog_snapshot_file"], int(found["Binlog_snapshot_position"]))
    position, _, _ = here(connection)
    _settle(connection, table, stop)
    return position


def _settle(connection: Connection, table: Relation, stop: threading.Event) -> None:
    """Wait until transactions that are in the binlog can be read.

    MySQL writes a transaction to the binlog first, and commits it then. Whoever changed the table holds a
    lock on its definition until it has committed.
    """
    try:
        run(connection, "SET SESSION lock_wait_timeout = 3")
        run(connection, f"LOCK TABLES {table.identifier} READ")
    except pymysql.Error as exc:
        log.info("%s cannot be locked for a moment (%s): waiting instead", table, number_of(exc))
        stop.wait(_SECONDS_TO_SETTLE)
    finally:
        with suppress(pymysql.Error):
            run(connection, "UNLOCK TABLES")
            run(connection, "SET SESSION lock_wait_timeout = DEFAULT")


def made_at(client: Client, position: Position, stop: threading.Event) -> int:
    """When the binlog of a position was begun: its name alone may come again after RESET MASTER."""
    binlog = Binlog(client)
    try:
        with translated("the binlog cannot be followed", RIGHTS):
            binlog.start(position)
            while not stop.is_set():
                for event in binlog.receive(0.2):
                    if event[4] == FORMAT:
                        return int.from_bytes(event[:4], "little")
    finally:
        binlog.close()
    return 0
