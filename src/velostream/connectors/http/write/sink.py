"""Rows as requests: some at a time, each request with a key by which the server recognises it."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.base import Delivery, Sink
from velostream.connectors.http.client.failures import final, refused
from velostream.connectors.http.client.requests import Requests
from velostream.connectors.sinks import as_sink_errors
from velostream.disk.full_disk import storing
from velostream.disk.sealed_json import replace_file
from velostream.errors import CorruptDataError, SinkConfigError, SinkNetworkError
from velostream.formats.json.writer import json_bytes
from velostream.formats.row_bytes import packed
from velostream.model.changes import BadRow
from velostream.model.columns import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from velostream.connectors.base import SinkContext
    from velostream.connectors.http.client.answers import Answer
    from velostream.connectors.http.options import HttpOptions
    from velostream.connectors.waiting import Waiting

KEY_HEADER = "Idempotency-Key"
DELETED = "_deleted"
_PENDING = "pending.arrow"
_WRITABLE = ("json", "jsonl")


class HttpSink(Sink):
    """Sends each step as requests of some rows.

    What a step sends is kept until it is recorded. After a crash all of it is sent again, cut in the same way
    and with the same keys, so that a server which honours them takes every row exactly once.
    """

    delivery = Delivery.AT_LEAST_ONCE

    def __init__(self, options: HttpOptions, context: SinkContext) -> None:
        if options.webhook or options.format not in (None, *_WRITABLE):
            raise SinkConfigError(
                f"rows are sent to {options.url} as json or jsonl",
                hint='leave out "webhook", and say "format" = "json"',
            )
        self._options = options
        self._context = context
        self._url = options.url or ""
        self._method = "POST" if options.method == "GET" else options.method
        self._requests = Requests(options, context.reach)
        self._pending = Path(context.state) / _PENDING
        self._upserts = context.unique and bool(context.key)
        self.takes_deletes = self._upserts and options.deletes == "post"

    # --- contract -----------------------------------------------------------------------------------------

    def recover(self, recorded: Mapping[str, Any] | None) -> None:
        """See `Sink`: what was sent cannot be taken back, and is recognised by its keys."""

    def intend(self, batch: int, rows: pa.Table) -> Mapping[str, Any] | None:
        """See `Sink`: what will be sent is kept."""
        if not rows.num_rows:
            return None
        token = uuid.uuid4().hex
        out = pa.BufferOutputStream()
        with pa.ipc.new_file(out, rows.schema.with_metadata({"token": token})) as writer:
            writer.write_table(rows.replace_schema_metadata({"token": token}))
        with storing(self._pending):
            replace_file(self._pending, out.getvalue().to_pybytes())
        return {"step": batch, "token": token}

    def settle(self, intended: Mapping[str, Any]) -> bool:
        """See `Sink`: some of it may have been sent; all of it is now."""
        try:
            rows = pa.ipc.open_file(self._pending.read_bytes()).read_all()
        except (OSError, pa.ArrowInvalid) as exc:
            raise CorruptDataError(
                f'file "{self._pending}" is damaged or gone; some of it may have been sent to {self._url}',
                hint="put it back; or begin anew with CREATE OR REPLACE",
            ) from exc
        metadata = rows.schema.metadata or {}
        if metadata.get(b"token", b"").decode() != intended["token"]:
            # The intent was recorded, and the file is of another: nothing of it was sent.
            return False
        self._send(rows.replace_schema_metadata(None), str(intended["token"]))
        return True

    def write(self, batch: int, rows: pa.Table) -> Mapping[str, Any]:
        """See `Sink`."""
        if rows.num_rows:
            metadata = pa.ipc.open_file(self._pending.read_bytes()).schema.metadata or {}
            self._send(rows, metadata[b"token"].decode())
        return {"step": batch}

    def committed(self, recorded: Mapping[str, Any]) -> None:
        """See `Sink`."""
        self._pending.unlink(missing_ok=True)

    def close(self) -> None:
        """See `Sink`."""
        self._requests.close()

    # --- sending ------------------------------------------------------------------------------------------

    def _send(self, rows: pa.Table, token: str) -> None:
        told, records = self._records(rows)
        size = self._options.batch_size
        bad: list[BadRow] = []
        for first in range(0, len(records), size):
            places = list(range(first, min(first + size, len(records))))
            bad += self._sent(told, records, places, f"{token}-{first // size}")
        if bad:
            self._context.refuse(bad)

    def _sent(self, rows: pa.Table, records: Sequence[bytes], places: list[int], key: str) -> list[BadRow]:
        """Send some rows in one request; of those that are refused, halves, to find which."""
        with as_sink_errors():
            answer = self._requests.send(
                self._url,
                method=self._method,
                body=self._body([records[place] for place in places]),
                headers={"Content-Type": self._kind, KEY_HEADER: key},
            )
        if answer.ok:
            return []
        if not self._about_rows(answer):
            with as_sink_errors():
                raise refused(self._url, answer)
        if len(places) == 1:
            row = rows.slice(places[0], 1)
            reason = refused(self._url, answer).message
            return [BadRow(reason, self._url, "", "", records[places[0]], row=packed(row))]
        middle = len(places) // 2
        return [
            *self._sent(rows, records, places[:middle], f"{key}a"),
            *self._sent(rows, records, places[middle:], f"{key}b"),
        ]

    @staticmethod
    def _about_rows(answer: Answer) -> bool:
        """Whether a refusal may be about what was sent, and not about who sent it, where, or when."""
        return final(answer.status) and answer.status not in (401, 403, 404, 405, 407, 410)

    def _records(self, rows: pa.Table) -> tuple[pa.Table, list[bytes]]:
        """The rows that are sent, and each as JSON; of an update only the new row."""
        as_text = self._context.decimal_format == "string"
        if WEIGHT not in rows.schema.names:
            return rows, list(json_bytes(rows, as_text))
        plain = rows.drop_columns([WEIGHT])
        added = pc.greater(rows[WEIGHT], 0)
        new, old = plain.filter(added), plain.filter(pc.invert(added))
        key = list(self._context.key)
        there = {tuple(row.values()) for row in new.select(key).to_pylist()}
        gone = [tuple(row.values()) not in there for row in old.select(key).to_pylist()]
        removed = old.filter(pa.array(gone, pa.bool_()))
        marked = removed.select(key).append_column(DELETED, pa.array([True] * removed.num_rows, pa.bool_()))
        records = [*json_bytes(marked, as_text), *json_bytes(new, as_text)]
        return pa.concat_tables([removed, new]), records

    @property
    def _kind(self) -> str:
        return "application/x-ndjson" if self._options.format == "jsonl" else "application/json"

    def _body(self, records: Sequence[bytes]) -> bytes:
        if self._options.format == "jsonl":
            return b"".join(record + b"\n" for record in records)
        return b"[" + b",".join(records) + b"]"


def await_server(options: HttpOptions, waiting: Waiting) -> None:
    """Return once the server can be connected to, waiting as the options say. Nothing is sent."""
    from velostream.connectors.http.client.reachable import reached

    def look() -> None:
        with as_sink_errors():
            reached(options, waiting.reach)

    waiting.until(look, (SinkNetworkError,), options.wait_timeout, lambda _: options.retry_interval)
