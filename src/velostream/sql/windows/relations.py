"""TUMBLE, HOP, CUMULATE and SESSION in FROM: the rows of a relation with their window bounds.

Over tables they are ordinary SQL. Over a source the time is its event time, and a SELECT that groups by the
bounds gets a WINDOW, so that its groups close.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING

from sqlglot import exp, parse_one

from velostream.errors import SqlSyntaxError, UnsupportedError, VelostreamError
from velostream.model.columns import EVENT_TIME, SYSTEM_COLUMNS
from velostream.model.statements import WindowKind
from velostream.sql.bind.aggregation import aggregates
from velostream.sql.functions import functions
from velostream.sql.parse import structure
from velostream.sql.parse.dialect import RELATION, Velostream
from velostream.sql.text.node_locations import anchor
from velostream.sql.windows.bounds import EACH, call, field_of, micros, session_sql, window_bounds
from velostream.sql.windows.over_tables import relations_of, unbounded_names
from velostream.sql.windows.window_groups import MILLISECOND, before, written_keys

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from velostream.model.statements import WindowSpec
    from velostream.sql.bind.context import Context
    from velostream.sql.bind.relations import Outside, Relations
    from velostream.sql.parse.syntax import RawWindow
    from velostream.sql.windows.bounds import Bounds

START, END, TIME = "window_start", "window_end", "window_time"
"""The columns that these relations add."""
_WORKING = ("__time", "__begins", "__ends")


@dataclass(frozen=True)
class _Found:
    """One window function in FROM."""

    select: exp.Select
    raw: RawWindow
    source: Outside | None
    """The source whose rows it reads, directly or filtered and projected; None for others."""
    time: str | None
    """The time column of that source; None where the source declares one itself."""

    @property
    def place(self) -> exp.Subquery:
        """Its location."""
        assert isinstance(self.select.parent, exp.Subquery)
        return self.select.parent

    @property
    def relation(self) -> exp.Expr:
        """The relation that it reads."""
        relation: exp.Expr = self.select.args["from_"].this
        return relation

    @property
    def direct(self) -> bool:
        """Whether it reads the source directly."""
        return self.source is not None and isinstance(self.relation, exp.Table)

    @property
    def alias(self) -> str:
        """The alias of the window function in FROM."""
        return str(self.place.alias or self.relation.alias_or_name)

    @property
    def spec(self) -> WindowSpec:
        """The window."""
        return self.raw.spec


@dataclass
class WindowRelations:
    """Rewrites the window functions in the FROM clauses of one query."""

    context: Context
    relations: Relations
    tree: exp.Expr
    times: list[exp.Expr] = field(default_factory=list)
    """Time columns of what the outermost SELECT reads, to be checked with it."""
    _found: list[_Found] = field(default_factory=list)

    def find(self) -> None:
        """Take the functions off the tree; its named time column becomes the source's event time."""
        sources = {outside.ref.id: outside for outside in self.relations.outside}
        for select in list(self.tree.find_all(exp.Select, bfs=False)):
            clause = select.args.pop(RELATION, None)
            if clause is None:
                continue
            raw: RawWindow = clause.value
            columns = [*raw.spec.partition_by, *([raw.time_column] if raw.time_column is not None else [])]
            for column in columns:
                anchor(column, self.context.piece)
                structure.check_window_expression(column, self.context)
            found = self._located(select, raw, sources)
            self._found.append(found)
            if found.source is not None and found.direct and found.place.alias:
                # Properties of the source are addressed by the alias of the function.
                found.source.ref = replace(found.source.ref, alias=found.place.alias)
                found.relation.set("alias", _alias(found.place.alias))
            if found.source is not None and found.time is not None:
                found.source.own["event.time.column"] = found.time

    def _located(self, select: exp.Select, raw: RawWindow, sources: dict[str, Outside]) -> _Found:
        """The function with its source, where its rows are a source's and its time is one of its columns."""
        relation = select.args["from_"].this
        inner = _plain_select(relation)
        table = relation if inner is None else inner.args["from_"].this
        source = sources.get(table.name) if isinstance(table, exp.Table) else None
        time: exp.Expr | None = raw.time_column
        if source is not None and inner is not None and time is not None:
            time = _results(inner).get(time.name.lower(), time if _stars(inner) else None)
            source = source if isinstance(time, exp.Column) else None
        if source is None or time is None or time.name.lower() in SYSTEM_COLUMNS:
            return _Found(select, raw, source, None)
        return _Found(select, raw, source, time.name)

    def write(self, top: exp.Expr, window: WindowSpec | None, zone: str, *, asked: bool) -> WindowSpec | None:
        """Replace the functions by SQL; returns the window of the outermost SELECT, where it has one.

        `asked`: the statement asks for a watermark over tables.
        """
        outside = [outside.ref.id for outside in self.relations.outside]
        unbounded = unbounded_names(self.tree, [*outside, *self.relations.streams])
        for number, found in enumerate(self._found, start=1):
            if not found.place.alias:
                found.place.set("alias", _alias(found.alias or f"__windows_{number}"))
        _bound_joins([found for found in self._found if found.direct])
        for found in reversed(self._found):
            try:
                outer = found.place.parent_select
                closes = found.source is not None or (asked and isinstance(found.relation, exp.Table))
                if not (closes and isinstance(outer, exp.Select) and self._grouped(found, outer, unbounded)):
                    self._write(found, zone, unbounded)
                elif outer is top and window is None:
                    window = self._as_clause(found, outer)
                elif outer is not top and found.source is not None and _callable(found.spec):
                    self._as_clause(found, outer, called=True)
                else:
                    self._write(found, zone, unbounded)
            except VelostreamError as error:
                self.context.report(error.at(found.raw.location))
        return window

    # --- over a source -----------------------------------------------------------------------------------

    def _grouped(self, found: _Found, outer: exp.Select, unbounded: frozenset[str]) -> bool:
        """Whether the groups of a SELECT over one stream are those of its windows."""
        streams = [each for each in relations_of(outer) if _streams(each, unbounded)]
        if len(streams) != (1 if found.source is not None else 0) or outer.args.get("group") is None:
            return False
        keys = list(written_keys(outer, lambda _: False, every=True))
        if not any(_is_bound(key, found.alias) in (START, END) for key in keys):
            return False
        if found.spec.kind is WindowKind.SESSION:
            self._check_session_keys(found, keys)
        return True

    def _check_session_keys(self, found: _Found, keys: list[exp.Expr]) -> None:
        others = {key.name.lower() for key in keys if not _is_bound(key, found.alias)}
        if others != {key.name.lower() for key in found.spec.partition_by}:
            raise UnsupportedError(
                "sessions over a source are grouped by their bounds and by what they are partitioned by",
                hint="write GROUP BY k, window_start, window_end where SESSION says PARTITION BY k",
            )

    def _as_clause(self, found: _Found, outer: exp.Select, *, called: bool = False) -> WindowSpec:
        """A SELECT grouped by windows of a source gets a WINDOW instead; `called`: a call in GROUP BY."""
        alias, relation = found.alias, found.relation
        inner = _plain_select(relation)
        results = _results(inner) if inner is not None else {}
        where = inner.args.get("where") if inner is not None else None
        if inner is None:
            relation.set("alias", _alias(alias))
        else:
            relation = inner.args["from_"].this
        named = relation.alias_or_name
        window = window_call(found.spec, named, found.time) if called else None
        found.place.replace(relation)

        def swap(node: exp.Expr) -> exp.Expr:
            name = _is_bound(node, alias)
            if name is not None:
                bound = START if name == START else END
                value = (
                    exp.column(bound) if window is None else field_of(window, bound.removeprefix("window_"))
                )
                return before(value, MILLISECOND) if name == TIME else value
            if not isinstance(node, exp.Column) or node.table.lower() not in ("", alias.lower()):
                return node
            result = results.get(node.name.lower())
            if result is None:
                return _qualified(node, named) if node.table else node
            return _qualified(result, named)

        _in_place(outer, swap)
        if where is not None:
            outer.where(_qualified(where.this, named), copy=False)
        if not called:
            self._checked_time(found, named)
        keys = tuple(key.copy().transform(swap) for key in found.spec.partition_by)
        time = found.time if found.source is not None else found.spec.time_column
        return replace(found.spec, time_column=time, partition_by=keys, location=found.raw.location)

    def _checked_time(self, found: _Found, named: str) -> None:
        if found.raw.time_column is not None and found.time is not None:
            column = found.raw.time_column.copy()
            column.set("this", exp.to_identifier(found.time))
            column.set("table", exp.to_identifier(named))
            self.times.append(column)

    # --- as SQL ------------------------------------------------------------------------------------------

    def _write(self, found: _Found, zone: str, unbounded: frozenset[str]) -> None:
        """Replace a function by a subquery that returns the rows and the bounds."""
        streams = _streams(found.relation, unbounded)
        spec = found.spec
        if found.direct:
            time: exp.Expr = exp.column(EVENT_TIME)
        elif found.raw.time_column is None:
            raise SqlSyntaxError(
                "the window has to name the column that holds the time", hint="write DESCRIPTOR(ts)"
            )
        else:
            time = found.raw.time_column.copy()
            time.set("table", None)
        if spec.kind is WindowKind.SESSION:
            if streams:
                raise UnsupportedError(
                    "SESSION over a source is executed where its rows are grouped by the sessions",
                    hint="GROUP BY the keys, window_start and window_end in the same SELECT; or make a table "
                    "of the source first",
                )
            found.select.replace(_sessions(found.relation, spec, time))
            return
        outer = found.place.parent_select
        if found.direct and isinstance(outer, exp.Select) and self._flat(found, outer, unbounded):
            self._flatten(found, outer, zone)
            return
        bounds = window_bounds(spec, time, zone)
        rows = found.select
        if not streams:
            rows.where(exp.not_(exp.Is(this=time.copy(), expression=exp.Null())), copy=False)
        start, end = bounds.start, bounds.end
        if bounds.each is not None:
            # A row without a time is in no window; of a stream it must not be dropped for that.
            each = call("explode_outer" if streams else "explode", bounds.each.copy())
            rows.append("expressions", exp.alias_(each, EACH))
            given = _alias(found.alias)
            around = exp.Select(expressions=[_all_but(EACH)])
            rows.replace(around)
            around.set("from_", exp.From(this=exp.Subquery(this=rows, alias=given)))
            start, end = (_unexploded(bound) for bound in (start, end))
            rows = around
        _with_bounds(rows, start, end)

    def _flat(self, found: _Found, outer: exp.Select, unbounded: frozenset[str]) -> bool:
        """Whether the enclosing SELECT can read the source directly; where it joins streams, it must."""
        if found.spec.kind is WindowKind.TUMBLING:
            return True
        streams = [each for each in relations_of(outer) if _streams(each, unbounded)]
        if len(streams) < 2:
            return False
        if any(join.side or join.kind in ("SEMI", "ANTI") for join in outer.args.get("joins") or []):
            raise UnsupportedError(
                "windows that overlap are joined over sources by an inner join",
                hint="use TUMBLE; or make tables of the sources first, and join the windows over those",
            )
        return True

    def _flatten(self, found: _Found, outer: exp.Select, zone: str) -> None:
        """Let the enclosing SELECT read the source directly, with the bounds computed where it names them."""
        alias, relation = found.alias, found.relation
        time = exp.column(EVENT_TIME, table=alias)
        bounds = window_bounds(found.spec, time, zone)
        if bounds.each is not None:
            bounds = _named_apart(bounds, alias)
            _filter_afterwards(outer, alias)
            outer.append("laterals", bounds.lateral())
        values = {START: bounds.start, END: bounds.end, TIME: before(bounds.end, MILLISECOND)}
        columns = [exp.alias_(value.copy(), name) for name, value in values.items()]
        _spread_stars(outer, alias, columns)
        relation.set("alias", _alias(alias))
        found.place.replace(relation)

        def swap(node: exp.Expr) -> exp.Expr:
            name = _is_bound(node, alias)
            return values[name].copy() if name is not None else node

        _in_place(outer, swap)


