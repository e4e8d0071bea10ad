"""Translates the failure of a step into an error for users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.capabilities import Explaining
from velostream.engine.inputs.spreading import strategy_failed
from velostream.spark.failures import error_text, translate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from velostream.connectors.base import Source
    from velostream.errors import VelostreamError


def explained(exc: BaseException, sources: Iterable[Source]) -> VelostreamError:
    """The error for users: a source's explanation where it has one, else the translation of Spark's error."""
    said = error_text(exc)
    failed = strategy_failed(said)
    if failed is not None:
        return failed
    for source in sources:
        found = Explaining.of(source).explained(said)
        if found is not None:
            return found
    return translate(exc)
