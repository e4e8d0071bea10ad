"""SET_HEADER and REMOVE_HEADER: a hidden column with the headers of the outgoing record."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp, parse_one

from velostream.errors import UnsupportedError
from velostream.model.columns import HEADERS, OUTGOING_HEADERS
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from velostream.model.statements import Query

_NONE = "CAST(array() AS ARRAY<STRUCT<key: STRING, value: BINARY>>)"
_WITHOUT = "filter({headers}, h -> h.key <> {name})"
_WITH = (
    "concat("
    + _WITHOUT
    + ", array(named_struct('key', {name}, 'value', CAST(CAST({value} AS STRING) AS BINARY))))"
)


def with_outgoing_headers(query: Query, *, incoming: bool) -> Query:
    """The query with its header calls as a column `__headers`; the same object when it has none.

    The headers start as those of the `incoming` record, if there is one, and the calls are applied in the
    order of the SELECT. A call without an alias is no column of the result; with one, the column holds the
    value that was set.
    """
    calls = [node for node in query.tree.find_all(exp.Anonymous) if _changes_headers(node)]
    if not calls:
        return query
    tree = query.tree.copy()
    headers = HEADERS if incoming else _NONE
    items: list[exp.Expr] = []
    found = 0
    for item in tree.selects if isinstance(tree, exp.Select) else ():
        call = item.unalias()
        if not _changes_headers(call):
            items.append(item)
            continue
        found += 1
        name = call.expressions[0].sql(dialect=SPARK)
        if call.name.lower() == "remove_header":
            headers = _WITHOUT.format(headers=headers, name=name)
            continue
        value = call.expressions[1]
        headers = _WITH.format(headers=headers, name=name, value=value.sql(dialect=SPARK))
        if isinstance(item, exp.Alias):
            items.append(exp.alias_(value.copy(), item.alias, quoted=True))
    if found != len(calls):
        raise UnsupportedError(
            "SET_HEADER and REMOVE_HEADER must be items of the outermost SELECT",
            hint="put a condition into the value: SET_HEADER('k', CASE WHEN … THEN … END)",
            location=query.location,
        )
    items.append(exp.alias_(parse_one(headers, dialect=SPARK), OUTGOING_HEADERS, quoted=True))
    tree.set("expressions", items)
    return replace(query, tree=tree)


def _changes_headers(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in ("set_header", "remove_header")
