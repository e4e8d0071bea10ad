"""PostgreSQL's errors, by their SQLSTATE, as errors of sources."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg

from velostream.errors import (
    SourceAuthError,
    SourceConfigError,
    SourceDataError,
    SourceError,
    SourceMissingError,
    SourceNetworkError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_DEFINED = "42704"
GONE_SLOT = (NOT_DEFINED, "55000", "58P01")
"""A slot that does not exist, one whose WAL the server has removed, a WAL file that is missing."""

_KINDS: tuple[tuple[tuple[str, ...], type[SourceError]], ...] = (
    # Before the classes that they belong to.
    (("42501",), SourceAuthError),
    (("42P01", "3F000", "3D000"), SourceMissingError),
    (("55006", "55P03", "57014", "25006"), SourceNetworkError),
    (("08", "53", "57", "58", "40", "XX"), SourceNetworkError),
    (("28",), SourceAuthError),
    (("22",), SourceDataError),
)


_OF_ROWS = ("22", "23", "44", "P0", "54000")
"""Values that do not fit, constraints, the check of a view, what a function raises, a key too long."""
_OF_SERVER = (
    *("00", "01", "02", "03", "08", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "20", "21", "24", "25", "26"),
    *("27", "28", "2B", "2D", "2F", "34", "38", "39", "3B", "3D", "3F", "40", "42", "53", "54", "55", "57"),
    *("58", "72", "F0", "HV", "XX"),
)
"""The other classes of errors of PostgreSQL's own. Functions may raise what they want."""
_FOR_OTHERS = ("23503", "23505", "23P01", "23001", "P0")
"""Foreign keys, unique keys, exclusions, and functions, which may have looked at anything."""

_NOT_ALLOWED = (
    "password",
    "authentication",
    "no pg_hba.conf entry",
    "permission denied",
    "must be superuser",
    "valid client certificate",
)
"""Words of refusals while connecting, which have no SQLSTATE."""
_NO_REPLICATION = ("replication role", "WAL sender", "REPLICATION")
REPLICATION = (
    "the user needs the attribute REPLICATION: ALTER ROLE name REPLICATION; "
    'or poll: "poll.interval" = "10s" in place of "cdc"'
)
"""What to do without the right to follow. Polling is not begun unasked: each poll costs the server a scan."""
_NOT_TRUSTED = (
    "certificate verify failed",
    "does not match host name",
    "certificate file",
    "private key file",
    "does not support SSL",
)
"""Words of libpq about TLS, which trying again does not change."""


def error_of(exc: psycopg.Error, what: str, hint: str | None = None) -> SourceError:
    """The error of the category that the SQLSTATE belongs to. Without one, the connection itself failed."""
    state = exc.sqlstate
    said = _said(exc)
    kind: type[SourceError] = SourceConfigError
    if state is None:
        kind = _unnumbered(exc, said)
    else:
        kind = next((each for states, each in _KINDS if state.startswith(states)), kind)
    return kind(
        f"{what}: {said}",
        detail=exc.diag.message_detail,
        hint=hint or exc.diag.message_hint or _hint(kind, said),
    )


def refuses_row(exc: psycopg.Error) -> bool:
    """Whether the server refuses a row, and not the statement."""
    state = exc.sqlstate
    return state is not None and (state.startswith(_OF_ROWS) or not state.startswith(_OF_SERVER))


def refuses_for_others(exc: psycopg.Error) -> bool:
    """Whether a row that is refused may be taken once other rows are written or gone."""
    return (exc.sqlstate or "").startswith(_FOR_OTHERS)


def _unnumbered(exc: psycopg.Error, said: str) -> type[SourceError]:
    if any(words in said for words in _NOT_ALLOWED):
        return SourceAuthError
    if any(words in said for words in _NOT_TRUSTED):
        return SourceConfigError
    if "does not exist" in said:
        return SourceMissingError
    return SourceNetworkError if isinstance(exc, psycopg.OperationalError) else SourceConfigError


def _said(exc: psycopg.Error) -> str:
    text = exc.diag.message_primary or str(exc).strip() or type(exc).__name__
    # libpq names each address that it tried, on lines of their own.
    return " ".join(text.split()).removeprefix("connection failed: ")


def _hint(kind: type[SourceError], said: str) -> str | None:
    if any(words in said for words in _NO_REPLICATION):
        return REPLICATION
    if kind is SourceAuthError:
        return 'set "username" and "password", as ${env:NAME}, or in a connection of the configuration'
    return None


@contextmanager
def translated(what: str, hint: str | None = None) -> Iterator[None]:
    """Turns an error of the driver inside into one of ours; `what` is what was being done."""
    try:
        yield
    except psycopg.Error as exc:
        raise error_of(exc, what, hint) from exc