def _callable(spec: WindowSpec) -> bool:
    """Whether Spark's window(…) or session_window(…) can express the window."""
    return spec.kind is not WindowKind.CUMULATING and spec.months is None


def window_call(spec: WindowSpec, alias: str, time: str | None) -> exp.Expr:
    """The window as a call of Spark's functions."""
    at = exp.column(time or EVENT_TIME, table=alias)
    size = spec.gap if spec.gap is not None else spec.size
    assert size is not None
    lengths = [size]
    if spec.advance is not None or spec.offset is not None:
        lengths += [spec.advance or size, *([spec.offset] if spec.offset is not None else [])]
    texts = [exp.Literal.string(f"{micros(each)} microseconds") for each in lengths]
    return call("session_window" if spec.gap is not None else "window", at, *texts)


def _streams(relation: exp.Expr, unbounded: frozenset[str]) -> bool:
    return any(table.name.casefold() in unbounded for table in relation.find_all(exp.Table))


def _named_apart(bounds: Bounds, alias: str) -> Bounds:
    """The bounds, with a name for each row's windows that no other relation has."""
    apart = f"{EACH}_{alias}"

    def swap(node: exp.Expr) -> exp.Expr:
        mine = isinstance(node, exp.Column) and node.table == EACH
        return exp.column(node.name, table=apart) if mine else node

    return replace(bounds, start=bounds.start.transform(swap), end=bounds.end.transform(swap), relation=apart)


