"""Aggregates as accumulators: what Spark computes per batch, and how batches are merged."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sqlglot import exp

from velostream.plan.query.functions import call_name


class Merge(StrEnum):
    """How an accumulator of a batch is merged into the stored one."""

    ADD = "add"
    MIN = "min"
    MAX = "max"
    REPLACE = "replace"


class Finish(StrEnum):
    """How an aggregate's value is computed from its accumulators."""

    ROWS = "rows"
    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    SAME = "same"


@dataclass(frozen=True)
class Accumulator:
    """One hidden column of the table; Spark computes it from `expression` for each batch."""

    name: str
    expression: exp.Expr
    merge: Merge


@dataclass(frozen=True)
class Aggregate:
    """One aggregate call of a statement; `value` is the name of its result in the finishing step."""

    value: str
    call: exp.Expr
    finish: Finish
    accumulators: tuple[Accumulator, ...] = ()

    @property
    def mergeable(self) -> bool:
        """Whether a batch that only adds rows can be merged without reading older rows."""
        return all(a.merge is not Merge.REPLACE for a in self.accumulators)


_EXTREMES = {"min": Merge.MIN, "max": Merge.MAX}
_ANY_TRUE = {"bool_or": Merge.MAX, "some": Merge.MAX, "any": Merge.MAX}
_ALL_TRUE = {"bool_and": Merge.MIN, "every": Merge.MIN}


def decompose(call: exp.Expr, index: int) -> Aggregate:
    """The accumulators of one aggregate call, including its FILTER."""
    value = f"__v{index}"
    filtered = isinstance(call, exp.Filter)
    inner = call.this if filtered else call
    name = call_name(inner) or ""
    arguments = list(inner.iter_expressions())
    distinct = any(isinstance(argument, exp.Distinct) for argument in arguments)
    if not distinct and len(arguments) <= 1:
        argument = arguments[0] if arguments else exp.Star()
        if name == "count":
            return _count(value, call, argument, filtered, index)
        if name == "count_if":
            return Aggregate(value, call, Finish.COUNT, (Accumulator(f"__c{index}", call, Merge.ADD),))
        if name in {"sum", "avg", "mean"}:
            finish = Finish.SUM if name == "sum" else Finish.AVG
            return Aggregate(value, call, finish, _sum_and_count(call, argument, filtered, index))
        merge = _EXTREMES.get(name) or _ANY_TRUE.get(name) or _ALL_TRUE.get(name)
        if merge:
            return Aggregate(value, call, Finish.SAME, (Accumulator(f"__m{index}", call, merge),))
    return Aggregate(value, call, Finish.SAME, (Accumulator(f"__r{index}", call, Merge.REPLACE),))


def _count(value: str, call: exp.Expr, argument: exp.Expr, filtered: bool, index: int) -> Aggregate:
    constant = isinstance(argument, (exp.Star, exp.Literal))
    if constant and not filtered:
        return Aggregate(value, call, Finish.ROWS)
    return Aggregate(value, call, Finish.COUNT, (Accumulator(f"__c{index}", call, Merge.ADD),))


def _sum_and_count(call: exp.Expr, argument: exp.Expr, filtered: bool, index: int) -> tuple[Accumulator, ...]:
    # The count of non-null values distinguishes an empty sum (NULL) from a sum that returned to 0.
    total: exp.Expr = exp.Sum(this=argument.copy())
    count: exp.Expr = exp.Count(this=argument.copy())
    if filtered:
        condition = call.args["expression"]
        total = exp.Filter(this=total, expression=condition.copy())
        count = exp.Filter(this=count, expression=condition.copy())
    return (
        Accumulator(f"__s{index}", total, Merge.ADD),
        Accumulator(f"__c{index}", count, Merge.ADD),
    )
