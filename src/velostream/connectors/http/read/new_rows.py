"""A resource each of whose answers has new rows."""

from __future__ import annotations

import hashlib
import time
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from velostream.connectors.databases.source import Described, Reader
from velostream.connectors.http.client.failures import unusable
from velostream.connectors.http.read.bodies import Path, field
from velostream.connectors.http.read.pages import NOT_MODIFIED, Pages
from velostream.connectors.http.read.received import SCHEMA, Received
from velostream.connectors.http.read.validators import validators_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from velostream.connectors.databases.change_log import ChangeLog
    from velostream.connectors.http.client.requests import Requests
    from velostream.connectors.http.options import HttpOptions


class Answers(Reader):
    """See `Reader`. It goes on with the page that was the last, and passes over what it had then.

    The position in the log has the validators of the last answer, the cursor of the last page and how many of
    its rows were taken, and the last value of `incremental.column`.
    """

    def __init__(self, options: HttpOptions, requests: Requests) -> None:
        self.name = options.url or ""
        self._options = options
        self._requests = requests
        self._pages = Pages(requests, options)
        self._id = Path.of(options.dedupe_id)
        self._grows = Path.of(options.incremental_column)
        self._answered = False

    def describe(self) -> Described:
        """See `Reader`: records, undecoded."""
        return Described(SCHEMA, ())

    def load(self, changes: ChangeLog, after: int, stop: threading.Event) -> None:
        """See `Reader`: what the first answer has."""
        Received.begin(changes, after, {})
        self._ask(Received(changes), changes)

    def follow(self, changes: ChangeLog, stop: threading.Event) -> None:
        """See `Reader`."""
        received = Received(changes)
        every = self._options.poll_interval.total_seconds()
        asked_at = time.monotonic() if self._answered else float("-inf")
        while not stop.wait(asked_at + every - time.monotonic()):
            asked_at = time.monotonic()
            self._ask(received, changes)

    def caught_up(self, changes: ChangeLog) -> bool:
        """See `Reader`: once it was asked, since this start."""
        return self._answered

    def interrupt(self) -> None:
        """See `Reader`."""
        self._requests.close()

    def close(self) -> None:
        """See `Reader`."""
        self._requests.close()

    def _ask(self, received: Received, changes: ChangeLog) -> None:
        before: dict[str, Any] = dict(changes.position or {})
        last = before.get("last")
        named = self._options.incremental_parameter
        parameters = {named: str(last)} if named is not None and last is not None else {}
        paged = self._options.page_mode != "none"
        records: list[bytes] = []
        after = dict(before)
        pages = self._pages.each(
            cursor=before.get("cursor") if not parameters else None,
            parameters=parameters,
            headers={} if paged else before.get("validators", {}),
        )
        for number, page in enumerate(pages):
            if page.answer.status == NOT_MODIFIED:
                break
            passed = before.get("taken", 0) if paged and not number and not parameters else 0
            if len(page.records) < passed:
                raise unusable(page.answer.url, f"it has {len(page.records)} rows, and had {passed} before")
            records += page.records[passed:]
            if paged:
                after |= {"cursor": page.asked, "taken": len(page.records)}
            else:
                after["validators"] = validators_of(page.answer)
            if not self._grows.names:
                # Page by page: what has come is not asked for again when a later page fails.
                self._take(received, records, after)
                records = []
        if self._grows.names:
            # Pages may be in any order, so the last value stands only once all of them are here.
            records, grown = self._newer(records, before)
            self._take(received, records, after | grown)
        self._answered = True

    def _take(self, received: Received, records: Sequence[bytes], position: dict[str, Any]) -> None:
        received.take(records, [self._id_of(record) for record in records], position)

    def _id_of(self, record: bytes) -> str | None:
        if not self._id.names:
            return None
        found = field(record, self._id)
        return None if found is None else str(found)

    def _newer(self, records: Sequence[bytes], before: dict[str, Any]) -> tuple[list[bytes], dict[str, Any]]:
        """The rows beyond the last value that was read, and the new last value.

        Rows that share the last value are compared by their content, so that none is read twice.
        """
        if not self._grows.names:
            return list(records), {}
        last, taken = before.get("last"), set(before.get("ties", ()))
        newest, kept = last, []
        found = [(record, field(record, self._grows)) for record in records]
        for record, value in found:
            order = 1 if last is None or value is None else _compare(value, last)
            if order > 0 or (order == 0 and _digest(record) not in taken):
                kept.append(record)
            if value is not None and (newest is None or _compare(value, newest) > 0):
                newest = value
        if newest is None:
            return kept, {}
        same = {
            _digest(record) for record, value in found if value is not None and not _compare(value, newest)
        }
        ties = same | taken if last is not None and not _compare(newest, last) else same
        return kept, {"last": str(newest), "ties": sorted(ties)}


def _compare(one: Any, other: Any) -> int:
    """The order of two values: of numbers as numbers, of all else as text."""
    try:
        left, right = Decimal(str(one)), Decimal(str(other))
    except InvalidOperation:
        left, right = str(one), str(other)  # type: ignore[assignment]
    return (left > right) - (left < right)


def _digest(record: bytes) -> str:
    return hashlib.blake2b(record, digest_size=8).hexdigest()
