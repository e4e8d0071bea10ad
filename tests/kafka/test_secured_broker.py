"""A broker that wants TLS and a login, and lets each user do only what it may."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import kafka_clients as clients
import pytest
import trustme
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization

from refusals import refusal
from velostream.connectors.kafka.client.cluster import QUIET
from velostream.devtools.broker.process import HOST, BrokerProcess, free_port
from velostream.errors import VelostreamError
from velostream.model.jobs import JobState
from velostream.runtime.instance import open_instance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import WaitUntil

    from velostream.runtime.instance import Instance

pytestmark = pytest.mark.spark

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Secured:
    """The broker, and what a client needs to get in."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(self.ca)
        self.port, inner, controller = free_port(), free_port(), free_port()
        self.client_key, self.client_certificate = folder / "client.key", folder / "client.pem"
        own = authority.issue_cert("client@example.org")
        self.client_key.write_bytes(_pkcs8(own.private_key_pem.bytes()))
        self.client_certificate.write_bytes(b"".join(blob.bytes() for blob in own.cert_chain_pems))
        keys = folder / "broker.pem"
        issued = authority.issue_cert(HOST, "localhost")
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        keys.write_bytes(_pkcs8(issued.private_key_pem.bytes()) + chain)
        self.tls = free_port()
        listeners = {
            "SASL_SSL": self.port,
            "SSL": self.tls,
            "PLAINTEXT": inner,
        }
        said = ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items())
        settings = {
            "listeners": f"{said},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": said,
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,"
            + ",".join(f"{name}:{name}" for name in listeners),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                f'{PLAIN} required user_alice="alice\'s secret" user_bob="bob\'s secret";'
            ),
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keys),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "listener.name.ssl.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # Those who come by the inner door, by a certificate, and one of the users may do all.
            "super.users": "User:ANONYMOUS;User:alice;User:carol;User:certified",
            "ssl.principal.mapping.rules": "RULE:^.*$/certified/",
        }
        self.broker = BrokerProcess(folder / "broker", inner, settings=settings)
        self.broker.start()
        self.admin = AdminClient({"bootstrap.servers": self.broker.address}, logger=QUIET)

    def properties(self, user: str, password: str, mechanism: str = "PLAIN") -> str:
        return ", ".join(
            f'"{name}" = "{value}"'
            for name, value in {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": mechanism,
                "sasl.username": user,
                "sasl.password": password,
                "ssl.ca.location": self.ca,
            }.items()
        )

    def topic(self, name: str) -> None:
        clients.make_topic(self.broker.address, name, 2)
        clients.produce(self.broker.address, name, [(f"k{n}", {"id": n}) for n in range(5)])


def _pkcs8(pem: bytes) -> bytes:
    """The only form of a key that Java's clients and brokers take."""
    return serialization.load_pem_private_key(pem, None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    yield made
    made.broker.stop()


@pytest.fixture(scope="module")
def database(spark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with open_instance(tmp_path_factory.mktemp("data") / "velostream") as shared:
        yield shared


def _copied(database: Instance, address: str, name: str, properties: str) -> None:
    """From one topic through a table into another, exactly once."""
    database.sql(
        f'CREATE TABLE {name} AS SELECT id FROM kafka://{address}/{name} WITH ("key" = "id", {properties})'
    )
    database.sql(
        f"INSERT INTO kafka://{address}/{name}-copy SELECT id FROM {name} EMIT CHANGES "
        f'WITH ("delivery" = "exactly_once", "topic.create.if.missing" = "true", {properties})'
    )
    assert database.wait_idle(60), database.jobs()
    assert sorted(row.id for row in database.table(name).rows()) == list(range(5))


def _ids(secured: Secured, name: str) -> list[int]:
    return sorted(record.json["id"] for record in clients.consume(secured.broker.address, name))


def test_a_user_with_a_password_reads_and_writes(secured: Secured, database: Instance) -> None:
    secured.topic("plain")
    _copied(database, f"{HOST}:{secured.port}", "plain", secured.properties("alice", "alice's secret"))
    assert _ids(secured, "plain-copy") == list(range(5))


def test_scram(secured: Secured, database: Instance) -> None:
    secured.topic("scram")
    (made,) = secured.admin.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion(
                "carol", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b'carol "quoted" \\ secret'
            )
        ]
    ).values()
    made.result()
    properties = secured.properties("carol", r"carol \"quoted\" \\ secret", "SCRAM-SHA-256")
    _copied(database, f"{HOST}:{secured.port}", "scram", properties)
    assert _ids(secured, "scram-copy") == list(range(5))


def test_a_certificate_instead_of_a_password(secured: Secured, database: Instance) -> None:
    secured.topic("mutual")
    properties = ", ".join(
        f'"{name}" = "{value}"'
        for name, value in {
            "security.protocol": "SSL",
            "ssl.ca.location": secured.ca,
            "ssl.certificate.location": secured.client_certificate,
            "ssl.key.location": secured.client_key,
        }.items()
    )
    _copied(database, f"{HOST}:{secured.tls}", "mutual", properties)
    assert _ids(secured, "mutual-copy") == list(range(5))


