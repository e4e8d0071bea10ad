"""ClickHouse's errors, by their codes, as errors of sources."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from clickhouse_connect.driver.exceptions import ClickHouseError, Error
from urllib3.exceptions import HTTPError

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

UNKNOWN_TABLE, UNKNOWN_DATABASE = 60, 81
_KINDS: tuple[tuple[frozenset[int], type[SourceError]], ...] = (
    (frozenset({UNKNOWN_TABLE, UNKNOWN_DATABASE}), SourceMissingError),
    (frozenset({192, 193, 194, 497, 516, 519}), SourceAuthError),
    # Too busy, too slow, out of memory, read-only for now, without its keeper.
    (
        frozenset({3, 159, 160, 198, 202, 203, 209, 210, 225, 236, 241, 242, 252, 279, 285, 319, 394})
        | frozenset({425, 439, 473, 999}),
        SourceNetworkError,
    ),
    (
        frozenset({6, 26, 27, 32, 33, 38, 41, 69, 70, 72, 117, 131, 153, 190, 321, 349, 407, 441, 469, 691}),
        SourceDataError,
    ),
)
_PREFIX = re.compile(r"^.*?DB::(?:Net)?Exception: ", re.DOTALL)
_SUFFIX = re.compile(r"\s*\(version .*$|\s*\(for url .*$", re.DOTALL)
_NAME = re.compile(r"\.?\s*\([A-Z][A-Z0-9_]+\)$")
_CODE = re.compile(r"Code: (\d+)\. DB::")
FAILURES = (ClickHouseError, HTTPError, pa.ArrowInvalid, OSError)
"""What the driver, its connections, and an answer that breaks off raise."""


def kind_of(code: int | None) -> type[SourceError]:
    """The category of an error with this code; one without is about the connection."""
    if code is None:
        return SourceNetworkError
    return next((kind for codes, kind in _KINDS if code in codes), SourceConfigError)


def error_of(exc: BaseException, what: str) -> SourceError:
    """The error of the category that the code belongs to."""
    code = exc.code if isinstance(exc, Error) else None
    if code is None and (found := _CODE.search(str(exc))):
        code = int(found[1])
    kind = kind_of(code)
    return kind(f"{what}: {said(exc)}", hint=_hint(kind))


def said(exc: BaseException) -> str:
    """The server's own words, without its version and our address."""
    text = _SUFFIX.sub("", _PREFIX.sub("", str(exc))) or type(exc).__name__
    text = " ".join(_NAME.sub("", text.strip()).split())
    if "Max retries exceeded" in text and "Caused by" in text:
        # The driver tells the whole request; its cause is what matters.
        text = text.rpartition(": ")[2].rstrip('")} ').split('"')[0]
    return text[:500].rstrip(". ")


def _hint(kind: type[SourceError]) -> str | None:
    if kind is SourceAuthError:
        return 'set "username" and "password", as ${env:NAME}, or in a connection of the configuration'
    return None


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turns an error of the driver inside into one of ours; `what` is what was being done."""
    try:
        yield
    except FAILURES as exc:
        raise error_of(exc, what) from exc
