"""Velostream: streaming SQL on Spark, with tables that are maintained incrementally and exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Database",
    "Result",
    "Table",
    "VelostreamError",
    "__version__",
    "connect",
    "register",
    "register_driver",
]

if TYPE_CHECKING:
    from velostream.api.database import Database
    from velostream.api.opening import connect
    from velostream.api.table import Table
    from velostream.connectors.any_sql.drivers.registry import register_driver
    from velostream.connectors.registry import register
    from velostream.errors import VelostreamError
    from velostream.runtime.answers.result import Result

_WHERE = {
    "Database": "velostream.api.database",
    "Result": "velostream.runtime.answers.result",
    "Table": "velostream.api.table",
    "VelostreamError": "velostream.errors",
    "connect": "velostream.api.opening",
    "register": "velostream.connectors.registry",
    "register_driver": "velostream.connectors.any_sql.drivers.registry",
}


def __getattr__(name: str) -> Any:
    """Lazy import, so that `velo check` never pays for Spark."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    """The public names, and no others."""
    return sorted(__all__)
