"""Sliding windows made of panes, compared with every row once for each of its windows."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from velostream.connectors.registry import default_registry
from velostream.engine.event_time.panes import windows_of
from velostream.location import SourceText
from velostream.model.columns import GROUP_ROWS
from velostream.model.options import CommonOptions
from velostream.model.statements import CreateTable, Query
from velostream.plan.planner import plan_query
from velostream.plan.plans import GroupsPlan
from velostream.plan.time.event_times import timed
from velostream.plan.time.panes import pane_sql
from velostream.plan.time.windows import closing
from velostream.sql import EmptyCatalog, check_script

SOURCE = "CREATE SOURCE s (k STRING, x BIGINT, d DECIMAL(10,2), ts TIMESTAMP) FROM datagen://trades;"
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("window_start", pa.timestamp("us", tz="UTC")),
        ("__k3", pa.timestamp("us", tz="UTC")),
        (GROUP_ROWS, pa.int64()),
        ("__s1", pa.decimal128(20, 2)),
        ("__c1", pa.int64()),
        ("__m2", pa.int64()),
    ]
)


def planned(window: str, items: str = "SUM(d) AS d, MAX(x) AS x") -> GroupsPlan:
    sql = f"{SOURCE} CREATE TABLE t AS SELECT k, window_start, {items} FROM s WINDOW {window} GROUP BY k;"
    found = check_script(SourceText(sql), EmptyCatalog(), default_registry())
    assert not found.errors, found.errors
    made = found.statements[-1]
    assert isinstance(made, CreateTable)
    assert isinstance(made.query, Query)
    query, timing = timed(made.query, CommonOptions())
    plan = closing(plan_query(query), timing.windowing, query)
    assert isinstance(plan, GroupsPlan)
    return plan


def test_rows_are_grouped_by_pane():
    sql = pane_sql(planned("SLIDING(ts, INTERVAL '5' MINUTE, INTERVAL '1' MINUTE)"))
    assert sql is not None
    assert "EXPLODE" not in sql.upper()
    assert "__window" not in sql


@pytest.mark.parametrize(
    ("window", "items"),
    [
        ("SLIDING(ts, INTERVAL '5' MINUTE, INTERVAL '2' MINUTE)", "COUNT(*) AS n"),
        ("SLIDING(ts, INTERVAL '5' MINUTE, INTERVAL '1' MINUTE)", "COUNT(DISTINCT x) AS n"),
        ("TUMBLING(ts, INTERVAL '5' MINUTE)", "COUNT(*) AS n"),
        ("SESSION(ts, INTERVAL '5' MINUTE)", "COUNT(*) AS n"),
    ],
)
def test_windows_without_panes(window, items):
    assert pane_sql(planned(window, items)) is None


def test_panes_make_the_same_groups_as_rows(rng, rounds):
    """Against dictionaries: keys and times may be null, sums empty, windows before 1970."""
    plan = planned("SLIDING(ts, INTERVAL '5' MINUTE, INTERVAL '1' MINUTE)")
    assert plan.windowing is not None
    assert (plan.keys, plan.windowing.end) == (("k", "window_start", "__k3"), "__k3")
    first, minute = datetime(1969, 12, 31, 23, 55, tzinfo=UTC), timedelta(minutes=1)
    for _ in range(rounds(20, 500)):
        rows = [
            (
                rng.choice([None, "a", "b"]),
                None if rng.random() < 0.1 else first + timedelta(seconds=rng.randrange(900)),
                None if rng.random() < 0.3 else Decimal(rng.randrange(-999, 999)) / 100,
                rng.choice([None, *range(9)]),
            )
            for _ in range(rng.randrange(40))
        ]
        panes, expected = defaultdict(list), defaultdict(list)
        for key, at, amount, x in rows:
            pane = None if at is None else at - timedelta(seconds=at.second)
            panes[key, pane].append((amount, x))
            for back in range(5):
                if pane is not None or not back:
                    expected[key, None if pane is None else pane - back * minute].append((amount, x))
        found = windows_of(plan, plan.windowing, groups(panes))
        assert found.schema == SCHEMA
        assert totals(found) == totals(groups(expected))


def groups(rows) -> pa.Table:
    made = []
    for (key, start), taken in rows.items():
        amounts = [amount for amount, _ in taken if amount is not None]
        made.append(
            {
                "k": key,
                "window_start": start,
                "__k3": None if start is None else start + timedelta(minutes=5),
                GROUP_ROWS: len(taken),
                "__s1": sum(amounts) if amounts else None,
                "__c1": len(amounts),
                "__m2": max((x for _, x in taken if x is not None), default=None),
            }
        )
    return pa.Table.from_pylist(made, schema=SCHEMA)


def totals(table: pa.Table) -> set[tuple]:
    """As readers see them: a sum of nothing is null, however it is stored."""
    rows = table.to_pylist()
    assert len({(row["k"], row["window_start"]) for row in rows}) == len(rows)
    return {tuple(None if n == "__s1" and not row["__c1"] else v for n, v in row.items()) for row in rows}
