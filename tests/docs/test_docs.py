"""The documentation, executed: each page is run from top to bottom, in a folder of its own."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from velostream.config import load

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAMPLES = Path("/tmp/velostream-docs")  # the pages name this folder, so it cannot be a temporary one

ORDERS = "order_id,user_id,amount\no1,ann,12.50\no2,bob,7.25\n"

TOPICS = {
    "orders": [
        ("o1", '{"order_id":"o1","user_id":"ann","amount":12.50}'),
        ("o2", '{"order_id":"o2","user_id":"bob","amount":7.25}'),
    ],
    "clicks": [('{"id":1,"region":"eu"}', '{"page":"/"}'), ('{"id":2,"region":"us"}', '{"page":"/buy"}')],
}
"""Topics that the pages read: keys and values."""


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [Block(m[1], m[2], text[: m.start()].count("\n") + 2) for m in _BLOCK.finditer(text)]


def runnable(page: str) -> list[Block]:
    return [block for block in blocks(page) if block.language in {"python", "sql", "velotest"}]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(_SAMPLES, ignore_errors=True)
    (_SAMPLES / "trades").mkdir(parents=True)
    (_SAMPLES / "readings").mkdir()
    (_SAMPLES / "trades" / "one.csv").write_text(
        "trade_id,user_id,symbol,quantity,price,ts\nt1,u1,AAPL,10,150.25,2026-01-01T00:00:00Z\n"
    )
    (_SAMPLES / "readings" / "one.csv").write_text("sensor,at,value\ns1,2026-01-01T00:00:00Z,1.250\n")
    (_SAMPLES / "orders.csv").write_text(ORDERS)
    with closing(sqlite3.connect(_SAMPLES / "shop.db")) as shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, amount DECIMAL(12,2))")
        shop.execute("INSERT INTO orders VALUES (1, 'ann', 12.50), (2, 'bob', 7.25)")
        shop.commit()
    return tmp_path


@pytest.fixture
def kafka(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A broker where the pages expect one, with the topics that they name."""
    from velostream.connectors.kafka.options import KafkaOptions
    from velostream.connectors.kafka.write.generated import Feed
    from velostream.devtools.broker.process import BrokerProcess, cluster, free_port

    broker = BrokerProcess(folder / "broker", free_port())
    broker.start()
    try:
        monkeypatch.setenv("VELOSTREAM_KAFKA_BROKERS", broker.address)
        for topic, records in TOPICS.items():
            cluster(broker.address).create(topic, 2, 1)
            Feed(KafkaOptions.model_validate({"bootstrap.servers": broker.address}), topic).write(records)
        yield
    finally:
        broker.kill()


@pytest.fixture
def postgres(folder: Path) -> Iterator[None]:
    """A database where the pages expect one, as the connection that they name."""
    from database_servers import running

    with running() as server:
        with server.connect() as connection:
            connection.execute("CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(12,2))")
            connection.execute("CREATE TABLE customers (id int PRIMARY KEY, city text)")
            connection.execute("INSERT INTO orders VALUES (1, 1, 12.50), (2, 1, 7.25)")
        (folder / "velostream.toml").write_text(
            f'[connections.shop]\nhost = "127.0.0.1"\nport = {server.port}\ndatabase = "postgres"\n'
            'username = "postgres"\npassword = "secret"\n'
        )
        yield


@pytest.fixture
def mysql(folder: Path) -> Iterator[None]:
    """The same, as a MariaDB."""
    from mysql_servers import running_mysql

    with running_mysql() as server:
        with server.connect() as session:
            session.execute("CREATE DATABASE shop")
            session.execute(
                "CREATE TABLE shop.orders (id int PRIMARY KEY, customer int, amount decimal(12,2))"
            )
            session.execute("INSERT INTO shop.orders VALUES (1, 1, 12.50), (2, 1, 7.25)")
        (folder / "velostream.toml").write_text(
            f'[connections.shop]\nhost = "127.0.0.1"\nport = {server.port}\ndatabase = "shop"\n'
            'username = "app"\npassword = "secret"\n'
        )
        yield


@pytest.fixture
def clickhouse(folder: Path) -> Iterator[None]:
    """A server where the page expects one, as the connection that it names."""
    from clickhouse_server import PASSWORD, USER, running

    with running() as server:
        server.run(
            "CREATE TABLE pages (page String, site String, hits UInt32) ENGINE = MergeTree ORDER BY page"
        )
        server.run("INSERT INTO pages VALUES ('/', 'shop', 3), ('/buy', 'shop', 1)")
        (folder / "velostream.toml").write_text(
            f'[connections.warehouse]\nhost = "127.0.0.1"\nport = {server.port}\ndatabase = "default"\n'
            f'username = "{USER}"\npassword = "{PASSWORD}"\n'
        )
        yield


