"""A query means the same, and is kept in the same way, however its names are written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from equivalence.grammar import TABLES, Grammar
from equivalence.queries import CASES
from equivalence.spellings import Spelling
from velostream.connectors.registry import default_registry
from velostream.location import SourceText
from velostream.model import statements as model
from velostream.plan.strategy import Known
from velostream.runtime.answers.explain import explain
from velostream.sql import EmptyCatalog, check_script, generate
from velostream.sql.names.spelling import WRITTEN
from velostream.sql.names.usage import resolved, result_names
from velostream.testing import find_cases
from velostream.testing.cases import ExpectError, Run

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

VELOTEST = Path(__file__).parents[2] / "velotest"
SRC = (
    "CREATE SOURCE src (id BIGINT, grp STRING, n BIGINT, price DECIMAL(10,2), flag BOOLEAN, ratio DOUBLE,"
    " at TIMESTAMP) FROM file:///data/src.csv;"
)


@dataclass(frozen=True)
class Written:
    """One statement with a query, the script before it, and the columns of what it reads."""

    before: str
    statement: model.Statement
    columns: dict[str, tuple[str, ...]]

    @property
    def query(self) -> model.Query:
        query = getattr(self.statement, "query", None)
        assert isinstance(query, model.Query)
        return query


def statements(script: str) -> Iterator[Written]:
    """The statements of a script that have a query; nothing where the script is wrong."""
    checked = check_script(SourceText(script), EmptyCatalog(), default_registry(), environment={})
    if checked.errors:
        return
    before = ""
    columns: dict[str, tuple[str, ...]] = {}
    for statement in checked.statements:
        query = getattr(statement, "query", None)
        if isinstance(query, model.Query):
            sources = {ref.id: tuple(column.name for column in ref.columns) for ref in query.sources}
            known = {**columns, **{name: names for name, names in sources.items() if names}}
            yield Written(before, statement, known)
            names = tuple(column.name for column in getattr(statement, "columns", ()))
            found = names or result_names(query, known)
            if found is not None and isinstance(statement, model.CreateTable | model.CreateView):
                columns[statement.name] = found
        elif isinstance(statement, model.CreateTable):
            columns[statement.name] = tuple(column.name for column in statement.columns)
        before += f"{statement.text};\n"


def again(written: Written, rng: random.Random) -> tuple[str, model.Statement]:
    """The statement in another spelling, and what the binder makes of it."""
    base = resolved(written.query, written.columns)
    tree = Spelling(rng, written.columns).again(base.tree)
    changed = replace(written.statement, query=replace(written.query, tree=tree))  # type: ignore[call-arg]
    text = generate(changed)
    checked = check_script(
        SourceText(f"{written.before}{text};"), EmptyCatalog(), default_registry(), environment={}
    )
    assert not checked.errors, (text, checked.errors)
    return text, checked.statements[-1]


def assert_same(written: Written, rng: random.Random) -> None:
    if written.query.views or not all(ref.columns for ref in written.query.sources):
        return
    if any(WRITTEN in node.meta for node in written.query.tree.walk()):
        return  # Windows over tables are bound to expressions that nobody writes.
    base = resolved(written.query, written.columns)
    assert resolved(base, written.columns).tree == base.tree
    text, other = again(written, rng)
    query = getattr(other, "query", None)
    assert isinstance(query, model.Query)
    found = resolved(query, written.columns)
    assert found.tree.sql(dialect="spark") == base.tree.sql(dialect="spark"), text
    assert found.window == base.window, text
    assert explain(other, Known(written.columns)) == explain(written.statement, Known(written.columns)), text


def test_cases_mean_the_same_in_another_spelling(
    rng: random.Random, rounds: Callable[[int, int], int]
) -> None:
    cases = [c for c in find_cases(VELOTEST).cases if not any(isinstance(s, ExpectError) for s in c.steps)]
    seen = 0
    for case in rng.sample(cases, rounds(40, len(cases))):
        script = "\n".join(step.sql for step in case.steps if isinstance(step, Run))
        for written in statements(script.replace("test://", "kafka://")):
            seen += 1
            for _ in range(rounds(1, 20)):
                assert_same(written, rng)
    assert seen >= 40


def test_kinds_of_plans_do_not_depend_on_the_spelling(
    rng: random.Random, rounds: Callable[[int, int], int]
) -> None:
    script = SRC + "".join(f"CREATE TABLE {c.name} AS {c.sql}{c.properties};" for c in CASES)
    found = list(statements(script))
    assert len(found) > 40
    for written in found:
        for _ in range(rounds(1, 100)):
            assert_same(written, rng)


def test_random_queries_mean_the_same_in_another_spelling(
    rng: random.Random, rounds: Callable[[int, int], int]
) -> None:
    tables = "".join(f"CREATE TABLE {name} ({columns});" for name, columns in TABLES.items())
    for _ in range(rounds(60, 20_000)):
        for written in statements(f"{tables}CREATE TABLE t AS {Grammar(rng).query()};"):
            assert_same(written, rng)
