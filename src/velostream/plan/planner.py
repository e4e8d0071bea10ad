"""The planner: chooses the cheapest exact incremental plan for a query, in pure Python.

An input that can shrink hands over two sets of rows per batch: rows added and rows retracted. A stateless
query runs on each set. Groups subtract where subtraction is exact, and otherwise recompute the touched keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import UnsupportedError
from velostream.model.columns import MESSAGE_KEY, NO_ROW, POSITION, POSITION_KEPT, TOMBSTONE
from velostream.plan.derived.lookup import lookup_plan
from velostream.plan.derived.plan import derived_plan
from velostream.plan.groups.plan import NeedsColumns, groups_apply, is_session, plan_groups
from velostream.plan.over.plan import over_applies, plan_over
from velostream.plan.plans import Plan, RecomputePlan, RowsPlan, UpsertPlan
from velostream.plan.query.functions import volatile_calls
from velostream.plan.query.select_names import NoKeysError
from velostream.plan.query.stateless import plain_column, why_not_stateless
from velostream.plan.steps import Step, StepKind
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from velostream.model.statements import Query

__all__ = ["POSITION", "NeedsColumns", "plan_query"]


LAST_PER_KEY = Step(
    StepKind.MERGE,
    "last row per message key",
    "a later message of the same key replaces the earlier; one without a value deletes it",
    state="one row per message key",
)


def plan_query(
    query: Query,
    key: tuple[str, ...] = (),
    *,
    only_grows: bool = True,
    columns: Mapping[str, Sequence[str] | None] | None = None,
    message_key: str | None = None,
    closes: bool = False,
) -> Plan:
    """Choose the plan of a query whose names are resolved.

    `key` is the declared key of the table, `only_grows` says that no input retracts rows, and `columns` are
    the columns of each input that the query uses. `message_key` is the system column by which later rows of
    the one source replace earlier ones, where the query does not aggregate; `key` is then the source's own
    key, which identifies the same rows. `closes`: the groups belong to windows that close, so each batch is
    merged into them.
    """
    refuse_later_features(query)
    _refuse_samples(query.tree)
    if not query.sources:
        return _over_tables(query, key, columns or {}, closes=closes)
    tree = query.tree
    if not only_grows:
        _refuse_volatile(tree)
    if query.tables:
        return lookup_plan(query, key, columns or {}, only_grows=only_grows)
    if message_key is not None and isinstance(tree, exp.Select):
        return last_per_message_key(tree, message_key, key)
    if over_applies(query):
        assert isinstance(tree, exp.Select)
        return plan_over(tree, (columns or {}).get(query.sources[0].id), only_grows=only_grows)
    reason = why_not_stateless(tree)
    if reason is None:
        return _upsert(tree, key) if key else _rows(tree)
    if isinstance(tree, exp.Select) and groups_apply(tree):
        return plan_groups(tree, key)
    raise UnsupportedError(
        f"this query cannot be kept up to date over a source yet: {reason}",
        hint="make a table of the source first, then a table or a SELECT over that table",
        location=query.location,
    )


def _over_tables(
    query: Query,
    key: tuple[str, ...],
    columns: Mapping[str, Sequence[str] | None],
    *,
    closes: bool,
) -> Plan:
    """Plan a query over tables: by affected keys where possible, since any column can be looked up."""
    tree = query.tree
    single = len(query.tables) == 1
    _refuse_volatile(tree)
    reason = why_not_stateless(tree) if single else "it reads several tables"
    if reason is None:
        return _upsert(tree, key) if key else _rows(tree)
    if closes and single and (_has_sessions(tree) or _groups_each(tree)):
        assert isinstance(tree, exp.Select)
        return plan_groups(tree, key)
    try:
        return derived_plan(tree, key, {name: columns.get(name) for name in query.tables})
    except NoKeysError as exc:
        reason = str(exc)
    except NeedsColumns:
        if not single:
            raise
    return recompute_plan(query, key, reason)


def recompute_plan(query: Query, key: tuple[str, ...], reason: str) -> Plan:
    """The plan of a query over tables without keys to follow: merged groups, else full recompute."""
    tree = query.tree
    merged = isinstance(tree, exp.Select) and groups_apply(tree) and not _has_sessions(tree)
    if len(query.tables) == 1 and merged:
        assert isinstance(tree, exp.Select)
        return plan_groups(tree, key)
    return recompute(tree, reason)


def _has_sessions(tree: exp.Expr) -> bool:
    """Whether a SELECT groups by session windows: rows of a later batch may extend or join a session."""
    groups = isinstance(tree, exp.Select) and groups_apply(tree)
    return groups and any(is_session(call) for call in tree.find_all(exp.Anonymous))


def _groups_each(tree: exp.Expr) -> bool:
    """Whether a SELECT groups rows of a LATERAL VIEW, which multiplies rows, as overlapping windows do."""
    return isinstance(tree, exp.Select) and groups_apply(tree) and bool(tree.args.get("laterals"))


def refuse_later_features(query: Query) -> None:
    """Raise UnsupportedError for features that the binder accepts but no plan executes yet."""
    if query.window is not None:
        raise UnsupportedError(
            f"{query.window.kind} windows are not executed in this version",
            hint="the statement is valid; group by a truncated time such as date_trunc('minute', ts) meanwhile",  # noqa: E501
            location=query.window.location or query.location,
        )
    if query.streams:
        raise UnsupportedError(
            f'reading stream "{query.streams[0]}" from another statement is not executed in this version',
            hint="name the stream's source, or use a table",
            location=query.location,
        )
    if len(query.sources) > 1 and not isinstance(query.tree, exp.Union):
        raise UnsupportedError(
            "joins of several sources are not executed in this version",
            hint="make a table of each source, then join the tables",
            location=query.location,
        )


def _refuse_volatile(tree: exp.Expr) -> None:
    for name in volatile_calls(tree):
        raise UnsupportedError(
            f"{name}() may return another value when a row is retracted",
            detail="the input can shrink, and a retracted row must have the value it had when added",
            hint="keep the value in the data; _timestamp is when a row arrived; "
            "CREATE TABLE follows filters such as ts > now() - INTERVAL 1 HOUR",
        )


def _refuse_samples(tree: exp.Expr) -> None:
    """Raise UnsupportedError for a random sample, which differs each time; (n ROWS) is allowed."""
    for sample in tree.find_all(exp.TableSample):
        if not sample.args.get("size"):
            raise UnsupportedError(
                f"{sample.sql(dialect=SPARK).strip()} draws other rows each time it is computed",
                hint="choose rows by what they hold, such as WHERE pmod(xxhash64(id), 100) < 10",
            )


def _rows(tree: exp.Query) -> RowsPlan:
    step = Step(
        StepKind.STATELESS,
        "filter and project",
        "each row is computed by itself, when it comes and when it is retracted",
    )
    return RowsPlan(tree.sql(dialect=SPARK), steps=(step,))


def _upsert(tree: exp.Query, key: tuple[str, ...]) -> UpsertPlan:
    inner = not isinstance(tree, exp.Select) or tree.args.get("with_")
    if inner or not isinstance(tree.args["from_"].this, exp.Table):
        raise UnsupportedError(
            "a key over a subquery or UNION is not executed in this version",
            hint="make a table of the inner query first, and give the key to a table over it",
        )
    table = tree.args["from_"].this
    ordered = tree.copy().select(exp.column(POSITION, table=table.alias_or_name).as_(POSITION_KEPT))
    step = Step(
        StepKind.MERGE,
        f"last row per {', '.join(key)}",
        "a later row of the same key replaces the earlier; keys that lose a row are looked up again",
        state="one row per key",
    )
    plain = {i.alias_or_name: plain_column(i.unalias(), table.alias_or_name) for i in tree.selects}
    passed = tuple(plain.get(name) or name for name in key)
    computed = {name for name, column in plain.items() if name and column is None}
    columns = () if computed & set(key) else passed
    return UpsertPlan(
        tree.sql(dialect=SPARK), key, ordered.sql(dialect=SPARK), columns, asked=(POSITION,), steps=(step,)
    )


def last_per_message_key(tree: exp.Select, message_key: str, key: tuple[str, ...] = ()) -> UpsertPlan:
    """Upsert: the last row of each message key; a row without a key replaces none.

    A row that fails the filter deletes the earlier row of its key, so the filter is a column (`NO_ROW`).
    `key` are columns of the result that identify the same rows: they take the place of the message key, which
    the table then does not hold.
    """
    if tree.is_star:
        raise NeedsColumns
    alias = tree.args["from_"].this.alias_or_name
    where = tree.args.get("where")
    there: exp.Expr = exp.not_(exp.column(TOMBSTONE, table=alias))
    if where is not None:
        there = exp.and_(there, exp.func("coalesce", where.this.copy(), exp.false()))
    ordered = tree.copy()
    ordered.set("where", None)
    # Guarded by CASE: columns of rows that the filter drops, or of tombstones, may not be computable.
    kept = [
        item.copy()
        if item.alias_or_name in key
        else exp.alias_(exp.Case().when(there.copy(), item.unalias().copy()), item.alias_or_name, quoted=True)
        for item in tree.selects
    ]
    if not key:
        # A row without a key gets its position, after a NUL
        # character, as its key: no message key starts with NUL.
        alone = exp.func("concat", exp.Literal.string("\x00"), exp.column(POSITION, table=alias))
        found = exp.func("coalesce", exp.column(message_key, table=alias), alone)
        kept.append(found.as_(MESSAGE_KEY))
    ordered.set(
        "expressions",
        [*kept, exp.column(POSITION, table=alias).as_(POSITION_KEPT), exp.not_(there).as_(NO_ROW)],
    )
    return UpsertPlan(
        tree.sql(dialect=SPARK),
        key or (MESSAGE_KEY,),
        ordered.sql(dialect=SPARK),
        asked=(POSITION, TOMBSTONE) if key else (POSITION, message_key, TOMBSTONE),
        deletes=True,
        plain=_plain(tree) if where is None else None,
        steps=(LAST_PER_KEY,),
    )


def _plain(tree: exp.Select) -> tuple[str, ...] | None:
    """The columns that a SELECT hands on as they are; None where it computes one."""
    found = [item.unalias() for item in tree.selects]
    names = tuple(item.name for item in found if isinstance(item, exp.Column) and len(item.parts) <= 2)
    return names if len(names) == len(found) else None


def recompute(tree: exp.Query, reason: str) -> RecomputePlan:
    """Full recompute: the whole query is computed again for every change."""
    step = Step(
        StepKind.RECOMPUTE,
        "the whole query",
        f"{reason}; the result is computed again and the difference applied",
        state="the result",
    )
    return RecomputePlan(tree.sql(dialect=SPARK), steps=(step,))