def _filter_afterwards(outer: exp.Select, alias: str) -> None:
    """Conditions on windows of inner joins as filters: the windows of rows are computed after the join."""
    for join in outer.args.get("joins") or []:
        on = join.args.get("on")
        parts = list(on.flatten()) if isinstance(on, exp.And) else [on] if on is not None else []
        later = [part for part in parts if any(_is_bound(c, alias) for c in part.find_all(exp.Column))]
        if later:
            kept = [part for part in parts if part not in later]
            join.set("on", exp.and_(*(part.copy() for part in kept)) if kept else exp.true())
            outer.where(*(part.copy() for part in later), copy=False)


def _with_bounds(select: exp.Select, start: exp.Expr, end: exp.Expr) -> None:
    for value, name in ((start, START), (end, END), (before(end, MILLISECOND), TIME)):
        select.append("expressions", exp.alias_(value.copy(), name))


def _sessions(relation: exp.Expr, spec: WindowSpec, time: exp.Expr) -> exp.Select:
    """The rows of a relation with their sessions, by OVER."""
    assert spec.gap is not None
    keys = [exp.column(key.name, quoted=True).sql("spark") for key in spec.partition_by]
    named = "__relation"
    columns = f"* EXCEPT ({', '.join(_WORKING)})"
    sql = session_sql(columns, named, keys, time, micros(spec.gap), START, END)
    select = structure.rewrite(parse_one(sql, dialect=Velostream))
    for table in select.find_all(exp.Table):
        if table.name == named:
            table.replace(relation)
    around = exp.Select(expressions=[exp.Star()], from_=exp.From(this=exp.Subquery(this=select)))
    around.append("expressions", exp.alias_(before(exp.column(END), MILLISECOND), TIME))
    return around


