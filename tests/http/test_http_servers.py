"""What servers ask of clients and clients of servers: time, certificates, secrets, pages and reach."""

from __future__ import annotations

import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
import trustme

import velostream
from refusals import refusal
from web_server import Events, Reply, Request, Web, as_json, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import WaitUntil

    from velostream import Database

pytestmark = pytest.mark.spark
QUICK = "'poll.interval' = '20ms'"


def rows(db: Database, query: str) -> list[tuple]:
    return sorted(tuple(row) for row in db.sql(query).rows())


# --- when to ask again -------------------------------------------------------------------------------------


class Busy:
    """Answers 429 at the second, third and fourth request, and notes when it was asked."""

    def __init__(self, reply: Any) -> None:
        self.times: list[float] = []
        self._reply = reply

    def __call__(self, request: Request) -> Reply:
        self.times.append(time.monotonic())
        if 1 < len(self.times) < 5:
            return Reply(b"", 429, {"Retry-After": "1"})
        return self._reply(request)

    def pauses(self) -> list[float]:
        return [after - before for before, after in zip(self.times[1:4], self.times[2:5], strict=True)]


@pytest.mark.parametrize("said", ["", ", 'changelog' = 'append', 'incremental.column' = 'id'"])
def test_a_job_waits_as_long_as_the_server_asks(db: Database, web: Web, wait_until: WaitUntil, said: str):
    listed = [{"id": 1}]
    busy = Busy(lambda _: as_json(listed))
    # Creation may be the one that is told to wait.
    waiting = "'wait.timeout' = '20s', 'retry.interval' = '20ms'"
    db.sql(f"CREATE TABLE t AS SELECT id FROM {web.serve('/rows', busy)} WITH ({QUICK}, {waiting}{said})")
    listed.append({"id": 2})
    wait_until(lambda: rows(db, "SELECT id FROM t") == [(1,), (2,)], 60)
    assert min(busy.pauses()) >= 1


def test_a_stream_of_events_waits_as_long_as_the_server_asks(db: Database, web: Web, wait_until: WaitUntil):
    events = Events()
    busy = Busy(events.reply)
    db.sql(f"CREATE SOURCE s (id BIGINT) FROM {web.serve('/events', busy)} WITH ('format' = 'sse')")
    db.sql("CREATE TABLE t AS SELECT id FROM s")
    wait_until(lambda: events.listeners == 1)
    events.send('{"id": 1}')
    events.hang_up()
    events.send('{"id": 2}')
    wait_until(lambda: rows(db, "SELECT id FROM t") == [(1,), (2,)], 60)
    assert min(busy.pauses()) >= 1


def test_creation_waits_as_long_as_the_server_asks(db: Database, web: Web, wait_until: WaitUntil):
    times: list[float] = []

    def reply(_: Request) -> Reply:
        times.append(time.monotonic())
        return as_json([{"id": 1}]) if len(times) > 1 else Reply(b"", 503, {"Retry-After": "1"})

    said = "'wait.timeout' = '20s', 'retry.interval' = '20ms'"
    db.sql(f"CREATE TABLE t AS SELECT id FROM {web.serve('/rows', reply)} WITH ({said})")
    wait_until(lambda: rows(db, "SELECT id FROM t") == [(1,)])
    assert times[1] - times[0] >= 1


def test_what_was_not_modified_since_is_not_sent_again(db: Database, web: Web, wait_until: WaitUntil):
    """By its date, where the server has no tags."""
    state = {"date": "Wed, 21 Oct 2015 07:28:00 GMT", "rows": [{"id": 1}], "whole": 0}

    def reply(request: Request) -> Reply:
        if request.headers.get("if-modified-since") == state["date"]:
            return Reply(status=304)
        state["whole"] += 1
        return as_json(state["rows"], Last_Modified=state["date"])

    db.sql(f"CREATE TABLE t AS SELECT id FROM {web.serve('/rows', reply)} WITH ({QUICK})")
    wait_until(lambda: len(web.requests) >= 8)
    # Creation looks at it, and the job reads it.
    assert state["whole"] <= 2
    state |= {"date": "Wed, 21 Oct 2015 07:29:00 GMT", "rows": [{"id": 2}]}
    wait_until(lambda: rows(db, "SELECT id FROM t") == [(2,)])


