"""Asking Spark: types of a query, rows of a query, views over what we hold."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import (
    InternalError,
    JobError,
    SparkEndedError,
    SqlError,
    StepError,
    TypeMismatchError,
    UnknownNameError,
    VelostreamError,
)
from velostream.formats.spark_types import filled
from velostream.model.failures import TRACEBACK, conditions, plain, root_cause, states
from velostream.model.storage import unkept, unkept_by_java
from velostream.plan.kept_types import collation_of, refuse_unkept, refuse_unread
from velostream.plan.resolve import NoKeysError
from velostream.sql.types import quote, spark_ddl

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


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
        empty_frame(spark, schema).createOrReplaceTempView(quote(name))


def query_types(spark: SparkSession, sql: str) -> StructType:
    """The columns that Spark gives the query's result; its relations must be views of the session."""
    with translated():
        return spark.sql(sql).schema


def query_schema(spark: SparkSession, sql: str) -> pa.Schema:
    """The same as a table holds them; TypeMismatchError where none can."""
    return _kept(query_types(spark, sql))


def followed_schema(spark: SparkSession, sql: str) -> pa.Schema:
    """The same for rows that we compare ourselves; NoKeysError where Spark compares them differently."""
    struct = query_types(spark, sql)
    found = collation_of(struct)
    if found is not None:
        raise NoKeysError(f"{found[0]} is compared by the collation {found[1]}")
    return _kept(struct)


def kept_types(spark: SparkSession, sql: str) -> list[tuple[str, pa.DataType | None]]:
    """The same column by column; None for a type that no table can hold."""
    from pyspark.sql.types import StructType

    found: list[tuple[str, pa.DataType | None]] = []
    for field in query_types(spark, sql):
        try:
            kind = _kept(StructType([field])).field(0).type
        except TypeMismatchError:
            kind = None
        found.append((field.name, kind))
    return found


