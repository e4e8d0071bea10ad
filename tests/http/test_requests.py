"""What is asked of servers, and what is made of answers: also of damaged, huge, slow and hostile ones."""

from __future__ import annotations

import gzip
import json
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from refusals import refusal
from velostream.connectors.http.client.requests import Requests
from velostream.connectors.http.options import HttpOptions
from velostream.connectors.http.read.pages import Pages
from velostream.errors import SourceError, UnsafeError
from velostream.model.reach import Reach
from web_server import Reply, Request, Web, as_json, running

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

ROWS = [{"id": 1, "price": 12.50}, {"id": 2, "price": 3}]
RECORDS = [b'{"id": 1, "price": 12.5}', b'{"id": 2, "price": 3}']


@pytest.fixture
def asked(web: Web) -> Iterator[Callable[..., list[bytes]]]:
    """Every record of the pages at an address; further arguments are properties."""
    opened: list[Requests] = []

    def ask(url: str, reach: Reach | None = None, **properties: Any) -> list[bytes]:
        named = {name.replace("_", "."): value for name, value in properties.items()}
        options = HttpOptions.model_validate({"url": url, "request.timeout": "2s", **named})
        opened.append(Requests(options, reach or Reach()))
        return [record for page in Pages(opened[-1], options).each() for record in page.records]

    yield ask
    for each in opened:
        each.close()


def raw(text: bytes, *, slowly: float = 0.0) -> Reply:
    """An answer, bytes and all, after which the connection ends."""

    def write(connection: socket.socket) -> None:
        try:
            if not slowly:
                connection.sendall(text)
                return
            for place in range(len(text)):
                connection.sendall(text[place : place + 1])
                time.sleep(slowly)
        except OSError:
            pass

    return Reply(raw=write)


def test_digits_stay_as_they_are_written(web: Web, asked: Callable[..., list[bytes]]) -> None:
    text = b'{"data": {"rows": [\n {"price": 12.500, "n": 9007199254740993}, {"price": 1E2}]}, "next": null}'
    web.serve("/rows", Reply(text))
    assert asked(web.uri("/rows"), records="data.rows") == [
        b'{"price": 12.500, "n": 9007199254740993}',
        b'{"price": 1E2}',
    ]


def test_lines_and_packed_answers(web: Web, asked: Callable[..., list[bytes]]) -> None:
    lines = b"".join(record + b"\n" for record in RECORDS)
    web.serve("/lines", Reply(lines, headers={"Content-Type": "application/x-ndjson"}))
    web.serve("/packed", Reply(gzip.compress(lines), headers={"Content-Encoding": "gzip"}))
    assert asked(web.uri("/lines")) == RECORDS
    assert asked(web.uri("/packed"), format="jsonl") == RECORDS
    assert web.asked("/packed")[0].headers["accept-encoding"] == "gzip"


def test_pages_by_link_cursor_and_number(web: Web, asked: Callable[..., list[bytes]]) -> None:
    rows = [{"id": number} for number in range(5)]
    wanted = [json.dumps(row).encode() for row in rows]

    def by_link(request: Request) -> Reply:
        first = int(request.query.get("from", 0))
        link = f'<{web.uri("/link")}?from=0>; rel="first", </link?from={first + 2}>; title="a, b"; rel=next'
        return as_json(rows[first : first + 2], **({"Link": link} if first + 2 < len(rows) else {}))

    def by_cursor(request: Request) -> Reply:
        first = int(request.query.get("after", 0))
        more = first + 2 < len(rows)
        return as_json({"rows": rows[first : first + 2], "page": {"next": first + 2 if more else None}})

    def by_number(request: Request) -> Reply:
        first, size = int(request.query["p"]) * 2, int(request.query["size"])
        return as_json(rows[first : first + size])

    web.serve("/link", by_link)
    web.serve("/cursor", by_cursor)
    web.serve("/number", by_number)
    assert asked(web.uri("/link"), page_mode="link") == wanted
    cursor = {"page.mode": "cursor", "page.cursor": "page.next", "page.parameter": "after"}
    assert asked(web.uri("/cursor?x=1"), records="rows", **cursor) == wanted
    assert {request.query["x"] for request in web.asked("/cursor")} == {"1"}
    number = {"page.mode": "number", "page.parameter": "p", "page.start": "0"}
    assert asked(web.uri("/number"), **number, page_size="2", page_size_parameter="size") == wanted


