"""How statements are run, decided without Spark: statement in, strategy out, as text (strategies.txt)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from velostream.connectors.registry import default_registry
from velostream.errors import UnsupportedError
from velostream.location import SourceText
from velostream.plan.planner import NeedsColumns
from velostream.plan.strategy import Known, Strategy, decide
from velostream.sql import EmptyCatalog, check_script

if TYPE_CHECKING:
    from velostream.plan.part import Part

TEXT = Path(__file__).with_name("strategies.txt")
CONTEXT = """
CREATE SOURCE kafka (id BIGINT, k STRING, n BIGINT, x DOUBLE, ts TIMESTAMP) FROM kafka://events
  WITH ("event.time.column" = "ts");
CREATE SOURCE changelog (id BIGINT, k STRING, n BIGINT, x DOUBLE, ts TIMESTAMP) FROM kafka://changes
  WITH ("event.time.column" = "ts", "changelog" = "upsert");
CREATE SOURCE other (id BIGINT, k STRING, n BIGINT, x DOUBLE, ts TIMESTAMP) FROM kafka://others
  WITH ("event.time.column" = "ts");
CREATE SOURCE file (id BIGINT, k STRING, n BIGINT, x DOUBLE, ts TIMESTAMP) FROM file:///data/events.csv
  WITH ("event.time.column" = "ts");
CREATE TABLE plain (id BIGINT, k STRING, n BIGINT, x DOUBLE, ts TIMESTAMP);
CREATE TABLE keyed (id BIGINT PRIMARY KEY, k STRING, n BIGINT, x DOUBLE, ts TIMESTAMP);
"""
COLUMNS = ("id", "k", "n", "x", "ts")
KNOWN = Known({"plain": COLUMNS, "keyed": COLUMNS}, {"keyed": ("id",)})


def cases() -> list[tuple[str, str]]:
    """Statements and what is decided; lines that begin with a hyphen say what the next ones are about."""
    blocks = [block for block in TEXT.read_text().split("\n\n") if not block.startswith("-")]
    found = [block.strip().split("\n=> ") for block in blocks if block.strip()]
    return [(statement, decided) for statement, decided in found]


def _called(part: Part) -> str:
    return type(part.plan).__name__.removesuffix("Plan").lower()


def outline(found: Strategy) -> str:
    """A strategy in one line: what makes the result, and what is kept for it."""
    parts = [_called(found.parts[-1])]
    parts += [f"over the result of {_called(below)}" for below in reversed(found.parts[:-1])]
    parts += [f"keeps {held.what}" for _, held in found.steps() if held is not None]
    parts += ["the result beside the job"] if found.beside else []
    grows = sorted({held.grows for _, held in found.steps() if held is not None and held.bound is None})
    return "; ".join([*parts, f"grows with {', '.join(grows)}" if grows else "bounded"])


def decided(statement: str) -> str:
    checked = check_script(SourceText(f"{CONTEXT}\n{statement};"), EmptyCatalog(), default_registry())
    if checked.errors:
        return f"refused: {checked.errors[0].message}"
    try:
        return outline(decide(checked.statements[-1], KNOWN))
    except NeedsColumns:
        return "needs columns"
    except UnsupportedError as exc:
        return f"refused: {exc.message}"


@pytest.mark.parametrize(("statement", "expected"), cases())
def test_what_is_decided(statement: str, expected: str) -> None:
    assert decided(statement) == expected


def test_there_are_many() -> None:
    assert len(cases()) >= 150
