"""Steps that fail in many ways: what may be over is tried again, and the cause is told in plain words."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from velostream.connectors.file.source import FileSource
from velostream.errors import StepError
from velostream.model.jobs import JobState
from velostream.runtime.instance import open_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from velostream.runtime.instance import Instance

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]

JARGON = re.compile(
    r"py4j|\bo\d+\.\w|error occurred while calling|Traceback|\bat [\w.$]+\([\w.]+:\d+\)|stacktrace|java\."
)


def heap(spark: SparkSession, folder: Path) -> None:
    """An array of 16 GB."""
    gateway: Any = spark.sparkContext._gateway
    gateway.new_array(gateway.jvm.long, 2**31 - 1)


def footer(spark: SparkSession, folder: Path) -> None:
    """Deep in a chain of causes: what should be Parquet is not."""
    garbage = folder / "garbage.parquet"
    garbage.write_bytes(b"no parquet at all" * 100)
    spark.read.schema("a INT").parquet(f"file://{garbage}").toArrow()


def vanished(spark: SparkSession, folder: Path) -> None:
    """A file that is gone when a task reads it."""
    path = folder / "gone.json"
    path.write_text('{"a": 1}')
    frame = spark.read.schema("a INT").json(f"file://{path}")
    path.unlink()
    frame.toArrow()


def number(spark: SparkSession, folder: Path) -> None:
    """Java says why, in one line."""
    spark._jvm.java.lang.Integer.parseInt("forty")  # type: ignore[union-attr]


def method(spark: SparkSession, folder: Path) -> None:
    """Something that Java does not have."""
    spark._jvm.java.lang.Thread.currentThread().nothing()  # type: ignore[union-attr]


def spool(spark: SparkSession, folder: Path) -> None:
    """The operating system refuses."""
    (folder / "nowhere" / "segment").read_bytes()


def worker(spark: SparkSession, folder: Path) -> None:
    """A Python worker that is killed while it computes."""
    from pyspark.sql.functions import udf

    kill = udf(lambda value: os.kill(os.getpid(), signal.SIGKILL), "int")
    spark.range(1).select(kill("id")).toArrow()


FAILURES = {
    heap: "out of memory",
    vanished: "gone.json",
    method: "nothing",
    spool: "no such file or directory",
    worker: "a Python worker of Spark ended",
}
AS_A_ROW_MIGHT = {footer: "garbage.parquet", number: "for input string"}
"""Failures that do not tell whether a row is the cause."""


@pytest.fixture(scope="module")
def database(spark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with open_instance(tmp_path_factory.mktemp("data") / "velostream") as shared:
        yield shared


@pytest.fixture
def fails(monkeypatch, tmp_path: Path) -> Callable[..., None]:
    """`fails(path, how, times)`: the next steps that read the file fail."""

    def fail(path: Path, how: Callable[[SparkSession, Path], None], times: int) -> None:
        frame, left = FileSource.frame, [how] * times

        def failing(self: FileSource, spark: SparkSession, *arguments: Any, **named: Any) -> Any:
            if left and self._files.path == path:
                left.pop()(spark, tmp_path)
            return frame(self, spark, *arguments, **named)

        monkeypatch.setattr(FileSource, "frame", failing)

    return fail


def said(database: Instance, name: str) -> list[str]:
    """All that anybody was told about a job: by the log, SHOW, figures and letters."""
    log = (database.directory.root / "logs" / "velostream.log").read_text().splitlines()
    told = [line for line in log if f'"{name}"' in line]
    told += [str(tuple(row)) for row in database.sql("SHOW JOBS").rows() if row.name == name]
    told += [str(tuple(row)) for row in database.sql("SHOW TABLES").rows() if row.name == name]
    told.append(str(database.table(name).stats().health_reason))
    return told + [row.reason for row in database.table("dead_letters").rows() if row.job == name]


def plainly(database: Instance, name: str) -> list[str]:
    told = said(database, name)
    assert not [line for line in told if JARGON.search(line)]
    return told


@pytest.mark.parametrize("how", FAILURES, ids=lambda how: how.__name__)
def test_what_may_be_over_is_tried_again(database, tmp_path, fails, wait_until, how):
    name, path = f"again_{how.__name__}", tmp_path / "a.csv"
    path.write_text("n\n1\n")
    database.sql(f"CREATE TABLE {name} AS SELECT n FROM file://{path}")
    assert database.wait_idle(60)
    fails(path, how, 1)
    with path.open("a") as file:
        file.write("2\n")
    wait_until(lambda: sorted(row.n for row in database.table(name).rows()) == [1, 2], 60)
    wait_until(lambda: database.job(name).state is JobState.RUNNING)
    assert database.job(name).errors_by_code == {"job.step": 1}
    assert any("degraded" in line and FAILURES[how] in line for line in plainly(database, name))


@pytest.mark.parametrize("how", AS_A_ROW_MIGHT, ids=lambda how: how.__name__)
def test_what_may_be_a_rows_fault_is_tried_again_at_once(database, tmp_path, fails, wait_until, how):
    name, path = f"at_once_{how.__name__}", tmp_path / "a.csv"
    path.write_text("n\n1\n")
    database.sql(f"CREATE TABLE {name} AS SELECT n FROM file://{path}")
    assert database.wait_idle(60)
    fails(path, how, 1)
    with path.open("a") as file:
        file.write("2\n")
    wait_until(lambda: sorted(row.n for row in database.table(name).rows()) == [1, 2], 60)
    assert database.job(name).errors_by_code == {}
    assert any("again" in line and AS_A_ROW_MIGHT[how] in line for line in plainly(database, name))


def test_what_is_not_over_ends_with_its_cause(database, tmp_path, fails, wait_until, monkeypatch):
    monkeypatch.setattr(StepError, "attempts", 2)
    path = tmp_path / "a.csv"
    path.write_text("n\n1\n")
    database.sql(f"CREATE TABLE never AS SELECT n FROM file://{path}")
    assert database.wait_idle(60)
    fails(path, spool, 3)
    with path.open("a") as file:
        file.write("2\n")
    wait_until(lambda: database.job("never").state is JobState.FAILED, 60)
    reason = f'"{tmp_path}/nowhere/segment": no such file or directory; tried 3 times'
    assert database.job("never").info.reason == reason
    # The table hears of it a moment after the job has failed.
    wait_until(lambda: database.table("never").stats().health == "failed")
    assert database.table("never").stats().health_reason == reason
    assert database.job("never").errors_by_code == {"job.step": 3}
    plainly(database, "never")
    # Started again it has all attempts again.
    fails(path, spool, 1)
    database.sql("RESUME JOB never")
    wait_until(lambda: sorted(row.n for row in database.table("never").rows()) == [1, 2], 60)


def test_a_query_that_ends_by_itself_is_started_again(database, tmp_path, wait_until):
    path = tmp_path / "a.csv"
    path.write_text("n\n1\n")
    database.sql(f"CREATE TABLE ended AS SELECT n FROM file://{path}")
    assert database.wait_idle(60)
    # Spark cannot write down that it begins a batch.
    checkpoint = database.jobs_by_name.folder(database.job("ended").id) / "checkpoint"
    shutil.rmtree(checkpoint)
    with path.open("a") as file:
        file.write("2\n3\n")
    wait_until(lambda: len(database.table("ended")) == 3, 90)
    with path.open("a") as file:
        file.write("4\n")
    wait_until(lambda: len(database.table("ended")) == 4, 90)
    plainly(database, "ended")


def test_a_function_that_raises_is_a_row_and_not_a_failure(database, tmp_path, wait_until):
    @database.udf(returns="int")
    def picky(value: int) -> int:
        if value == 2:
            raise ValueError("not two")
        return value

    path = tmp_path / "a.csv"
    path.write_text("n\n1\n2\n")
    database.sql(f"CREATE TABLE picky_rows AS SELECT picky(n) AS n FROM file://{path}")
    assert database.wait_idle(60)
    assert [row.n for row in database.table("picky_rows").rows()] == [1]
    (reason,) = [row.reason for row in database.table("dead_letters").rows() if row.job == "picky_rows"]
    assert reason == "a Python function raised: picky(2): ValueError: not two"
    plainly(database, "picky_rows")


def test_a_segment_that_is_no_more_what_it_was(database, tmp_path, wait_until, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.setattr(StepError, "attempts", 1)
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"n": [1]}), folder / "a.parquet")
    database.sql(f"CREATE TABLE corrupt AS SELECT n FROM 'file://{folder}/*.parquet'")
    assert database.wait_idle(60)
    frame = FileSource.frame

    def spoiled(self: FileSource, spark: SparkSession, start: Any, *arguments: Any, **named: Any) -> Any:
        for each in Path(self._context.spool).rglob("*"):
            if each.is_file() and each.read_bytes()[:4] == b"PAR1":
                each.write_bytes(b"no parquet any more" * 50)
        return frame(self, spark, start, *arguments, **named)

    monkeypatch.setattr(FileSource, "frame", spoiled)
    pq.write_table(pa.table({"n": [2]}), folder / "b.parquet")
    wait_until(lambda: database.job("corrupt").state is JobState.FAILED, 60)
    plainly(database, "corrupt")
    assert [row.n for row in database.table("corrupt").rows()] == [1]
