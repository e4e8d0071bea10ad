"""The SQL text for Spark: what the user wrote, unchanged by parsing and generating.

sqlglot's own Spark dialect writes for versions without nested CTEs, QUALIFY, TIME and WITHIN GROUP, and reads
functions into nodes that it generates differently.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator

from velostream.sql.parse.dialect import Velostream, VelostreamParser

_REWRITTEN = (exp.Select, exp.WithinGroup)
"""Nodes that sqlglot transforms before it generates them."""


class SparkTextParser(VelostreamParser):
    """Parses a query, or a single expression."""

    def _parse_statement(self) -> Any:
        return super(VelostreamParser, self)._parse_statement()


class SparkTextGenerator(SparkGenerator):
    """Generates for the Spark of this version, and leaves out our own clauses."""

    TRANSFORMS = {kind: write for kind, write in SparkGenerator.TRANSFORMS.items() if kind not in _REWRITTEN}
    EXPRESSIONS_WITHOUT_NESTED_CTES: ClassVar[set[type[exp.Expr]]] = set()
    TYPE_MAPPING = {**SparkGenerator.TYPE_MAPPING, exp.DType.TIME: "TIME"}
    TABLESAMPLE_SEED_KEYWORD = "REPEATABLE"


class SparkText(Spark):
    """The dialect of every text that goes to Spark, and of texts that are parsed again."""

    Tokenizer = Velostream.Tokenizer
    Parser = SparkTextParser
    Generator = SparkTextGenerator


SPARK: Final = SparkText
