"""Windows over tables, rewritten as ordinary SQL.

A table is not a stream: every row counts, whenever it arrived, as in the same SQL run from scratch. Nothing
waits for a watermark, unless the statement asks for one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import SqlSyntaxError, UnsupportedError, VelostreamError
from velostream.model.statements import EmitMode, WindowKind
from velostream.sql.functions import GROUP_WINDOWS, TIME_WINDOWS, WINDOW_BOUNDS
from velostream.sql.windows.window_groups import (
    before,
    groups_by_window,
    only_timed,
    window_called,
    with_called,
    with_rows,
    with_window,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from velostream.model.statements import Emit, WindowSpec
    from velostream.sql.bind.context import Context
    from velostream.sql.names.relation_columns import Shape
    from velostream.sql.windows.window_groups import InputColumn

TIME_COLUMNS = ("event.time.column", "watermark.column")
ASKING = (
    *TIME_COLUMNS,
    "max_out_of_orderness_ms",
    "idle.timeout",
    "late.rows",
    "grace",
    "window.close.timeout",
    "state.ttl",
)
"""Properties by which a statement asks for a watermark over tables."""


@dataclass(frozen=True)
class TableWindows:
    """Rewrites the windows of one query, as far as they are over tables alone."""

    context: Context
    shapes: Mapping[str, Shape]
    unbounded: frozenset[str]
    """Names in the tree of sources, streams and queries over them, casefolded."""
    properties: Mapping[str, str]
    emit: Emit | None
    answered: bool
    """Whether the query is answered once: then there is nothing to wait for."""

    @property
    def zone(self) -> str:
        """The time zone of the statement."""
        return self.properties.get("time.zone", "UTC")

    def asked(self, window: WindowSpec | None) -> bool:
        """Whether the statement asks for a watermark."""
        if self.answered:
            return False
        rows = window is not None and window.kind is WindowKind.ROWS
        wanted = [name for name in ASKING if not (rows and name in TIME_COLUMNS)]
        explicit = self.emit is not None and self.emit.mode is EmitMode.FINAL
        return explicit or any(name in self.properties for name in wanted)

    def closing(self, top: exp.Expr, window: WindowSpec | None) -> bool:
        """Whether the result consists of time windows that close."""
        by_time = window is not None and window.kind is not WindowKind.ROWS
        called = isinstance(top, exp.Select) and groups_by_window(top, self.known(top))
        return (by_time or called) and (self._reads_stream(top) or self.asked(window))

    def written_out(
        self, tree: exp.Query, top: exp.Expr, window: WindowSpec | None, time: exp.Expr | None
    ) -> tuple[exp.Query, WindowSpec | None]:
        """The query with its windows over tables as ordinary SQL; and the window, where one is left.

        `time` is the column that the WINDOW clause names.
        """
        self._check_calls(tree, top, window)
        holder = exp.Paren(this=tree)
        waits = self._reads_stream(top) or self.asked(window)
        for select in reversed(list(holder.find_all(exp.Select, bfs=False))):
            if (select is top and (waits or window is not None)) or self._reads_stream(select):
                continue
            self._write_called(select)
        if window is not None:
            window = self._without_clause(top, window, time) if not waits else self._timed(window)
        found = holder.this
        found.parent = None
        return found, window

    def _write_called(self, select: exp.Select) -> None:
        """Replace a window function in GROUP BY by ordinary SQL."""
        _write_window_times(select)
        called = window_called(select, self.known(select))
        if called is None:
            return
        try:
            plain = with_called(select, called, self.zone, whole=False)
            select.replace(only_timed(plain, called.spec, called.time))
        except VelostreamError as error:
            self.context.report(error, called.call)

    def _without_clause(self, top: exp.Expr, window: WindowSpec, time: exp.Expr | None) -> WindowSpec | None:
        """Replace a WINDOW clause by ordinary SQL; returns the clause where an error was reported."""
        try:
            if isinstance(top, exp.Select):
                top.replace(self._clause(top, window, time))
                return None
        except VelostreamError as error:
            self.context.report(error.at(window.location))
        return window

    def _timed(self, window: WindowSpec) -> WindowSpec:
        """A window over tables that closes, with the time column of the statement."""
        if self.unbounded or window.time_column is not None:
            return window
        return replace(window, time_column=self._named_time)

    @property
    def _named_time(self) -> str | None:
        return next((self.properties[name] for name in TIME_COLUMNS if name in self.properties), None)

    def _clause(self, top: exp.Select, window: WindowSpec, time: exp.Expr | None) -> exp.Select:
        """The SELECT of a WINDOW clause."""
        if time is None and self._named_time is not None:
            time = exp.column(*reversed(self._named_time.split(".")))
        if time is None:
            form = "ROWS(ts, 100)" if window.kind is WindowKind.ROWS else "TUMBLING(ts, INTERVAL '5' MINUTE)"
            raise UnsupportedError(
                "a WINDOW over a table has to name the column that holds the time",
                hint=f"write WINDOW {form}",
            )
        if window.kind is WindowKind.ROWS:
            return with_rows(top, window, time)
        return only_timed(with_window(top, window, time, self.zone), window, time)

    def _reads_stream(self, node: exp.Expr) -> bool:
        return any(table.name.casefold() in self.unbounded for table in node.find_all(exp.Table))

    def known(self, select: exp.Expr) -> InputColumn:
        """Whether a name is known to be a column of what a SELECT reads."""
        return _Known(self.shapes, relations_of(select) if isinstance(select, exp.Select) else [])

    def _check_calls(self, tree: exp.Expr, top: exp.Expr, window: WindowSpec | None) -> None:
        """Report window functions such as TUMBLE_START where there is no window."""
        for call in tree.find_all(exp.Anonymous):
            name = call.name.lower()
            if name not in WINDOW_BOUNDS | GROUP_WINDOWS - TIME_WINDOWS or isinstance(call.parent, exp.Table):
                continue
            select = call.parent_select
            if select is top and window is not None and name in WINDOW_BOUNDS:
                continue
            if not isinstance(select, exp.Select) or window_called(select, self.known(select)) is None:
                kind = name.partition("_")[0].upper()
                self.context.report(
                    SqlSyntaxError(
                        f"{call.name} belongs to a window, and the query has none of a fixed length",
                        hint=f"write GROUP BY {kind}(ts, INTERVAL '1' MINUTE), or use a WINDOW clause",
                    ),
                    call,
                )


def unbounded_names(tree: exp.Expr, named: Iterable[str]) -> frozenset[str]:
    """Names of relations that are streams, casefolded: `named`, and CTEs that read one of them."""
    found = {name.casefold() for name in named}
    for cte in tree.find_all(exp.CTE, bfs=False):
        if any(table.name.casefold() in found for table in cte.find_all(exp.Table)):
            found.add(cte.alias.casefold())
    return frozenset(found)


def _write_window_times(select: exp.Select) -> None:
    """A window made by an inner query is used by its end: it is a struct, no longer a time to Spark."""
    for call in select.find_all(exp.Anonymous):
        name, given = call.name.lower(), call.expressions[0] if call.expressions else None
        if not isinstance(given, exp.Column) or not _is_window(select, given):
            continue
        end = exp.Dot(this=given.copy(), expression=exp.to_identifier("end"))
        if name == "window_time":
            call.replace(before(end, 1))
        elif name in GROUP_WINDOWS:
            given.replace(before(end, 1))


def _is_window(select: exp.Select, column: exp.Column) -> bool:
    """Whether a column of what a SELECT reads is the struct that `Bounds.both` makes."""
    ctes = {cte.alias.lower(): cte.this for cte in select.root().find_all(exp.CTE)}
    for relation in relations_of(select):
        query = relation.this if isinstance(relation, exp.Subquery) else ctes.get(relation.name.lower())
        if not isinstance(query, exp.Select) or column.table.lower() not in (
            "",
            relation.alias_or_name.lower(),
        ):
            continue
        for item in query.selects:
            pair = item.unalias()
            named = isinstance(pair, exp.Anonymous) and pair.name.lower() == "named_struct"
            if item.alias_or_name.lower() == column.name.lower() and named:
                return [each.name for each in pair.expressions[::2]] == ["start", "end"]
    return False


def relations_of(select: exp.Select) -> list[exp.Expr]:
    """The relations that a SELECT reads directly."""
    from_ = select.args.get("from_")
    return [*([from_.this] if from_ else []), *(join.this for join in select.args.get("joins") or [])]


@dataclass(frozen=True)
class _Known:
    """Whether a name is known to be a column of these relations."""

    shapes: Mapping[str, Shape]
    relations: list[exp.Expr]

    def __call__(self, name: str) -> bool:
        return any(self._has(relation, name) for relation in self.relations)

    def _has(self, relation: exp.Expr, name: str) -> bool:
        if isinstance(relation, exp.Subquery):
            return name.lower() in {each.lower() for each in relation.named_selects}
        shape = self.shapes.get(relation.name.lower()) if isinstance(relation, exp.Table) else None
        return shape is not None and bool(shape.offers(name))
