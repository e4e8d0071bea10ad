"""HEADER, HAS_HEADER and HEADER_KEYS as Spark SQL over the system column `_headers`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp, parse_one

from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from velostream.model.statements import Query

_WORDS = {
    # A record may have several headers of one name; the last one counts, as in Kafka's own clients.
    "header": "CAST(try_element_at(filter(_headers, h -> h.key = {0}), -1).value AS STRING)",
    "has_header": "exists(_headers, h -> h.key = {0})",
    "header_keys": "transform(_headers, h -> h.key)",
}


def with_headers(query: Query) -> Query:
    """The query with its header functions replaced; the same object when it has none."""
    if not any(_called(node) for node in query.tree.find_all(exp.Anonymous)):
        return query
    tree = query.tree.transform(_replaced)
    assert isinstance(tree, exp.Query)
    return replace(query, tree=tree)


def _called(node: exp.Expr) -> str | None:
    name = str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
    return _WORDS.get(name)


def _replaced(node: exp.Expr) -> exp.Expr:
    words = _called(node)
    if words is None:
        return node
    text = words.format(*(each.sql(dialect=SPARK) for each in node.expressions))
    value = parse_one(text, dialect=SPARK)
    if isinstance(node.parent, exp.Select) and node.arg_key == "expressions":
        # The column is named after the call as written, like Spark does.
        said = ", ".join(each.name for each in node.expressions)
        return exp.alias_(value, f"{str(node.this).lower()}({said})", quoted=True)
    return value
