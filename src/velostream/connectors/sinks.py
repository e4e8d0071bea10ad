"""What sinks into servers share: their errors, and the name of a job on the server."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from velostream.disk.record import Record
from velostream.errors import (
    SinkAuthError,
    SinkConfigError,
    SinkError,
    SinkMissingError,
    SinkNetworkError,
    SourceAuthError,
    SourceError,
    SourceMissingError,
    SourceNetworkError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from velostream.connectors.base import SinkContext

_KINDS: tuple[tuple[type[SourceError], type[SinkError]], ...] = (
    (SourceMissingError, SinkMissingError),
    (SourceNetworkError, SinkNetworkError),
    (SourceAuthError, SinkAuthError),
)


@contextmanager
def as_sink_errors() -> Iterator[None]:
    """Turns source errors, of questions that sources ask too, into sink errors."""
    try:
        yield
    except SourceError as exc:
        kind = next((sink for source, sink in _KINDS if isinstance(exc, source)), SinkConfigError)
        raise kind(
            exc.message,
            detail=exc.detail,
            hint=exc.hint,
            location=exc.location,
            retry_after=exc.retry_after,
        ) from exc


def identity(context: SinkContext) -> str:
    """The job's own name on the server, created once: jobs in two data directories may have the same id."""
    record = Record(
        context.state / "identity.json",
        f"{context.job} identity",
        required=context.resumed,
        before=context.state / "identity",
    )
    found = record.load()
    if found is None:
        found = {"id": uuid.uuid4().hex[:12]}
        record.save(found)
    return str(found["id"])
