"""The key of a table, where a query over it passes the key columns on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.plan.query.stateless import one_row_each, plain_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from velostream.model.statements import Query


def row_key(query: Query, keys: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The key of the only relation that the query reads, where each row of the result is one row of it."""
    read = [*query.tables, *(ref.id for ref in query.sources)]
    return own_key(query, read[0], keys.get(read[0], ())) if len(read) == 1 else ()


def own_key(query: Query, name: str, key: tuple[str, ...]) -> tuple[str, ...]:
    """The relation's key, where the query passes all key columns on unchanged; else empty."""
    if not key or not isinstance(query.tree, exp.Select) or not one_row_each(query.tree, name):
        return ()
    items = query.tree.selects
    alias = query.tree.args["from_"].this.alias_or_name
    if any(_has_all(item, key, alias) for item in items):
        return key
    found = {plain_column(item.unalias(), alias): item.alias_or_name for item in reversed(items)}
    passed = tuple(found.get(name, "") for name in key)
    same = all(one.casefold() == other.casefold() for one, other in zip(passed, key, strict=True))
    return passed if same else ()


def _has_all(item: exp.Expr, names: tuple[str, ...], alias: str) -> bool:
    """Whether an item is `*` of the relation, not of a struct, and excludes none of the names."""
    star = item.this if isinstance(item, exp.Column) else item
    if not isinstance(star, exp.Star):
        return False
    if isinstance(item, exp.Column) and [part.name.casefold() for part in item.parts[:-1]] != [
        alias.casefold()
    ]:
        return False
    without = {each.name.casefold() for each in star.args.get("except_") or ()}
    return not without & {name.casefold() for name in names}
