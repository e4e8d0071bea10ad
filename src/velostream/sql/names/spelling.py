"""Spelling of resolved names: one spelling for each column, however users wrote it.

A column is written as its relation declares it, with the relation's alias in front where the SELECT reads
several relations, or where the bare name would refer to a column of the result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.sql.bind.aggregation import aggregates
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Sequence

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Words that Spark, or our own grammar, could take for something other than a column.
_WORDS = """
    all and anti any array as asc asof at authorization between both by case cast check collate column
    commit constraint create cross cube current current_date current_time current_timestamp current_user
    date day delete desc describe distinct distribute div drop else emit end escape every except exists
    explain extract false fetch filter for foreign from full function global grant group grouping having
    hour if in inner insert intersect interval into is join key lateral leading left like limit local
    map match minus minute month natural no not null nulls of offset on only or order outer over
    overlaps overlay partition position primary properties range references regexp replace right rlike
    rollup row rows second select semi session set sliding some sort start struct table tablesample then
    time timestamp to trailing transform trim true truncate tumbling union unique unknown update user
    using values view when where window with within year
    """
_KEYWORDS = frozenset(_WORDS.split())
_PARTS = ("this", "table", "db", "catalog")
SOURCE = "__source_"
"""Prefix of the names of sources in a tree, before their number."""
_STAR = "star"
"""Mark of a column that stands for a `*`: all columns of its relation are wanted, also later ones."""
_MERGED = "merged"
"""Mark of a call that stands for one column."""
WRITTEN = "written"
"""Mark of a node whose name in the query is another, or that has none: the name that users know."""
RESULT_FIRST = ("having", "qualify", "order", "sort", "cluster", "distribute")
"""Clauses in which an unqualified name refers to a column of the result before one of the input."""


def is_star(item: exp.Expr) -> bool:
    """Whether an item of a list is `*` or `t.*`."""
    return isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))


def needs_quotes(name: str) -> bool:
    """Whether a name has to be quoted in backticks."""
    return not _PLAIN.match(name) or name.lower() in _KEYWORDS


def identifier(name: str) -> exp.Identifier:
    """The identifier of a name, always quoted alike, so that equal names are equal nodes."""
    return exp.Identifier(this=name, quoted=needs_quotes(name))


def column(names: Sequence[str]) -> exp.Column:
    """A column of these parts: possibly its relation, its own name, struct fields."""
    parts = dict(zip(_PARTS, map(identifier, reversed(names[-len(_PARTS) :])), strict=False))
    return exp.Column(**parts)


def spell(node: exp.Column, names: Sequence[str]) -> None:
    """Give a column these parts; unchanged ones keep their location in the text."""
    written = list(node.parts)
    spelled = [identifier(name) for name in names]
    for mine, theirs in zip(reversed(spelled), reversed(written), strict=False):
        mine.meta.update(theirs.meta)
    for key, part in zip(_PARTS, [*reversed(spelled), *[None] * len(_PARTS)], strict=False):
        node.set(key, part)


def relation_told(alias: str) -> str:
    """A relation's name in messages; one without an alias is named by its place."""
    return f"source {alias.removeprefix(SOURCE)}" if alias.startswith(SOURCE) else alias


def called(expression: exp.Expr, name: str) -> exp.Expr:
    """The expression, marked with the name that users know."""
    expression.meta[WRITTEN] = name
    return expression


def told(expression: exp.Expr) -> str:
    """An expression in messages: columns by the names of the query."""
    known = expression.meta.get(WRITTEN)
    if known is not None:
        return str(known)
    text = expression.copy()
    for each in [text] if isinstance(text, exp.Column) else list(text.find_all(exp.Column)):
        name = each.meta.get(WRITTEN)
        for key in _PARTS[1:]:
            each.set(key, None)
        if name is not None:
            each.set("this", identifier(name))
    return text.sql(dialect=SPARK).replace("`", "")


@dataclass(frozen=True)
class Visible:
    """A column that an unqualified name, or `*`, refers to.

    It consists of columns of relations, each an alias and a name: several where FULL JOIN … USING takes the
    first that is not null.
    """

    name: str
    parts: tuple[tuple[str, str], ...]

    def called(self, name: str) -> bool:
        """Whether it has the name, ignoring case."""
        return self.name.lower() == name.lower()


def common(left: Sequence[Visible], right: Sequence[Visible]) -> list[tuple[Visible, Visible]]:
    """The columns that NATURAL joins by, as the left side spells them; the first of several with one name."""
    pairs: list[tuple[Visible, Visible]] = []
    for one in left:
        other = next((each for each in right if each.called(one.name)), None)
        if other is not None and all(not each.called(one.name) for each, _ in pairs):
            pairs.append((one, other))
    return pairs


def joined(
    pairs: Sequence[tuple[Visible, Visible]], left: Sequence[Visible], right: Sequence[Visible], side: str
) -> list[Visible]:
    """The visible columns of two relations joined by the names of these pairs, in Spark's order."""
    merged = {"RIGHT": _second, "FULL": _first_not_null}.get(side, _first)
    return [
        *(merged(one, other) for one, other in pairs),
        *(each for each in left if all(each is not one for one, _ in pairs)),
        *(each for each in right if all(each is not other for _, other in pairs)),
    ]


def _first(one: Visible, other: Visible) -> Visible:
    return one


def _second(one: Visible, other: Visible) -> Visible:
    return other


def _first_not_null(one: Visible, other: Visible) -> Visible:
    return Visible(one.name, (*one.parts, *other.parts))