def test_pages_that_never_end(web: Web, asked: Callable[..., list[bytes]]) -> None:
    web.serve("/circle", as_json(ROWS, Link='</circle>; rel="next"'))
    web.serve("/on", lambda request: as_json({"r": [1], "next": int(request.query.get("cursor", 0)) + 1}))
    web.serve("/away", as_json(ROWS, Link='<http://example.org/>; rel="next"'))
    with refusal("source.network", why="circle"):
        asked(web.uri("/circle"), page_mode="link")
    with refusal("source.config", "page.limit"):
        asked(
            web.uri("/on"), records="r", **{"page.mode": "cursor", "page.cursor": "next", "page.limit": "20"}
        )
    assert len(web.asked("/on")) == 20
    with refusal("sql.unsafe", "example.org"):
        asked(web.uri("/away"), page_mode="link")


def test_redirects(web: Web, asked: Callable[..., list[bytes]]) -> None:
    secret = {"auth": "bearer canary-of-auth", "headers": '{"X-Api-Key": "canary-of-headers"}'}
    with running() as other:
        other.serve("/rows", as_json(ROWS))
        web.serve("/there", Reply(status=302, headers={"Location": "/rows"}))
        web.serve("/rows", as_json(ROWS))
        web.serve("/other", Reply(status=307, headers={"Location": other.uri("/rows")}))
        web.serve("/scheme", Reply(status=301, headers={"Location": "https://127.0.0.1/rows"}))
        web.serve("/file", Reply(status=301, headers={"Location": "file:///etc/passwd"}))
        web.serve("/round", Reply(status=302, headers={"Location": "/round"}))
        assert asked(web.uri("/there"), **secret) == RECORDS
        assert web.asked("/rows")[0].headers["authorization"] == "Bearer canary-of-auth"
        assert asked(web.uri("/other"), **secret) == RECORDS
        assert not [value for value in other.asked("/rows")[0].headers.values() if "canary" in value]
        for path in ("/scheme", "/file"):
            with refusal("sql.unsafe"):
                asked(web.uri(path))
        with refusal("source.config", why="leads on"):
            asked(web.uri("/round"))
        only_here = Reach(hosts=(f"127.0.0.1:{web.port}",))
        assert asked(web.uri("/there"), only_here) == RECORDS
        with refusal("sql.unsafe", f"127.0.0.1:{other.port}"):
            asked(web.uri("/other"), only_here)
        assert len(other.asked("/rows")) == 1


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.8", "169.254.169.254", "::1", "::ffff:192.168.1.1", "0.0.0.0", "fd00::1"]
)
def test_a_name_that_leads_to_a_private_address(address: str) -> None:
    Reach().check_resolved("api.example.org", 80, address)
    Reach(hosts=("*.example.org", address, f"{address}:80")).check_resolved(
        "api.example.org", 80, "93.184.215.14"
    )
    with refusal("sql.unsafe", "api.example.org", address.rpartition("ffff:")[2]):
        Reach(hosts=("*.example.org",)).check_resolved("api.example.org", 80, address)


def test_a_name_of_this_machine_is_private_too(web: Web, asked: Callable[..., list[bytes]]) -> None:
    """By the resolver, not by the text: any name may lead here."""
    web.serve("/rows", as_json(ROWS))
    name = next((name for name in ("ip6-localhost", socket.gethostname()) if _leads_here(name)), None)
    if name is None:
        pytest.skip("this machine has no other name for itself")
    with pytest.raises(UnsafeError):
        asked(f"http://{name}:{web.port}/rows", Reach(hosts=(name,)))


def _leads_here(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, 80))
    except OSError:
        return False


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "source.config"),
        (401, "source.auth"),
        (403, "source.auth"),
        (404, "source.missing"),
        (410, "source.missing"),
        (422, "source.config"),
        (429, "source.network"),
        (500, "source.network"),
        (503, "source.network"),
    ],
)
def test_refusals_fall_into_categories(
    web: Web, asked: Callable[..., list[bytes]], status: int, code: str
) -> None:
    web.serve("/rows", Reply(b'{"error": "no such luck"}', status, {"Retry-After": "7"}))
    with refusal(code, str(status)) as raised:
        asked(web.uri("/rows"), auth="bearer canary-of-auth")
    assert raised.value.retry_after == (7 if code == "source.network" else None)
    assert "canary" not in str(raised.value)


