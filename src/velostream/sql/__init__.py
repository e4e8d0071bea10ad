"""The SQL front end: from text to bound statements. It never imports Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from velostream.sql.bind.parameters import parameters_of
    from velostream.sql.check import Checked, Parsed, bind_one, check_script, parse_script
    from velostream.sql.dependencies import dependency_order
    from velostream.sql.functions import is_aggregate, is_deterministic
    from velostream.sql.known_relations import (
        Catalog,
        ConnectorInfo,
        Connectors,
        EmptyCatalog,
        Relation,
        RelationKind,
    )
    from velostream.sql.names.usage import column_usage
    from velostream.sql.text.generator import generate
    from velostream.sql.types import arrow_type, parse_columns, spark_ddl

_HOMES = {
    "Catalog": "known_relations",
    "Checked": "check",
    "ConnectorInfo": "known_relations",
    "Connectors": "known_relations",
    "EmptyCatalog": "known_relations",
    "Parsed": "check",
    "Relation": "known_relations",
    "RelationKind": "known_relations",
    "arrow_type": "types",
    "bind_one": "check",
    "check_script": "check",
    "column_usage": "names.usage",
    "dependency_order": "dependencies",
    "generate": "text.generator",
    "is_aggregate": "functions",
    "is_deterministic": "functions",
    "parameters_of": "bind.parameters",
    "parse_columns": "types",
    "parse_script": "check",
    "spark_ddl": "types",
}

__all__ = [
    "Catalog",
    "Checked",
    "ConnectorInfo",
    "Connectors",
    "EmptyCatalog",
    "Parsed",
    "Relation",
    "RelationKind",
    "arrow_type",
    "bind_one",
    "check_script",
    "column_usage",
    "dependency_order",
    "generate",
    "is_aggregate",
    "is_deterministic",
    "parameters_of",
    "parse_columns",
    "parse_script",
    "spark_ddl",
]


def __getattr__(name: str) -> Any:
    """Lazy import: sqlglot and pydantic cost more than most callers need."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
