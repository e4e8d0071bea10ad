"""The same query written in another way: case, qualifiers, backticks, positions and names of results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.plan.query.functions import aggregates_in
from velostream.sql.names.spelling import is_star

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence


class Spelling:
    """Writes a query whose names are resolved in ways that mean the same.

    `columns` are those of each table or source; columns of others keep their relation in front.
    """

    def __init__(self, rng: random.Random, columns: Mapping[str, Sequence[str]]) -> None:
        self._rng = rng
        self._columns = {name.casefold(): names for name, names in columns.items()}

    def again(self, tree: exp.Query) -> exp.Query:
        """The query, written in another way."""
        made = tree.copy()
        for select in list(made.find_all(exp.Select)):
            self._results(select)
        for select in list(made.find_all(exp.Select)):
            self._select(select)
        for identifier in made.find_all(exp.Identifier):
            if self._rng.random() < 0.3:
                identifier.set("quoted", True)
        return made

    def _odd(self, chance: float = 0.5) -> bool:
        return self._rng.random() < chance

    def _case(self, name: str) -> str:
        return self._rng.choice([name, name.upper(), name.lower(), name.capitalize(), name.swapcase()])

    # --- results in GROUP BY, HAVING and ORDER BY -------------------------------------------------------

    def _results(self, select: exp.Select) -> None:
        inputs = {name.casefold() for names in self._columns.values() for name in names}
        values = [(item.unalias(), item.alias, at) for at, item in enumerate(select.selects, start=1)]
        if any(is_star(item) for item in select.selects):
            return
        single = {alias.casefold() for _, alias, _ in values}
        named = (
            {alias for _, alias, _ in values if alias and alias.casefold() not in inputs}
            if len(single) == len(values)
            else set()
        )
        group, having, order = (select.args.get(clause) for clause in ("group", "having", "order"))
        for key in list(group.expressions) if group is not None else ():
            for value, alias, at in values:
                if value == key and not any(True for _ in aggregates_in(value)) and self._odd():
                    key.replace(
                        exp.column(self._case(alias))
                        if alias in named and self._odd()
                        else exp.Literal.number(at)
                    )
                    break
        for call in list(aggregates_in(having.this)) if having is not None else ():
            alias = next((alias for value, alias, _ in values if value == call and alias in named), None)
            if alias is not None and self._odd():
                call.replace(exp.column(self._case(alias)))
        for each in order.expressions if order is not None else ():
            for value, alias, at in values:
                bare = isinstance(each.this, exp.Column) and not each.this.table and each.this.name == alias
                if (bare or (each.this == value and not alias)) and self._odd():
                    each.set("this", exp.Literal.number(at))
                    break

    # --- columns ----------------------------------------------------------------------------------------

    def _select(self, select: exp.Select) -> None:
        from_ = select.args.get("from_")
        if from_ is None:
            return
        relations = [from_.this, *(join.this for join in select.args.get("joins") or ())]
        aliases = {each.alias_or_name.casefold(): each for each in relations}
        alone = len(relations) == 1 and not select.args.get("laterals")
        for clause in ("expressions", "where", "group", "having"):
            found = select.args.get(clause)
            for part in found if isinstance(found, list) else [found] if found is not None else []:
                for column in list(part.find_all(exp.Column)):
                    if column.parent_select is select and not isinstance(column.this, exp.Star):
                        self._column(column, aliases, alone=alone, clause=clause)
        for join in select.args.get("joins") or ():
            on = join.args.get("on")
            for column in list(on.find_all(exp.Column)) if on is not None else ():
                if column.parent_select is select:
                    column.set("this", exp.to_identifier(self._case(column.name)))

    def _column(
        self, column: exp.Column, aliases: Mapping[str, exp.Expr], *, alone: bool, clause: str
    ) -> None:
        names = [part.name for part in column.parts]
        written = column.name
        if len(names) > 1 and names[0].casefold() in aliases:
            if len(names) == 2 and clause != "having" and self._only(names[1], aliases) and self._odd():
                names = names[1:]
        elif len(names) == 1 and alone and self._odd() and self._known(names[0], aliases):
            (relation,) = aliases.values()
            if relation.alias and not relation.alias.startswith("__"):
                names = [relation.alias, *names]
        spelled = [exp.to_identifier(self._case(name)) for name in names]
        for key, part in zip(("this", "table", "db", "catalog"), reversed(spelled), strict=False):
            column.set(key, part)
        if len(spelled) == 1:
            column.set("table", None)
        if column.arg_key == "expressions" and isinstance(column.parent, exp.Select):
            column.replace(exp.alias_(column.copy(), written, quoted=True))

    def _known(self, name: str, aliases: Mapping[str, exp.Expr]) -> bool:
        (relation,) = aliases.values()
        names = self._columns.get(relation.name.casefold()) if isinstance(relation, exp.Table) else None
        return names is not None and name.casefold() in {each.casefold() for each in names}

    def _only(self, name: str, aliases: Mapping[str, exp.Expr]) -> bool:
        """Whether one relation has the column, as far as all of them are known."""
        known = [
            self._columns.get(each.name.casefold()) if isinstance(each, exp.Table) else None
            for each in aliases.values()
        ]
        if any(names is None for names in known):
            return False
        return sum(name.casefold() in {n.casefold() for n in names or ()} for names in known) == 1
