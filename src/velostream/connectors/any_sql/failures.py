"""Errors of drivers, by their class and words, as errors of sources: one set for all databases."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from velostream.errors import (
    SourceAuthError,
    SourceConfigError,
    SourceDataError,
    SourceError,
    SourceMissingError,
    SourceNetworkError,
    VelostreamError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORDS: tuple[tuple[tuple[str, ...], type[SourceError]], ...] = (
    # About TLS, which trying again does not change.
    (
        (
            "certificate verify failed",
            "does not match host name",
            "hostname mismatch",
            "certificate file",
            "private key file",
            "not support ssl",
        ),
        SourceConfigError,
    ),
    (
        (
            "password",
            "authentication",
            "access denied",
            "permission denied",
            "not authorized",
            "permission error",
            "pg_hba.conf",
        ),
        SourceAuthError,
    ),
    (
        (
            "no such table",
            "unable to open database file",
            "unknown database",
            "unknown table",
            "no such file",
        ),
        SourceMissingError,
    ),
    (
        ("could not connect", "connection refused", "can't connect", "connection to server", "timed out"),
        SourceNetworkError,
    ),
    (
        ("lost connection", "server closed", "could not translate host", "is locked", "lock on file"),
        SourceNetworkError,
    ),
    (("timeout", "connection attempt failed", "gone away", "terminating connection"), SourceNetworkError),
    (("interrupt", "canceling statement", "max_statement_time"), SourceNetworkError),
    # DuckDB, where this process writes to the file.
    (("same database file with a different", "unique file handle conflict"), SourceNetworkError),
)
_RELATIONS = ("relation", "table", "database", "schema", "view")


def kind_of(exc: BaseException) -> type[SourceError]:
    """The category of a driver's error."""
    words = str(exc).lower()
    for found, kind in _WORDS:
        if any(each in words for each in found):
            return kind
    absent = "does not exist" in words or "doesn't exist" in words or "not found" in words
    if absent and any(each in words for each in _RELATIONS) and "column" not in words:
        return SourceMissingError
    names = {kind.__name__ for kind in type(exc).__mro__}
    if names & {"DataError", "ConversionException", "OutOfRangeException"}:
        return SourceDataError
    if isinstance(exc, OSError) or "InterfaceError" in names:
        return SourceNetworkError
    return SourceConfigError


def error_of(exc: BaseException, what: str) -> SourceError:
    """The error of the category that a driver's error belongs to."""
    # SQLAlchemy adds the statement, its values, and a link on further lines.
    said = str(getattr(exc, "orig", None) or exc).strip() or type(exc).__name__
    kind = kind_of(getattr(exc, "orig", None) or exc)
    hint = None
    if kind is SourceAuthError:
        hint = 'set "username" and "password", as ${env:NAME}, or in a connection of the configuration'
    if kind is SourceMissingError:
        hint = "check the name of the database and of the table"
    return kind(f"{what}: {' '.join(said.split())[:500]}", hint=hint)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turns any error of a driver inside into one of ours; `what` is what was being done."""
    try:
        yield
    except VelostreamError:
        raise
    except Exception as exc:
        raise error_of(exc, what) from exc
