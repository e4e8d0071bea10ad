"""SQL as Spark reads it: what the user wrote, with nothing rewritten on the way there and back.

sqlglot's own Spark dialect writes for versions without nested CTEs, QUALIFY, TIME and WITHIN GROUP, and reads
functions into nodes that it writes back differently.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator

from velostream.sql.parse.dialect import Velostream, VelostreamParser

_REWRITTEN = (exp.Select, exp.WithinGroup)
"""Nodes that sqlglot turns into something else before it writes them."""


class SparkTextParser(VelostreamParser):
    """Reads a query, or an expression by itself."""

    def _parse_statement(self) -> Any:
        return super(VelostreamParser, self)._parse_statement()


class SparkTextGenerator(SparkGenerator):
    """Writes for the Spark of this version, and leaves out our own clauses."""

    TRANSFORMS = {kind: write for kind, write in SparkGenerator.TRANSFORMS.items() if kind not in _REWRITTEN}
    EXPRESSIONS_WITHOUT_NESTED_CTES: ClassVar[set[type[exp.Expr]]] = set()
    TYPE_MAPPING = {**SparkGenerator.TYPE_MAPPING, exp.DType.TIME: "TIME"}
    TABLESAMPLE_SEED_KEYWORD = "REPEATABLE"


class SparkText(Spark):
    """The dialect of every text that goes to Spark, and of what is read back from such a text."""

    Tokenizer = Velostream.Tokenizer
    Parser = SparkTextParser
    Generator = SparkTextGenerator


SPARK: Final = SparkText
