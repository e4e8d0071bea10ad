"""Python functions that SQL calls by name."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from velostream.errors import SqlError
from velostream.spark.messages import RAISED_BY
from velostream.sql.functions import functions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

_TYPES: dict[type, str] = {
    bool: "boolean",
    int: "bigint",
    float: "double",
    str: "string",
    bytes: "binary",
    date: "date",
    datetime: "timestamp",
}


_LONGEST_ARGUMENT = 200


@dataclass(frozen=True)
class Udf:
    """One function and its SQL return type."""

    name: str
    function: Callable[..., Any]
    returns: str


class Udfs:
    """The functions of one database."""

    def __init__(self) -> None:
        self._known: dict[str, Udf] = {}
        self._registered: set[str] = set()

    def names(self) -> tuple[str, ...]:
        """The names by which SQL calls them."""
        return tuple(self._known)

    def add(self, function: Callable[..., Any], returns: str | None, name: str | None) -> None:
        """Register a function; its return type is `returns`, or comes from its annotation."""
        called = (name or function.__name__).lower()
        if called in functions():
            raise SqlError(f'"{called}" is a function of Spark', hint="give yours another name: name=…")
        self._known[called] = Udf(called, function, returns or _return_type(function, called))
        self._registered.discard(called)

    def register(self, spark: SparkSession) -> None:
        """Register them with a Spark session. Arguments and results are passed as Arrow."""
        from pyspark.sql.functions import udf

        for found in self._known.values():
            if found.name not in self._registered:
                named = _naming_failures(found.name, found.function)
                spark.udf.register(found.name, udf(named, found.returns, useArrow=True))
                self._registered.add(found.name)


def _naming_failures(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its name and its arguments in what it raises.

    It is pickled by value, since workers may not have this package: it refers to nothing outside itself.
    """
    begins, longest = RAISED_BY, _LONGEST_ARGUMENT

    def named(*arguments: Any, **by_name: Any) -> Any:
        try:
            return function(*arguments, **by_name)
        except Exception as exc:
            shown = []
            for label, argument in [("", each) for each in arguments] + [
                (f"{n}=", v) for n, v in by_name.items()
            ]:
                text = label + " ".join(repr(argument).split())
                shown.append(text if len(text) <= longest else text[: longest - 1] + "…")
            raised = " ".join(f"{type(exc).__name__}: {exc}".split()).rstrip(": ")
            raise RuntimeError(f"{begins}{name}({', '.join(shown)}): {raised}") from exc

    named.__name__ = name
    return named


def _return_type(function: Callable[..., Any], name: str) -> str:
    annotation = typing.get_type_hints(function).get("return")
    arguments = [a for a in typing.get_args(annotation) if a is not type(None)]
    kind = arguments[0] if len(arguments) == 1 else annotation
    if isinstance(kind, type) and kind in _TYPES:
        return _TYPES[kind]
    raise SqlError(
        f'function "{name}" does not say which SQL type it returns',
        hint='annotate it (-> int, str, float, bool, date, datetime) or write @db.udf(returns="decimal(10,2)")',  # noqa: E501
    )
