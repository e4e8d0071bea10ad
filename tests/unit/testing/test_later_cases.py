"""Cases that wait for what they test: they can be read, and their statements are bound."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from velostream.connectors.registry import Registry
from velostream.model.location import SourceText
from velostream.sql import check_script
from velostream.sql.catalog import EmptyCatalog
from velostream.testing import cases as model
from velostream.testing import read_cases
from velostream.testing.connector import CaseConnector

if TYPE_CHECKING:
    from velostream.testing import Case

FOLDER = Path(__file__).parents[2] / "velotest" / "later"
FILES = sorted(FOLDER.glob("*.later"))
CASES = [case for file in FILES for case in read_cases(file).cases]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_file_can_be_read(file: Path) -> None:
    assert [str(error) for error in read_cases(file).errors] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{Path(case.file).stem}: {case.name}")
def test_the_statements_are_bound(case: Case) -> None:
    registry = Registry()
    registry.register(CaseConnector())
    text = "".join(step.sql for step in case.steps if isinstance(step, model.Run))
    assert [str(error) for error in check_script(SourceText(text), EmptyCatalog(), registry).errors] == []
