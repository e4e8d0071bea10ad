"""Scripts that a user could write: accepted as they stand, and equal after being written out again."""

from __future__ import annotations

from pathlib import Path

import pytest

from velostream.connectors.registry import Registry
from velostream.location import SourceText
from velostream.model import statements as model
from velostream.sql import Checked, EmptyCatalog, check_script, generate

SCRIPTS = sorted((Path(__file__).parents[2] / "sql" / "parse").glob("*.sql"))
REGISTRY = Registry()
ENVIRONMENT = {"TABLE": "from_env", "BASE": "file:///data", "QUOTED": 'it\'s \\ "x"', "TOPIC": "orders"}


def check(text: str) -> Checked:
    return check_script(SourceText(text, "app.sql"), EmptyCatalog(), REGISTRY, environment=ENVIRONMENT)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_is_accepted(path: Path) -> None:
    text = path.read_text()
    checked = check(text)
    assert [str(error) for error in checked.errors] == []
    assert checked.statements
    for statement in checked.statements:
        assert statement.location is not None
        assert statement.text == statement.location.text
        assert statement.text in text


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_written_out_and_parsed_again_is_the_same(path: Path) -> None:
    first = check(path.read_text())
    written = ";\n".join(generate(statement) for statement in first.statements)
    again = check(written)
    assert [str(error) for error in again.errors] == []
    for before, after in zip(first.statements, again.statements, strict=True):
        assert after == before, generate(before)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_no_clause_of_ours_reaches_spark(path: Path) -> None:
    for statement in check(path.read_text()).statements:
        query = getattr(statement, "query", None)
        if isinstance(query, model.Query):
            text = query.tree.sql(dialect="spark")
            for word in ("velo_", "EMIT ", "TUMBLING", "BUFFER", "://", "WITHIN INTERVAL"):
                assert word not in text
