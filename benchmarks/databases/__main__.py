"""`make bench-databases`: real servers, beside Spark's JDBC reader and Debezium."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.databases import debezium
from benchmarks.databases.servers import PostgresOrders, mariadb, postgres
from benchmarks.goal import Goal
from benchmarks.measure import HERE, in_process

Found = dict[str, Any]
READERS = 2


def main() -> int:
    """Run, print the figures and the goals, keep them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=500_000)
    parser.add_argument("--seconds", type=int, default=30, help="of the latency and of the idle job")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--output", type=Path, default=HERE / "databases.json")
    given = parser.parse_args()
    found: Found = json.loads(given.output.read_text()) if given.output.exists() else {}
    found["machine"] = {"cores": os.cpu_count(), "python": platform.python_version()}
    with postgres() as orders:
        for name in given.sections:
            print(f"{name} …", file=sys.stderr, flush=True)
            found[name] = SECTIONS[name](orders, given) | {"load before": os.getloadavg()[0]}
            print(json.dumps({name: found[name]}, indent=1), flush=True)
    for goal in GOALS:
        try:
            value = goal.value(found)
        except KeyError:
            continue
        print(f"{'holds' if goal.holds(value) else 'MISSED':7} {goal.text}: {value:,.3f}; {goal.wanted}")
    given.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def _ours(figure: str, **arguments: Any) -> Found:
    return in_process("databases.ours", figure, json.dumps(arguments), timeout=1800)


def bulk(orders: PostgresOrders, given: argparse.Namespace) -> Found:
    """Everything of a table, beside Spark's JDBC reader with as many readers."""
    orders.fill(given.rows)
    uri = f"{orders.uri}?table=orders"
    address = dict(part.split("=") for part in orders.address.split())
    url = (
        f"jdbc:postgresql://{address['host']}:{address['port']}/{address['dbname']}"
        f"?user={address['user']}&password={address['password']}"
    )
    arguments = {"url": url, "rows": given.rows, "readers": READERS}
    return {
        "rows": given.rows,
        "jdbc": in_process("databases.jdbc", json.dumps(arguments), timeout=1800),
        "ours": _ours("load", uri=uri, rows=given.rows, readers=READERS),
    }


def changes(orders: PostgresOrders, given: argparse.Namespace) -> Found:
    """A backlog of changes, beside Debezium."""
    orders.fill(given.rows)
    ours = _ours("changes", kind="postgres", server=[orders.address, orders.uri], count=given.changes)
    orders.fill(given.rows)
    address = dict(part.split("=") for part in orders.address.split())
    properties = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": address["host"],
        "database.port": address["port"],
        "database.user": address["user"],
        "database.password": address["password"],
        "database.dbname": address["dbname"],
        "plugin.name": "pgoutput",
        "slot.name": "debezium",
        "table.include.list": "public.orders",
        "snapshot.mode": "no_data",
    }
    count = min(given.changes, 200_000)
    with tempfile.TemporaryDirectory(prefix="velostream-bench-") as folder:
        peer = debezium.changes("postgres", properties, Path(folder), lambda: orders.change(count), count)
    with orders.connect() as connection:
        connection.execute("SELECT pg_drop_replication_slot('debezium')")
    return {"changes": given.changes, "ours": ours, "debezium changes": count, "debezium": peer}


def mariadb_changes(_: PostgresOrders, given: argparse.Namespace) -> Found:
    """A backlog of changes of MariaDB, beside Debezium."""
    changes, peers = min(given.changes, 200_000), min(given.changes, 100_000)
    with mariadb() as orders:
        orders.fill(2 * changes)
        ours = _ours("changes", kind="mariadb", server=[orders.port, orders.uri], count=changes)
        orders.fill(2 * changes)
        properties = {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(orders.port),
            "database.user": "app",
            "database.password": "secret",
            "database.server.id": "4711",
            "database.include.list": "shop",
            "table.include.list": "shop.orders",
            "snapshot.mode": "no_data",
        }
        with tempfile.TemporaryDirectory(prefix="velostream-bench-") as folder:
            peer = debezium.changes("mariadb", properties, Path(folder), lambda: orders.change(peers), peers)
    return {"changes": changes, "ours": ours, "debezium changes": peers, "debezium": peer}


def latency(orders: PostgresOrders, given: argparse.Namespace) -> Found:
    """From commit to readable, at a thousand changes a second."""
    orders.fill(100_000)
    return _ours(
        "latency",
        kind="postgres",
        server=[orders.address, orders.uri],
        rate=1_000,
        seconds=given.seconds,
    )


def idle(orders: PostgresOrders, given: argparse.Namespace) -> Found:
    """The share of a core of a job where nothing happens."""
    orders.fill(100_000)
    return _ours("idle", uri=f"{orders.uri}?table=orders", seconds=given.seconds)


def sink(orders: PostgresOrders, given: argparse.Namespace) -> Found:
    """Rows of a table into PostgreSQL."""
    rows = min(given.rows, 200_000)
    return {"rows": rows, "ours": _ours("sink", uri=f"{orders.uri}?table=sunk", rows=rows)}


def _beside_debezium(found: Found) -> float:
    """How many times as many changes a second as Debezium, from its first event on."""
    ours = found["changes"] / found["ours"]["warm"]
    return float(ours / (found["debezium changes"] / found["debezium"]["streaming"]))


SECTIONS = {
    "bulk": bulk,
    "changes": changes,
    "latency": latency,
    "idle": idle,
    "sink": sink,
    "mariadb": mariadb_changes,
}
GOALS = (
    Goal(
        "bulk load, warm, beside Spark's JDBC",
        "times as fast",
        1.0,
        lambda found: found["bulk"]["jdbc"]["warm"] / found["bulk"]["ours"]["warm"],
    ),
    Goal(
        "changes of PostgreSQL into a table",
        "a second",
        50_000,
        lambda found: found["changes"]["changes"] / found["changes"]["ours"]["warm"],
    ),
    Goal(
        "changes, beside Debezium embedded from its first event on",
        "times as many",
        3.0,
        lambda found: _beside_debezium(found["changes"]),
    ),
    Goal(
        "changes of MariaDB into a table",
        "a second",
        10_000,
        lambda found: found["mariadb"]["changes"] / found["mariadb"]["ours"]["warm"],
    ),
    Goal(
        "changes of MariaDB, beside Debezium embedded from its first event on",
        "times as many",
        3.0,
        lambda found: _beside_debezium(found["mariadb"]),
    ),
    Goal("change to readable, p50", "s", 0.3, lambda found: found["latency"]["p50"], at_most=True),
    Goal("change to readable, p99", "s", 1.0, lambda found: found["latency"]["p99"], at_most=True),
    Goal("a job where nothing happens", "of a core", 0.01, lambda found: found["idle"]["job"], at_most=True),
    Goal(
        "rows of a table into PostgreSQL, warm",
        "a second",
        50_000,
        lambda found: found["sink"]["rows"] / found["sink"]["ours"]["warm"],
    ),
)

if __name__ == "__main__":
    sys.exit(main())
