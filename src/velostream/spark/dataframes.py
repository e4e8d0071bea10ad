"""Queries to Spark: types of a query, rows of a query, views over our own rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import (
    InternalError,
    TypeMismatchError,
)
from velostream.spark.column_types import collation_of, refuse_unkept, refuse_unread
from velostream.spark.failures import translated
from velostream.sql.types import quote, spark_ddl

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def private_session(spark: SparkSession, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session for one job: shared functions and settings except for these, private temporary views."""
    from pyspark.sql import SparkSession as Session

    session = Session(spark.sparkContext, spark._jsparkSession.cloneSession())  # noqa: SLF001
    for name, value in (settings or {}).items():
        session.conf.set(name, value)
    return session


def empty_frame(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    """A frame without rows, for analysis and for the absent half of a change."""
    # A SELECT is analysed in a few milliseconds; createDataFrame would first create an empty RDD.
    columns = (f"CAST(NULL AS {spark_ddl(f.type)}) AS `{f.name.replace('`', '``')}`" for f in schema)
    return spark.sql(f"SELECT {', '.join(columns)} WHERE false")


def arrow_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A frame over Arrow rows, with exactly their types."""
    if table.num_rows == 0:
        return empty_frame(spark, table.schema)
    return spark.createDataFrame(filled(_plain(table)))


def frame_of_batches(
    spark: SparkSession,
    batches: Callable[[int, pa.Schema], Iterable[pa.RecordBatch]],
    tasks: int,
    columns: Sequence[tuple[str, str]],
) -> DataFrame:
    """The rows that `batches(number, schema)` yields in each of several tasks; `columns` have Spark's types.

    As fast as a data source of Spark's in Python, which is planned in a process of its own for each frame.
    """
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    struct = StructType.fromDDL(", ".join(f"{quote(name)} {kind}" for name, kind in columns))
    assert isinstance(struct, StructType)
    schema = to_arrow_schema(struct, timezone="UTC", error_on_duplicated_field_names_in_struct=False)

    # Defined here, so that it is sent to the tasks by value.
    def run(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from batches(number, schema)

    return spark.range(0, tasks, 1, tasks).mapInArrow(run, struct)


def filled(table: pa.Table) -> pa.Table:
    """The rows without empty batches: Spark's reader stops at one, losing the later rows of its partition."""
    batches = table.to_batches()
    some = [batch for batch in batches if batch.num_rows]
    return table if len(some) == len(batches) else pa.Table.from_batches(some, table.schema)


def _plain(table: pa.Table) -> pa.Table:
    """Dictionary columns decoded: Spark's Arrow reader does not support them."""
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(field.type.value_type))
    return table


def show_empty(spark: SparkSession, views: Mapping[str, pa.Schema]) -> None:
    """Create views without rows, so that queries over them can be analysed."""
    for name, schema in views.items():
        empty_frame(spark, schema).createOrReplaceTempView(quote(name))


def query_types(spark: SparkSession, sql: str) -> StructType:
    """The columns of the query's result in Spark; its relations must be views of the session."""
    with translated():
        return spark.sql(sql).schema


def query_schema(spark: SparkSession, sql: str) -> pa.Schema:
    """The same in the types of a table; TypeMismatchError where there is none."""
    return _kept(query_types(spark, sql))


def collation(spark: SparkSession, sql: str) -> tuple[str, str] | None:
    """The first column of the query's result that Spark does not compare by its bytes, and its collation."""
    return collation_of(query_types(spark, sql))


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
    """Run a query, parameters bound as values, and collect its rows."""
    with translated():
        return brought(spark.sql(sql, params))


def answer_of(spark: SparkSession, sql: str, params: dict[str, Any] | list[Any] | None = None) -> pa.Table:
    """The same for a query whose result types are not known yet."""
    with translated():
        frame = spark.sql(sql, params)
        refuse_unread(frame.schema)
        return brought(frame)


def observed(frame: DataFrame, names: Collection[str]) -> dict[str, list[int | None]]:
    """The metrics observed under each of the names while `toArrow` of the frame ran.

    A name is missing where Spark knew the result without computing the observed part.
    """
    # pyspark's Observation waits for an event that `toArrow` never sends; the executed plan has the values.
    metrics = frame._jdf.queryExecution().observedMetrics()  # noqa: SLF001
    rows = {name: metrics.get(name) for name in names}
    found = {name: row.get() for name, row in rows.items() if row.isDefined()}
    return {
        name: [None if row.isNullAt(n) else row.getLong(n) for n in range(row.size())]
        for name, row in found.items()
    }


def brought(frame: DataFrame) -> pa.Table:
    """The rows of a frame, every column and nested field nullable, as in stored tables.

    `toArrow` itself fails for a null struct with a field that is never null.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(frame.schema, timezone="UTC", error_on_duplicated_field_names_in_struct=True)
    batches = frame._collect_as_arrow(empty_list_if_zero_records=False)  # type: ignore[operator]  # noqa: SLF001
    return pa.Table.from_batches(batches).cast(_nullable_schema(wanted))


def nullable(table: pa.Table) -> pa.Table:
    """The table with every column nullable, as in stored tables."""
    return table.cast(_nullable_schema(table.schema))


def _nullable_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, nullable_type(f.type), nullable=True) for f in schema])


def nullable_type(kind: pa.DataType) -> pa.DataType:
    """The type with every nested field nullable: a required field is null within a null struct."""
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(nullable_type(f.type)).with_nullable(True) for f in kind])
    if pa.types.is_map(kind):
        item = kind.item_field
        return pa.map_(kind.key_field, item.with_type(nullable_type(item.type)).with_nullable(True))
    if pa.types.is_list(kind):
        item = kind.value_field
        return pa.list_(item.with_type(nullable_type(item.type)).with_nullable(True))
    return kind


def checked_cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table cast to the stored types; a value that does not fit is a bug of ours, not the user's."""
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, KeyError) as exc:
        raise InternalError(f"rows do not fit the table: {exc}") from exc
