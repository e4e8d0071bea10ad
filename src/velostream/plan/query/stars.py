"""Expansion of `*` into columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.sql.names.spelling import column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def expand_stars(tree: exp.Query, columns: Mapping[str, Sequence[str]]) -> exp.Query:
    """The query with `*` expanded in every SELECT whose relations are all known."""
    expanded = tree.copy()
    for select in expanded.find_all(exp.Select):
        from_ = select.args.get("from_")
        relations = [from_.this, *(join.this for join in select.args.get("joins") or [])] if from_ else []
        if all(isinstance(each, exp.Table) and each.name in columns for each in relations):
            found = [named for item in select.selects for named in _columns(item, relations, columns)]
            select.set("expressions", found)
    return expanded


def _columns(
    item: exp.Expr, relations: list[exp.Expr], columns: Mapping[str, Sequence[str]]
) -> Iterator[exp.Expr]:
    """The item itself, or the columns that a `*` stands for."""
    star = item.this if isinstance(item, exp.Column) else item
    if not isinstance(star, exp.Star):
        yield item
        return
    wanted = item.table.casefold() if isinstance(item, exp.Column) else ""
    without = {each.name.casefold() for each in star.args.get("except_") or ()}
    for relation in relations:
        if wanted in ("", relation.alias_or_name.casefold()):
            names = (name for name in columns[relation.name] if name.casefold() not in without)
            yield from (column([relation.alias_or_name, name]) for name in names)
