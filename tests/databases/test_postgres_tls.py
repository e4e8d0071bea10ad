"""TLS to PostgreSQL: what is verified, and what is refused."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import trustme

from database_servers import Postgres, programs
from refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import WaitUntil

    from velostream import Database

pytestmark = [pytest.mark.spark, pytest.mark.sampled(2)]


class Secured:
    """A server that asks for TLS and for a client's certificate, and the files of both sides."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.server = Postgres(
            ssl="on", ssl_cert_file="server.pem", ssl_key_file="server.key", ssl_ca_file="ca.pem"
        )
        self.server.make()
        issued = self.authority.issue_cert("127.0.0.1")
        ours = self.authority.issue_cert("client.example")
        data = self.server.data
        issued.private_key_pem.write_to_path(data / "server.key")
        issued.cert_chain_pems[0].write_to_path(data / "server.pem")
        self.authority.cert_pem.write_to_path(data / "ca.pem")
        for name in ("server.key", "server.pem", "ca.pem"):
            shutil.chown(data / name, data.owner(), data.group())
            (data / name).chmod(0o600)
        (data / "pg_hba.conf").write_text(
            "hostssl all open 127.0.0.1/32 scram-sha-256\n"
            "hostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n"
            "hostssl replication all 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n"
        )
        self.ca, self.cert, self.key = (folder / name for name in ("ca.pem", "ours.pem", "ours.key"))
        self.other_ca = folder / "other.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        trustme.CA().cert_pem.write_to_path(self.other_ca)
        ours.cert_chain_pems[0].write_to_path(self.cert)
        ours.private_key_pem.write_to_path(self.key)
        self.key.chmod(0o600)
        self.server.start()
        self.files = {
            "sslmode": "verify-full",
            "sslrootcert": self.ca,
            "sslcert": self.cert,
            "sslkey": self.key,
        }
        with self.server.connect(**self.files) as admin:
            admin.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
            admin.execute("INSERT INTO orders VALUES (1, 'x')")

    def properties(self, **given: object) -> str:
        every = {
            "ssl.mode": "verify-full",
            "ssl.root.cert": self.ca,
            "ssl.cert": self.cert,
            "ssl.key": self.key,
        }
        every |= {name.replace("_", "."): value for name, value in given.items()}
        return ", ".join(f'"{name}" = "{value}"' for name, value in every.items() if value is not None)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if programs() is None:
        pytest.skip("PostgreSQL is missing: scripts/databases installs it")
    made = Secured(tmp_path_factory.mktemp("tls"))
    yield made
    made.server.stop()
    made.server.remove()


def test_a_verified_server_is_followed_and_written_to(
    db: Database, secured: Secured, wait_until: WaitUntil
) -> None:
    uri = secured.server.uri("postgres", "orders")
    db.sql(f"CREATE TABLE orders AS SELECT * FROM {uri} WITH ({secured.properties(cdc='true')})")
    copy = secured.properties(table_create_if_missing="true")
    target = secured.server.uri("postgres", "copied")
    db.sql(f"INSERT INTO {target} SELECT * FROM orders EMIT CHANGES WITH ({copy})")
    with secured.server.connect(**secured.files) as admin:
        admin.execute("INSERT INTO orders VALUES (2, 'y')")
        wait_until(lambda: len(db.table("orders")) == 2)
        plain = (
            "SELECT count(*) FROM pg_stat_activity a JOIN pg_stat_ssl s USING (pid) "
            "WHERE application_name = 'velostream' AND NOT ssl"
        )
        assert admin.execute(plain).fetchone() == (0,)
        wait_until(lambda: admin.execute("SELECT count(*) FROM copied").fetchone() == (2,))


@pytest.mark.parametrize(
    ("given", "code", "why"),
    [
        ({"ssl_root_cert": "other"}, "source.config", "certificate verify failed"),
        ({"ssl_mode": "disable"}, "source.auth", "no pg_hba.conf entry"),
        ({"ssl_cert": None, "ssl_key": None}, "source.auth", "certificate"),
        ({"ssl_root_cert": "/there/is/none.pem"}, "source.config", "none.pem"),
    ],
)
def test_what_is_not_trusted_is_refused(
    db: Database, secured: Secured, given: dict[str, str | None], code: str, why: str
) -> None:
    told = {name: secured.other_ca if value == "other" else value for name, value in given.items()}
    uri = secured.server.uri("postgres", "orders")
    with refusal(code, why=why):
        db.sql(f"CREATE TABLE orders AS SELECT * FROM {uri} WITH ({secured.properties(**told)})")


def test_the_name_of_the_server_is_verified_where_it_is_asked_for(db: Database, secured: Secured) -> None:
    uri = secured.server.uri("postgres", "orders").replace("127.0.0.1", "localhost")
    with refusal("source.config", why="localhost"):
        db.sql(f"CREATE TABLE a AS SELECT * FROM {uri} WITH ({secured.properties()})")
    db.sql(f"CREATE TABLE b AS SELECT * FROM {uri} WITH ({secured.properties(ssl_mode='verify-ca')})")
    assert len(db.table("b")) >= 1


def test_any_sql_verifies_too(db: Database, secured: Secured) -> None:
    base = f"sql://postgresql://postgres:secret@127.0.0.1:{secured.server.port}/postgres?table=orders"
    with refusal("source.config", why="certificate verify failed"):
        told = secured.properties(ssl_root_cert=secured.other_ca)
        db.sql(f"CREATE TABLE orders AS SELECT * FROM {base} WITH ({told})")
    with refusal("source.auth"):
        db.sql(f"CREATE TABLE orders AS SELECT * FROM {base} WITH ({secured.properties(ssl_mode='disable')})")
    more = secured.properties(query_timeout="20s", socket_timeout="20s", transaction_isolation="serializable")
    db.sql(f"CREATE TABLE orders AS SELECT * FROM {base} WITH ({more})")
    assert len(db.table("orders")) >= 1