def test_a_wrong_password_is_told_at_once(secured: Secured, database: Instance) -> None:
    secured.topic("wrong")
    uri = f"kafka://{HOST}:{secured.port}/wrong"
    properties = secured.properties("alice", "guessed")
    with refusal("source.auth") as error:
        database.sql(f"CREATE TABLE wrong AS SELECT id FROM {uri} WITH ({properties})")
    assert "sasl.username" in (error.value.hint or "")
    assert "guessed" not in str(error.value)
    database.sql("CREATE TABLE few (id INT)")
    with refusal("sink.auth"):
        database.sql(f"INSERT INTO {uri} SELECT id FROM few WITH ({properties})")


def test_a_certificate_that_nobody_vouches_for(secured: Secured, database: Instance) -> None:
    secured.topic("untrusted")
    stranger = secured.ca.with_name("stranger.pem")
    trustme.CA().cert_pem.write_to_path(stranger)
    properties = secured.properties("alice", "alice's secret").replace(str(secured.ca), str(stranger))
    uri = f"kafka://{HOST}:{secured.port}/untrusted"
    with pytest.raises(VelostreamError, match=r"(?i)certificate|ssl") as error:
        database.sql(f"CREATE TABLE untrusted AS SELECT id FROM {uri} WITH ({properties})")
    assert "ssl.ca.location" in (error.value.hint or "")


def test_what_a_user_may_not_do_is_told(secured: Secured, database: Instance) -> None:
    secured.topic("guarded")
    uri = f"kafka://{HOST}:{secured.port}/guarded"
    properties = secured.properties("bob", "bob's secret")
    rights = [_allowed(ResourceType.TOPIC, "guarded", AclOperation.DESCRIBE)]
    for made in secured.admin.create_acls(rights).values():
        made.result()
    with refusal("source.auth", why="authorization"):
        database.sql(f"CREATE TABLE guarded AS SELECT id FROM {uri} WITH ({properties})")
    database.sql("CREATE TABLE some (id INT)")
    database.sql("INSERT INTO some VALUES (1)")
    with refusal("sink.auth", "guarded"):
        database.sql(f"INSERT INTO {uri} SELECT id FROM some WITH ({properties})")


def test_a_right_that_is_taken_away_ends_the_job_with_plain_words(
    secured: Secured, database: Instance, wait_until: WaitUntil
) -> None:
    secured.topic("revoked")
    reading = _allowed(ResourceType.TOPIC, "revoked", AclOperation.READ)
    rights = [
        reading,
        _allowed(ResourceType.TOPIC, "revoked", AclOperation.DESCRIBE),
        _allowed(ResourceType.GROUP, "*", AclOperation.READ),
    ]
    for made in secured.admin.create_acls(rights).values():
        made.result()
    properties = secured.properties("bob", "bob's secret")
    uri = f"kafka://{HOST}:{secured.port}/revoked"
    database.sql(f"CREATE TABLE revoked AS SELECT id FROM {uri} WITH ({properties})")
    assert database.wait_idle(60)
    gone = AclBindingFilter(
        reading.restype,
        reading.name,
        reading.resource_pattern_type,
        reading.principal,
        reading.host,
        reading.operation,
        reading.permission_type,
    )
    for removed in secured.admin.delete_acls([gone]).values():
        removed.result()
    clients.produce(secured.broker.address, "revoked", [("k9", {"id": 9})])
    wait_until(lambda: database.job("revoked").state is JobState.FAILED, 60)
    reason = database.job("revoked").info.reason or ""
    assert reason.startswith(f'kafka at "{HOST}:{secured.port}" refuses us: ')
    assert "revoked" in reason
    assert not re.search(r"py4j|Exception|org\.|calling", reason)
    assert database.table("revoked").stats().health == "failed"
    assert database.job("revoked").errors_by_code == {"source.auth": 1}


def test_no_password_is_in_any_file_but_the_one_for_secrets(
    spark, secured: Secured, database: Instance
) -> None:
    """Of statements with passwords written out: Spark's log and checkpoints, journals, tables and our log."""
    secured.topic("discreet")
    _copied(database, f"{HOST}:{secured.port}", "discreet", secured.properties("alice", "alice's secret"))
    assert "alice's secret" not in str(database.sql("SHOW CREATE discreet").rows())
    data = database.directory.root
    session = Path(urlsplit(spark.conf.get("spark.sql.warehouse.dir")).path).parent
    passwords = (b"alice's secret", b"guessed", b"bob's secret")
    assert passwords[0] in (data / "secrets.json").read_bytes()
    for path in (*data.rglob("*"), *session.rglob("*")):
        if path.is_file() and not path.name.startswith("secrets."):
            content = path.read_bytes()
            assert not [
                said for said in (b"alice's secret", b"guessed", b"bob's secret") if said in content
            ], path


def _allowed(kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AclBinding(kind, name, literal, "User:bob", "*", operation, allow)