def of_relation(key: str, names: Sequence[str], visible: Sequence[Visible]) -> list[Visible]:
    """The columns of `t.*`: those hidden by a NATURAL or USING join come first, as in Spark."""
    seen = [each for each in visible if len(each.parts) == 1 and each.parts[0][0] == key]
    shown = {each.parts[0][1] for each in seen}
    return [*(Visible(name, ((key, name),)) for name in names if name not in shown), *seen]


def give_alias(relation: exp.Expr, alias: str) -> bool:
    """Give a subquery without an alias one, to qualify its columns; False for other relations."""
    if not isinstance(relation, exp.Subquery | exp.Values) or relation.args.get("pivots"):
        return False
    table = relation.args.get("alias") or exp.TableAlias()
    table.set("this", identifier(alias))
    relation.set("alias", table)
    return True


def merged(columns: Sequence[exp.Expr]) -> exp.Expr:
    """The one column that FULL JOIN … USING makes of several."""
    call = exp.Coalesce(this=columns[0], expressions=list(columns[1:]))
    call.meta[_MERGED] = True
    return call


def named(item: exp.Expr, written: str | None, *, column: bool) -> exp.Expr:
    """An item of a SELECT with the output name that the user wrote; `column`: it was a plain column."""
    value = item.unalias()
    if isinstance(item, exp.Alias):
        return value if isinstance(value, exp.Column) and value.name == item.alias else item
    if written is None or (isinstance(item, exp.Column) and item.name == written):
        return item
    if column:
        return exp.Alias(this=item, alias=identifier(written))
    if any(call.meta.get(_MERGED) for call in item.find_all(exp.Coalesce)):
        return exp.Alias(this=item, alias=identifier(written.lower()))
    return item


def put(node: exp.Expr, value: exp.Expr, fields: Sequence[str] = ()) -> None:
    """Replace a node by a value, or by a struct field of it."""
    if fields:
        value = exp.Dot.build([parenthesised(value), *map(identifier, fields)])
    alone = isinstance(node.parent, exp.Group | exp.Having | exp.Ordered | exp.Paren | exp.Tuple | exp.Alias)
    called = isinstance(node.parent, exp.Func) and not isinstance(
        node.parent, exp.Binary | exp.Case | exp.Cast
    )
    node.replace(value if alone or called else parenthesised(value))


def parenthesised(node: exp.Expr) -> exp.Expr:
    """The expression in parentheses where it needs them inside another."""
    tight = (
        exp.Column | exp.Literal | exp.Paren | exp.Dot | exp.Anonymous | exp.AggFunc | exp.Coalesce | exp.Cast
    )
    return node if isinstance(node, tight) else exp.Paren(this=node)


def spread(node: exp.Expr, made: list[exp.Expr]) -> None:
    """Replace one argument of a function by several expressions."""
    siblings = node.parent.expressions if node.parent is not None else []
    place = next((number for number, each in enumerate(siblings) if each is node), None)
    if made != [node] and node.parent is not None and place is not None:
        node.parent.set("expressions", [*siblings[:place], *made, *siblings[place + 1 :]])


def from_star(node: exp.Expr) -> exp.Expr:
    """The expression, marked as standing for a `*`."""
    for each in node.find_all(exp.Column):
        each.meta[_STAR] = True
    return node


def stands_for_star(node: exp.Expr) -> bool:
    """Whether a column replaced a `*`."""
    return bool(node.meta.get(_STAR))


def hides_input(select: exp.Select, visible: Sequence[Visible], *, unknown: bool) -> bool:
    """Whether a name may mean a column of the result in one clause and one of the input in another.

    `unknown`: the columns of the input are not known; then those count that the SELECT names.
    """
    if not any(select.args.get(clause) for clause in RESULT_FIRST):
        return False
    names = {each.name.lower() for each in visible}
    if unknown:
        parts = [*select.expressions, *filter(None, [select.args.get("where")])]
        names = {each.parts[-1].name.lower() for part in parts for each in part.find_all(exp.Column)}
    return any(
        isinstance(item, exp.Alias)
        and item.alias.lower() in names
        and not (isinstance(item.this, exp.Column) and item.this.name.lower() == item.alias.lower())
        for item in select.expressions
    )


def resolve_positions(select: exp.Select) -> None:
    """GROUP BY and ORDER BY with positions (`1`) replaced by expressions; brackets removed."""
    group, order = select.args.get("group"), select.args.get("order")
    for key in list(group.expressions) if group is not None else ():
        while isinstance(key, exp.Paren):
            key = key.replace(key.this)
        item = _at(select, key)
        if item is not None and not any(True for _ in aggregates(item)):
            key.replace(grouped(item))
    for ordered in order.expressions if order is not None else ():
        item = _at(select, ordered.this)
        if item is not None and not isinstance(item, exp.Literal):
            ordered.set("this", column([item.alias]) if isinstance(item, exp.Alias) else item.copy())


def grouped(item: exp.Expr) -> exp.Expr:
    """An item of the list as GROUP BY writes it: a number would be read as a position there."""
    value = item.unalias()
    if isinstance(value, exp.Literal) and value.is_int:
        made = exp.cast(value.copy(), "int")
        if isinstance(item, exp.Alias):
            item.set("this", made)
        else:
            item.replace(made)
        value = made
    return value.copy()


def _at(select: exp.Select, key: exp.Expr) -> exp.Expr | None:
    """The item of the list at a position; None where it is no position, or a `*` precedes it."""
    place = int(key.this) if isinstance(key, exp.Literal) and key.is_int else 0
    items: list[exp.Expr] = select.expressions[:place]
    if not 0 < place <= len(select.expressions) or any(is_star(item) for item in items):
        return None
    return items[-1] if items else None
