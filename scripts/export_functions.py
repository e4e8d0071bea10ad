"""Write what Spark knows about its own functions to a data file of the package.

Run once per Spark version: `python scripts/export_functions.py`. `velo check` then needs no Spark.
How many arguments a function takes is found by asking the analyzer with every count from 0 to 12.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "src/velostream/sql/spark_functions.json"
MOST = 12
_REFUSED = ("WRONG_NUM_ARGS", "requires 0 arguments", "Invalid number of arguments")


def accepts(spark: Any, call: str) -> tuple[bool, bool | None]:
    """Whether the analyzer takes this many arguments, and whether the result is deterministic."""
    try:
        plan = spark.sql(call)._jdf.queryExecution().analyzed()
    except Exception as exc:
        return not any(mark in str(exc) for mark in _REFUSED), None
    expressions = plan.expressions()
    return True, bool(expressions.head().deterministic()) if not expressions.isEmpty() else None


def counts(spark: Any, template: str) -> tuple[list[int], bool | None]:
    """The argument counts that are accepted, and determinism where it could be seen."""
    taken, deterministic = [], None
    for count in range(MOST + 1):
        ok, seen = accepts(spark, template.format(", ".join(["NULL"] * count)))
        if ok:
            taken.append(count)
        if seen is not None:
            deterministic = seen
    return taken, deterministic


def describe(spark: Any, info: Any) -> dict[str, Any]:
    """One function as data."""
    name, group = info.getName(), info.getGroup()
    template = f"SELECT `{name}`({{}})"
    if group == "window_funcs":
        template += " OVER (ORDER BY 1)"
    if group == "generator_funcs" or group == "table_funcs":
        template = f"SELECT * FROM `{name}`({{}})"
    taken, deterministic = counts(spark, template)
    return {
        "group": group,
        "usage": " ".join(info.getUsage().replace("_FUNC_", name).split()),
        "min": min(taken, default=None),
        "max": None if MOST in taken else max(taken, default=None),
        "deterministic": deterministic,
    }


def main() -> None:
    """Write the file."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    logging.getLogger("SQLQueryContextLogger").disabled = True
    infos = {
        info.getName(): info
        for info in spark._jvm.org.apache.spark.sql.api.python.PythonSQLUtils.listBuiltinFunctionInfos()
    }
    table_functions = spark._jsparkSession.sessionState().tableFunctionRegistry().listFunction()
    tables = sorted({table_functions.apply(i).funcName() for i in range(table_functions.size())})
    functions = {name: describe(spark, info) for name, info in sorted(infos.items())}
    data = {"spark": spark.version, "functions": functions, "table_functions": tables}
    TARGET.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    sys.stderr.write(f"{len(functions)} functions, {len(tables)} table functions\n")
    spark.stop()


if __name__ == "__main__":
    main()
