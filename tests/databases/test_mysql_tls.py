"""TLS to MySQL and MariaDB: what is verified, and what is refused."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
import trustme

from mysql_servers import NAMES, MariaDb, MySql8
from refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import WaitUntil

    from velostream import Database

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]


class Secured:
    """A server that asks a user for TLS and for a client's certificate, and the files of both sides."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.server = (MariaDb if kind == "mariadb" else MySql8)()
        theirs = {name: self.server.folder / f"tls-{name}.pem" for name in ("ca", "cert", "key")}
        self.server.settings |= {f"ssl-{name}": str(path) for name, path in theirs.items()}
        # MySQL 8.0.15 takes no others.
        kind_of_key = trustme.KeyType.RSA
        authority = trustme.CA(key_type=kind_of_key)
        self.server.make()
        issued = authority.issue_cert("127.0.0.1", key_type=kind_of_key)
        ours = authority.issue_cert("client.example", key_type=kind_of_key)
        authority.cert_pem.write_to_path(theirs["ca"])
        issued.cert_chain_pems[0].write_to_path(theirs["cert"])
        issued.private_key_pem.write_to_path(theirs["key"])
        for path in theirs.values():
            if os.getuid() == 0:
                shutil.chown(path, "mysql", "mysql")
            path.chmod(0o600)
        self.ca, self.cert, self.key = (folder / name for name in ("ca.pem", "ours.pem", "ours.key"))
        self.other_ca = folder / "other.pem"
        authority.cert_pem.write_to_path(self.ca)
        trustme.CA().cert_pem.write_to_path(self.other_ca)
        ours.cert_chain_pems[0].write_to_path(self.cert)
        ours.private_key_pem.write_to_path(self.key)
        self.server.start()
        with self.server.connect() as admin:
            admin.execute("CREATE DATABASE shop")
            admin.execute("CREATE TABLE shop.orders (id int PRIMARY KEY, note varchar(9))")
            admin.execute("INSERT INTO shop.orders VALUES (1, 'x')")
            admin.execute("CREATE USER locked@'127.0.0.1' IDENTIFIED BY 'secret' REQUIRE X509")
            admin.execute("GRANT ALL ON *.* TO locked@'127.0.0.1'")

    def uri(self, table: str) -> str:
        return self.server.uri("shop", table).replace("app:", "locked:")

    def properties(self, **given: object) -> str:
        every = {
            "ssl.mode": "verify-full",
            "ssl.root.cert": self.ca,
            "ssl.cert": self.cert,
            "ssl.key": self.key,
        }
        every |= {name.replace("_", "."): value for name, value in given.items()}
        return ", ".join(f'"{name}" = "{value}"' for name, value in every.items() if value is not None)


@pytest.fixture(scope="module", params=NAMES)
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(request.param, tmp_path_factory.mktemp("tls"))
    yield made
    made.server.stop()
    made.server.remove()


def test_a_verified_server_is_followed_and_written_to(
    db: Database, secured: Secured, wait_until: WaitUntil
) -> None:
    db.sql(
        f"CREATE TABLE orders AS SELECT * FROM {secured.uri('orders')} "
        f"WITH ({secured.properties(cdc='true')})"
    )
    copy = secured.properties(table_create_if_missing="true")
    db.sql(f"INSERT INTO {secured.uri('copied')} SELECT * FROM orders EMIT CHANGES WITH ({copy})")
    with secured.server.connect("shop") as admin:
        admin.execute("INSERT INTO orders VALUES (2, 'y')")
        wait_until(lambda: len(db.table("orders")) == 2)
        wait_until(lambda: admin.execute("SELECT count(*) FROM copied") == [(2,)])


@pytest.mark.parametrize(
    ("given", "code", "why"),
    [
        ({"ssl_root_cert": "other"}, "source.config", "certificate"),
        ({"ssl_mode": "disable", "ssl_cert": None, "ssl_key": None}, "source.auth", "denied"),
        ({"ssl_cert": None, "ssl_key": None}, "source.auth", "denied"),
        ({"ssl_root_cert": "/there/is/none.pem"}, "source.config", "certificates"),
    ],
    ids=str,
)
def test_what_is_not_trusted_is_refused(
    db: Database, secured: Secured, given: dict[str, str | None], code: str, why: str
) -> None:
    told = {name: secured.other_ca if value == "other" else value for name, value in given.items()}
    with refusal(code, why=why):
        db.sql(
            f"CREATE TABLE orders AS SELECT * FROM {secured.uri('orders')} "
            f"WITH ({secured.properties(**told)})"
        )


def test_the_name_of_the_server_is_verified_where_it_is_asked_for(db: Database, secured: Secured) -> None:
    uri = secured.uri("orders").replace("127.0.0.1", "localhost")
    with refusal("source.config", why="localhost"):
        db.sql(f"CREATE TABLE a AS SELECT * FROM {uri} WITH ({secured.properties()})")
    db.sql(f"CREATE TABLE b AS SELECT * FROM {uri} WITH ({secured.properties(ssl_mode='verify-ca')})")
    db.wait_until(lambda: len(db.table("b")) >= 1, timeout=30)
