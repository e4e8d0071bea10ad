"""Every case beside this file."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from velostream.connectors.waiting import Waiting
from velostream.engine.inputs import feed
from velostream.engine.opening.open import open_statement
from velostream.errors import VelostreamError
from velostream.model.statements import CreateStream, CreateTable, InsertIntoSink, Query, SelectStatement
from velostream.plan.strategy import decide
from velostream.runtime.answers.explain import described, explain
from velostream.runtime.instance import Instance
from velostream.runtime.jobs import jobs
from velostream.runtime.statements import live_select
from velostream.testing import Bench, Way, find_cases
from velostream.testing.cases import ExpectError, Run
from velostream.testing.connector import Stage
from velostream.testing.given_log import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from velostream.engine.opening.opened_query import Opened
    from velostream.engine.site import Site
    from velostream.model.statements import Statement
    from velostream.plan.strategy import Strategy
    from velostream.testing import Case

FOUND = find_cases(Path(__file__).parent)


@pytest.fixture(scope="module")
def bench(spark) -> Iterator[Bench]:
    with Bench() as opened:
        yield opened


def decided(strategy: Strategy) -> list[object]:
    """What each part of a strategy is, the key and the windows of its result, and the rows kept for it."""
    parts = [*strategy.parts, *([strategy.follower] if strategy.follower is not None else [])]
    kept = strategy.kept.rows if strategy.kept is not None else ()
    found: list[object] = [(each.plan.kind, each.result_key, _windowing(each.plan)) for each in parts]
    return [*found, *sorted((each.relation, each.columns) for each in kept)]


def made(opened: Opened) -> list[object]:
    """The same of what was opened."""
    found: list[object] = []
    part: Opened | None = opened
    while part is not None:
        visible = set(part.shape.visible.names)
        key = part.shape.key if set(part.shape.key) <= visible else ()
        found.insert(0, (part.plan.kind, key, _windowing(part.plan)))
        part = part.below
    for each in opened.kept:
        ((relation, _),) = each.inputs.all.items()
        columns = [name for name in each.shape.visible.names if not name.startswith("__")]
        found.append((relation, tuple(name for name in columns if name != "_closed")))
    return found


def _windowing(plan: object) -> object:
    return getattr(plan, "windowing", None)


def difference(site: Site, statement: Statement, opened: Opened) -> str | None:
    """What EXPLAIN says of a statement and what was opened for it, where that is not the same."""
    query = getattr(statement, "query", None)
    assert isinstance(query, Query)
    assert opened.strategy is not None
    known = site.known(query.tables, opened.columns)
    said, done = explain(statement, known), described(statement, opened.strategy, known)
    if said != done:
        return "\n".join((f"{statement.text}\n  EXPLAIN says", *said, "  was opened", *done))
    parts, are = decided(decide(statement, known)), made(opened)
    return f"{statement.text}: decided {parts}, opened {are}" if parts != are else None


@pytest.fixture(autouse=True)
def opened_as_explained(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What EXPLAIN says of each statement of a case is what was opened for it, jobs and SELECTs alike."""
    differing: list[str] = []
    seen: list[str] = []

    def compared(site: Site, statement: Statement, folder: Path, **given: Any) -> Opened:
        opened = open_statement(site, statement, folder, **given)
        found = difference(site, statement, opened)
        differing.extend([found] if found is not None else [])
        seen.append(statement.text)
        return opened

    for module in (jobs, live_select):
        monkeypatch.setattr(module, "open_statement", compared)
    yield seen
    assert "\n".join(differing) == ""


@pytest.fixture(autouse=True)
def follow_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of cases are so small that nothing would be followed by key."""
    monkeypatch.setattr(feed, "FEW_ROWS", 0)


def test_every_file_can_be_read() -> None:
    assert [str(error) for error in FOUND.errors] == []


class Opening:
    """Opens the statements of a case, and runs none that goes on."""

    def __init__(self, database: Instance) -> None:
        self._database = database
        self._stop = Event()
        # Nothing is waited for: no job loads the tables that streams are joined to.
        self._stop.set()

    def open(self, statement: Statement, name: str) -> None:
        query = getattr(statement, "query", None)
        goes_on = isinstance(statement, CreateTable | CreateStream | InsertIntoSink) and query is not None
        if not goes_on or getattr(statement, "once", False):
            self._database.executor.run(statement, None)
            return
        made = self._database.jobs_by_name
        draft = made.draft(statement, getattr(statement, "name", name), lambda _: None, self._stop)  # type: ignore[arg-type]
        with made.undone(draft):
            output = made.create(draft)
        output.close()
        draft.opened.close()

    def select(self, query: Query, folder: Path) -> None:
        """The same query as a SELECT that goes on."""
        statement = SelectStatement(query, text="SELECT …")
        waiting = Waiting(self._stop, lambda _: None)
        site = self._database.jobs_by_name.site
        live_select.open_statement(
            site, statement, folder, known={}, reader="select", waiting=waiting
        ).close()


@pytest.mark.spark
@pytest.mark.parametrize(
    "file", sorted({case.file for case in FOUND.cases}, key=str), ids=lambda file: Path(file).stem
)
def test_what_explain_says_is_what_is_opened(bench: Bench, file: str, opened_as_explained: list[str]) -> None:
    """Of every statement of every case, none left out: opening is cheap where nothing is run."""
    bench.start()
    for number, case in enumerate(FOUND.cases):
        if case.file == file:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                # As SELECTs, too: one in six, since these are planned as tables are.
                _open_all(bench, case, Path(folder), selects=number % 6 == 0)
    assert opened_as_explained


def _open_all(bench: Bench, case: Case, folder: Path, *, selects: bool) -> None:
    bench.connector.stage = Stage(
        folder, {name: Layout.of(case, name, Way.STRAIGHT) for name in case.sources}
    )
    steps = [*case.steps, None]
    with Instance(bench.settings.model_copy(update={"data_dir": folder / "data"})) as database:
        opening = Opening(database)
        for number, (step, after) in enumerate(pairwise(steps)):
            if not isinstance(step, Run):
                continue
            checked = database.checked(step.sql, step.name)
            try:
                for error in checked.errors:
                    raise error
                for place, statement in enumerate(checked.statements):
                    opening.open(statement, f"job_{number}_{place}")
                    query = getattr(statement, "query", None)
                    if selects and isinstance(query, Query) and query.continuous and not query.limited:
                        opening.select(query, folder / f"select_{number}_{place}")
            except VelostreamError:
                if not isinstance(after, ExpectError):
                    raise


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
