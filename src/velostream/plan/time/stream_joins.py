"""Joins of streams: a row is kept as state only while a matching row can still arrive.

How long follows from comparisons of event times: `b.ts BETWEEN a.ts AND a.ts + INTERVAL …`, or WITHIN. The
remaining query reads the kept rows as tables.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import UnsupportedError
from velostream.model.columns import CLOSED, ENTERED, EVENT_TIME
from velostream.plan.groups.plan import NeedsColumns
from velostream.plan.query.select_names import conjuncts
from velostream.plan.time.asof import asof_join, without_asof
from velostream.plan.time.kept_rows import Kept, kept
from velostream.sql.names.spelling import relation_told
from velostream.sql.parse.dialect import WITHIN
from velostream.sql.windows.clauses import interval_duration

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from velostream.model.statements import Query
    from velostream.model.windows import EventTime
    from velostream.plan.time.asof import Asof, Columns

_FOREVER = float("inf")
_OUTER = ("LEFT", "RIGHT", "FULL")


def joins_streams(query: Query) -> bool:
    """Whether a query joins two or more sources to each other."""
    ids = {ref.id for ref in query.sources}
    if len(ids) < 2 or not isinstance(query.tree, exp.Select):
        return False
    return len([table for table in _relations(query.tree) if table.name in ids]) > 1


def stream_join(
    query: Query,
    times: Mapping[str, EventTime],
    columns: Mapping[str, Columns | None],
    *,
    grace: int,
    final: bool,
) -> Kept:
    """A join of streams as a query over the rows kept of each stream.

    `times` and `columns` are of each input, `grace` is in microseconds. With `final`, a row without a match
    is emitted once no match can arrive any more; otherwise at once, and retracted when a match arrives.
    """
    tree = query.tree
    assert isinstance(tree, exp.Select)
    ids = {ref.id for ref in query.sources}
    streams = {_alias(table): table.name for table in _relations(tree) if table.name in ids}
    if len([table for table in tree.find_all(exp.Table) if table.name in ids]) > len(streams):
        raise UnsupportedError(
            "joins of streams are executed where each stream is in the FROM of the same SELECT",
            hint="write filters in WHERE rather than in a subquery; or make a table of the inner query first",
            location=query.location,
        )
    if query.window is not None:
        raise UnsupportedError(
            "a WINDOW over joined streams is not executed in this version",
            hint="make a table of the join first, and the window over that table",
            location=query.window.location or query.location,
        )
    asof = asof_join(query)
    if asof is not None:
        return _asof(query, asof, _Times(streams, times, columns), columns, grace=grace, final=final)
    _refuse_kept_tables(query, tree, streams)
    outer = _outer(tree, streams)
    if outer and query.tables and not final:
        raise UnsupportedError(
            "an outer join of streams that is joined to a table is executed with EMIT FINAL",
            detail="a row with nulls is retracted when its match arrives; the table may have changed by then",
            hint="add EMIT FINAL; or make a table of the joined streams first, and join that",
            location=query.location,
        )
    tree = _without_stars(_with_conditions(tree, streams), columns)
    reach = _reach(tree, streams, times, columns)
    _check_bounded(query, streams, reach)
    found = kept(replace(query, tree=tree), {})
    final = outer and final
    rows = []
    for each in found.rows:
        alias = each.alias.casefold()
        others = [other for other in streams if other != alias]
        forward = int(max(0, *(reach[alias, other] for other in others)))
        # In an outer join the match must be kept as long as the row it matched:
        # if the match were forgotten first, the row would appear to have none.
        # So the time to look back is added to the time to look forward.
        back = int(max(0, *(reach[other, alias] for other in others))) if outer else 0
        closes = forward + grace if final else None
        rows.append(replace(each, timed=True, keep=forward + back + grace, closes=closes))
    rest = replace(found.query, tree=_shown_when_closed(found.query.tree, streams)) if final else found.query
    return Kept(rest, tuple(rows), forgets=True, appends=final or not outer)


def _asof(
    query: Query,
    join: Asof,
    times: _Times,
    columns: Mapping[str, Columns | None],
    *,
    grace: int,
    final: bool,
) -> Kept:
    """Keeps left rows until the watermark passes them, and of passed right rows the last of each key."""
    if any(times.stream(column) is None for column in join.times):
        raise UnsupportedError(
            "an ASOF JOIN of streams compares their event times",
            hint="compare _event_time, or the column that is the source's event.time.column",
            location=query.location,
        )
    left = join.left.alias_or_name.casefold()
    assert isinstance(query.tree, exp.Select)
    tree = without_asof(query.tree, join, columns, {CLOSED: "BOOLEAN"} if final else None)
    if final:
        tree = tree.where(exp.column(f"l_{CLOSED}", quoted=True), copy=False)
    found = kept(replace(query, tree=tree), {})
    rows = []
    for each in found.rows:
        if each.alias.casefold() == left:
            rows.append(replace(each, timed=True, keep=grace, closes=grace if final else None))
        else:
            last = tuple(pair[1].name for pair in join.keys)
            rows.append(replace(each, timed=True, last=last, grace=grace))
    return Kept(found.query, tuple(rows), forgets=True, appends=final)


# --- how far event times are apart ------------------------------------------------------------------


def _reach(
    tree: exp.Select,
    streams: Mapping[str, str],
    times: Mapping[str, EventTime],
    columns: Mapping[str, Columns | None],
) -> dict[tuple[str, str], float]:
    """How much later, in microseconds, a matching row of another stream can be, for each pair of streams.

    Each comparison bounds the difference of two event times. With three or more streams a pair may be bounded
    only through a third one, so the bounds are closed under addition: all shortest paths, by Floyd-Warshall.
    """
    reach = {(one, other): _FOREVER for one in streams for other in streams}
    names = _Times(streams, times, columns)
    for condition in _conditions(tree, streams):
        for earlier, later, most in names.bounds(condition):
            reach[earlier, later] = min(reach[earlier, later], most)
    for over in streams:
        for one in streams:
            for other in streams:
                reach[one, other] = min(reach[one, other], reach[one, over] + reach[over, other])
    return reach


class _Times:
    """Which columns are event times of streams."""

    def __init__(
        self,
        streams: Mapping[str, str],
        times: Mapping[str, EventTime],
        columns: Mapping[str, Columns | None],
    ) -> None:
        self._streams = streams
        self._times = times
        self._columns = columns

    def bounds(self, condition: exp.Expr) -> Iterator[tuple[str, str, int]]:
        """For each comparison of event times: one stream, another, and how much later the other can be."""
        if isinstance(condition, exp.Paren):
            yield from self.bounds(condition.this)
        elif isinstance(condition, exp.And):
            yield from self.bounds(condition.left)
            yield from self.bounds(condition.right)
        elif isinstance(condition, exp.Between):
            low, high = condition.args["low"], condition.args["high"]
            yield from self._at_most(low, condition.this)
            yield from self._at_most(condition.this, high)
        elif isinstance(condition, exp.LT | exp.LTE):
            yield from self._at_most(condition.left, condition.right)
        elif isinstance(condition, exp.GT | exp.GTE):
            yield from self._at_most(condition.right, condition.left)
        elif isinstance(condition, exp.EQ):
            yield from self._at_most(condition.left, condition.right)
            yield from self._at_most(condition.right, condition.left)

    def _at_most(self, small: exp.Expr, large: exp.Expr) -> Iterator[tuple[str, str, int]]:
        """The bound that follows from `small <= large`."""
        left, right = self._linear(small), self._linear(large)
        if left is None or right is None:
            return
        signs = dict(left[0])
        for alias, sign in right[0].items():
            signs[alias] = signs.get(alias, 0) - sign
        later = [alias for alias, sign in signs.items() if sign == 1]
        earlier = [alias for alias, sign in signs.items() if sign == -1]
        if len(later) == len(earlier) == 1 and all(abs(sign) <= 1 for sign in signs.values()):
            yield earlier[0], later[0], right[1] - left[1]

    def _linear(self, part: exp.Expr) -> tuple[dict[str, int], int] | None:
        """An expression as a sum: the sign of each event time, and a constant; None when it is not linear."""
        if isinstance(part, exp.Paren):
            return self._linear(part.this)
        if isinstance(part, exp.Column):
            alias = self.stream(part)
            return None if alias is None else ({alias: 1}, 0)
        if isinstance(part, exp.Interval):
            try:
                return {}, interval_duration(part) // timedelta(microseconds=1)
            except ValueError:
                return None
        if isinstance(part, exp.Neg):
            inner = self._linear(part.this)
            return None if inner is None else ({a: -s for a, s in inner[0].items()}, -inner[1])
        if isinstance(part, exp.Add | exp.Sub):
            left, right = self._linear(part.left), self._linear(part.right)
            if left is None or right is None:
                return None
            sign = -1 if isinstance(part, exp.Sub) else 1
            signs = dict(left[0])
            for alias, each in right[0].items():
                signs[alias] = signs.get(alias, 0) + sign * each
            return signs, left[1] + sign * right[1]
        return None

    def stream(self, column: exp.Column) -> str | None:
        """The stream whose event time the column is; None for any other column."""
        name, table = column.name.casefold(), column.table.casefold()
        aliases = [table] if table else [a for a, source in self._streams.items() if self._has(source, name)]
        if len(aliases) != 1 or aliases[0] not in self._streams:
            return None
        own = self._times[self._streams[aliases[0]]].column
        is_time = name == EVENT_TIME or (own is not None and name == own.casefold())
        return aliases[0] if is_time or (own is None and name == ENTERED) else None

    def _has(self, source: str, name: str) -> bool:
        return any(name == each.casefold() for each in self._columns.get(source) or ())


def _check_bounded(query: Query, streams: Mapping[str, str], reach: Mapping[tuple[str, str], float]) -> None:
    for one in streams:
        for other in streams:
            if one != other and reach[one, other] == _FOREVER:
                first, second = relation_told(one), relation_told(other)
                a, b = (one, other) if (first, second) == (one, other) else ("a", "b")
                raise UnsupportedError(
                    f"{first} and {second} are joined without a bound in time: "
                    f"every row of {first} would have to be kept for ever",
                    detail="event times are compared: _event_time, or the column that is the source's "
                    "event.time.column",
                    hint=f"add AND {b}.ts BETWEEN {a}.ts AND {a}.ts + INTERVAL '1' HOUR, or write "
                    "WITHIN INTERVAL '1' HOUR after ON; or make a table of each source, and join the tables",
                    location=query.location,
                )


# --- the tree -----------------------------------------------------------------------------------------


def _with_conditions(tree: exp.Select, streams: Mapping[str, str]) -> exp.Select:
    """The query with WITHIN rewritten as a comparison of event times."""
    tree = tree.copy()
    before = [_alias(tree.args["from_"].this)]
    for join in _joins(tree):
        alias = _alias(join.this)
        within = join.args.get(WITHIN)
        if within is not None:
            join.set(WITHIN, None)
            named = {column.table.casefold() for column in join.find_all(exp.Column)}
            others = [each for each in before if each in streams]
            for other in [each for each in others if each in named] or others[:1]:
                time, theirs = (exp.column(EVENT_TIME, table=each, quoted=True) for each in (alias, other))
                near = exp.Between(
                    this=time,
                    low=exp.Sub(this=theirs.copy(), expression=within.copy()),
                    high=exp.Add(this=theirs.copy(), expression=within.copy()),
                )
                on = join.args.get("on")
                join.set("on", exp.and_(on, near, copy=False) if on is not None else near)
        before.append(alias)
    return tree


def _without_stars(tree: exp.Select, columns: Mapping[str, Columns | None]) -> exp.Select:
    """The query with `*` expanded: kept rows have hidden columns besides, which must not appear."""
    items: list[exp.Expr] = []
    for item in tree.selects:
        star = item if isinstance(item, exp.Star) else item.this if isinstance(item, exp.Column) else None
        if not isinstance(star, exp.Star):
            items.append(item)
            continue
        wanted = item.table.casefold() if isinstance(item, exp.Column) else ""
        for relation in _relations(tree):
            if wanted in ("", _alias(relation)):
                known = columns.get(relation.name)
                if known is None or any(star.args.get(name) for name in ("except_", "replace", "rename")):
                    raise NeedsColumns
                alias = relation.alias_or_name
                items += [exp.column(name, table=alias, quoted=True) for name in known]
    tree.set("expressions", items)
    return tree


def _shown_when_closed(tree: exp.Query, streams: Iterable[str]) -> exp.Query:
    """The query filtered so that a row without a match appears only when its event time has closed.

    `_closed` is null on the missing side of an outer join; the sides that are present must have closed.
    """
    assert isinstance(tree, exp.Select)
    closed = [exp.column(CLOSED, table=alias, quoted=True) for alias in streams]
    case = exp.Case()
    for one in closed:
        others = [each for each in closed if each is not one]
        alone = exp.Is(this=one.copy(), expression=exp.Null())
        case = case.when(alone, exp.and_(*(exp.func("coalesce", o.copy(), exp.true()) for o in others)))
    return tree.where(case.else_(exp.true()))


def _conditions(tree: exp.Select, streams: Collection[str]) -> Iterator[exp.Expr]:
    """The conditions that matching rows satisfy.

    WHERE counts only for inner joins: after an outer join it filters rows whose match ON has already decided.
    """
    for join in _joins(tree):
        yield from conjuncts(join.args.get("on"))
    where = tree.args.get("where")
    if where is not None and not _outer(tree, streams):
        yield from conjuncts(where.this)


def _outer(tree: exp.Select, streams: Collection[str]) -> bool:
    """Whether a stream's row can be in the result without a row of another stream; tables do not matter."""
    before = _alias(tree.args["from_"].this) in streams
    for join in _joins(tree):
        stream = _alias(join.this) in streams
        if join.side in _OUTER and stream and before:
            return True
        before = before or stream
    return False


def _refuse_kept_tables(query: Query, tree: exp.Select, streams: Collection[str]) -> None:
    """Raise UnsupportedError for an outer join that would emit table rows without a matching stream row."""
    before = [_alias(tree.args["from_"].this)]
    for join in _joins(tree):
        alias = _alias(join.this)
        theirs = join.side in ("RIGHT", "FULL") and alias not in streams
        if theirs or (join.side in ("LEFT", "FULL") and not any(each in streams for each in before)):
            raise UnsupportedError(
                f"a {join.side.lower()} join of streams with a table keeps rows of the table that no row of "
                "a stream matches, and there is no moment at which that is known",
                hint="make a table of the joined streams first, and join the tables",
                location=query.location,
            )
        before.append(alias)


def _joins(tree: exp.Select) -> list[exp.Join]:
    return list(tree.args.get("joins") or [])


def _relations(tree: exp.Select) -> list[exp.Table]:
    found = [tree.args["from_"].this, *(join.this for join in _joins(tree))] if tree.args.get("from_") else []
    return [each for each in found if isinstance(each, exp.Table)]


def _alias(relation: exp.Expr) -> str:
    return str(relation.alias_or_name.casefold())
