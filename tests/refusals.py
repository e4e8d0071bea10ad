"""Errors, asserted by what a program looks at: the code, the names that it concerns, the place in the SQL."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from velostream.errors import VelostreamError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def refusal(
    code: str, *names: object, at: str | None = None, why: str | None = None
) -> Iterator[pytest.ExceptionInfo[VelostreamError]]:
    """What is inside raises the error of exactly this code; see `check_refusal`."""
    with pytest.raises(VelostreamError) as caught:
        yield caught
    check_refusal(caught.value, code, *names, at=at, why=why)


def check_refusal(
    error: BaseException | None, code: str, *names: object, at: str | None = None, why: str | None = None
) -> None:
    """An error has this code and tells these names, whichever words stand around them.

    `names` are tables, columns, properties, files, numbers, each as a whole. `at` is the text that the error
    points at. `why` is for a code with several reasons: as much of the reason as tells it from the others.
    """
    assert isinstance(error, VelostreamError), error
    assert error.code == code, f"{error.code}: {error}"
    told = f"{error.message}\n{error.detail or ''}"
    missing = [name for name in names if not _tells(told, str(name))]
    assert not missing, f"{missing} not in: {told}"
    assert why is None or why in told, f'"{why}" is not the reason: {told}'
    assert at is None or (error.location is not None and error.location.text == at), error


def _tells(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