def _unexploded(bound: exp.Expr) -> exp.Expr:
    """A bound whose number is a column of the rows."""
    return bound.copy().transform(
        lambda node: exp.column(EACH) if isinstance(node, exp.Column) and node.table == EACH else node
    )


def _all_but(*names: str) -> exp.Star:
    return exp.Star(except_=[exp.column(name) for name in names])


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name))


def _is_bound(node: exp.Expr, alias: str) -> str | None:
    """Which of the window columns an expression is."""
    if not isinstance(node, exp.Column) or node.table.lower() not in ("", alias.lower()):
        return None
    return node.name.lower() if node.name.lower() in (START, END, TIME) else None


def _in_place(select: exp.Select, swap: Callable[[exp.Expr], exp.Expr]) -> None:
    """Transform the expressions of a SELECT, not its relations; a bare result keeps its name."""
    items = []
    for item in select.selects:
        changed = item.copy().transform(swap)
        named = isinstance(item, exp.Column) and changed != item
        items.append(exp.alias_(changed, item.name, quoted=True) if named else changed)
    select.set("expressions", items)
    for clause in ("where", "group", "having", "qualify", "order"):
        part = select.args.get(clause)
        if part is not None:
            select.set(clause, part.transform(swap))
    for join in select.args.get("joins") or []:
        on = join.args.get("on")
        if on is not None:
            join.set("on", on.transform(swap))


