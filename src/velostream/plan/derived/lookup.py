"""Lookup joins of a stream with tables: each row is joined to the tables as they are when it arrives.

A later change of a table does not change rows that were joined before, so only the stream has changes. Each
batch looks up its own keys, and the cost follows the size of the batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp, parse_one

from velostream.errors import UnsupportedError
from velostream.model.columns import EVENT_TIME, POSITION, POSITION_KEPT, SYSTEM_COLUMNS
from velostream.plan.derived.build import Derivation
from velostream.plan.derived.nodes import Keyed, Node, walk
from velostream.plan.derived.plan import groups_over, key_columns, scans
from velostream.plan.groups.plan import groups_apply
from velostream.plan.plans import Plan, RowsPlan
from velostream.plan.query.functions import has_aggregates
from velostream.plan.query.select_names import NoKeysError
from velostream.plan.steps import Step, StepKind
from velostream.plan.time.window_rows import detail_sql
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from velostream.model.statements import Query
    from velostream.plan.plans import GroupsPlan
    from velostream.plan.query.select_names import Joined

_STREAM_LEFT = {"JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"}
_STREAM_RIGHT = {"JOIN", "RIGHT JOIN"}


def lookup_plan(
    query: Query,
    key: tuple[str, ...],
    columns: Mapping[str, Sequence[str] | None],
    *,
    only_grows: bool,
) -> Plan:
    """The lookup join of one source with tables; UnsupportedError where the join has no exact meaning."""
    stream = query.sources[0].id
    given = {name: columns.get(name) for name in (stream, *query.tables)}
    known = given[stream]
    if known is not None and POSITION not in known:
        given[stream] = (*known, POSITION)
    build = Derivation(given, hidden={*SYSTEM_COLUMNS, POSITION})
    tree = query.tree
    try:
        if not isinstance(tree, exp.Select):
            raise NoKeysError("the join must be in one SELECT, not in a UNION")
        joined, rest = build.block(tree, {})
        _check(joined.node, stream)
        return _plan(tree, build, joined, rest, key, stream, only_grows=only_grows)
    except NoKeysError as exc:
        raise UnsupportedError(
            f"this join of a source with tables is not executed: {exc}",
            hint="make a table of the source, then join the tables",
            location=query.location,
        ) from exc


def _check(node: Node, stream: str) -> None:
    """Raise NoKeysError unless every join above the stream keeps rows of the stream only.

    A FULL or a wrongly directed outer join would show table rows without a match, and for a stream there is
    no moment at which "without a match" is final.
    """
    for each in walk(node):
        sides = [any(s.relation == stream for s in scans(child)) for child in each.below]
        if not any(sides):
            continue
        if sum(sides) > 1:
            raise NoKeysError("the stream is joined to itself")
        if not isinstance(each, Keyed):
            continue
        if not each.word:
            raise NoKeysError(f"{each.step.what} of the stream is below the join")
        if each.word not in (_STREAM_LEFT if sides[0] else _STREAM_RIGHT):
            raise NoKeysError(
                f"a {each.word.lower()} keeps rows of a table that no row of the stream matches, and "
                "there is no moment at which that is known"
            )


def _plan(
    tree: exp.Select,
    build: Derivation,
    joined: Joined,
    rest: exp.Select,
    key: tuple[str, ...],
    stream: str,
    *,
    only_grows: bool,
) -> Plan:
    node = joined.node
    steps = _lookup_steps(node, stream)
    if groups_apply(rest):
        plan = groups_over(tree, build, node, rest, key, steps)
        if not plan.mergeable:
            raise NoKeysError("its aggregates need all rows again, as they were joined when they arrived")
        if not only_grows:
            raise NoKeysError("its groups would have to retract rows as they were joined when they arrived")
        return replace(plan, stream=stream, detail_sql=_detail(plan, joined))
    around = ("distinct", "limit", "offset", "order", "qualify")
    if has_aggregates(rest) or rest.find(exp.Window) or any(rest.args.get(name) for name in around):
        raise NoKeysError("it looks at other rows of the stream")
    if key and not only_grows:
        raise NoKeysError("earlier rows of a key would have to return as they were joined on arrival")
    sql = rest.sql(dialect=SPARK)
    if key or not only_grows:
        found = [columns[POSITION] for columns in joined.relations.values() if POSITION in columns]
        if not found:
            raise NoKeysError("the stream is in a subquery, and its rows may have to be retracted")
        position = found[0]
        ordered = rest.select(exp.alias_(exp.column(position, quoted=True), POSITION_KEPT, quoted=True))
        sql = ordered.sql(dialect=SPARK)
    return RowsPlan(
        tree.sql(dialect=SPARK),
        key,
        sql,
        key_columns(node, rest, key),
        positioned=not only_grows,
        below=node,
        stream=stream,
        steps=(*steps, _project(only_grows)),
    )


def _detail(plan: GroupsPlan, joined: Joined) -> str:
    """`GroupsPlan.detail_sql` for the rows of the stream; empty where they have no event time."""
    columns = next((each for each in joined.relations.values() if POSITION in each), {})
    if EVENT_TIME not in columns:
        return ""
    tree = parse_one(plan.partial_sql, dialect=SPARK)
    assert isinstance(tree, exp.Select)
    own = ", ".join(f"`{name}`" for name in columns.values())
    time, place = (
        exp.column(columns[name], quoted=True).sql(dialect=SPARK) for name in (EVENT_TIME, POSITION)
    )
    return detail_sql(tree, tree.args["group"].expressions, time, place, f"to_json(struct({own}))")


def _project(only_grows: bool) -> Step:
    why, state = "each row is computed by itself", "none"
    if not only_grows:
        why, state = f"{why}; a retracted row is found by the position of its input row", "a position per row"
    return Step(StepKind.STATELESS, "filter and project", why, state)


def _lookup_steps(node: Node, stream: str) -> tuple[Step, ...]:
    steps = []
    for each in walk(node):
        if not isinstance(each, Keyed):
            continue
        if any(scan.relation == stream for scan in scans(each)):
            why = (
                "the keys of the batch are looked up in the table as it is when the batch is processed"
                if each.keyed
                else "there is no key to look up, so the batch meets the whole table"
            )
            steps.append(Step(StepKind.LOOKUP, each.step.what, why))
        else:
            steps.append(each.step)
    return tuple(steps)
