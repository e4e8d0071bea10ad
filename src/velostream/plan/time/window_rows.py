"""The rows that windows are made of, one by one: which of them a window that has closed does not take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp, parse_one

from velostream.plan.query.select_names import conjuncts
from velostream.sql.text.spark_text import SPARK
from velostream.sql.windows.bounds import EACH

if TYPE_CHECKING:
    from collections.abc import Sequence


def detail_sql(tree: exp.Select, keys: Sequence[exp.Expr], time: str, position: str, row: str) -> str:
    """The rows that a query groups by `keys`, of which the last two are the bounds; see `GroupsPlan`."""
    select = exp.Select().from_(tree.args["from_"].this.copy())
    where = tree.args.get("where")
    for each in conjuncts(where.this) if where is not None else ():
        if not any(column.table == EACH for column in each.find_all(exp.Column)):
            select = select.where(each.copy(), copy=False)
    items = [exp.alias_(key.copy(), f"__k{number}") for number, key in enumerate(keys[:-2], start=1)]
    for text, name in ((time, "__time"), (position, "__position"), (row, "__row")):
        items.append(exp.alias_(parse_one(text, dialect=SPARK), name))
    return str(select.select(*items).sql(dialect=SPARK))
