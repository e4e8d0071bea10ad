"""Tables over HTTP, from statement to rows: what is listed, paged, streamed, posted to us and by us."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import urllib.error
import urllib.request
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

import velostream
from refusals import check_refusal, refusal
from velostream.connectors.registry import default_registry
from velostream.location import SourceText
from velostream.sql import EmptyCatalog, check_script
from web_server import Events, Reply, Request, Web, as_json, running

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.conftest import WaitUntil

    from velostream import Database

pytestmark = pytest.mark.spark
CANARY = "cAnary-0f-th3-web"


def rows(db: Database, query: str) -> list[tuple]:
    return sorted(tuple(row) for row in db.sql(query).rows())


class Listing:
    """A resource that lists rows, and knows whether they are still the same."""

    def __init__(self, web: Web, path: str = "/prices", **headers: str) -> None:
        self.rows: list[dict[str, Any]] = []
        self.whole = 0
        self._headers = headers
        self.uri = web.serve(path, self._reply)

    def _reply(self, request: Request) -> Reply:
        tag = f'"{hashlib.sha1(json.dumps(self.rows).encode()).hexdigest()}"'
        if request.headers.get("if-none-match") == tag:
            return Reply(status=304, headers={"ETag": tag})
        self.whole += 1
        return as_json({"data": self.rows}, ETag=tag, **self._headers)


def test_rows_that_are_no_longer_listed_are_retracted(db: Database, web: Web, wait_until: WaitUntil):
    prices = Listing(web)
    prices.rows = [{"symbol": "A", "price": 1.25}, {"symbol": "B", "price": 2.5}]
    db.sql(
        f"CREATE TABLE prices AS SELECT symbol, price FROM {prices.uri} "
        "WITH ('key' = 'symbol', 'records' = 'data', 'poll.interval' = '50ms')"
    )
    db.sql("CREATE TABLE total AS SELECT COUNT(*) AS n, SUM(price) AS total FROM prices")
    wait_until(lambda: rows(db, "SELECT n, total FROM total") == [(2, Decimal("3.75"))])
    prices.rows = [{"symbol": "B", "price": 4.75}, {"symbol": "C", "price": 1.0}]
    wait_until(lambda: rows(db, "SELECT n, total FROM total") == [(2, Decimal("5.75"))])
    assert db.table("prices").get("A") is None
    assert db.table("prices").get("B").price == Decimal("4.75")
    prices.rows = []
    wait_until(lambda: rows(db, "SELECT * FROM prices") == [])


def test_what_has_not_changed_is_not_sent_again(
    spark: object, tmp_path: Path, web: Web, wait_until: WaitUntil
):
    """Neither by the next request nor by the first one after a restart."""
    prices = Listing(web)
    prices.rows = [{"id": number} for number in range(100)]
    with velostream.connect(tmp_path / "data") as db:
        db.sql(
            f"CREATE TABLE t AS SELECT id FROM {prices.uri} "
            "WITH ('records' = 'data', 'poll.interval' = '20ms')"
        )
        wait_until(lambda: len(db.table("t")) == 100)
        asked, version = len(web.requests), db.table("t").stats().version
        wait_until(lambda: len(web.requests) >= asked + 10)
        assert db.table("t").stats().version == version
        whole = prices.whole
    with velostream.connect(tmp_path / "data") as db:
        asked = len(web.requests)
        wait_until(lambda: len(web.requests) >= asked + 5)
        assert len(db.table("t")) == 100
        assert prices.whole == whole
        prices.rows.append({"id": 100})
        wait_until(lambda: len(db.table("t")) == 101)


def test_csv_and_a_path_that_belongs_to_the_server(db: Database, web: Web, wait_until: WaitUntil):
    content = {"text": "id,price\n1,1.50\n2,x\n"}
    uri = web.serve("/export.csv", lambda _: Reply(content["text"].encode()))
    db.sql(
        f"CREATE TABLE t (id BIGINT, price DECIMAL(9,2)) AS SELECT id, price FROM {uri}?day=1&sort=id "
        "WITH ('poll.interval' = '50ms')"
    )
    wait_until(lambda: rows(db, "SELECT * FROM t") == [(1, Decimal("1.50"))])
    assert dict(web.requests[0].query) == {"day": "1", "sort": "id"}
    wait_until(lambda: len(rows(db, "SELECT reason FROM dead_letters")) == 1)
    content["text"] = "id,price\n1,1.50\n2,2.50\n"
    wait_until(lambda: rows(db, "SELECT * FROM t") == [(1, Decimal("1.50")), (2, Decimal("2.50"))])


def test_only_new_rows_are_asked_for(spark: object, tmp_path: Path, web: Web, wait_until: WaitUntil):
    """The last value goes along as a parameter; rows that share it are neither lost nor doubled."""
    orders = [{"id": 1, "at": "2026-01-01T00:00:01Z"}, {"id": 2, "at": "2026-01-01T00:00:02Z"}]

    def since(request: Request) -> Reply:
        return as_json([row for row in orders if str(row["at"]) >= request.query.get("since", "")])

    uri = web.serve("/orders", since)
    with velostream.connect(tmp_path / "data") as db:
        db.sql(
            f"CREATE TABLE t AS SELECT id FROM {uri} WITH ('changelog' = 'append', 'poll.interval' = '20ms', "
            "'incremental.column' = 'at', 'incremental.parameter' = 'since')"
        )
        wait_until(lambda: rows(db, "SELECT id FROM t") == [(1,), (2,)])
        orders.append({"id": 3, "at": "2026-01-01T00:00:02Z"})
        wait_until(lambda: rows(db, "SELECT id FROM t") == [(1,), (2,), (3,)])
    orders.append({"id": 4, "at": "2026-01-01T00:00:03Z"})
    with velostream.connect(tmp_path / "data") as db:
        wait_until(lambda: rows(db, "SELECT id FROM t") == [(1,), (2,), (3,), (4,)])
    assert web.requests[-1].query["since"] == "2026-01-01T00:00:03Z"


def test_pages_that_have_come_are_not_asked_for_again(db: Database, web: Web, wait_until: WaitUntil):
    """A page that fails is asked for again, and those before it are not."""
    failing = [500, 503, 500]

    def page(request: Request) -> Reply:
        first = int(request.query.get("cursor", 0))
        if first == 4 and failing:
            return Reply(b"", failing.pop())
        rows = [{"id": number} for number in range(first, first + 2)]
        return as_json({"rows": rows, "next": first + 2 if first < 6 else None})

    uri = web.serve("/rows", page)
    db.sql(
        f"CREATE SOURCE s (id BIGINT) FROM {uri} WITH ('changelog' = 'append', 'records' = 'rows', "
        "'page.mode' = 'cursor', 'page.cursor' = 'next', 'poll.interval' = '20ms', "
        "'wait.timeout' = '20s', 'retry.interval' = '20ms')"
    )
    db.sql("CREATE TABLE t AS SELECT id FROM s")
    wait_until(lambda: rows(db, "SELECT id FROM t") == [(number,) for number in range(8)])
    assert not failing
    assert len([request for request in web.asked("/rows") if "cursor" not in request.query]) == 1


def test_events_go_on_after_the_last_one(spark: object, tmp_path: Path, web: Web, wait_until: WaitUntil):
    events = Events()
    uri = web.serve("/events", events.reply)
    with velostream.connect(tmp_path / "data") as db:
        db.sql(f"CREATE SOURCE events (id BIGINT, price DECIMAL(9,2)) FROM {uri} WITH ('format' = 'sse')")
        db.sql("CREATE TABLE t AS SELECT id, price FROM events")
        wait_until(lambda: events.listeners == 1)
        events.send('{"id": 1,\n"price": 1.50}')
        wait_until(lambda: rows(db, "SELECT * FROM t") == [(1, Decimal("1.50"))])
        events.hang_up()
        events.send('{"id": 2, "price": 2.50}')
        wait_until(lambda: len(rows(db, "SELECT * FROM t")) == 2)
    events.send('{"id": 3, "price": 3.50}')
    with velostream.connect(tmp_path / "data") as db:
        wait_until(lambda: rows(db, "SELECT id FROM t") == [(1,), (2,), (3,)])


# --- what is posted to us ----------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def post(uri: str, body: bytes, headers: Mapping[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(uri, body, dict(headers or {}), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, json.load(exc)


def announced(uri: str, length: int) -> int:
    """The answer to a delivery of which only the length was told so far."""
    parts = urlsplit(uri)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(f"POST {parts.path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode())
        with connection.makefile("rb") as answer:
            return int(answer.readline().split()[1])


def test_deliveries_are_verified_and_taken_once(db: Database, monkeypatch: pytest.MonkeyPatch, wait_until):
    monkeypatch.setenv("HOOK_SECRET", CANARY)
    uri = f"http://127.0.0.1:{free_port()}/hooks/orders"
    db.sql(
        f"CREATE SOURCE hooks (id BIGINT, total DECIMAL(9,2)) FROM {uri} WITH ('webhook' = 'true', "
        "'webhook.secret' = '${env:HOOK_SECRET}', 'webhook.hmac' = 'sha256', "
        "'dedupe.id' = 'header:X-Delivery')"
    )
    db.sql("CREATE TABLE t AS SELECT id, total FROM hooks")
    body = b'[{"id": 1, "total": 1.50}, {"id": 2, "total": 2.50}]'
    digest = hmac.new(CANARY.encode(), body, "sha256").digest()
    signed = {"X-Hub-Signature-256": f"sha256={digest.hex()}", "X-Delivery": "d1"}
    wait_until(lambda: post(uri, body, signed)[0] == 200)
    assert post(uri, body, signed) == (200, {"accepted": 0, "duplicates": 2})
    based = {"X-Hub-Signature-256": base64.b64encode(digest).decode(), "X-Delivery": "d1"}
    assert post(uri, body, based)[1]["duplicates"] == 2
    assert post(uri, body + b" ", signed)[0] == 401
    assert post(uri, body, {"X-Delivery": "d2"})[0] == 401
    assert post(uri, body, {"X-Hub-Signature-256": signed["X-Hub-Signature-256"]})[0] == 400
    assert post(uri.replace("orders", "other"), body, signed)[0] == 404
    assert announced(uri, (16 << 20) + 1) == 413
    wait_until(lambda: rows(db, "SELECT * FROM t") == [(1, Decimal("1.50")), (2, Decimal("2.50"))])


def test_a_delivery_that_cannot_be_used_is_a_letter_or_refused(db: Database, wait_until: WaitUntil):
    """What is no JSON is told to its sender; a row that does not fit its columns is kept as a letter.

    Forms are taken too, and JSON that says it is one, as `curl -d` sends it.
    """
    uri = f"http://127.0.0.1:{free_port()}/in"
    db.sql(f"CREATE SOURCE hooks (id BIGINT, x STRING) FROM {uri} WITH ('webhook' = 'true')")
    db.sql("CREATE TABLE t AS SELECT id, x FROM hooks")
    wait_until(lambda: post(uri, b'{"id": 1}')[0] == 200)
    assert post(uri, b'{"id": 1')[0] == 400
    assert post(uri, b'{"id": "seven"}')[0] == 200
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for number, text in enumerate(["1.50", "007", "-0", "-0.0", "a+b%26%22", ""]):
        assert post(uri, f"id={number}&x={text}".encode(), form)[0] == 200
    wait_until(lambda: len(rows(db, "SELECT reason FROM dead_letters")) == 1)
    texts = ["1.50", "007", "-0", "-0.0", 'a b&"', ""]
    wait_until(lambda: rows(db, "SELECT id, x FROM t WHERE x IS NOT NULL") == list(enumerate(texts)))
    assert rows(db, "SELECT id FROM t WHERE x IS NULL") == [(1,)]


def test_two_statements_at_one_address(db: Database, wait_until: WaitUntil):
    port = free_port()
    for name in ("one", "two"):
        db.sql(
            f"CREATE SOURCE in_{name} (id BIGINT) FROM http://127.0.0.1:{port}/{name} "
            "WITH ('webhook' = 'true')"
        )
        db.sql(f"CREATE TABLE {name} AS SELECT id FROM in_{name}")
    with refusal("source.config", f"http://127.0.0.1:{port}/one"):
        db.sql("CREATE TABLE three AS SELECT id FROM in_one")
    wait_until(lambda: post(f"http://127.0.0.1:{port}/one", b'{"id": 1}')[0] == 200)
    wait_until(lambda: post(f"http://127.0.0.1:{port}/two", b'{"id": 2}')[0] == 200)
    wait_until(lambda: (rows(db, "SELECT id FROM one"), rows(db, "SELECT id FROM two")) == ([(1,)], [(2,)]))
    db.sql("DROP TABLE one")
    assert post(f"http://127.0.0.1:{port}/one", b'{"id": 3}')[0] == 404
    assert post(f"http://127.0.0.1:{port}/two", b'{"id": 3}')[0] == 200


# --- what we post ------------------------------------------------------------------------------------------


class Inbox:
    """A server that takes rows, refuses some, and is busy at times."""

    def __init__(self, web: Web) -> None:
        self.taken: dict[str, list[dict[str, Any]]] = {}
        self.busy = 0
        self.uri = web.serve("/in", self._take)

    def _take(self, request: Request) -> Reply:
        if self.busy:
            self.busy -= 1
            return Reply(b"later", 503, {"Retry-After": "0"})
        found = json.loads(request.body)
        if any(row.get("id") == 13 for row in found):
            return as_json({"error": "13 is no id"}, 422)
        self.taken.setdefault(request.headers["idempotency-key"], found)
        return as_json({}, 201)

    def rows(self) -> list[dict[str, Any]]:
        return sorted((row for part in self.taken.values() for row in part), key=lambda row: row["id"])


def test_rows_are_posted_and_what_is_refused_is_a_letter(db: Database, web: Web, wait_until: WaitUntil):
    inbox = Inbox(web)
    inbox.busy = 2
    db.sql("CREATE TABLE orders (id INT PRIMARY KEY, price DECIMAL(9, 2))")
    db.sql("INSERT INTO orders VALUES (1, 1.50), (13, 2.25), (2, 3.10)")
    db.sql(f"INSERT INTO {inbox.uri} SELECT * FROM orders EMIT CHANGES WITH ('batch.size' = '2')")
    wait_until(lambda: [row["id"] for row in inbox.rows()] == [1, 2], 60)
    assert b'"price":3.10' in b"".join(request.body for request in web.asked("/in"))
    wait_until(lambda: len(rows(db, "SELECT reason FROM dead_letters")) == 1)
    [(reason,)] = rows(db, "SELECT reason FROM dead_letters")
    assert "422" in reason
    assert "13 is no id" in reason
    db.sql("INSERT INTO orders VALUES (3, 9.99)")
    wait_until(lambda: [row["id"] for row in inbox.rows()] == [1, 2, 3])


def test_updates_and_deletes_are_posted(db: Database, web: Web, wait_until: WaitUntil):
    got: list[dict[str, Any]] = []
    uri = web.serve("/changes", lambda request: got.extend(json.loads(request.body)) or as_json({}))
    db.sql("CREATE TABLE orders (id INT PRIMARY KEY, price DECIMAL(9, 2))")
    db.sql("INSERT INTO orders VALUES (1, 1.50)")
    db.sql(f"INSERT INTO {uri} SELECT * FROM orders EMIT CHANGES WITH ('deletes' = 'post')")
    wait_until(lambda: got == [{"id": 1, "price": 1.5}])
    db.sql("UPDATE orders SET price = 2.25 WHERE id = 1")
    wait_until(lambda: got[1:] == [{"id": 1, "price": 2.25}])
    db.sql("DELETE FROM orders WHERE id = 1")
    wait_until(lambda: got[2:] == [{"id": 1, "_deleted": True}])


# --- servers that are not there, or say no -----------------------------------------------------------------


def test_a_server_that_goes_away(db: Database, wait_until: WaitUntil):
    with running() as web:
        prices, port = Listing(web), web.port
        prices.rows = [{"id": 1}]
        db.sql(
            f"CREATE TABLE t AS SELECT id FROM {prices.uri} "
            "WITH ('records' = 'data', 'poll.interval' = '50ms')"
        )
        wait_until(lambda: rows(db, "SELECT * FROM t") == [(1,)])
    wait_until(lambda: db.table("t").stats().health == "disconnected")
    assert rows(db, "SELECT * FROM t") == [(1,)]
    with running(port) as web:
        prices = Listing(web)
        prices.rows = [{"id": 1}, {"id": 2}]
        wait_until(lambda: rows(db, "SELECT * FROM t") == [(1,), (2,)], 60)
        wait_until(lambda: db.table("t").stats().health == "healthy")


def test_damaged_answers_in_between_lose_nothing(db: Database, web: Web, wait_until: WaitUntil, rng):
    """A table follows a resource whose answers are damaged more often than not."""
    listed = [{"id": number} for number in range(20)]
    damaged = []

    def reply(_: Request) -> Reply:
        body = json.dumps({"data": listed}).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        kind = rng.choice(["good", "cut", "html", "error", "nothing", "garbage"])
        if "good" not in damaged[-3:]:
            # Each failure doubles nearly the time to the next attempt.
            kind = "good"
        damaged.append(kind)
        if kind == "cut":
            return Reply(
                raw=lambda sock: sock.sendall((head + body)[: rng.randrange(len(head), len(head + body))])
            )
        if kind == "html":
            return Reply(b"<html>maintenance</html>", headers={"Content-Type": "text/html"})
        if kind == "error":
            return Reply(b"", rng.choice([500, 502, 503]), {"Retry-After": "0"})
        if kind == "nothing":
            return Reply(raw=lambda sock: None)
        if kind == "garbage":
            return Reply(b'{"data": [{"id": 1}, ')
        return Reply(body, headers={"Content-Type": "application/json"})

    uri = web.serve("/rows", as_json({"data": listed}))
    db.sql(f"CREATE TABLE t AS SELECT id FROM {uri} WITH ('records' = 'data', 'poll.interval' = '10ms')")
    wait_until(lambda: len(db.table("t")) == 20)
    web.serve("/rows", reply)
    seen = set()
    for _ in range(5):
        listed.append({"id": len(listed)})
        wait_until(lambda: seen.add(len(db.table("t"))) or len(db.table("t")) == len(listed), 120)
    assert min(seen) >= 20
    assert set(damaged) > {"good"}


@pytest.mark.parametrize(
    ("status", "code"), [(401, "source.auth"), (404, "source.missing"), (400, "source.config")]
)
def test_what_is_said_when_nothing_can_be_read(db: Database, web: Web, status: int, code: str):
    uri = web.serve("/rows", Reply(b"no", status))
    with refusal(code, uri, str(status)):
        db.sql(f"CREATE TABLE t AS SELECT * FROM {uri}")


def test_a_resource_that_comes_later(db: Database, web: Web, wait_until: WaitUntil):
    def later(request: Request) -> Reply:
        return as_json([{"id": 1}]) if len(web.asked("/rows")) > 2 else Reply(b"", 404)

    uri = web.serve("/rows", later)
    db.sql(f"CREATE TABLE t AS SELECT id FROM {uri} WITH ('wait.timeout' = '20s', 'retry.interval' = '20ms')")
    wait_until(lambda: rows(db, "SELECT * FROM t") == [(1,)])


def test_secrets_are_nowhere(
    spark: object, tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
):
    """Not in errors, statements that are shown, plans, letters, nor any file of the data directory."""
    monkeypatch.setenv("API_TOKEN", CANARY)
    web.serve("/rows", as_json([{"id": 1}]))
    web.serve("/no", lambda request: Reply(request.headers.get("authorization", "").encode(), 401))
    said = "'auth' = 'bearer ${env:API_TOKEN}', 'headers' = '{\"X-Key\": \"${env:API_TOKEN}\"}'"
    shown = []
    with velostream.connect(tmp_path / "data") as db:
        with pytest.raises(velostream.VelostreamError) as raised:
            db.sql(f"CREATE TABLE no AS SELECT * FROM {web.uri('/no')} WITH ({said})")
        shown.append(repr(raised.value) + str(raised.value))
        db.sql(f"CREATE TABLE t AS SELECT * FROM {web.uri('/rows')} WITH ({said})")
        wait_until(lambda: len(db.table("t")) == 1)
        explain = f"EXPLAIN SELECT * FROM {web.uri('/rows')} WITH ({said})"
        statements = ("SHOW CREATE t", "SHOW JOBS", "DESCRIBE t", "SELECT * FROM dead_letters", explain)
        shown += [str(db.sql(statement).rows()) for statement in statements]
    assert web.asked("/rows")[0].headers["authorization"] == f"Bearer {CANARY}"
    assert web.asked("/rows")[0].headers["x-key"] == CANARY
    assert not [text for text in shown if CANARY in text]
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if CANARY.encode() in path.read_bytes()]


def test_addresses_that_may_not_be_reached(spark: object, tmp_path: Path, web: Web):
    web.serve("/away", Reply(status=302, headers={"Location": "http://127.0.0.2/rows"}))
    web.serve("/rows", as_json([{"id": 1}]))
    hosts = [f"127.0.0.1:{web.port}"]
    with velostream.connect(tmp_path / "data", allowed_hosts=hosts) as db:
        db.sql(f"CREATE TABLE t AS SELECT * FROM {web.uri('/rows')}")
        with refusal("sql.unsafe", "127.0.0.2"):
            db.sql(f"CREATE TABLE u AS SELECT * FROM {web.uri('/away')}")
        with refusal("sql.unsafe", "127.0.0.2"):
            db.sql("CREATE TABLE u AS SELECT * FROM http://127.0.0.2/rows")
        with refusal("sql.unsafe", "127.0.0.2"):
            db.sql("INSERT INTO http://127.0.0.2/rows SELECT * FROM t")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("'page.mode' = 'cursor'", "page.cursor"),
        ("'webhook.secret' = 'x'", "webhook"),
        ("'format' = 'csv', 'changelog' = 'append'", "csv"),
        ("'incremental.column' = 'id'", "changelog"),
        ("'webhook' = 'true', 'page.mode' = 'link'", "page.mode"),
    ],
)
def test_properties_that_do_not_fit_together(said: str, told: str):
    text = f"CREATE TABLE t AS SELECT * FROM http://127.0.0.1:1/rows WITH ({said})"
    checked = check_script(SourceText(text), EmptyCatalog(), default_registry(), environment={})
    [error] = checked.errors
    check_refusal(error, "sql.property", told)


def test_listening_where_others_reach_needs_a_secret_and_tls():
    text = "CREATE TABLE t AS SELECT * FROM http://0.0.0.0:8088/in WITH ('webhook' = 'true')"
    checked = check_script(SourceText(text), EmptyCatalog(), default_registry(), environment={})
    [error] = checked.errors
    check_refusal(error, "sql.property", "webhook.secret")