@pytest.mark.parametrize(
    "said",
    [
        "'page.mode' = 'link'",
        "'page.mode' = 'cursor', 'page.cursor' = 'next'",
        "'page.mode' = 'number', 'page.size' = '2'",
    ],
)
def test_rows_go_from_whichever_page_they_were_on(db: Database, web: Web, wait_until: WaitUntil, said: str):
    listed = [{"id": number} for number in range(7)]

    def reply(request: Request) -> Reply:
        page = int(request.query.get("page") or request.query.get("cursor") or 1)
        part, more = listed[(page - 1) * 2 : page * 2], len(listed) > page * 2
        links = {"Link": f'</rows?page={page + 1}>; rel="next"'} if more else {}
        return as_json({"rows": part, "next": page + 1 if more else None}, **links)

    uri = web.serve("/rows", reply)
    db.sql(f"CREATE TABLE t AS SELECT id FROM {uri} WITH ({QUICK}, 'records' = 'rows', {said})")
    wait_until(lambda: rows(db, "SELECT id FROM t") == [(number,) for number in range(7)])
    del listed[3]
    wait_until(lambda: rows(db, "SELECT id FROM t") == [(0,), (1,), (2,), (4,), (5,), (6,)])
    del listed[1:]
    wait_until(lambda: rows(db, "SELECT id FROM t") == [(0,)])


# --- certificates and secrets ------------------------------------------------------------------------------


class Files:
    """An authority, and a certificate of this machine that it signed."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.issued = self.authority.issue_cert("127.0.0.1")
        self.ca, self.cert, self.key = (folder / name for name in ("ca.pem", "cert.pem", "key.pem"))
        self.authority.cert_pem.write_to_path(self.ca)
        self.issued.cert_chain_pems[0].write_to_path(self.cert)
        self.issued.private_key_pem.write_to_path(self.key)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def secure(files: Files) -> Iterator[Web]:
    """A server that wants a certificate of its clients, too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files.issued.configure_cert(context)
    files.authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    with running(tls=context) as server:
        yield server


def test_reading_and_writing_by_tls(db: Database, secure: Web, files: Files, wait_until: WaitUntil):
    taken: list[Any] = []
    listed = secure.serve("/rows", as_json([{"id": 1}]))
    inbox = secure.serve("/in", lambda request: taken.extend(json.loads(request.body)) or as_json({}))
    said = f"'ssl.root.cert' = '{files.ca}', 'ssl.cert' = '{files.cert}', 'ssl.key' = '{files.key}'"
    with refusal("source.config", why="not trusted"):
        db.sql(f"CREATE TABLE t AS SELECT id FROM {listed}")
    with refusal("source.network"):
        db.sql(f"CREATE TABLE t AS SELECT id FROM {listed} WITH ('ssl.root.cert' = '{files.ca}')")
    db.sql(f"CREATE TABLE t AS SELECT id FROM {listed} WITH ({said})")
    db.sql(f"INSERT INTO {inbox} SELECT id FROM t EMIT CHANGES WITH ({said})")
    wait_until(lambda: taken == [{"id": 1}])


def test_deliveries_by_tls_with_a_secret(
    db: Database, files: Files, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOOK_SECRET", "s3cret")
    with socket.create_server(("127.0.0.1", 0)) as free:
        uri = f"https://127.0.0.1:{free.getsockname()[1]}/in"
    db.sql(
        f"CREATE SOURCE hooks (id BIGINT) FROM {uri} WITH ('webhook' = 'true', "
        f"'webhook.secret' = '${{env:HOOK_SECRET}}', 'ssl.cert' = '{files.cert}', 'ssl.key' = '{files.key}')"
    )
    db.sql("CREATE TABLE t AS SELECT id FROM hooks")
    trust = ssl.create_default_context(cafile=str(files.ca))

    def post(number: int, headers: dict[str, str]) -> int:
        request = urllib.request.Request(uri, b'{"id": %d}' % number, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=30, context=trust) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code

    wait_until(lambda: post(1, {"X-Webhook-Secret": "s3cret"}) == 200)
    assert post(2, {"Authorization": "Bearer s3cret"}) == 200
    assert [post(9, {}), post(9, {"X-Webhook-Secret": "s3cres"}), post(9, {"Authorization": "Bearer "})] == [
        401
    ] * 3
    wait_until(lambda: rows(db, "SELECT id FROM t") == [(1,), (2,)])


# --- reach -------------------------------------------------------------------------------------------------


def test_a_name_that_leads_to_this_machine(spark: object, tmp_path: Path, web: Web):
    """A name that may be reached is refused where it leads to a private address, before anything connects."""
    name = next((name for name in ("ip6-localhost", socket.gethostname()) if _leads_here(name)), None)
    if name is None:
        pytest.skip("this machine has no other name for itself")
    with velostream.connect(tmp_path / "data", allowed_hosts=[name]) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        with refusal("sql.unsafe", name):
            db.sql(f"CREATE TABLE u AS SELECT * FROM http://{name}:{web.port}/rows")
        with refusal("sql.unsafe", name):
            db.sql(f"INSERT INTO http://{name}:{web.port}/in SELECT * FROM t")
        assert rows(db, "SHOW JOBS") == []


def _leads_here(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, 80))
    except OSError:
        return False


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:99999/rows", "http:///rows", "http://[x/rows", "http://a:0/"]
)
def test_an_address_that_is_none(db: Database, address: str):
    with refusal("sql.property", "no address"):
        db.sql(f"CREATE TABLE t AS SELECT * FROM {address}")
