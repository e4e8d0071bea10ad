"""Binds one query: resolves relations, checks columns and functions, takes our clauses off the tree."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import (
    PropertyError,
    SqlError,
    SqlSyntaxError,
    UnknownNameError,
    VelostreamError,
    did_you_mean,
)
from velostream.model.options import CommonOptions
from velostream.model.statements import ColumnDef, Emit, EmitMode, Query, SourceRef, WindowKind, WindowSpec
from velostream.sql.bind import aggregation
from velostream.sql.bind import properties as props
from velostream.sql.bind.parameters import names_of, placeholders
from velostream.sql.bind.relations import Outside, Relations
from velostream.sql.names.relation_columns import WINDOW_COLUMNS, source_shape
from velostream.sql.names.resolution import Analysis
from velostream.sql.parse import structure
from velostream.sql.parse.dialect import EMIT, WINDOW, WITH
from velostream.sql.parse.syntax import RawEmit, RawProperty, RawQuery, RawWindow, RawWith
from velostream.sql.text.node_locations import anchor
from velostream.sql.windows.over_tables import TableWindows, unbounded_names
from velostream.sql.windows.relations import WindowRelations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from velostream.sql.bind.context import Context
    from velostream.sql.known_relations import ConnectorInfo


@dataclass(frozen=True)
class Bound:
    """A bound query, the properties that belong to the statement, and the columns of its result if known."""

    query: Query
    properties: dict[str, str]
    output: tuple[str, ...] | None


@dataclass
class QueryBinder:
    """Binds one query of one statement. `sink` is the connector of INSERT INTO uri, or of "sink"."""

    context: Context
    sink: ConnectorInfo | None = None
    sink_address: Mapping[str, str] = field(default_factory=dict)
    """The properties that the address of the sink carries."""
    trailing: RawWith | None = None
    parameters_allowed: bool = True
    answered: bool = False
    """Whether a query over tables is answered once, and not maintained."""
    properties: dict[str, str] = field(default_factory=dict)
    _near: Outside | None = None
    _time_column: list[exp.Expr] = field(default_factory=list)

    def bind(self, raw: RawQuery) -> Bound:
        """Check everything about the query; errors are added to the context."""
        context, tree = self.context, raw.tree
        anchor(tree, context.piece)
        top = _top(tree)
        window, emit, with_ = self._take_clauses(tree, top)
        structure.leftover_clauses(tree, context)
        tree = _as_query(structure.rewrite(tree))
        structure.check(tree, context)
        top = _top(tree)
        relations = Relations(context)
        relations.resolve(tree)
        in_from = WindowRelations(context, relations, tree)
        in_from.find()
        statement_with = self._statement_with(relations, with_)
        sources = self._distribute(relations.outside, statement_with)
        for ref in sources:
            names = context.discovered(ref)
            if names is not None:
                relations.shapes[ref.id] = source_shape(names, ref.id, ref.system_columns)
        columns = [name for shape in relations.shapes.values() for name in shape.names or ()]
        structure.warn_of_quotes(tree, columns, context)
        windows = self._table_windows(tree, relations, emit)
        asked = windows.asked(window)
        window = in_from.write(top, window, self._zone(relations), asked=asked)
        self._time_column += in_from.times
        structure.quote_names(tree)
        output = self._columns(tree, relations, window)
        aggregation.check(tree, window, context, unknown=_unknown(relations))
        closes = windows.closing(top, window)
        emit = emit or Emit(EmitMode.FINAL if closes else EmitMode.CHANGES)
        tree, window = windows.written_out(tree, top, window, next(iter(self._time_column), None))
        structure.quote_names(tree)
        query = Query(
            tree=tree,
            sources=sources,
            tables=tuple(relations.tables),
            streams=tuple(relations.streams),
            window=window,
            emit=emit,
            closes=closes,
            udfs=tuple(sorted(context.used)),
            parameters=self._parameters(tree),
            location=raw.location,
            views=tuple(relations.views),
        )
        return Bound(query, self.properties, output)

    def _zone(self, relations: Relations) -> str:
        """The time zone of windows: that of the statement, or of its one source."""
        only = relations.outside[0] if len(relations.outside) == 1 else None
        given = {**only.inherited, **only.own} if only is not None else self.properties
        return given.get("time.zone", self.properties.get("time.zone", "UTC"))

    def _table_windows(self, tree: exp.Expr, relations: Relations, emit: Emit | None) -> TableWindows:
        streams = [*(outside.ref.id for outside in relations.outside), *relations.streams]
        return TableWindows(
            self.context,
            relations.shapes,
            unbounded_names(tree, streams),
            self.properties,
            emit,
            self.answered and not streams,
        )

    def _take_clauses(
        self, tree: exp.Expr, top: exp.Expr
    ) -> tuple[WindowSpec | None, Emit | None, RawWith | None]:
        found: dict[str, object] = {}
        for node in {id(tree): tree, id(top): top}.values():
            for key in (WINDOW, EMIT, WITH):
                clause = node.args.pop(key, None)
                if clause is not None:
                    found[key] = clause.value
        raw_window, raw_emit, with_ = found.get(WINDOW), found.get(EMIT), found.get(WITH)
        window = None
        if isinstance(raw_window, RawWindow):
            window = replace(raw_window.spec, location=raw_window.location)
            if raw_window.time_column is not None:
                anchor(raw_window.time_column, self.context.piece)
                self._time_column.append(raw_window.time_column)
            for expression in window.partition_by:
                anchor(expression, self.context.piece)
                structure.check_window_expression(expression, self.context)
            window = replace(
                window, partition_by=tuple(structure.rewrite(part) for part in window.partition_by)
            )
            for expression in window.partition_by:
                structure.quote_names(expression)
        emit = raw_emit.emit if isinstance(raw_emit, RawEmit) else None
        return window, emit, with_ if isinstance(with_, RawWith) else None

    # --- columns ----------------------------------------------------------------------------------

    def _columns(
        self, tree: exp.Expr, relations: Relations, window: WindowSpec | None
    ) -> tuple[str, ...] | None:
        def report(error: SqlError, node: exp.Expr) -> None:
            self.context.report(error, node)

        # The tree keeps the names as written: their meaning
        # may change when a source's columns are discovered.
        tree = tree.copy()
        extra = WINDOW_COLUMNS if window is not None and window.kind is not WindowKind.ROWS else ()
        also = [*window.partition_by, *self._time_column] if window is not None else []
        analysis = Analysis(
            relations.shapes,
            report,
            extra=extra,
            top=_as_query(_top(tree)) if isinstance(_top(tree), exp.Query) else None,
            also=exp.Tuple(expressions=[each.copy() for each in also]),
        )
        return analysis.query(tree, None, {}).names

    def _parameters(self, tree: exp.Expr) -> tuple[str, ...]:
        nodes = placeholders([tree])
        names = names_of(nodes)
        if names and not self.parameters_allowed:
            self.context.report(
                SqlSyntaxError(
                    "parameters are allowed in SELECT, INSERT, UPDATE and DELETE only",
                    hint="write the value itself",
                ),
                nodes[0],
            )
        return names

    # --- properties -------------------------------------------------------------------------------

    def _statement_with(self, relations: Relations, with_: RawWith | None) -> RawWith | None:
        candidates = [found for found in (with_, self.trailing, relations.trailing) if found is not None]
        for outside in relations.outside:
            if outside.with_ is not None and outside.with_.end == self.context.end:
                candidates.append(outside.with_)
                outside.with_ = None
                self._near = outside
        if len(candidates) > 1:
            self.context.report(
                SqlSyntaxError("the statement has two WITH (…) at its end", location=candidates[1].location)
            )
        return candidates[0] if candidates else None

    def _distribute(self, outside: list[Outside], statement: RawWith | None) -> tuple[SourceRef, ...]:
        direct = [source for source in outside if not source.expanded]
        checked = props.Checked(self.context.report)
        written: dict[str, props.Checked] = {}
        for source in direct:
            mine = written[source.ref.id] = props.Checked(self.context.report)
            for name, value in props.as_mapping(source.with_, mine).items():
                if name in props.COMMON or props.takes(source.connector, name):
                    source.own[name] = value
                elif source.connector is not None:
                    self._unknown(mine.places[name], [source])
        for name in props.as_mapping(statement, checked):
            self._give(checked.places[name], direct, written)
        common = {name: value for name, value in self.properties.items() if name in props.COMMON}
        props.validate(CommonOptions, common, checked, fallback=self.context.location, about="the statement")
        if self.sink is not None:
            self._validate_sink(checked)
        return tuple(self._finished(source, written.get(source.ref.id)) for source in outside)

    def _give(self, item: RawProperty, sources: list[Outside], written: dict[str, props.Checked]) -> None:
        only = sources[0] if len(sources) == 1 else None
        name = item.key

        def to_source(source: Outside, key: str) -> None:
            source.own[key] = item.value
            written[source.ref.id].places[key] = item

        if (
            only is not None
            and only.connector is not None
            and name in props.own_names(only.connector.options)
        ):
            to_source(only, name)
        elif name in props.COMMON:
            self.properties[name] = item.value
            if only is not None and name != "sink":
                to_source(only, name)
        elif self._near is not None and props.takes(self._near.connector, name):
            to_source(self._near, name)
        elif self._of_sink(name, sources):
            self.properties[name] = item.value
        else:
            self._addressed(item, sources, to_source)

    def _of_sink(self, name: str, sources: list[Outside]) -> bool:
        """Whether the sink takes a property; those that say how to read are for a source, if there is one."""
        plain = name.removeprefix("sink.")
        if self.sink is None or (sources and plain == name and name in self.sink.options.of_sources):
            return False
        return props.takes(self.sink, name) or props.takes(self.sink, plain)

    def _addressed(self, item: RawProperty, sources: list[Outside], to_source: object) -> None:
        prefix, dot, rest = item.key.partition(".")
        for source in sources:
            if dot and source.ref.alias is not None and source.ref.alias.lower() == prefix.lower():
                if rest in props.COMMON or props.takes(source.connector, rest):
                    to_source(source, rest)  # type: ignore[operator]
                else:
                    self._unknown(item, [source], rest)
                return
        takers = [source for source in sources if props.takes(source.connector, item.key)]
        if takers:
            shown = " or ".join(f'"{source.ref.alias or "alias"}.{item.key}"' for source in takers)
            self.context.report(
                PropertyError(
                    f'property "{item.key}" needs to say which source it is for',
                    hint=f"write {shown}",
                    location=item.location,
                )
            )
        else:
            self._unknown(item, sources)

    def _unknown(self, item: RawProperty, sources: list[Outside], name: str | None = None) -> None:
        valid = set(props.COMMON)
        for source in sources:
            if source.connector is not None:
                valid |= props.names_of(source.connector.options)
        if self.sink is not None:
            valid |= props.names_of(self.sink.options)
        self.context.report(props.unknown(name or item.key, sorted(valid), item))

    def _validate_sink(self, checked: props.Checked) -> None:
        if self.sink is None:
            return
        known = props.names_of(self.sink.options)
        mine = {name.removeprefix("sink."): value for name, value in self.properties.items()}
        mine = {name: value for name, value in mine.items() if name in known and name not in props.COMMON}
        for name in list(checked.places):
            checked.places.setdefault(name.removeprefix("sink."), checked.places[name])
        for name in {**self.sink_address, **mine}:
            if name in self.sink.options.of_sources:
                self.context.report(
                    PropertyError(
                        f'property "{name}" says how to read, and means nothing to the {self.sink.name} sink',
                        hint="a sink needs a table, and how to connect",
                        location=checked.location(name, self.context.location, value=False),
                    )
                )
        props.validate(
            self.sink.options,
            {**self.sink_address, **mine},
            checked,
            fallback=self.context.location,
            about=f"the {self.sink.name} sink",
            only=frozenset(mine),
        )

    def _finished(self, source: Outside, checked: props.Checked | None) -> SourceRef:
        merged = {**source.inherited, **source.own}
        if source.ref.columns:
            check_time_column(merged, source.ref.columns, checked, self.context)
        if checked is not None and source.connector is not None:
            only = frozenset(source.own) if source.declared is not None else None
            check_source(source.connector, merged, checked, self.context, source.ref, only)
        return replace(source.ref, properties=merged)


def check_time_column(
    values: dict[str, str],
    columns: tuple[ColumnDef, ...],
    checked: props.Checked | None,
    context: Context,
) -> None:
    """Report an event time column that is not among the declared columns."""
    names = [column.name for column in columns]
    for name in ("event.time.column", "watermark.column"):
        column = values.get(name)
        if column is None or column.lower() in {known.lower() for known in names}:
            continue
        place = checked.location(name, None, value=True) if checked is not None else None
        error = UnknownNameError(
            f'unknown column "{column}" in property "{name}"',
            hint=did_you_mean(column, names),
            location=place,
        )
        if place is not None:
            context.report(error)


def check_source(
    connector: ConnectorInfo,
    values: dict[str, str],
    checked: props.Checked,
    context: Context,
    ref: SourceRef | None,
    only: frozenset[str] | None,
) -> None:
    """Report property values of one source that do not fit."""
    known = props.names_of(connector.options)
    fallback = (ref.location if ref is not None else None) or context.location
    own = {name: value for name, value in values.items() if name in known}
    # What is missing may be what was misspelled.
    misspelled = any(
        isinstance(error, UnknownNameError) and error.location == fallback for error in context.errors
    )
    props.validate(
        connector.options,
        own,
        checked,
        fallback=fallback,
        about=f"the {connector.name} source",
        only=only,
        together=not misspelled,
    )
    common = {name: value for name, value in values.items() if name in props.COMMON and name not in known}
    # The statement's own properties are checked with the statement; here only those of the source alone.
    said = {name: value for name, value in common.items() if only is None or name in only}
    try:
        props.validate(CommonOptions, said, checked, fallback=fallback, about="the source")
    except VelostreamError as error:
        context.report(error)


def _unknown(relations: Relations) -> list[str]:
    """The relations whose columns are not known, as messages name them."""
    sources = {outside.ref.id: outside.ref for outside in relations.outside}
    found = []
    for name, shape in relations.shapes.items():
        if shape.names is None:
            ref = sources.get(name)
            plain = shape.relation or name if ref is None else ref.declared_in
            found.append(f'"{plain}"' if plain is not None or ref is None else str(ref.uri))
    return found


def _top(tree: exp.Expr) -> exp.Expr:
    while isinstance(tree, exp.Subquery):
        tree = tree.this
    return tree


def _as_query(tree: exp.Expr) -> exp.Query:
    if not isinstance(tree, exp.Query):
        raise SqlSyntaxError("expected a query")
    tree.parent = None
    return tree