def test_requests_are_paced(web: Web, asked: Callable[..., list[bytes]]) -> None:
    web.serve("/rows", lambda request: as_json([1] if int(request.query["page"]) < 5 else []))
    began = time.monotonic()
    asked(web.uri("/rows"), page_mode="number", rate_limit="20")
    assert time.monotonic() - began >= 4 / 20


def test_a_slow_answer_is_given_up(web: Web, asked: Callable[..., list[bytes]]) -> None:
    text = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b" " * 1000
    web.serve("/rows", raw(text, slowly=0.05))
    began = time.monotonic()
    with refusal("source.network", why="too long"):
        asked(web.uri("/rows"), request_timeout="500ms")
    assert time.monotonic() - began < 5


def test_a_huge_answer_is_given_up(web: Web, asked: Callable[..., list[bytes]]) -> None:
    bomb = gzip.compress(b" " * (64 << 20))
    web.serve("/bomb", Reply(bomb, headers={"Content-Encoding": "gzip"}))
    web.serve("/long", Reply(b" " * 2_000_000))
    for path in ("/bomb", "/long"):
        with refusal("source.network", "response.limit"):
            asked(web.uri(path), response_limit="1000000")


def test_damaged_answers_are_errors_or_whole(
    web: Web, asked: Callable[..., list[bytes]], rng: random.Random
) -> None:
    """A thousand answers, truncated, of the wrong length or type, or with bytes that changed."""
    texts = iter([damaged(rng) for _ in range(1000)])
    said: list[tuple[bytes, bool]] = []

    def reply(request: Request) -> Reply:
        text, whole = next(texts)
        said.append((text, whole))
        return raw(text)

    web.serve("/rows", reply)
    read = refused = 0
    for _ in range(1000):
        found: list[bytes] | None = None
        with suppress(SourceError):
            found = asked(web.uri("/rows"), records="rows", response_limit="100000")
        # Whoever reads it has all of it: nothing is lost by an answer that ended too soon.
        assert found == RECORDS or not said[-1][1], said[-1]
        read += found is not None
        refused += found is None
    assert read > 100
    assert refused > 300


def damaged(rng: random.Random) -> tuple[bytes, bool]:
    """An answer, and whether it is a good one."""
    body = b'{"rows": [' + b", ".join(RECORDS) + b"]}"
    kind = rng.choice(
        ["good", "chunked", "cut", "short", "long", "packed", "type", "bytes", "status", "none"]
    )
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    length = b"Content-Length: %d\r\n\r\n"
    if kind == "good":
        return head + length % len(body) + body, True
    if kind == "chunked":
        place = rng.randrange(1, len(body))
        parts = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:place], body[place:]))
        whole = rng.random() < 0.5
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + parts + (b"0\r\n\r\n" if whole else b""), whole
    if kind == "cut":
        text = head + length % len(body) + body
        return text[: rng.randrange(len(text))], False
    if kind == "short":
        return head + length % rng.randrange(len(body)) + body, False
    if kind == "long":
        return head + length % (len(body) + rng.randrange(1, 100)) + body, False
    if kind == "packed":
        packed = gzip.compress(body)
        if rng.random() < 0.5:
            packed = packed[: rng.randrange(len(packed))]
        else:
            packed = rng.randbytes(rng.randrange(1, 60))
        return head + b"Content-Encoding: gzip\r\n" + length % len(packed) + packed, False
    if kind == "type":
        other = rng.choice([b"text/html", b"text/csv", b"image/png"])
        return b"HTTP/1.1 200 OK\r\nContent-Type: " + other + b"\r\n" + length % len(body) + body, False
    if kind == "bytes":
        text = bytearray(head + length % len(body) + body)
        for _ in range(rng.randrange(1, 6)):
            text[rng.randrange(len(text))] = rng.randrange(256)
        return bytes(text), False
    if kind == "status":
        return b"HTTP/1.1 %d Said\r\n" % rng.randrange(300, 600) + length % len(body) + body, False
    return rng.randbytes(rng.randrange(40)), False
