"""Asking Spark: types of a query, rows of a query, views over what we hold."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import InternalError, SparkEndedError, SqlError, UnknownNameError, VelostreamError
from velostream.formats.spark_types import filled
from velostream.sql.types import spark_ddl

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import DataFrame, SparkSession


def private_session(spark: SparkSession) -> SparkSession:
    """A session of its own for one job: same functions and settings, its own temporary views."""
    from pyspark.sql import SparkSession as Session

    return Session(spark.sparkContext, spark._jsparkSession.cloneSession())  # noqa: SLF001


def empty_frame(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    """A frame without rows, for analysis and for the absent half of a change."""
    # A SELECT is analysed in a few milliseconds; createDataFrame would first make an RDD of nothing.
    columns = (f"CAST(NULL AS {spark_ddl(f.type)}) AS `{f.name.replace('`', '``')}`" for f in schema)
    return spark.sql(f"SELECT {', '.join(columns)} WHERE false")


def arrow_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A frame over rows that we hold, with exactly their types."""
    if table.num_rows == 0:
        return empty_frame(spark, table.schema)
    return spark.createDataFrame(filled(_plain(table)))


def _plain(table: pa.Table) -> pa.Table:
    """Dictionary columns decoded: Spark's Arrow reader does not take them."""
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(field.type.value_type))
    return table


def show_empty(spark: SparkSession, views: Mapping[str, pa.Schema]) -> None:
    """Make views without rows, so that queries over them can be analysed."""
    for name, schema in views.items():
        empty_frame(spark, schema).createOrReplaceTempView(f"`{name}`")


def query_schema(spark: SparkSession, sql: str) -> pa.Schema:
    """The columns that Spark gives the query's result; its relations must be views of the session."""
    from pyspark.sql.pandas.types import to_arrow_schema

    with translated():
        struct = spark.sql(sql).schema
    schema = to_arrow_schema(struct, timezone="UTC", error_on_duplicated_field_names_in_struct=False)
    return pa.schema([pa.field(f.name, f.type, nullable=True) for f in schema])


def rows_of(spark: SparkSession, sql: str, params: dict[str, Any] | list[Any] | None = None) -> pa.Table:
    """Run a query, parameters bound as values, and bring its rows here."""
    with translated():
        return nullable(spark.sql(sql, params).toArrow())


def observed(frame: DataFrame, names: Collection[str]) -> dict[str, int]:
    """The figure that was observed under each of the names while `toArrow` of the frame ran.

    A name is missing where Spark knew the result without computing what was to be observed.
    """
    # An Observation of pyspark's waits for an event that does not come after `toArrow`; the plan knows.
    figures = frame._jdf.queryExecution().observedMetrics()  # noqa: SLF001
    found = {name: figures.get(name) for name in names}
    return {name: row.get().getLong(0) for name, row in found.items() if row.isDefined()}


def nullable(table: pa.Table) -> pa.Table:
    """The table with every column nullable, as stored tables have them."""
    fields = [pa.field(f.name, f.type, nullable=True) for f in table.schema]
    return table.cast(pa.schema(fields))


class translated:  # noqa: N801
    """A context in which Spark's exceptions become ours."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, _: object) -> None:
        if exc is None or isinstance(exc, VelostreamError) or not isinstance(exc, Exception):
            return
        error = translate(exc)
        if error is not None:
            raise error from exc


_CONDITION = re.compile(r"\[([A-Z0-9_.]+)\]\s*(.*)")


def error_condition(exc: BaseException) -> str | None:
    """Spark's name for the innermost error it reports, such as DIVIDE_BY_ZERO."""
    found = None
    for match in _CONDITION.finditer(error_text(exc)):
        if match[1] not in {"FAILED_READ_FILE.NO_HINT", "INTERNAL_ERROR"}:
            found = match[1]
    if found is None and (given := getattr(exc, "getCondition", None)) is not None:
        # What a Python function raised is told without Spark's name for it.
        found = given()
    return found


_STATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})\b")


def error_states(exc: BaseException) -> set[str]:
    """The SQLSTATEs of all errors that Spark reports, the innermost and those around it."""
    return set(_STATE.findall(error_text(exc)))


def of_statement(exc: BaseException) -> bool:
    """Whether Spark refused the statement itself, before any row was read."""
    from pyspark.errors import AnalysisException, ParseException

    return isinstance(exc, (AnalysisException, ParseException))


def error_text(exc: BaseException) -> str:
    """All that Spark says about an error."""
    java = getattr(exc, "java_exception", None) or getattr(exc, "_origin", None)
    return f"{exc}\n{java}" if java is not None else str(exc)


def translate(exc: Exception) -> VelostreamError | None:
    """Our error for one of Spark's, or None when the exception is not from there."""
    from py4j.protocol import Py4JError, Py4JNetworkError
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    if isinstance(exc, Py4JNetworkError):
        return SparkEndedError()
    if isinstance(exc, (AnalysisException, ParseException)):
        message = first_line(exc)
        if (error_condition(exc) or "").startswith("UNRESOLVED_COLUMN"):
            given = exc.getMessageParameters() or {}
            name, known = (given.get(key, "").replace("`", "") for key in ("objectName", "proposal"))
            return UnknownNameError(
                f'unknown column "{name}"', hint=f"columns are {known}" if known else None
            )
        return SqlError(message)
    if isinstance(exc, (PySparkException, Py4JError)):
        from velostream.errors import JobError

        return JobError(first_line(exc))
    return None


_FROM_PYTHON = "An exception was thrown from the Python worker"
"""How Spark begins the traceback of a Python function; its last line is what the function raised."""


def first_line(exc: BaseException) -> str:
    """What Spark says, without its codes, plans and stack."""
    text = str(exc).strip()
    if text.startswith(_FROM_PYTHON):
        return text.splitlines()[-1].strip()
    matches = list(_CONDITION.finditer(text))
    if matches:
        text = matches[-1][2] or matches[-1][1]
    text = re.sub(r"\s*SQLSTATE: \w+.*", "", text.splitlines()[0] if text else type(exc).__name__)
    text = text.strip().rstrip(".;")
    return text[:1].lower() + text[1:] if text else type(exc).__name__


def checked_cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the stored types; a value that does not fit is a bug of ours, not the user's."""
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, KeyError) as exc:
        raise InternalError(f"rows do not fit the table: {exc}") from exc
