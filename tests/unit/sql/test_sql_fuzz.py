"""Whatever the text, the front end answers with statements or with errors of ours."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from velostream.connectors.registry import Registry
from velostream.errors import VelostreamError
from velostream.location import SourceText
from velostream.sql import EmptyCatalog, check_script, generate

REGISTRY = Registry()
SQL = Path(__file__).parents[2] / "sql"
TEXTS = [path.read_text() for path in sorted(SQL.glob("*/*.sql"))]
STATEMENTS = [line for text in TEXTS for line in text.splitlines() if line.strip()]
WORDS = sorted({word for text in TEXTS for word in text.replace("(", " ( ").replace(")", " ) ").split()})
RELAXED = settings(
    max_examples=300, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def check(text: str) -> None:
    checked = check_script(SourceText(text), EmptyCatalog(), REGISTRY, environment={"X": "y"})
    for error in checked.errors:
        assert isinstance(error, VelostreamError)
        assert str(error)
    for statement in checked.statements:
        assert generate(statement)


@RELAXED
@given(st.text())
def test_any_text(text: str) -> None:
    check(text)


@RELAXED
@given(st.lists(st.sampled_from(WORDS), max_size=25))
def test_any_words(words: list[str]) -> None:
    check(" ".join(words))


@RELAXED
@given(st.sampled_from(STATEMENTS), st.data())
def test_statements_with_a_piece_missing_or_doubled(statement: str, data: st.DataObject) -> None:
    words = statement.split()
    first = data.draw(st.integers(0, len(words)))
    last = data.draw(st.integers(0, len(words)))
    check(" ".join([*words[:first], *words[last:]]))


@RELAXED
@given(st.sampled_from(STATEMENTS), st.data())
def test_statements_cut_and_joined_anywhere(statement: str, data: st.DataObject) -> None:
    other = data.draw(st.sampled_from(STATEMENTS))
    first = data.draw(st.integers(0, len(statement)))
    last = data.draw(st.integers(0, len(other)))
    check(statement[:first] + other[last:])