@pytest.fixture
def objects(folder: Path) -> Iterator[None]:
    """An object store where the page expects one."""
    from object_store import KEY, SECRET, Bucket, running

    (folder / "store").mkdir()
    with running(folder / "store") as server:
        Bucket(server, "shop").put("orders/one.csv", "order_id,customer,amount\no1,ann,12.50\no2,bob,3.25\n")
        (folder / "velostream.toml").write_text(
            f'[s3]\nendpoint = "{server.endpoint}"\naccess.key.id = "{KEY}"\nsecret.access.key = "{SECRET}"\n'
        )
        yield


@pytest.fixture
def http(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A web server where the page expects one: addresses of the page, and what stands in for them."""
    from web_server import Events, as_json, running

    with running() as web, socket.create_server(("127.0.0.1", 0)) as free:
        items = [{"symbol": "A", "price": 12.50}, {"symbol": "B", "price": 250}]
        web.serve("/prices", as_json({"data": {"items": items}}))
        web.serve("/orders", as_json([{"id": 1, "amount": 12.50}]))
        web.serve("/ticks", Events().reply)
        web.serve("/in", as_json({}))
        monkeypatch.setenv("HOOK_SECRET", "known-to-the-sender")
        listening = free.getsockname()[1]
        free.close()
        yield {
            "http://127.0.0.1:8000": web.uri(""),
            "http://127.0.0.1:8088": f"http://127.0.0.1:{listening}",
        }


@pytest.fixture
def catalogue(folder: Path) -> Iterator[None]:
    """A catalogue of Iceberg where the page expects one, as the connection that it names."""
    from iceberg_server import CREDENTIAL, running

    with running((folder / "warehouse").as_uri()) as server:
        (folder / "velostream.toml").write_text(
            f'[connections.main]\nuri = "{server.uri}"\ncredential = "{CREDENTIAL}"\n'
        )
        yield


@pytest.mark.spark
@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)])
def test_page(page: str, folder: Path, request: pytest.FixtureRequest) -> None:
    import velostream

    found = runnable(page)
    if any("kafka" in block.text for block in found):
        request.getfixturevalue("kafka")
    if any("postgres://" in block.text for block in found):
        request.getfixturevalue("postgres")
    if any("mysql://" in block.text for block in found):
        request.getfixturevalue("mysql")
    if any("s3://" in block.text for block in found):
        request.getfixturevalue("objects")
    if any("clickhouse://" in block.text for block in found):
        request.getfixturevalue("clickhouse")
    if any("iceberg://main" in block.text for block in found):
        request.getfixturevalue("catalogue")
    places = {"/data/orders.csv": str(_SAMPLES / "orders.csv"), "/lake/": f"{folder}/lake/"}
    if any("http://127.0.0.1:8000" in block.text for block in found):
        places |= request.getfixturevalue("http")
    names: dict[str, Any] = {"__name__": "docs"}
    own = None
    try:
        for block in found:
            text = block.text
            for place, instead in places.items():
                text = text.replace(place, instead)
            if block.language == "velotest":
                run_cases(folder / "orders.velotest", text)
            elif block.language == "python":
                exec(compile("\n" * (block.line - 1) + text, page, "exec"), names)
            else:
                db = names.get("db")
                if db is None:
                    db = own = own or velostream.connect(folder / "own-data")
                db.sql(text)
    finally:
        for db in {id(d): d for d in (names.get("db"), own) if d is not None}.values():
            db.close()


def run_cases(path: Path, text: str) -> None:
    from velostream.testing import Bench, Way, find_cases

    path.write_text(text)
    found = find_cases(path)
    assert not found.errors
    with Bench() as bench:
        for case in found.cases:
            for way in Way:
                bench.run(case, way).check()


def test_configuration_example_is_valid(folder: Path) -> None:
    (toml,) = [block for block in blocks("docs/cli.md") if block.language == "toml"]
    (folder / "velostream.toml").write_text(toml.text)
    settings = load(folder / "velostream.toml")
    assert settings.metrics_port == 9100
    assert settings.connections["crm"]["host"] == "db.internal"


def test_reference_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "reference.py"), "--check"],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0, done.stderr


DESIGN = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/design/*.md")),
]
"""Pages for those who work on it."""


def test_files_that_are_named_exist() -> None:
    files = [
        f"/{path.relative_to(ROOT / 'src' / 'velostream')}" for path in ROOT.glob("src/velostream/**/*.py")
    ]
    for page in DESIGN:
        for name in re.findall(r"`([\w/]+\.py)`", (ROOT / page).read_text(encoding="utf-8")):
            there = (ROOT / name).is_file() or any(file.endswith(f"/{name}") for file in files)
            assert there, f"{page} names {name}"


def test_architecture_is_one_page() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()) <= 150
