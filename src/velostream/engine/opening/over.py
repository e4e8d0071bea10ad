"""Opens the state of a part with OVER over a source: the table of its kept rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from velostream.engine.opening.kept_inputs import open_or_make
from velostream.engine.opening.opened_query import with_system_columns
from velostream.engine.over.kept_rows import state_schema
from velostream.errors import InternalError
from velostream.model.columns import CHUNK
from velostream.model.tables import TableSpec
from velostream.plan.over.running_sums import summed, with_running_sums
from velostream.plan.plans import OverPlan
from velostream.spark.dataframes import query_schema, show_empty
from velostream.sql.types import quote

if TYPE_CHECKING:
    from velostream.engine.opening.opened_query import Opened
    from velostream.serving.contract.table import Table
    from velostream.serving.table.store import TableStore

KEPT = "__kept"
"""Name of the table of rows that are kept for OVER."""


def with_kept_rows(opened: Opened, store: TableStore, owner: str) -> Opened:
    """The part with OVER and the table of its rows; its sums are running sums, where types allow."""
    return _summing(replace(opened, state=_kept_rows(opened, store, owner), store=store))


def _summing(opened: Opened) -> Opened:
    """With sums as differences of running sums, where types allow; needs the views of the analysis."""
    plan = opened.plan
    assert isinstance(plan, OverPlan)
    arguments = list(dict.fromkeys(summed(plan.over_sql)))
    if not arguments:
        return opened
    (name,) = opened.inputs.all
    alias = plan.alias
    items = ", ".join(f"{text} AS a{number}" for number, text in enumerate(arguments))
    found = query_schema(opened.spark, f"SELECT {items} FROM {quote(name)} AS {quote(alias)}")
    types = dict(zip(arguments, found.types, strict=True))
    summing = replace(plan, over_sql=with_running_sums(plan.over_sql, types))
    return replace(opened, part=replace(opened.part, plan=summing))


def _kept_rows(opened: Opened, store: TableStore, owner: str) -> Table:
    plan = opened.plan
    if not isinstance(plan, OverPlan):
        raise InternalError(f"OVER was planned as {type(plan).__name__}")
    views = {name: with_system_columns(item.schema) for name, item in opened.inputs.all.items()}
    show_empty(opened.spark, views)
    schema = state_schema(query_schema(opened.spark, plan.rows_sql), plan.keys, shrinks=plan.shrinks)
    return open_or_make(store, TableSpec(KEPT, schema, (*plan.keys, CHUNK), owner=owner))
