"""Errors of MySQL and MariaDB, by their number, as errors of sources."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pymysql

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

LOST_BINLOG = 1236
"""The server cannot read its binlog from where it was asked to."""
_NOT_ALLOWED = frozenset({1044, 1045, 1142, 1143, 1227, 1251, 1370, 1698, 1820, 1862, 2059, 2061, 3118})
_MISSING = frozenset({1049, 1051, 1146})
_AWAY = frozenset(
    {
        *(2002, 2003, 2005, 2006, 2013, 2014, 2055),  # the connection
        *(
            1040,
            1053,
            1077,
            1079,
            1129,
            1184,
            1203,
            1226,
            1927,
            1152,
            *range(1154, 1162),
        ),  # the server's side of it
        *(1205, 1213, 1317, 1969, 3024),  # a lock, a deadlock, a time limit
        *(1021, 1030, 1114, 1180, 1290, 1836, 1637),  # full, or read-only for now
    }
)
REFUSED_ROW = frozenset(
    {
        *(1048, 1062, 1216, 1217, 1364, 1366, 1367, 1406, 1411, 1416, 1451, 1452, 1557, 1644, 1690, 1761),
        *(1264, 1265, 1292, 3140, 3141, 3156, 3819, 4025, 4078, 1425),
        *(1118, 1300, 1365, 1369, 1441, 1526, 1748),
    }
)
"""Errors that are about a row, and not about the statement."""
REFUSED_FOR_OTHERS = frozenset({1062, 1216, 1217, 1451, 1452, 1557, 1644, 1761})
"""Of these, those that may be about other rows: unique and foreign keys, and what triggers say."""


def number_of(exc: pymysql.Error) -> int:
    """The server's number of an error; 0 where it has none."""
    first = exc.args[0] if exc.args else 0
    return first if isinstance(first, int) else 0


def said(exc: pymysql.Error) -> str:
    """What the server says."""
    text = str(exc.args[1]) if len(exc.args) > 1 else str(exc)
    return " ".join(text.split()) or type(exc).__name__


def error_of(exc: pymysql.Error, what: str, hint: str | None = None) -> SourceError:
    """The error of the category that the number belongs to."""
    number = number_of(exc)
    kind: type[SourceError] = SourceConfigError
    for numbers, each in (
        (_NOT_ALLOWED, SourceAuthError),
        (_MISSING, SourceMissingError),
        (_AWAY, SourceNetworkError),
        (REFUSED_ROW, SourceDataError),
    ):
        if number in numbers:
            kind = each
    if number == 0 and isinstance(exc, pymysql.InterfaceError):
        kind = SourceNetworkError
    if "CERTIFICATE_VERIFY_FAILED" in said(exc):
        kind, hint = (
            SourceConfigError,
            '"ssl.root.cert" is the file of the authority that signed the certificate',
        )
    return kind(f"{what}: {said(exc)}", hint=hint or _hint(kind))


def _hint(kind: type[SourceError]) -> str | None:
    if kind is SourceAuthError:
        return 'set "username" and "password", as ${env:NAME}, or in a connection of the configuration'
    return None


@contextmanager
def translated(what: str, hint: str | None = None) -> Iterator[None]:
    """Turns an error of the driver inside into one of ours; `what` is what was being done."""
    try:
        yield
    except pymysql.Error as exc:
        raise error_of(exc, what, hint) from exc
    except OSError as exc:
        raise SourceNetworkError(f"{what}: {exc.strerror or exc}") from exc
