"""Plans over derived relations: a tree of nodes, and how the table applies its changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.plan.derived.build import Derivation
from velostream.plan.derived.nodes import Keyed, Node, Scan, walk
from velostream.plan.groups.plan import group_expressions, groups_apply, plan_groups
from velostream.plan.plans import GroupsPlan, Plan, RowsPlan
from velostream.plan.query.functions import has_aggregates
from velostream.plan.query.select_names import NoKeysError
from velostream.plan.steps import Step, StepKind
from velostream.sql.names.spelling import told
from velostream.sql.text.spark_text import SPARK
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def derived_plan(tree: exp.Query, key: tuple[str, ...], columns: Mapping[str, Sequence[str] | None]) -> Plan:
    """The plan that maintains a whole query by affected keys; NoKeysError where a part of it has no keys."""
    build = Derivation(columns)
    top: exp.Expr = tree
    if not isinstance(top, exp.Select):
        return _rows(tree, build.query(tree), None, key)
    joined, rest = build.block(top, {})
    node = joined.node
    if not rest.args.get("limit") and not rest.args.get("offset"):
        rest.set("order", None)
    if groups_apply(rest):
        node, rest = build.sessions(node, rest)
        return groups_over(tree, build, node, rest, key, steps_of(node))
    looks_around = has_aggregates(rest) or rest.find(exp.Window) is not None
    if looks_around or any(rest.args.get(name) for name in ("distinct", "limit", "offset", "order")):
        return _rows(tree, build.finished(node, rest), None, key)
    return _rows(tree, node, rest, key)


def groups_over(
    tree: exp.Query,
    build: Derivation,
    node: Node,
    rest: exp.Select,
    key: tuple[str, ...],
    steps: tuple[Step, ...],
) -> GroupsPlan:
    """The plan of groups over a derived relation; group expressions become columns of that relation."""
    keys = group_expressions(rest)
    if rest.args.get("group"):
        rest.set("group", exp.Group(expressions=[each.copy() for each in keys]) if keys else None)
    by = tuple(map(told, keys))
    node, rest, names = build.keyed_rest(node, rest, keys)
    plan = plan_groups(rest, key, by)
    if len(plan.keys) != len(names or plan.keys):
        raise NoKeysError("two of its keys are the same")
    steps += plan.steps
    return replace(plan, sql=tree.sql(dialect=SPARK), below=node, below_keys=tuple(names), steps=steps)


def _rows(tree: exp.Query, node: Node, rest: exp.Select | None, key: tuple[str, ...]) -> RowsPlan:
    sql = rest.sql(dialect=SPARK) if rest is not None else f"SELECT * FROM {quote(node.view)}"
    steps = steps_of(node)
    if rest is not None:
        steps += (
            Step(
                StepKind.STATELESS,
                "filter and project",
                "each row is computed by itself, when it comes and when it is retracted",
            ),
        )
    return RowsPlan(tree.sql(dialect=SPARK), key, sql, key_columns(node, rest, key), below=node, steps=steps)


def key_columns(node: Node, rest: exp.Select | None, key: tuple[str, ...]) -> tuple[str, ...]:
    """The columns of the node that hold the key; empty when a key column is computed."""
    if rest is None:
        return key
    plain = {i.alias: i.this.name for i in rest.selects if isinstance(i, exp.Alias) and _plain(i.this)}
    return tuple(plain[name] for name in key) if set(key) <= plain.keys() else ()


def _plain(expression: exp.Expr) -> bool:
    return isinstance(expression, exp.Column)


def steps_of(node: Node) -> tuple[Step, ...]:
    """The EXPLAIN steps of the keyed nodes; NoKeysError when one of them has no keys."""
    for each in walk(node):
        if isinstance(each, Keyed) and not each.keyed:
            raise NoKeysError(each.step.why.split(";")[0])
    return tuple(each.step for each in walk(node) if isinstance(each, Keyed))


def scans(node: Node) -> list[Scan]:
    """Every scan of an input in the tree."""
    return [each for each in walk(node) if isinstance(each, Scan)]
