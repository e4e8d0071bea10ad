"""Builds the tree of nodes of a query over tables, with the keys by which each node is maintained.

Raises NoKeysError with the reason for a part that has no keys; the planner then recomputes the whole query.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.plan.derived.determinism import ordered_totally, unstable_calls
from velostream.plan.derived.joins import join_relation, semi_join, where_keys
from velostream.plan.derived.nodes import Each, Keyed, Node, Scan, Side
from velostream.plan.derived.set_operations import set_operation
from velostream.plan.groups.plan import NeedsColumns, group_expressions, is_session, several_groupings
from velostream.plan.query.functions import call_name, generator_call, has_aggregates
from velostream.plan.query.select_names import Joined, NoKeysError, conjuncts, rewritten
from velostream.plan.steps import Step, StepKind
from velostream.sql.names.spelling import called, told
from velostream.sql.text.spark_text import SPARK
from velostream.sql.windows.bounds import micros, session_sql
from velostream.sql.windows.window_groups import call_spec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

CTEs = dict[str, tuple[exp.Expr, "CTEs"]]
_UNKNOWN_CLAUSES = ("pivots", "sample", "connect", "match", "into", "kind", "windows", "prewhere")
_ORDERINGS = ("order", "sort", "cluster", "distribute")


class Derivation:
    """Builder of the nodes of one query.

    `columns` are the columns of each input, by name; None where they are not known. `*` leaves out `hidden`
    ones.
    """

    def __init__(
        self, columns: Mapping[str, Sequence[str] | None], hidden: Collection[str] = frozenset()
    ) -> None:
        self._hidden = hidden
        self._columns = {name.casefold(): (name, known) for name, known in columns.items()}
        self._numbers = count(1)

    def view(self) -> str:
        """A view name that no other node has."""
        return f"__step_{next(self._numbers)}"

    # --- queries ------------------------------------------------------------------------------------------

    def query(self, tree: exp.Expr, ctes: CTEs | None = None) -> Node:
        """The node of a whole query: SELECT, set operation, or either in brackets."""
        ctes = self._with(tree, ctes or {})
        if isinstance(tree, exp.Subquery):
            if any(tree.args.get(name) for name in ("limit", "offset", "joins", "laterals", "pivots")):
                raise NoKeysError("a subquery in brackets has clauses of its own")
            return self.query(tree.this, ctes)
        if isinstance(tree, exp.SetOperation):
            return set_operation(self, tree, ctes)
        if isinstance(tree, exp.Select):
            joined, rest = self.block(tree, ctes)
            return self.finished(joined.node, rest)
        raise NoKeysError(f"{tree.key.upper()} is not a SELECT")

    def _with(self, tree: exp.Expr, ctes: CTEs) -> CTEs:
        with_ = tree.args.get("with_")
        if with_ is None:
            return ctes
        if with_.args.get("recursive"):
            raise NoKeysError("a recursive CTE has no keys to follow")
        known = dict(ctes)
        for cte in with_.expressions:
            if cte.args["alias"].args.get("columns"):
                raise NoKeysError(f"the CTE {cte.alias} renames its columns")
            known[cte.alias.casefold()] = (cte.this, dict(known))
        return known

    def relation(self, relation: exp.Expr, ctes: CTEs) -> tuple[str, Node]:
        """The alias and the node of one relation in a FROM clause."""
        if relation.args.get("pivots") or relation.args.get("sample") or relation.args.get("joins"):
            raise NoKeysError(f"{relation.sql(dialect=SPARK)} is more than a relation")
        alias = relation.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            raise NoKeysError(f"{relation.alias} renames its columns")
        if isinstance(relation, exp.Subquery):
            return relation.alias.casefold(), self._distinct_names(self.query(relation, ctes))
        if not isinstance(relation, exp.Table):
            raise NoKeysError(f"{relation.sql(dialect=SPARK)} is not a table")
        name = relation.name.casefold()
        if name in ctes:
            tree, known = ctes[name]
            return relation.alias_or_name.casefold(), self._distinct_names(self.query(tree, known))
        if name not in self._columns:
            raise NoKeysError(f"{relation.name} is not a table")
        written, columns = self._columns[name]
        if columns is None:
            raise NeedsColumns
        return relation.alias_or_name.casefold(), Scan(self.view(), tuple(columns), written)

    def _distinct_names(self, node: Node) -> Node:
        if len({name.casefold() for name in node.columns}) < len(node.columns):
            raise NoKeysError("a subquery has two columns of one name")
        return node

    # --- one SELECT ---------------------------------------------------------------------------------------

    def block(self, select: exp.Select, ctes: CTEs) -> tuple[Joined, exp.Select]:
        """The FROM and WHERE of a SELECT as one node, and the remaining SELECT over that node."""
        ctes = self._with(select, ctes)
        for clause in _UNKNOWN_CLAUSES:
            if select.args.get(clause):
                raise NoKeysError(f"{clause.upper()} has no keys to follow here")
        source = select.args.get("from_")
        if source is None:
            raise NoKeysError("it has no FROM")
        where = select.args.get("where")
        conditions = conjuncts(where.this if where else None)
        joins = select.args.get("joins") or []
        alias, node = self.relation(source.this, ctes)
        joined = Joined(node, {alias: {name: name for name in node.columns}})
        later_outer = [bool({j.side, j.kind} & {"RIGHT", "FULL"}) for j in joins]
        for number, join in enumerate(joins):
            other = self.relation(join.this, ctes)
            # Equalities of WHERE are no join keys below a RIGHT or FULL JOIN, which adds rows with nulls.
            hints = [] if any(later_outer[number:]) else where_keys(conditions)
            joined = join_relation(self, joined, join, *other, hints)
        for lateral in select.args.get("laterals") or []:
            joined = self._lateral(joined, lateral)
        plain = [c for c in conditions if not c.find(exp.Query)]
        for condition in conditions:
            if condition.find(exp.Query):
                joined = semi_join(self, joined, condition, ctes)
        return joined, self._rest(select, joined, plain)

    def _lateral(self, joined: Joined, lateral: exp.Lateral) -> Joined:
        """LATERAL VIEW: repeats every row once for each value that the generator function returns for it."""
        alias, call = lateral.args.get("alias"), lateral.this
        name = call_name(call) or ""
        columns = [column.name for column in alias.columns] if alias is not None else []
        if alias is None or not lateral.args.get("view") or not generator_call(call) or not columns:
            raise NoKeysError("LATERAL has no keys to follow here")
        arguments = [call.this, *call.expressions] if isinstance(call, exp.Explode) else call.expressions
        if lateral.args.get("outer") and not name.endswith("_outer"):
            name += "_outer"
        value = exp.Anonymous(this=name, expressions=[rewritten(each, joined) for each in arguments])
        node, number = joined.node, next(self._numbers)
        names = [f"__each{number}_{position}" for position in range(len(columns))]
        given = exp.Aliases(this=value, expressions=[exp.to_identifier(each) for each in names])
        sql = exp.Select(expressions=[exp.Star(), given]).from_(exp.to_table(node.view, quoted=True))
        every = Each(
            self.view(),
            (*node.columns, *names),
            sql.sql(dialect=SPARK),
            node,
            {each: each for each in node.columns},
        )
        relation = {alias.name.casefold(): dict(zip(columns, names, strict=True))}
        return Joined(every, {**joined.relations, **relation})

    def _rest(self, select: exp.Select, joined: Joined, conditions: list[exp.Expr]) -> exp.Select:
        items = self._items(select, joined)
        aliases = {item.alias.casefold() for item in select.selects if item.alias}
        rest = exp.Select(expressions=items).from_(exp.to_table(joined.node.view, quoted=True))
        if conditions:
            rest = rest.where(*(rewritten(c, joined) for c in conditions), copy=False)
        for clause in ("group", "having", "qualify", "order", "limit", "offset", "distinct"):
            part = select.args.get(clause)
            if part is not None:
                if clause in {"having", "order", "qualify"} and len(joined.relations) > 1:
                    self._refuse_double_names(part, joined, aliases)
                rest.set(clause, rewritten(part, joined, aliases))
        return rest

    def _refuse_double_names(self, part: exp.Expr, joined: Joined, aliases: set[str]) -> None:
        for column in part.find_all(exp.Column):
            if not column.table and column.name.casefold() in aliases and joined.find(column) is not None:
                raise NoKeysError(f"{column.name} names a column of the input and one of the result")

    def _items(self, select: exp.Select, joined: Joined) -> list[exp.Expr]:
        aliases: set[str] = set()
        items: list[exp.Expr] = []
        for item in select.selects:
            star = item if isinstance(item, exp.Star) else item.this if isinstance(item, exp.Column) else None
            if isinstance(star, exp.Star):
                items += self._star(item, star, joined)
                continue
            value = rewritten(item.unalias(), joined, aliases)
            name = item.alias_or_name if isinstance(item, (exp.Alias, exp.Column)) else ""
            items.append(exp.alias_(value, name, quoted=True) if name else value)
            if item.alias:
                aliases.add(item.alias.casefold())
        return items

    def _star(self, item: exp.Expr, star: exp.Star, joined: Joined) -> list[exp.Expr]:
        if any(star.args.get(name) for name in ("replace", "rename")):
            raise NoKeysError("* with REPLACE is not followed")
        without = {column.name.casefold() for column in star.args.get("except_") or ()}
        table = item.table.casefold() if isinstance(item, exp.Column) else ""
        if table and table not in joined.relations:
            raise NoKeysError(f"{item.sql(dialect=SPARK)} is not one of its relations")
        return [
            exp.alias_(exp.column(inner, quoted=True), written, quoted=True)
            for alias, columns in joined.relations.items()
            if not table or alias == table
            for written, inner in columns.items()
            if written not in self._hidden and written.casefold() not in without
        ]

    # --- what a SELECT does with its rows -----------------------------------------------------------------

    def finished(self, node: Node, rest: exp.Select) -> Node:
        """The node of the remaining SELECT over `node`: projection, DISTINCT, groups, OVER or LIMIT."""
        names = tuple(item.alias_or_name or str(item.sql(dialect=SPARK)).lower() for item in rest.selects)
        rest = rest.copy()
        rest.set(
            "expressions",
            [exp.alias_(i.unalias(), n, quoted=True) for i, n in zip(rest.selects, names, strict=True)],
        )
        if rest.args.get("limit") or rest.args.get("offset"):
            return self._everything(node, rest, names, "LIMIT looks at all rows")
        for clause in _ORDERINGS:
            rest.set(clause, None)
        distinct = rest.args.get("distinct")
        if distinct is not None:
            if distinct.args.get("on"):
                raise NoKeysError("DISTINCT ON has no keys to follow")
            rest.set("distinct", None)
            return self.distinct(self.finished(node, rest))
        if has_aggregates(rest):
            return self._groups(node, rest, names)
        if rest.find(exp.Window):
            return self._windows(node, rest, names)
        origin = {name: str(i.this.name) for i, name in zip(rest.selects, names, strict=True) if _column(i)}
        return Each(self.view(), names, rest.sql(dialect=SPARK), node, origin)

    def distinct(self, node: Node) -> Node:
        """DISTINCT: each different row once, keyed by all columns."""
        sql = f"SELECT DISTINCT * FROM `{node.view}`"
        step = Step(
            StepKind.AFFECTED_KEYS,
            "distinct rows",
            "a row is there while some input row gives it; the rows a change touches are looked up",
        )
        return self.keyed(sql, node.columns, (Side(node, node.columns),), _same(node.columns), step)

    def keyed(
        self,
        sql: str,
        columns: tuple[str, ...],
        sides: tuple[Side, ...],
        origin: Mapping[str, tuple[int, str]],
        step: Step,
    ) -> Keyed:
        """A keyed node whose null keys equal each other, as in GROUP BY and PARTITION BY."""
        meet = (True,) * len(sides[0].keys)
        return Keyed(self.view(), columns, sql, sides, origin, step, meet)

    def _everything(self, node: Node, rest: exp.Select, names: tuple[str, ...], why: str) -> Keyed:
        step = Step(
            StepKind.RECOMPUTE, "a part of the query", f"{why}; this step is computed again for every change"
        )
        return self.keyed(rest.sql(dialect=SPARK), names, (Side(node, ()),), {}, step)

    def with_columns(self, node: Node, expressions: Sequence[exp.Expr]) -> tuple[Node, list[str]]:
        """The node extended by computed columns, and the column of each expression; plain columns stay."""
        names: list[str] = []
        extra: list[exp.Expr] = []
        for expression in expressions:
            if isinstance(expression, exp.Column):
                names.append(expression.name)
                continue
            if generator_call(expression) or expression.find(exp.Query):
                raise NoKeysError(f"{expression.sql(dialect=SPARK)} is no key")
            names.append(f"__g{next(self._numbers)}")
            extra.append(exp.alias_(expression.copy(), names[-1], quoted=True))
        if not extra:
            return node, names
        sql = exp.Select(expressions=[exp.Star(), *extra]).from_(exp.to_table(node.view, quoted=True))
        columns = (*node.columns, *(item.alias for item in extra))
        return Each(self.view(), columns, sql.sql(dialect=SPARK), node, {n: n for n in node.columns}), names

    def filtered(self, node: Node, conditions: Sequence[exp.Expr]) -> Each:
        """The rows of the node for which all conditions hold."""
        sql = exp.Select(expressions=[exp.Star()]).from_(exp.to_table(node.view, quoted=True))
        text = sql.where(*conditions).sql(dialect=SPARK)
        return Each(self.view(), node.columns, text, node, {name: name for name in node.columns})

    def keyed_rest(
        self, node: Node, rest: exp.Select, keys: Sequence[exp.Expr]
    ) -> tuple[Node, exp.Select, list[str]]:
        """Make every key expression a column of the node, and use that column in the remaining SELECT."""
        wider, names = self.with_columns(node, keys)
        swaps = [
            (key, name) for key, name in zip(keys, names, strict=True) if not isinstance(key, exp.Column)
        ]

        def swap(part: exp.Expr) -> exp.Expr:
            for key, name in swaps:
                if part == key:
                    return exp.column(name, quoted=True)
            return part

        moved = rest.transform(swap)
        assert isinstance(moved, exp.Select)
        moved.set("from_", exp.From(this=exp.to_table(wider.view, quoted=True)))
        return wider, moved, names

    def _groups(self, node: Node, rest: exp.Select, names: tuple[str, ...]) -> Node:
        unstable = unstable_calls(rest)
        if unstable:
            raise NoKeysError(f"{unstable} may answer differently over the same rows")
        if rest.find(exp.Window):
            return self._everything(node, rest, names, "OVER over groups looks at all of them")
        group = rest.args.get("group")
        if group is None:
            return self._everything(node, rest, names, "its aggregates look at all rows")
        if several_groupings(rest):
            raise NoKeysError("ROLLUP, CUBE and GROUPING SETS look at all rows")
        node, rest = self.sessions(node, rest)
        keys = group_expressions(rest)
        rest.set("group", exp.Group(expressions=[key.copy() for key in keys]))
        if not keys:
            return self._everything(node, rest, names, "its aggregates look at all rows")
        by = ", ".join(map(told, keys))
        node, rest, columns = self.keyed_rest(node, rest, keys)
        origin = {
            name: (0, str(i.this.name))
            for i, name in zip(rest.selects, names, strict=True)
            if _column(i) and i.this.name in columns
        }
        step = Step(
            StepKind.AFFECTED_KEYS,
            f"groups by {by}",
            "the groups that a change touches are computed again from the rows of those groups",
        )
        return self.keyed(rest.sql(dialect=SPARK), names, (Side(node, tuple(columns)),), origin, step)

    def sessions(self, node: Node, rest: exp.Select) -> tuple[Node, exp.Select]:
        """Where the SELECT groups by session windows: the node extended by each row's session bounds.

        The sessions of one key follow from the rows of that key alone, so the node is maintained by affected
        keys.
        """
        keys = group_expressions(rest)
        calls = [key.this for key in keys if isinstance(key, exp.Dot) and is_session(key.this)]
        if not calls:
            return node, rest
        made = call_spec(calls[0])
        if made is None or made[0].gap is None:
            raise NoKeysError("sessions whose gap is not fixed follow from all rows of a group together")
        (_, time), gap = made, made[0].gap
        others = [key for key in keys if not _of_session(key)]
        by = ", ".join(map(told, others))
        wider, columns = self.with_columns(node, others)
        shown, number = ", ".join(f"`{_tick(name)}`" for name in wider.columns), next(self._numbers)
        start, end = f"__start{number}", f"__end{number}"
        sql = session_sql(
            shown, wider.view, [f"`{_tick(c)}`" for c in columns], time, micros(gap), start, end
        )
        step = Step(
            StepKind.AFFECTED_KEYS,
            f"sessions by {by}" if columns else "sessions",
            "the sessions of the keys that a change touches are found again from the rows of those keys"
            if columns
            else "sessions without a key follow from all rows; this step is computed again for every change",
        )
        names = (*wider.columns, start, end)
        sides = (Side(wider, tuple(columns)),)
        origin = {name: (0, name) for name in wider.columns}
        bounds = {"start": start, "end": end}

        def swap(part: exp.Expr) -> exp.Expr:
            if isinstance(part, exp.Dot) and part.this == calls[0]:
                side = part.expression.name.lower()
                return called(exp.column(bounds[side], quoted=True), f"window_{side}")
            return part

        moved = rest.transform(swap)
        assert isinstance(moved, exp.Select)
        groups = [swap(key.copy()) for key in keys]
        moved.set("group", exp.Group(expressions=groups))
        made_node = self.keyed(sql, names, sides, origin, step)
        moved.set("from_", exp.From(this=exp.to_table(made_node.view, quoted=True)))
        return made_node, moved

    def _windows(self, node: Node, rest: exp.Select, names: tuple[str, ...]) -> Node:
        windows = list(rest.find_all(exp.Window))
        if any(w.args.get("alias") for w in windows):
            raise NoKeysError("a named window is not followed")
        # Rows that differ in a key that all OVER clauses share never meet in any of them, so it can be the
        # key of the node; other PARTITION BY columns only divide its rows further.
        shared = [
            p
            for p in windows[0].args.get("partition_by") or []
            if all(p in (w.args.get("partition_by") or []) for w in windows)
        ]
        rest = ordered_totally(rest, node.columns)
        unstable = unstable_calls(rest)
        if unstable:
            raise NoKeysError(f"{unstable} may answer differently over the same rows")
        if not shared:
            return self._everything(node, rest, names, "OVER without one PARTITION BY looks at all rows")
        by = ", ".join(map(told, shared))
        node, rest, columns = self.keyed_rest(node, rest, shared)
        origin = {
            name: (0, str(i.this.name)) for i, name in zip(rest.selects, names, strict=True) if _column(i)
        }
        step = Step(
            StepKind.AFFECTED_KEYS,
            f"OVER by {by}",
            "the partitions that a change touches are computed again from their rows",
        )
        return self.keyed(rest.sql(dialect=SPARK), names, (Side(node, tuple(columns)),), origin, step)


def _of_session(key: exp.Expr) -> bool:
    return isinstance(key, exp.Dot) and is_session(key.this)


def _tick(name: str) -> str:
    return name.replace("`", "``")


def _same(columns: tuple[str, ...]) -> dict[str, tuple[int, str]]:
    return {name: (0, name) for name in columns}


def _column(item: exp.Expr) -> bool:
    return isinstance(item, exp.Alias) and isinstance(item.this, exp.Column) and not item.this.table