def _spread_stars(outer: exp.Select, alias: str, columns: list[exp.Expr]) -> None:
    """Expand `*` with the bounds after the columns of their relation."""
    read = relations_of(outer)
    items: list[exp.Expr] = []
    for item in outer.selects:
        if isinstance(item, exp.Star) and len(read) > 1:
            items += [_star_of(relation) for relation in read]
        else:
            items.append(item)
    spread: list[exp.Expr] = []
    for item in items:
        spread.append(item)
        theirs = item.table.lower() if isinstance(item, exp.Column) else ""
        if item.is_star and theirs in ("", alias.lower()):
            spread += [column.copy() for column in columns]
    outer.set("expressions", spread)


def _star_of(relation: exp.Expr) -> exp.Expr:
    return exp.Column(this=exp.Star(), table=exp.to_identifier(relation.alias_or_name))


def _bound_joins(windows: list[_Found]) -> None:
    """Rows joined by equal windows are less than a window apart: adds that bound, which stream joins need."""
    for one, other in combinations(windows, 2):
        outer = one.place.parent_select
        sizes = [each.spec.size for each in (one, other) if each.spec.size is not None]
        if other.place.parent_select is not outer or not isinstance(outer, exp.Select) or not sizes:
            continue
        joins = {join.this.alias_or_name.lower(): join for join in outer.args.get("joins") or []}
        parts = [*(join.args.get("on") for join in joins.values()), outer.args.get("where")]
        equal = [eq for part in parts if part is not None for eq in part.find_all(exp.EQ)]
        join = joins.get(other.alias.lower())
        if join is None or not any(_same_window(eq, one.alias, other.alias) for eq in equal):
            continue
        mine, theirs = (exp.column(EVENT_TIME, table=each.alias) for each in (one, other))
        near = exp.Between(
            this=theirs,
            low=exp.Sub(this=mine.copy(), expression=_interval(max(sizes))),
            high=exp.Add(this=mine.copy(), expression=_interval(max(sizes))),
        )
        on = join.args.get("on")
        join.set("on", exp.and_(on, near, copy=False) if on is not None else near)


def _same_window(eq: exp.EQ, one: str, other: str) -> bool:
    """Whether a condition says that two rows are in the same window."""
    sides = [each for each in (eq.left, eq.right) if isinstance(each, exp.Column)]
    names = {each.name.lower() for each in sides}
    tables = {each.table.lower() for each in sides}
    return (
        len(sides) == 2
        and len(names) == 1
        and names <= {START, END}
        and tables == {one.lower(), other.lower()}
    )


def _interval(length: timedelta) -> exp.Interval:
    return exp.Interval(this=exp.Literal.string(str(micros(length))), unit=exp.Var(this="MICROSECOND"))


def _plain_select(relation: exp.Expr) -> exp.Select | None:
    """The SELECT of a subquery that only filters and projects one relation; None for others."""
    select = relation.this if isinstance(relation, exp.Subquery) else None
    if not isinstance(select, exp.Select):
        return None
    clauses = {name for name, value in select.args.items() if value}
    if not clauses <= {"expressions", "from_", "where"} or not isinstance(
        select.args["from_"].this, exp.Table
    ):
        return None
    parts = [*select.selects, *filter(None, [select.args.get("where")])]
    looks = any(part.find(exp.Window, exp.Query) or any(True for _ in aggregates(part)) for part in parts)
    several = any(_gives_several(node) for part in parts for node in part.find_all(exp.Func))
    return None if looks or several else select


def _gives_several(node: exp.Expr) -> bool:
    function = functions().get(node.name.lower()) if isinstance(node, exp.Anonymous) else None
    return function is not None and function.generator


def _results(select: exp.Select) -> dict[str, exp.Expr]:
    """The expressions of a SELECT's columns, by lowercase name, without those of `*`."""
    return {
        item.alias_or_name.lower(): item.unalias()
        for item in select.selects
        if not isinstance(item, exp.Star) and not item.is_star
    }


def _stars(select: exp.Select) -> bool:
    return any(item.is_star for item in select.selects)


def _qualified(value: exp.Expr, alias: str) -> exp.Expr:
    """An expression over the columns of a relation, qualified with another alias."""
    moved = value.copy()
    for column in moved.find_all(exp.Column):
        column.set("table", exp.to_identifier(alias))
    return exp.paren(moved, copy=False) if isinstance(moved, exp.Binary | exp.Not) else moved
