"""Rows that are posted to us: verified, made durable, and only then acknowledged."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import threading
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import orjson
import pyarrow as pa

from velostream.connectors.databases.source import Described, Reader
from velostream.connectors.http.read.bodies import Path, UnfitError, json_records
from velostream.connectors.http.read.bodies import field as value_of
from velostream.connectors.http.read.listener import Listener, RefusedError
from velostream.connectors.http.read.received import SCHEMA, Received

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from email.message import Message

    from velostream.connectors.databases.change_log import ChangeLog
    from velostream.connectors.http.options import HttpOptions

_PATIENCE = 20.0
"""Seconds that a sender waits for its rows to become durable, before it is asked to send them again."""
_MOST_DELIVERED = 16 << 20
"""Bytes. Many deliveries may be in memory at the same time, also of senders who turn out not to be ours."""
_OF_DELIVERY = "header:"
_FORM = "application/x-www-form-urlencoded"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?", re.ASCII)


@dataclass
class _Delivery:
    records: Sequence[bytes]
    ids: Sequence[str | None]
    new: int = 0
    failed: bool = False
    done: threading.Event = field(default_factory=threading.Event)


class Webhook(Reader):
    """See `Reader`: threads of the listener hand deliveries over, and wait until they are in the log."""

    def __init__(self, options: HttpOptions, schema: pa.Schema | None) -> None:
        self.name = options.url or ""
        # As far as they are known; fields of a form with these names stay text, whatever they look like.
        self._texts = {one.name for one in schema or () if pa.types.is_string(one.type)}
        self.limit = min(options.response_limit, _MOST_DELIVERED)
        self._options = options
        self._records = Path.of(options.records)
        named = options.dedupe_id or ""
        self._id_header = named.removeprefix(_OF_DELIVERY) if named.startswith(_OF_DELIVERY) else None
        self._id = Path.of(None if self._id_header is not None else options.dedupe_id)
        self._news = threading.Condition()
        self._pending: list[_Delivery] = []
        self._open: tuple[Listener, str] | None = None
        self._stopped = False

    # --- the thread of the source -------------------------------------------------------------------------

    def describe(self) -> Described:
        """See `Reader`: records, undecoded."""
        return Described(SCHEMA, ())

    def begin(self) -> None:
        """See `Reader`."""
        self._open = Listener.add(self._options, self)

    def load(self, changes: ChangeLog, after: int, stop: threading.Event) -> None:
        """See `Reader`: nothing was posted before we listened."""
        Received.begin(changes, after, {})

    def follow(self, changes: ChangeLog, stop: threading.Event) -> None:
        """See `Reader`: what arrives together is made durable together."""
        received = Received(changes)
        while True:
            with self._news:
                self._news.wait_for(lambda: self._pending or self._stopped)
                together, self._pending = self._pending, []
                if self._stopped and not together:
                    return
            self._store(received, together)

    def _store(self, received: Received, together: Sequence[_Delivery]) -> None:
        records = [record for delivery in together for record in delivery.records]
        ids = [one for delivery in together for one in delivery.ids]
        try:
            new = iter(received.take(records, ids, {}))
            for delivery in together:
                delivery.new = sum(islice(new, len(delivery.records)))
        except BaseException:
            for delivery in together:
                delivery.failed = True
            raise
        finally:
            for delivery in together:
                delivery.done.set()

    def interrupt(self) -> None:
        """See `Reader`."""
        with self._news:
            self._stopped = True
            self._news.notify_all()

    def close(self) -> None:
        """See `Reader`."""
        self.interrupt()
        if self._open is not None:
            listener, path = self._open
            self._open = None
            listener.remove(path)

    # --- threads of the listener --------------------------------------------------------------------------

    def admit(self, headers: Message) -> None:
        """See `Hook`."""
        options = self._options
        if options.webhook_secret is None or options.webhook_hmac != "none":
            return
        given = headers.get(options.webhook_secret_header) or ""
        bearer = (headers.get("Authorization") or "").removeprefix("Bearer ")
        secret = options.webhook_secret.encode()
        if not any(hmac.compare_digest(each.encode(errors="replace"), secret) for each in (given, bearer)):
            raise RefusedError(401, f"the secret is missing or wrong ({options.webhook_secret_header})")

    def deliver(self, headers: Message, content: bytes) -> dict[str, int]:
        """See `Hook`."""
        self._verify(headers, content)
        records = self._records_of(headers, content)
        delivery = _Delivery(records, self._ids(headers, records))
        with self._news:
            if self._stopped:
                raise RefusedError(503, "the statement is stopping", pause=5)
            self._pending.append(delivery)
            self._news.notify()
        if not delivery.done.wait(_PATIENCE) or delivery.failed:
            raise RefusedError(503, "it could not be stored yet", pause=5)
        return {"accepted": delivery.new, "duplicates": len(records) - delivery.new}

    def _verify(self, headers: Message, content: bytes) -> None:
        options = self._options
        if options.webhook_secret is None or options.webhook_hmac == "none":
            return
        secret = options.webhook_secret.encode()
        digest = hmac.new(secret, content, getattr(hashlib, options.webhook_hmac)).digest()
        given = (headers.get(options.webhook_hmac_header) or "").strip()
        given = given.removeprefix(f"{options.webhook_hmac}=")
        forms = (digest.hex(), base64.b64encode(digest).decode())
        if not any(hmac.compare_digest(given.encode(errors="replace"), form.encode()) for form in forms):
            raise RefusedError(401, f"the signature is missing or wrong ({options.webhook_hmac_header})")

    def _records_of(self, headers: Message, content: bytes) -> list[bytes]:
        if not content.strip():
            # Senders try so whether we are there.
            return []
        kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        # `curl -d` calls everything a form that nobody gave a type; in a form these would be encoded.
        if kind == _FORM and not content.lstrip().startswith((b"{", b"[")):
            try:
                fields = parse_qsl(content.decode(), keep_blank_values=True, strict_parsing=True)
                return [_form(fields, self._texts)]
            except ValueError as exc:
                raise RefusedError(400, f"it is no form: {exc}") from exc
        try:
            lines = self._options.format == "jsonl"
            return json_records(content, kind, self._records, lines=lines)
        except UnfitError as exc:
            raise RefusedError(400, str(exc)) from exc

    def _ids(self, headers: Message, records: Sequence[bytes]) -> list[str | None]:
        if self._id_header is not None:
            given = headers.get(self._id_header)
            if not given:
                raise RefusedError(400, f'the delivery has no header "{self._id_header}"')
            return [f"{given}#{number}" for number in range(len(records))]
        if not self._id.names:
            return [None] * len(records)
        found = [value_of(record, self._id) for record in records]
        if any(one is None for one in found):
            raise RefusedError(
                400, f'a row has no "{self._id}", by which it is recognised when it comes again'
            )
        return [str(one) for one in found]


def _form(fields: Iterable[tuple[str, str]], texts: Collection[str]) -> bytes:
    """The fields of a form, in which everything is text, as a record: what looks like a number is one."""
    values = {
        orjson.dumps(name): (
            value.encode() if name not in texts and _NUMBER.fullmatch(value) else orjson.dumps(value)
        )
        for name, value in fields
    }
    return b"{" + b",".join(name + b":" + value for name, value in values.items()) + b"}"
