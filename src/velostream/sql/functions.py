"""The functions of SQL: their number of arguments, and whether they aggregate or are deterministic.

Spark's own come from a data file exported once per Spark version (scripts/export_functions.py), so that
checking needs no Spark.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from velostream.errors import UnknownNameError, UnsafeError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

UNSAFE = {
    "reflect": "it calls any Java method",
    "java_method": "it calls any Java method",
    "try_reflect": "it calls any Java method",
    "identifier": "it turns text into names that were not checked",
    "from_protobuf": "it reads a descriptor file of the server",
    "to_protobuf": "it reads a descriptor file of the server",
    "python_worker_logs": "it reads the server's logs",
    "read_files": "it reads any file; name the files as a source: file:///path",
}
"""Functions that run code, reach files, or circumvent these checks."""

CLOCK = frozenset(
    {
        "now",
        "current_timestamp",
        "current_date",
        "curdate",
        "current_time",
        "localtimestamp",
        "unix_timestamp",
    }
)
"""Functions of the clock: constant within one batch, different in the next."""

UNIT_FIRST = frozenset({"timestampadd", "timestampdiff", "dateadd", "datediff", "date_add", "date_diff"})
"""Functions whose first of three arguments is a unit such as DAY, not a column."""

_OF_GROUPS = frozenset({"grouping", "grouping_id"})
"""Functions about the grouping: no aggregates, though Spark lists them as such."""

_ALSO_AGGREGATES = frozenset({"schema_of_variant_agg", "vector_avg", "vector_sum"})
"""Aggregates that Spark lists under other categories."""

_OPERATORS = frozenset({"and", "or", "not", "in", "between", "when", "case", "cast", "measure"})
"""Listed by Spark as functions, but with a syntax of their own, or only for metric views."""

HEADER_FUNCTIONS = frozenset({"header", "has_header", "header_keys", "set_header", "remove_header"})
_GROUPS = ("tumble", "hop", "session")
WINDOW_TABLES = frozenset({*_GROUPS, "cumulate"})
"""Functions that make time windows when used in FROM."""
WINDOW_BOUNDS = frozenset(f"{kind}_{side}" for kind in _GROUPS for side in ("start", "end", "rowtime"))
TIME_WINDOWS = frozenset({"window", "session_window"})
GROUP_WINDOWS = TIME_WINDOWS.union(_GROUPS)
"""Functions that make time windows when used in GROUP BY."""


@dataclass(frozen=True)
class Function:
    """One function. `most` None means any number of arguments; `least` None that it is not known."""

    name: str
    least: int | None
    most: int | None
    usage: str = ""
    aggregate: bool = False
    window_only: bool = False
    generator: bool = False
    deterministic: bool = True


def _own() -> dict[str, Function]:
    own = [
        Function("header", 1, 1, "header(name) - the value of a header of the record"),
        Function("has_header", 1, 1, "has_header(name) - whether the record has the header"),
        Function("header_keys", 0, 0, "header_keys() - the names of the record's headers"),
        Function("set_header", 2, 2, "set_header(name, value) - set a header of the outgoing record"),
        Function("remove_header", 1, 1, "remove_header(name) - remove a header of the outgoing record"),
        Function("timestampadd", 3, 3, "timestampadd(unit, count, timestamp) - count units later"),
        Function("timestampdiff", 3, 3, "timestampdiff(unit, start, end) - the number of units between"),
    ]
    sides = {"start": "first instant", "end": "end", "rowtime": "last millisecond"}
    for name in sorted(WINDOW_BOUNDS):
        side = sides[name.rpartition("_")[2]]
        own.append(Function(name, 0, 4, f"{name}(…) - the {side} of the group's window"))
    own += [
        Function("tumble", 2, 3, "tumble(time, size[, offset]) - GROUP BY windows that follow each other"),
        Function("hop", 3, 4, "hop(time, slide, size[, offset]) - GROUP BY windows that overlap"),
        Function("session", 2, 2, "session(time, gap) - GROUP BY windows that a silence ends"),
    ]
    return {function.name: function for function in own}


@cache
def _data() -> dict[str, Any]:
    text = files("velostream.sql").joinpath("spark_functions.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


@cache
def functions() -> dict[str, Function]:
    """Every function that SQL may call, by lowercase name."""
    known = {
        name: Function(
            name,
            entry["min"],
            3 if name in UNIT_FIRST and entry["max"] == 2 else entry["max"],
            entry["usage"],
            aggregate=(entry["group"] == "agg_funcs" and name not in _OF_GROUPS) or name in _ALSO_AGGREGATES,
            window_only=entry["group"] == "window_funcs",
            generator=entry["group"] == "generator_funcs",
            deterministic=entry["deterministic"] is not False and name not in CLOCK,
        )
        for name, entry in _data()["functions"].items()
        if name not in UNSAFE and name.isidentifier() and name not in _OPERATORS
    }
    return {**known, **_own()}


@cache
def table_functions() -> frozenset[str]:
    """Functions that can be used in FROM, by lowercase name."""
    return frozenset({*(name.lower() for name in _data()["table_functions"]), *WINDOW_TABLES}) - set(UNSAFE)


def is_aggregate(name: str) -> bool:
    """Whether a function returns one value per group."""
    function = functions().get(name.lower())
    return function is not None and function.aggregate


def is_deterministic(name: str) -> bool:
    """Whether a function always returns the same value for the same row; false for unknown ones (UDFs)."""
    function = functions().get(name.lower())
    return function is not None and function.deterministic


def check_call(name: str, arguments: int | None, udfs: Iterable[str]) -> Function | None:
    """The function of a call, None for a UDF; raises when it is unknown, unsafe or miscounted.

    `arguments` None means that they cannot be counted (`f(*)`).
    """
    folded = name.lower()
    if folded in UNSAFE:
        raise UnsafeError(f'function "{name}" is not allowed', detail=UNSAFE[folded])
    registered = {udf.lower() for udf in udfs}
    if folded in registered:
        return None
    function = functions().get(folded)
    if function is None:
        raise UnknownNameError(
            f'unknown function "{name}"', hint=did_you_mean(folded, [*functions(), *sorted(registered)])
        )
    if arguments is not None:
        _check_count(name, function, arguments)
    return function


def _check_count(name: str, function: Function, arguments: int) -> None:
    least, most = function.least, function.most
    if least is None or (arguments >= least and (most is None or arguments <= most)):
        return
    if most is None:
        wanted = f"at least {least}"
    elif least == most:
        wanted = str(least)
    else:
        wanted = f"{least} to {most}"
    plural = "argument" if wanted == "1" else "arguments"
    signature = function.usage.partition(" - ")[0]
    raise UnknownNameError(
        f'function "{name}" takes {wanted} {plural}, not {arguments}',
        hint=f"write {signature}" if signature else None,
    )
