"""SQL of the single rows that windows are made of, to find which rows were late for a closed window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp, parse_one

from velostream.model.columns import POSITION_KEPT, ROW_AS_JSON, TIME
from velostream.plan.query.select_names import conjuncts
from velostream.sql.text.spark_text import SPARK
from velostream.sql.windows.bounds import EACH

if TYPE_CHECKING:
    from collections.abc import Sequence


def detail_sql(tree: exp.Select, keys: Sequence[exp.Expr], time: str, position: str, row: str) -> str:
    """SQL of the rows that a query groups by `keys`, the last two being the bounds; see `GroupsPlan`."""
    select = exp.Select().from_(tree.args["from_"].this.copy())
    where = tree.args.get("where")
    for each in conjuncts(where.this) if where is not None else ():
        if not any(column.table == EACH for column in each.find_all(exp.Column)):
            select = select.where(each.copy(), copy=False)
    items = [exp.alias_(key.copy(), f"__k{number}") for number, key in enumerate(keys[:-2], start=1)]
    for text, name in ((time, TIME), (position, POSITION_KEPT), (row, ROW_AS_JSON)):
        items.append(exp.alias_(parse_one(text, dialect=SPARK), name))
    return str(select.select(*items).sql(dialect=SPARK))
