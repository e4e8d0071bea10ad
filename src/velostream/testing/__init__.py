"""Tests of streaming SQL, written as text: `velo test` runs them, and so does any Python test.

from velostream.testing import Bench, Way, read_cases

with Bench() as bench:
    for case in read_cases(path).cases:
        for way in Way:
            bench.run(case, way).check()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Bench", "Case", "Outcome", "Parsed", "Way", "find_cases", "parse_cases", "read_cases"]

if TYPE_CHECKING:
    from velostream.testing.bench import Bench, Outcome
    from velostream.testing.cases import Case, Way
    from velostream.testing.discovery import find_cases
    from velostream.testing.parser import Parsed, parse_cases, read_cases

_WHERE = {
    "Bench": "bench",
    "Case": "cases",
    "Outcome": "bench",
    "Parsed": "parser",
    "Way": "cases",
    "find_cases": "discovery",
    "parse_cases": "parser",
    "read_cases": "parser",
}


def __getattr__(name: str) -> Any:
    """Lazy import, so that reading cases does not pay for Spark."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"velostream.testing.{_WHERE[name]}"), name)
