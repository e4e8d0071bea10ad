"""What a rule for a function consists of: the arguments it takes, the DuckDB text, the type of the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from velostream.serving.sql.duckdb.types import (
    NeedsSpark,
    Typed,
    coerce_all,
    duckdb_name,
    require,
    scalar_type,
)
from velostream.sql.types import spark_ddl


@dataclass(frozen=True)
class Call:
    """A call of a function: its arguments, and what is written inside and behind it."""

    arguments: tuple[Typed, ...]
    distinct: bool = False
    over: str = ""
    """` OVER (…)` or ` FILTER (…)`."""

    def expect(self, *counts: int) -> None:
        """Refuse another number of arguments."""
        if len(self.arguments) not in counts:
            raise NeedsSpark(f"{len(self.arguments)} arguments")

    def write(self, template: str, kind: pa.DataType, texts: list[str]) -> Typed:
        """The template with the texts of the arguments filled in: {0}, {1}, … one by one, {all} of them.

        {type} is DuckDB's name of the result's type. {distinct} and {over} stand inside and behind every
        aggregate or window function of the template.
        """
        made = template.format(
            *texts,
            all=", ".join(texts),
            type=duckdb_name(kind) if scalar_type(kind) else "",
            distinct="DISTINCT " if self.distinct else "",
            over=self.over,
        )
        return Typed(made, kind)


Rule = Callable[[Call], Typed]
"""Gives the DuckDB expression for a call, or raises NeedsSpark."""

Accepts = Callable[[Typed], str]
"""Gives the text of an argument, or raises NeedsSpark."""


def function(
    *takes: Accepts,
    sql: str,
    gives: pa.DataType | Callable[[pa.DataType], pa.DataType],
    distinct: bool = True,
) -> Rule:
    """The rule of a function with a fixed number of arguments; `gives` may depend on the first one's type.

    `distinct` says that DISTINCT is allowed in the call; without {distinct} in the text it changes nothing.
    """

    def rule(call: Call) -> Typed:
        call.expect(len(takes))
        if call.distinct and not distinct:
            raise NeedsSpark("DISTINCT")
        texts = [accepts(value) for accepts, value in zip(takes, call.arguments, strict=True)]
        kind = gives if isinstance(gives, pa.DataType) else gives(call.arguments[0].type)
        return call.write(sql, kind, texts)

    return rule


def either(*rules: Rule) -> Rule:
    """The first rule that fits; the last one says why none does."""

    def rule(call: Call) -> Typed:
        for each in rules[:-1]:
            try:
                return each(call)
            except NeedsSpark:
                continue
        return rules[-1](call)

    return rule


def of_one_type(sql: str, *, least: int = 1, most: int | None = None, scalar: bool = False) -> Rule:
    """A function of any number of values that Spark first brings to a common type."""

    def rule(call: Call) -> Typed:
        if len(call.arguments) < least or (most is not None and len(call.arguments) > most):
            raise NeedsSpark(f"{len(call.arguments)} arguments")
        texts, kind = coerce_all(call.arguments, "arguments")
        if scalar and not scalar_type(kind):
            raise NeedsSpark(spark_ddl(kind))
        return call.write(sql, kind, texts)

    return rule


# --- arguments --------------------------------------------------------------------------------------


def anything(value: Typed) -> str:
    """A value of any type."""
    return value.sql


def of(kind: pa.DataType) -> Accepts:
    """A value of the type, or NULL."""
    return lambda value: require(value, kind, "an argument")


def typed_as(fits: Callable[[pa.DataType], bool]) -> Accepts:
    """A value of a type that the condition holds for; NULL, which has none of its own, is not one."""

    def accepts(value: Typed) -> str:
        if not fits(value.type):
            raise NeedsSpark(f"an argument of {spark_ddl(value.type)}")
        return value.sql

    return accepts


def at_least(least: int) -> Accepts:
    """An integer constant."""

    def accepts(value: Typed) -> str:
        if not isinstance(value.written, int) or isinstance(value.written, bool) or value.written < least:
            raise NeedsSpark(f"an argument that is not a constant of at least {least}")
        return str(value.written)

    return accepts


def constant_text(value: Typed) -> str:
    """A text constant that is not empty."""
    if not isinstance(value.literal, str) or not value.literal:
        raise NeedsSpark("an argument that is not a constant")
    return value.sql
