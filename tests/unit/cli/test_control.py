from __future__ import annotations

import socket
import stat
import threading
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from refusals import refusal
from velostream.config import load
from velostream.errors import KeyExistsError, UnknownNameError
from velostream.runtime.answers.events import Answer
from velostream.runtime.instance import Instance
from velostream.runtime.socket.client import Client
from velostream.runtime.socket.protocol import receive, send
from velostream.runtime.socket.server import LONGEST_PATH, socket_path

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Instance]:
    with Instance(load(None, data_dir=tmp_path / "data")) as opened:
        opened.sql("CREATE TABLE p (id INT PRIMARY KEY, v DECIMAL(20,4), at TIMESTAMP)")
        yield opened


@pytest.fixture
def client(database: Instance) -> Client:
    return Client(database.directory.root)


def test_statements_run_there_and_rows_come_back_exact(client: Client) -> None:
    assert client.sql("INSERT INTO p VALUES (1, 0.1000, TIMESTAMP '2026-01-02 03:04:05.678901')").message == (
        '1 row inserted into "p"'
    )
    (row,) = client.sql("SELECT * FROM p").rows()
    assert row == (1, Decimal("0.1000"), datetime(2026, 1, 2, 3, 4, 5, 678901, UTC))


def test_several_statements_answer_one_after_the_other(client: Client) -> None:
    events = list(client.answers("INSERT INTO p (id) VALUES (1); SELECT COUNT(*) AS n FROM p"))
    assert [event.result.message for event in events if isinstance(event, Answer)] == [
        '1 row inserted into "p"',
        None,
    ]


def test_parameters_keep_their_types(client: Client) -> None:
    client.sql("INSERT INTO p (id, v) VALUES (1, 1.5), (2, 2.5)")
    assert client.sql("SELECT id FROM p WHERE v = :v", {"v": Decimal("2.5")}).rows() == [(2,)]
    assert client.sql("SELECT id FROM p WHERE v > ? AND id < ?", (Decimal(1), 2)).rows() == [(1,)]


def test_errors_are_raised_as_what_they_were_there(client: Client) -> None:
    client.sql("INSERT INTO p (id) VALUES (1)")
    with pytest.raises(KeyExistsError):
        client.sql("INSERT INTO p (id) VALUES (1)")
    with pytest.raises(UnknownNameError) as caught:
        client.sql("SELECT idd\nFROM p")
    assert str(caught.value) == (
        '<sql>:1:8: unknown column "idd"\n1 | SELECT idd\n  |        ^^^\nhint: did you mean "id"?'
    )


def test_what_can_be_completed(client: Client) -> None:
    assert client.relations()["p"] == ["id", "v", "at"]


def test_only_the_owner_may_connect(database: Instance) -> None:
    path = database.directory.socket
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_many_at_once(client: Client) -> None:
    failures: list[BaseException] = []

    def insert(number: int) -> None:
        try:
            client.sql(f"INSERT INTO p (id) VALUES ({number})")
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=insert, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert client.sql("SELECT COUNT(*) FROM p").scalar() == 20


def test_another_protocol_is_refused(database: Instance) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(database.directory.socket))
        send(connection, {"op": "sql", "text": "SELECT 1", "protocol": 99})
        received = receive(connection)
    assert received is not None
    assert received[0]["error"]["code"] == "connection"


@pytest.mark.parametrize("noise", [b"", b"\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x02{]"])
def test_noise_does_no_harm(database: Instance, client: Client, noise: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(database.directory.socket))
        connection.sendall(noise)
    assert client.sql("SELECT 1 AS one").scalar() == 1


def test_the_socket_goes_with_the_database(database: Instance, client: Client) -> None:
    database.close()
    assert socket_path(database.directory.root) is None
    with refusal("connection", database.directory.root, why="has ended"):
        client.sql("SELECT 1")


def test_a_dead_process_socket_is_replaced(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(root / "socket"))
    dead.close()
    (root / "socket.path").write_text("/nowhere")
    with Instance(load(None, data_dir=root)):
        assert Client(root).sql("SELECT 1 AS one").scalar() == 1


def test_a_path_too_long_for_a_socket(tmp_path: Path) -> None:
    root = tmp_path / ("d" * LONGEST_PATH)
    with Instance(load(None, data_dir=root)):
        path = socket_path(root)
        assert path is not None
        assert path.parent != root
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert Client(root).sql("SELECT 1 AS one").scalar() == 1
    assert not Path(path).parent.exists()
