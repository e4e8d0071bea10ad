"""What is asked of servers, and what is made of answers: also of damaged, huge, slow and hostile ones."""

from __future__ import annotations

import base64
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
SLOW = b" " * 200
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
        with refusal("source.config", why="redirects more"):
            asked(web.uri("/round"))
        only_here = Reach(hosts=(f"127.0.0.1:{web.port}",))
        assert asked(web.uri("/there"), only_here) == RECORDS
        with refusal("sql.unsafe", f"127.0.0.1:{other.port}"):
            asked(web.uri("/other"), only_here)
        assert len(other.asked("/rows")) == 1


@pytest.mark.parametrize(
    "target", ["http://[bad/x", "http://127.0.0.1:99999/", "http://a:port/", "http://:80/"]
)
def test_what_leads_nowhere(web: Web, asked: Callable[..., list[bytes]], target: str) -> None:
    """A server says what it likes: an address that is none is its error, and may be better next time."""
    web.serve("/there", Reply(status=302, headers={"Location": target}))
    web.serve("/link", as_json([1], Link=f'<{target}>; rel="next"'))
    web.serve("/cursor", as_json({"r": [1], "next": target}))
    with refusal("source.network", target):
        asked(web.uri("/there"))
    for path, mode in (
        ("/link", {"page.mode": "link"}),
        ("/cursor", {"page.mode": "cursor", "page.cursor": "next"}),
    ):
        with refusal("source.network", target):
            asked(web.uri(path), **mode, **({"records": "r"} if path == "/cursor" else {}))


def test_addresses_with_letters_that_requests_do_not_have(
    web: Web, asked: Callable[..., list[bytes]]
) -> None:
    web.serve("/st%C3%A4dte", as_json(ROWS))
    web.serve("/a%20b", as_json(ROWS))
    web.serve("/there", raw(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: /st\xc3\xa4dte\r\n\r\n"))
    web.serve("/spaced", Reply(status=302, headers={"Location": "/a b"}))
    for path in ("/städte", "/st%C3%A4dte?q=ü", "/there", "/spaced"):
        assert asked(web.uri(path)) == RECORDS
    assert [dict(request.query) for request in web.asked("/st%C3%A4dte")][1] == {"q": "ü"}


def test_a_user_in_the_address(web: Web, asked: Callable[..., list[bytes]]) -> None:
    web.serve("/rows", as_json(ROWS))
    web.serve(
        "/link",
        lambda request: as_json(
            ROWS, **({} if request.query else {"Link": f"<{web.uri('/link')}?p=2>; rel=next"})
        ),
    )
    own = f"http://ann:p%40ss@127.0.0.1:{web.port}"
    assert asked(f"{own}/rows") == RECORDS
    assert asked(f"{own}/link", page_mode="link") == [*RECORDS, *RECORDS]
    told = {request.headers["authorization"] for request in web.requests}
    assert told == {"Basic " + base64.b64encode(b"ann:p@ss").decode()}


@pytest.mark.parametrize(
    "said",
    [
        {"headers": '{"X-A": "€"}'},
        {"headers": '{"X A": "b"}'},
        {"headers": '{"X:A": "b"}'},
        {"headers": '{"X-A": "a\\nb"}'},
        {"headers": '["X-A"]'},
        {"auth": "bearer €"},
        {"auth": "digest x"},
    ],
)
def test_headers_that_cannot_be_sent(
    web: Web, asked: Callable[..., list[bytes]], said: dict[str, str]
) -> None:
    with refusal("source.config"):
        asked(web.uri("/rows"), **said)
    assert not web.requests


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
        (304, "source.network"),
        (302, "source.network"),
        (600, "source.network"),
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


@pytest.mark.parametrize(
    "head",
    [b"", b"X-Slow: header\r\n" * 20, b"HTTP/1.1 100 Continue\r\n\r\n" * 20],
    ids=["body", "header", "continue"],
)
def test_a_slow_answer_is_given_up(web: Web, asked: Callable[..., list[bytes]], head: bytes) -> None:
    """The time is for the whole answer, however steadily its bytes come."""
    status = b"HTTP/1.1 200 OK\r\n"
    begin = head + status if head.startswith(b"HTTP") else status + head
    web.serve("/rows", raw(begin + b"Content-Length: 1000\r\n\r\n" + b" " * 1000, slowly=0.02))
    began = time.monotonic()
    with refusal("source.network", why="too long"):
        asked(web.uri("/rows"), request_timeout="300ms")
    assert time.monotonic() - began < 2


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
    """A thousand answers: truncated, of the wrong length or type, huge, slow, or with bytes that changed."""
    texts = iter([damaged(rng) for _ in range(1000)])
    said: list[tuple[bytes, bool]] = []

    def reply(request: Request) -> Reply:
        text, whole = next(texts)
        said.append((text, whole))
        # Some are slow, too: good ones whose last bytes keep everybody waiting.
        return raw(text, slowly=0.005 if not whole and text.endswith(SLOW) else 0.0)

    web.serve("/rows", reply)
    read = refused = 0
    for _ in range(1000):
        found: list[bytes] | None = None
        with suppress(SourceError):
            found = asked(web.uri("/rows"), records="rows", response_limit="100000", request_timeout="250ms")
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
        [
            "good",
            "chunked",
            "cut",
            "short",
            "long",
            "packed",
            "type",
            "bytes",
            "status",
            "none",
            "huge",
            "leads",
        ]
    )
    if rng.random() < 0.02:
        kind = "slow"
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
    if kind == "slow":
        return head + length % (len(body) + len(SLOW)) + body + SLOW, False
    if kind == "huge":
        told = rng.choice([200_000, 1 << 40, 1 << 70])
        return head + length % told + body + b" " * (200_000 - len(body)), False
    if kind == "leads":
        return b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://" + rng.randbytes(
            8
        ).hex().encode() + rng.choice([b"[", b":x", b":99999", b" "]) + b"\r\n\r\n", False
    if kind == "status":
        return b"HTTP/1.1 %d Said\r\n" % rng.randrange(300, 600) + length % len(body) + body, False
    return rng.randbytes(rng.randrange(40)), False
