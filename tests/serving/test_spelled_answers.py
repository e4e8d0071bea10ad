"""DuckDB gives the same answer however names are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlglot import exp, parse_one

from equivalence import agreement as data
from equivalence.spellings import Spelling
from velostream.model.statements import Query
from velostream.model.tables import TableSpec
from velostream.serving.sql.engine import NeedsSpark, QueryEngine
from velostream.serving.table.store import TableStore
from velostream.sql.names.usage import resolved
from velostream.sql.parse.dialect import Velostream

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path


def test_answers_do_not_depend_on_the_spelling(
    tmp_path: Path, rng: random.Random, rounds: Callable[[int, int], int]
) -> None:
    engine = QueryEngine()
    with TableStore(tmp_path) as store:
        versions, columns = {}, {}
        for name, rows in (("v", data.values()), ("l", data.labels()), ("nested", data.nested())):
            table = store.create(TableSpec(name, rows.schema))
            table.insert(rows)
            versions[name], columns[name] = table.version_object, rows.schema.names
        compared = 0
        for sql in data.lines("queries"):
            tree = parse_one(sql, dialect=Velostream)
            assert isinstance(tree, exp.Query)
            try:
                answer = engine.answer(Query(tree), versions)
            except NeedsSpark as exc:
                pytest.fail(f"{sql}: {exc}")
            for _ in range(rounds(1, 50)):
                written = Spelling(rng, columns).again(resolved(Query(tree), columns).tree)
                again = engine.answer(
                    Query(parse_one(written.sql(dialect=Velostream), dialect=Velostream)), versions
                )
                names = [name.lower() for name in answer.schema.names]
                assert [name.lower() for name in again.schema.names] == names, written.sql()
                assert _rows(again) == _rows(answer), written.sql()
                compared += 1
        assert compared > 80


def _rows(table) -> list[str]:
    return sorted(
        str([repr(value) for value in row.values()])
        for row in table.rename_columns([str(n) for n in range(table.num_columns)]).to_pylist()
    )
