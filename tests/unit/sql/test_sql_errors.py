"""Every mistake is named, placed and answered: code, line, caret, message and hint against a golden file.

`UPDATE_GOLDEN=1 pytest tests/unit/sql/test_sql_errors.py` writes the files anew; read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from velostream.connectors.registry import Registry
from velostream.location import SourceText
from velostream.sql import EmptyCatalog, check_script

if TYPE_CHECKING:
    from velostream.errors import VelostreamError

SCRIPTS = sorted((Path(__file__).parents[2] / "sql" / "errors").glob("*.sql"))
REGISTRY = Registry()


def described(error: VelostreamError) -> str:
    assert error.location is not None
    lines = [f"[{error.code}] {error}"]
    return "\n".join(lines)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_errors_are_those_of_the_golden_file(path: Path) -> None:
    checked = check_script(SourceText(path.read_text(), path.name), EmptyCatalog(), REGISTRY, environment={})
    found = "\n\n".join(described(error) for error in checked.errors) + "\n"
    golden = path.with_suffix(".expected")
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(found)
    assert found == golden.read_text()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_messages_are_lowercase_and_without_period(path: Path) -> None:
    checked = check_script(SourceText(path.read_text(), path.name), EmptyCatalog(), REGISTRY, environment={})
    for error in checked.errors:
        assert not error.message.endswith(".")
        first = error.message.split()[0].strip('"`')
        assert first == first.lower() or first.isupper() or not first.isidentifier(), error.message


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_statement_after_the_declarations_is_refused(path: Path) -> None:
    """A fixture whose mistake goes unnoticed would otherwise pass silently."""
    text = path.read_text()
    checked = check_script(SourceText(text, path.name), EmptyCatalog(), REGISTRY, environment={})
    if path.stem in ("cycles", "text", "quotes"):
        return
    wrong = {error.location.line for error in checked.errors if error.location is not None}
    lines = range(4, len(text.splitlines()) + 1)
    assert [line for line in lines if line not in wrong] == []
