"""Joins of two relations as keyed nodes: equi-joins of every kind, and IN and EXISTS as semi-joins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.plan.derived.nodes import INNER, Keyed, Node, Side
from velostream.plan.groups.plan import NeedsColumns
from velostream.plan.query.functions import has_aggregates
from velostream.plan.query.select_names import (
    Joined,
    NoKeysError,
    columns_of,
    conjuncts,
    rewritten,
    with_fields,
)
from velostream.plan.steps import Step, StepKind
from velostream.sql.names.spelling import told
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from velostream.plan.derived.build import CTEs, Derivation

_LEFT, _RIGHT = "__l", "__r"
_KINDS = {
    ("", ""): "JOIN",
    ("", "INNER"): "JOIN",
    ("", "CROSS"): "JOIN",
    ("LEFT", ""): "LEFT JOIN",
    ("RIGHT", ""): "RIGHT JOIN",
    ("FULL", ""): "FULL JOIN",
    ("", "SEMI"): "LEFT SEMI JOIN",
    ("LEFT", "SEMI"): "LEFT SEMI JOIN",
    ("", "ANTI"): "LEFT ANTI JOIN",
    ("LEFT", "ANTI"): "LEFT ANTI JOIN",
}


@dataclass(frozen=True)
class Pair:
    """An equality of the join condition: an expression over each side, and whether null equals null."""

    left: exp.Expr
    right: exp.Expr
    nulls_meet: bool


def where_keys(conditions: list[exp.Expr]) -> list[exp.Expr]:
    """Equalities of WHERE, which can serve as the keys of an inner join."""
    return [c for c in conditions if isinstance(c, exp.EQ) and not c.find(exp.Query)]


def join_relation(
    build: Derivation, left: Joined, join: exp.Join, alias: str, node: Node, hints: list[exp.Expr]
) -> Joined:
    """The relations joined so far, joined to one more."""
    word = _word(join)
    if alias in left.relations:
        raise NoKeysError(f"two relations are called {alias}")
    right = Joined(node, {alias: {name: name for name in node.columns}})
    pairs: list[Pair] = []
    residual: list[exp.Expr] = []
    for condition in conjuncts(join.args.get("on")):
        pair = _pair(condition, left, right)
        if pair is None:
            residual.append(condition)
        else:
            pairs.append(pair)
    if word == "JOIN" and not pairs:
        pairs = [pair for c in hints if (pair := _pair(c, left, right)) is not None]
    return _joined(build, left, right, word, pairs, residual)


def _word(join: exp.Join) -> str:
    if join.method == "NATURAL" or join.args.get("using"):
        raise NeedsColumns
    kind = "" if join.kind == "OUTER" else join.kind
    word = _KINDS.get((join.side, kind))
    if word is None or join.method or join.args.get("match_condition"):
        raise NoKeysError(f"{join.method} {join.side} {join.kind} JOIN is not followed".strip())
    return word


def _pair(condition: exp.Expr, left: Joined, right: Joined) -> Pair | None:
    while isinstance(condition, exp.Paren):
        condition = condition.this
    if not isinstance(condition, (exp.EQ, exp.NullSafeEQ)) or condition.find(exp.Query):
        return None
    meet = isinstance(condition, exp.NullSafeEQ)
    one, other = condition.left, condition.right
    if _only(one, left, right) and _only(other, right, left):
        return Pair(rewritten(one, left), rewritten(other, right), meet)
    if _only(other, left, right) and _only(one, right, left):
        return Pair(rewritten(other, left), rewritten(one, right), meet)
    return None


def _only(expression: exp.Expr, inside: Joined, outside: Joined) -> bool:
    columns = list(columns_of(expression))
    return bool(columns) and all(
        inside.find(column) is not None and outside.find(column) is None for column in columns
    )


def _joined(
    build: Derivation,
    left: Joined,
    right: Joined,
    word: str,
    pairs: list[Pair],
    residual: list[exp.Expr],
) -> Joined:
    left_node, left_keys = build.with_columns(left.node, [pair.left for pair in pairs])
    right_node, right_keys = build.with_columns(right.node, [pair.right for pair in pairs])
    names = _names(left, right, semi="SEMI" in word or "ANTI" in word)
    items: list[str] = []
    origin: dict[str, tuple[int, str]] = {}
    renamed: dict[str, dict[str, str]] = {}
    for side, (relations, qualifier) in enumerate(((left.relations, _LEFT), (right.relations, _RIGHT))):
        for alias, columns in relations.items():
            for written, inner in columns.items():
                name = names.get((alias, written))
                if name is None:
                    continue
                items.append(f"{qualifier}.`{_tick(inner)}` AS `{_tick(name)}`")
                origin[name] = (side, inner)
                renamed.setdefault(alias, {})[written] = name
    # The other conditions of an inner join become a filter above it: the join itself then has equalities
    # only, which lets it be maintained as dL⋈R + L⋈dR without recomputing the rows that stay.
    asked_later = residual if word == INNER else []
    on = _condition(left, right, pairs, left_keys, right_keys, [] if asked_later else residual)
    sql = (
        f"SELECT {', '.join(items)} FROM `{left_node.view}` {_LEFT} {word} `{right_node.view}` {_RIGHT}"
        f" ON {on}"
    )
    sides = (
        Side(left_node, tuple(left_keys), extended=word in {"RIGHT JOIN", "FULL JOIN"}),
        Side(right_node, tuple(right_keys), extended=word in {"LEFT JOIN", "FULL JOIN"}),
    )
    node: Node = Keyed(
        build.view(),
        tuple(origin),
        sql,
        sides,
        origin,
        _step(word, pairs),
        tuple(pair.nulls_meet for pair in pairs),
        word,
    )
    if asked_later:
        node = build.filtered(node, [rewritten(c, Joined(node, renamed)) for c in asked_later])
    return Joined(node, renamed)


def _names(left: Joined, right: Joined, *, semi: bool) -> dict[tuple[str, str], str]:
    """The name of each column in the joined node: `alias__column`, with `_` appended until it is unique."""
    names: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    single = len(left.relations) == 1
    for joined, fresh in ((left, single and not semi), (right, True)):
        if joined is right and semi:
            continue
        for alias, columns in joined.relations.items():
            for written, inner in columns.items():
                name = f"{alias}__{written}" if fresh else inner
                while name.casefold() in taken:
                    name += "_"
                taken.add(name.casefold())
                names[alias, written] = name
    return names


def _condition(
    left: Joined,
    right: Joined,
    pairs: list[Pair],
    left_keys: list[str],
    right_keys: list[str],
    residual: list[exp.Expr],
) -> str:
    parts = [
        f"{_LEFT}.`{_tick(one)}` {'<=>' if pair.nulls_meet else '='} {_RIGHT}.`{_tick(other)}`"
        for pair, one, other in zip(pairs, left_keys, right_keys, strict=True)
    ]
    parts += [f"({_two_sided(condition, left, right)})" for condition in residual]
    return " AND ".join(parts) or "true"


def _two_sided(condition: exp.Expr, left: Joined, right: Joined) -> str:
    if condition.find(exp.Query):
        raise NoKeysError("a subquery in ON looks at other rows")

    def swap(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        found = [
            with_fields(exp.column(inner[1], table=qualifier, quoted=True), joined.fields(node))
            for joined, qualifier in ((left, _LEFT), (right, _RIGHT))
            if (inner := joined.find(node)) is not None
        ]
        if len(found) != 1:
            raise NoKeysError(f"{node.sql(dialect=SPARK)} in ON is not one column")
        return found[0]

    return str(condition.copy().transform(swap).sql(dialect=SPARK))


def _step(word: str, pairs: list[Pair]) -> Step:
    if not pairs:
        return Step(
            StepKind.RECOMPUTE,
            word.lower(),
            "no equality between the two sides gives a key; this step is computed again for every change",
        )
    keys = ", ".join(told(pair.left) for pair in pairs)
    return Step(
        StepKind.AFFECTED_KEYS,
        f"{word.lower()} by {keys}",
        "the keys in the changes of either side are looked up on both, before and after",
    )


def _tick(name: str) -> str:
    return name.replace("`", "``")


# --- IN and EXISTS ------------------------------------------------------------------------------------


def semi_join(build: Derivation, left: Joined, condition: exp.Expr, ctes: CTEs) -> Joined:
    """Semi-join or anti-join for IN, EXISTS and NOT EXISTS."""
    negated = False
    while isinstance(condition, (exp.Paren, exp.Not)):
        negated ^= isinstance(condition, exp.Not)
        condition = condition.this
    if isinstance(condition, exp.Exists):
        select, asked = condition.this, []
    elif isinstance(condition, exp.In) and condition.args.get("query") and not negated:
        select, asked = condition.args["query"], [condition.this]
    else:
        what = "NOT IN" if isinstance(condition, exp.In) else condition.sql(dialect=SPARK)
        raise NoKeysError(f"{what} looks at all rows of the subquery")
    while isinstance(select, exp.Subquery):
        select = select.this
    if not isinstance(select, exp.Select) or has_aggregates(select):
        raise NoKeysError("a subquery with aggregates in IN or EXISTS is not followed")
    if any(select.args.get(name) for name in ("limit", "offset", "qualify", "having")):
        raise NoKeysError("LIMIT in a subquery looks at all of its rows")
    inner, outer_keys = _uncorrelated(build, left, select, asked, ctes)
    right = Joined(inner, {"": {name: name for name in inner.columns}})
    pairs = [
        Pair(key, exp.column(name, quoted=True), nulls_meet=False)
        for key, name in zip(outer_keys, inner.columns, strict=False)
    ]
    word = "LEFT ANTI JOIN" if negated else "LEFT SEMI JOIN"
    return _joined(build, left, right, word, pairs, [])


def _uncorrelated(
    build: Derivation, left: Joined, select: exp.Select, asked: list[exp.Expr], ctes: CTEs
) -> tuple[Node, list[exp.Expr]]:
    """The subquery without its correlation: it selects the columns to compare; with the outer expressions."""
    probe = select.copy()
    probe.set("where", None)
    probe.set("expressions", [exp.Literal.number(1)])
    probe.set("distinct", None)
    own = _own_columns(build, probe, ctes)
    keep: list[exp.Expr] = []
    outer_keys = [rewritten(part, left) for part in asked]
    inner_keys = [item.unalias() for item in select.selects] if asked else []
    where = select.args.get("where")
    for condition in conjuncts(where.this if where else None):
        if condition.find(exp.Query):
            raise NoKeysError("a subquery within a subquery is not followed")
        if all(_is_own(column, own) for column in columns_of(condition)):
            keep.append(condition)
            continue
        if not isinstance(condition, exp.EQ):
            raise NoKeysError(f"{condition.sql(dialect=SPARK)} compares with the outer query, and not by =")
        sides = [all(_is_own(c, own) for c in columns_of(part)) for part in (condition.left, condition.right)]
        if sides == [True, False]:
            mine, theirs = condition.left, condition.right
        elif sides == [False, True]:
            mine, theirs = condition.right, condition.left
        else:
            raise NoKeysError(f"{condition.sql(dialect=SPARK)} mixes both queries")
        if any(_is_own(c, own) for c in columns_of(theirs)):
            raise NoKeysError(f"{condition.sql(dialect=SPARK)} mixes both queries")
        inner_keys.append(mine)
        outer_keys.append(rewritten(theirs, left))
    if len(inner_keys) != len(outer_keys):
        raise NoKeysError("IN over several columns is not followed")
    inner = select.copy()
    inner.set("distinct", None)
    inner.set("order", None)
    inner.set("where", exp.Where(this=exp.and_(*keep)) if keep else None)
    items = [exp.alias_(key.copy(), f"__in{n}", quoted=True) for n, key in enumerate(inner_keys)]
    inner.set("expressions", items or [exp.alias_(exp.Literal.number(1), "__in0", quoted=True)])
    return build.query(inner, ctes), outer_keys


def _own_columns(build: Derivation, probe: exp.Select, ctes: CTEs) -> dict[str, set[str]]:
    """The columns of the subquery's own relations, by alias."""
    own: dict[str, set[str]] = {}
    relations = [probe.args["from_"].this, *(join.this for join in probe.args.get("joins") or [])]
    for relation in relations:
        alias, node = build.relation(relation, ctes)
        own[alias] = {name.casefold() for name in node.columns}
    return own


def _is_own(column: exp.Column, own: dict[str, set[str]]) -> bool:
    first, *rest = (part.name.casefold() for part in column.parts)
    if rest and first in own:
        return rest[0] in own[first]
    return any(first in columns for columns in own.values())