def _kept(struct: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    refuse_unkept(struct)
    schema = to_arrow_schema(struct, timezone="UTC", error_on_duplicated_field_names_in_struct=False)
    return _nullable_schema(schema)


def rows_of(spark: SparkSession, sql: str, params: dict[str, Any] | list[Any] | None = None) -> pa.Table:
    """Run a query, parameters bound as values, and bring its rows here."""
    with translated():
        return brought(spark.sql(sql, params))


def answer_of(spark: SparkSession, sql: str, params: dict[str, Any] | list[Any] | None = None) -> pa.Table:
    """The same for a query of which nobody knows yet what it gives."""
    with translated():
        frame = spark.sql(sql, params)
        refuse_unread(frame.schema)
        return brought(frame)


def observed(frame: DataFrame, names: Collection[str]) -> dict[str, int]:
    """The figure that was observed under each of the names while `toArrow` of the frame ran.

    A name is missing where Spark knew the result without computing what was to be observed.
    """
    # An Observation of pyspark's waits for an event that does not come after `toArrow`; the plan knows.
    figures = frame._jdf.queryExecution().observedMetrics()  # noqa: SLF001
    found = {name: figures.get(name) for name in names}
    return {name: row.get().getLong(0) for name, row in found.items() if row.isDefined()}


def brought(frame: DataFrame) -> pa.Table:
    """The rows of a frame, every column and every part of it nullable, as stored tables have them.

    `toArrow` itself fails for a struct that is null where it has a field that never is.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(frame.schema, timezone="UTC", error_on_duplicated_field_names_in_struct=True)
    batches = frame._collect_as_arrow(empty_list_if_zero_records=False)  # type: ignore[operator]  # noqa: SLF001
    return pa.Table.from_batches(batches).cast(_nullable_schema(wanted))


def nullable(table: pa.Table) -> pa.Table:
    """The table with every column nullable, as stored tables have them."""
    return table.cast(_nullable_schema(table.schema))


def _nullable_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, nullable_type(f.type), nullable=True) for f in schema])


def nullable_type(kind: pa.DataType) -> pa.DataType:
    """The type with every part nullable: a field that is never null is null in a struct that is."""
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(nullable_type(f.type)).with_nullable(True) for f in kind])
    if pa.types.is_map(kind):
        item = kind.item_field
        return pa.map_(kind.key_field, item.with_type(nullable_type(item.type)).with_nullable(True))
    if pa.types.is_list(kind):
        item = kind.value_field
        return pa.list_(item.with_type(nullable_type(item.type)).with_nullable(True))
    return kind


class translated:  # noqa: N801
    """A context in which Spark's exceptions become ours."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, _: object) -> None:
        if not isinstance(exc, Exception):
            return
        error = _of_spark(exc)
        if error is not None:
            raise error from exc


def translate(exc: BaseException) -> VelostreamError:
    """Our error for whatever went wrong: the one border between what others raise and what users read."""
    if isinstance(exc, VelostreamError):
        return exc
    error = _of_spark(exc)
    if error is not None:
        return error
    kept = unkept(exc)
    if kept is not None:
        return kept
    if isinstance(exc, OSError):
        what = f'"{exc.filename}": ' if exc.filename else ""
        return StepError(f"{what}{plain(exc.strerror or str(exc)) or type(exc).__name__}")
    if isinstance(exc, MemoryError):
        return StepError("this process has no memory left")
    return InternalError(f"{type(exc).__name__}: {plain(str(exc))}")


_STATEMENT = ("0A", "21", "22", "2F", "38", "39", "42", "54")
"""Classes of SQLSTATE of what a statement, or a value that it meets, causes: trying again does not help."""


def _of_spark(exc: BaseException) -> VelostreamError | None:
    """Our error for one of Spark's, or None when the exception is not from there."""
    if "pyspark" not in sys.modules or isinstance(exc, VelostreamError):
        return None
    from py4j.protocol import Py4JError, Py4JNetworkError
    from pyspark.errors import PySparkException

    if isinstance(exc, Py4JNetworkError):
        return SparkEndedError()
    if of_statement(exc):
        assert isinstance(exc, PySparkException)
        if (error_condition(exc) or "").startswith("UNRESOLVED_COLUMN"):
            given = exc.getMessageParameters() or {}
            name, known = (given.get(key, "").replace("`", "") for key in ("objectName", "proposal"))
            return UnknownNameError(
                f'unknown column "{name}"', hint=f"columns are {known}" if known else None
            )
        return SqlError(cause_of(exc))
    if isinstance(exc, (PySparkException, Py4JError)):
        if TRACEBACK in error_text(exc) or any(state[:2] in _STATEMENT for state in error_states(exc)):
            return JobError(cause_of(exc))
        cause = cause_of(exc)
        return unkept_by_java(error_text(exc)) or StepError(f"Spark failed: {cause}", hint=_hint(cause))
    return None


def _hint(cause: str) -> str | None:
    if cause.startswith("out of memory"):
        return "give Spark more memory: --conf spark.driver.memory=4g"
    return None


def error_condition(exc: BaseException) -> str | None:
    """Spark's name for the innermost error it reports, such as DIVIDE_BY_ZERO."""
    around = {"FAILED_READ_FILE.NO_HINT", "INTERNAL_ERROR", None}
    found = [name for name in conditions(error_text(exc)) if name not in around]
    if not found:
        # What a Python function raised is told without Spark's name for it.
        given = [each.getCondition() for each in _chain(exc) if hasattr(each, "getCondition")]
        found = [name for name in given if name not in around]
    return found[-1] if found else None


def error_states(exc: BaseException) -> set[str]:
    """The SQLSTATEs of all errors that Spark reports, the innermost and those around it."""
    return states(error_text(exc))


def of_statement(exc: BaseException) -> bool:
    """Whether Spark refused the statement itself, before any row was read."""
    from pyspark.errors import AnalysisException, ParseException

    return isinstance(exc, (AnalysisException, ParseException))


def error_text(exc: BaseException | None) -> str:
    """All that is said about an error: by itself, by what caused it, and by Java with its stack."""
    parts: list[str] = []
    for each in _chain(exc):
        # With a stack only where Spark is asked for it; the text that was taken when it was raised has all.
        parts += [_own_text(each), getattr(each, "_stackTrace", None) or ""]
    return "\n".join(part for part in parts if part)


def _chain(exc: BaseException | None) -> Iterator[BaseException]:
    """An exception and what caused it, from outside in."""
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        seen.add(id(exc))
        yield exc
        exc = getattr(exc, "_cause", None) or exc.__cause__


def _own_text(exc: BaseException) -> str:
    try:
        return str(getattr(exc, "_desc", None) or exc)
    except Exception as unreachable:
        # py4j asks Java for the text, which may be gone.
        return f"{type(exc).__name__}: {type(unreachable).__name__}"


def cause_of(exc: BaseException) -> str:
    """What went wrong at the root, in plain words: no codes, plans or stacks."""
    if isinstance(exc, VelostreamError):
        return exc.message
    return root_cause(error_text(exc)) or type(exc).__name__


def checked_cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the stored types; a value that does not fit is a bug of ours, not the user's."""
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, KeyError) as exc:
        raise InternalError(f"rows do not fit the table: {exc}") from exc
