"""Every case beside this file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from velostream.engine.inputs import feed
from velostream.engine.opening.opened import outline_of
from velostream.plan.strategy import decide
from velostream.runtime.jobs.registry import Jobs
from velostream.testing import Bench, Way, find_cases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from velostream.engine.opening.opened import Opened
    from velostream.engine.outputs.outputs import JobOutput
    from velostream.engine.work import Work
    from velostream.runtime.catalog.catalog import Entry
    from velostream.testing import Case

FOUND = find_cases(Path(__file__).parent)


@pytest.fixture(scope="module")
def bench(spark) -> Iterator[Bench]:
    with Bench() as opened:
        yield opened


@pytest.fixture(autouse=True)
def decided_as_opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What EXPLAIN says of each statement of a case is what its job has opened."""
    differing: list[str] = []
    made = Jobs.work

    def compared(self: Jobs, entry: Entry, opened: Opened, output: JobOutput) -> Work:
        found = outline_of(opened)
        query = getattr(entry.statement, "query", None)
        known = self.site.known(query.tables if query is not None else (), entry.columns or opened.columns)
        strategy = decide(entry.statement, known).outline()
        if strategy != found:
            differing.append(f"{entry.text}: decided {strategy}, opened {found}")
        return made(self, entry, opened, output)

    monkeypatch.setattr(Jobs, "work", compared)
    yield
    assert differing == []


@pytest.fixture(autouse=True)
def follow_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of cases are so small that nothing would be followed by key."""
    monkeypatch.setattr(feed, "FEW_ROWS", 0)


def test_every_file_can_be_read() -> None:
    assert [str(error) for error in FOUND.errors] == []


def _runs() -> Iterator[Any]:
    """One case in three straight, and one in thirty in the other ways too; all of them in `make soak`."""
    for number, case in enumerate(FOUND.cases):
        for way in Way:
            often = 3 if way is Way.STRAIGHT else 30
            marks = () if number % often == 0 else pytest.mark.soak
            yield pytest.param(case, way, id=f"{Path(case.file).stem}: {case.name}-{way}", marks=marks)


@pytest.mark.spark
@pytest.mark.parametrize(("case", "way"), list(_runs()))
def test_case(bench: Bench, case: Case, way: Way) -> None:
    bench.run(case, way).check()
