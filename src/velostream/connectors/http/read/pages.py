"""The pages of a resource, by a link in the header, a cursor in the answer, or a number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from velostream.connectors.http.client.addresses import header_text, leads_to, origin
from velostream.connectors.http.client.failures import refused, unusable
from velostream.connectors.http.read.bodies import Path, UnfitError, field, json_records
from velostream.errors import SourceConfigError, UnsafeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from velostream.connectors.http.client.answers import Answer
    from velostream.connectors.http.client.requests import Requests
    from velostream.connectors.http.options import HttpOptions

NOT_MODIFIED = 304
_NO_CONTENT = 204
_TABLES = {
    "text/csv": "csv",
    "application/csv": "csv",
    "text/tab-separated-values": "tsv",
    "application/vnd.apache.parquet": "parquet",
}
"""Media types of answers that are read otherwise than JSON is."""
_LINK = re.compile(r"<([^>]*)>((?:\s*;\s*[^;,\"]+(?:\"[^\"]*\")?)*)")
_NEXT = re.compile(r";\s*rel\s*=\s*\"?(?:[^\";]*\s)?next(?:\s[^\";]*)?\"?\s*(?:;|$)", re.IGNORECASE)


@dataclass(frozen=True)
class Page:
    """One page."""

    answer: Answer
    records: Sequence[bytes]
    """Its rows as JSON; none where the content is taken as it is."""
    cursor: Any = None
    """What leads to the next page; None at the last."""
    asked: Any = None
    """What led to this one; None for the first."""


class Pages:
    """Asks for the pages of one resource."""

    def __init__(self, requests: Requests, options: HttpOptions, *, raw: bool = False) -> None:
        self._requests = requests
        self._options = options
        self._url = options.url or ""
        self._records = Path.of(options.records)
        self._raw = raw
        """Whether the content is taken as it is: it is not JSON."""

    def each(
        self,
        *,
        cursor: Any = None,
        parameters: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[Page]:
        """The pages from a cursor on; `headers` go with the first request, which may be "not modified"."""
        options, mode = self._options, self._options.page_mode
        if mode == "number" and cursor is None:
            cursor = options.page_start
        url: str | None = self._next(self._url, cursor, parameters or {})
        asked: set[str] = set()
        first = True
        while url is not None:
            if len(asked) >= options.page_limit:
                raise SourceConfigError(
                    f'{self._url} has more than {options.page_limit:,} pages ("page.limit")',
                    hint='ask for larger pages with "page.size.parameter", or raise "page.limit"',
                )
            if url in asked:
                raise unusable(self._url, f"its pages lead in a circle, to {url} again")
            asked.add(url)
            page = self._page(url, cursor, (headers or {}) if first else {})
            first = False
            yield page
            cursor = page.cursor
            url = self._next(url, cursor, parameters or {}) if cursor is not None else None

    def _page(self, url: str, cursor: Any, headers: Mapping[str, str]) -> Page:
        options = self._options
        body = options.body.encode() if options.body is not None else None
        if body is not None:
            headers = {"Content-Type": "application/json", **headers}
        answer = self._requests.send(url, method=options.method, body=body, headers=headers)
        if answer.status == NOT_MODIFIED and headers:
            return Page(answer, ())
        if not answer.ok:
            raise refused(url, answer)
        if answer.status == _NO_CONTENT:
            return Page(answer, (), asked=cursor)
        if answer.kind == "text/html":
            raise unusable(url, "it is a web page (text/html)")
        if answer.kind in _TABLES and not self._raw:
            form = _TABLES[answer.kind]
            raise SourceConfigError(
                f"{url} is not JSON but {answer.kind}", hint=f'say it: WITH ("format" = "{form}")'
            )
        try:
            lines = options.format == "jsonl"
            records = (
                [] if self._raw else json_records(answer.content, answer.kind, self._records, lines=lines)
            )
        except UnfitError as exc:
            raise unusable(url, str(exc)) from exc
        return Page(answer, records, self._cursor_after(answer, records, cursor), cursor)

    def _cursor_after(self, answer: Answer, records: Sequence[bytes], cursor: Any) -> Any:
        mode = self._options.page_mode
        if mode == "link":
            return next(
                (
                    target
                    for header in answer.headers.get_all("Link", [])
                    for target, rest in _LINK.findall(header_text(header))
                    if _NEXT.search(rest)
                ),
                None,
            )
        if mode == "cursor":
            found = field(answer.content, Path.of(self._options.page_cursor))
            return found if isinstance(found, str | int) and found not in ("", False) else None
        if mode == "number":
            size = self._options.page_size
            more = len(records) >= size if size is not None else bool(records)
            return cursor + 1 if more else None
        return None

    def _next(self, url: str, cursor: Any, parameters: Mapping[str, str]) -> str:
        """The address of the page that a cursor leads to."""
        link = cursor is not None and self._options.page_mode == "link"
        if link or (isinstance(cursor, str) and cursor.startswith(("http://", "https://", "/", "?"))):
            try:
                target = leads_to(url, str(cursor))
            except ValueError as exc:
                raise unusable(url, f'its next page is "{cursor}", which is no address: {exc}') from exc
            if urlsplit(target).scheme != urlsplit(url).scheme or origin(target) != origin(self._url):
                raise UnsafeError(
                    f"the next page of {self._url} is said to be {target}, on another server",
                    hint="pages are read from the server that the statement names",
                )
            return target
        return self._address(cursor, parameters)

    def _address(self, cursor: Any, parameters: Mapping[str, str]) -> str:
        options, mode = self._options, self._options.page_mode
        added = dict(parameters)
        if options.page_size is not None and options.page_size_parameter is not None:
            added[options.page_size_parameter] = str(options.page_size)
        if cursor is not None and mode in ("cursor", "number"):
            added[options.page_parameter or ("cursor" if mode == "cursor" else "page")] = str(cursor)
        return with_parameters(self._url, added)


def with_parameters(url: str, parameters: Mapping[str, str]) -> str:
    """An address with these parameters, in place of those of the same names."""
    if not parameters:
        return url
    parts = urlsplit(url)
    kept = [
        (name, value)
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
        if name not in parameters
    ]
    return urlunsplit(parts._replace(query=urlencode([*kept, *parameters.items()]), fragment=""))
