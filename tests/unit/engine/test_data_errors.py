"""Which of Spark's errors are a row's fault: decided over the whole list that Spark ships."""

from __future__ import annotations

import json
import zipfile
from functools import cache
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from velostream.engine.bad_rows.data_errors import data_error, maybe_data_error
from velostream.spark.gateway import SPARK_HOME


@cache
def conditions() -> dict[str, Any]:
    (jar,) = (SPARK_HOME / "jars").glob("spark-common-utils_*.jar")
    with zipfile.ZipFile(jar) as archive:
        found: dict[str, Any] = json.loads(archive.read("error/error-conditions.json"))
    return found


def spark_error(condition: str) -> PySparkException:
    text = f"[{condition}] Something about a value. SQLSTATE: {conditions()[condition]['sqlState']}"
    return PySparkException(
        f"Job aborted due to stage failure: Task 0 in stage 1.0 failed: {text}\n\tat X.java"
    )


def test_every_data_exception_is_a_rows_fault():
    listed = [name for name, each in conditions().items() if each.get("sqlState", "").startswith("22")]
    assert len(listed) > 100
    assert [name for name in listed if not data_error(spark_error(name))] == []


def test_errors_of_the_machine_and_of_statements_are_not():
    ours = ("08", "42", "46", "53", "55", "58", "82", "0A", "XX")
    listed = [name for name, each in conditions().items() if each.get("sqlState", "").startswith(ours)]
    assert len(listed) > 100
    wrong = [name for name in listed if data_error(spark_error(name))]
    assert wrong == ["MALFORMED_PROTOBUF_MESSAGE"]


@pytest.mark.parametrize(
    "name",
    ["USER_RAISED_EXCEPTION", "PYTHON_EXCEPTION", "FAILED_EXECUTE_UDF", "DUPLICATED_MAP_KEY"],
)
def test_functions_that_raise_are(name):
    assert data_error(spark_error(name))


def test_a_statement_that_spark_refuses_is_not_a_rows_fault():
    refused = AnalysisException(
        "[INVALID_PARAMETER_VALUE.PATTERN] The value of x is invalid. SQLSTATE: 22023"
    )
    assert not data_error(refused)
    wrapped = RuntimeError("refused")
    wrapped.__cause__ = refused
    assert not data_error(wrapped)


class Thrown(Exception):
    """What Java threw, as far as these tests need it: its text, with the stack and the causes."""

    def __init__(self, text: str, cause: str | None = None) -> None:
        caused = f"\nCaused by: {cause}\n\tat X.java" if cause is not None else ""
        super().__init__(f"Job aborted due to stage failure: Task 0 in stage 1.0 failed: {text}{caused}")
        self.java_exception = object()


@pytest.mark.parametrize(
    "text",
    [
        "java.lang.IllegalArgumentException: requirement failed: Illegal sequence boundaries: 1 to 2 by 0",
        "java.util.regex.PatternSyntaxException: Unclosed group near index 4",
        "java.lang.StackOverflowError",
        "java.nio.charset.MalformedInputException: Input length = 1",
        "java.net.URISyntaxException: Illegal character",
        "org.apache.spark.SparkUpgradeException: [INCONSISTENT_BEHAVIOR_CROSS_VERSION] SQLSTATE: 42K0B",
        "java.lang.NullPointerException: [INTERNAL_ERROR] SQLSTATE: XX000",
        "java.lang.OutOfMemoryError: Java heap space",
        "java.lang.OutOfMemoryError: Requested array size exceeds VM limit",
    ],
)
def test_errors_without_a_name_may_be_a_rows_fault(text):
    assert not data_error(Thrown(text))
    assert maybe_data_error(Thrown(text))


@pytest.mark.parametrize(
    "text",
    [
        "java.lang.OutOfMemoryError: unable to create native thread: possibly out of memory",
        "java.lang.OutOfMemoryError: Metaspace",
        "java.io.IOException: No space left on device",
        "java.net.ConnectException: Connection refused",
        "org.apache.kafka.common.errors.TimeoutException: expired",
        "org.apache.spark.shuffle.FetchFailedException: lost",
        "org.apache.spark.TaskKilledException",
        "java.util.concurrent.TimeoutException: Futures timed out",
        "org.apache.spark.SparkException: [X] SQLSTATE: 58030",
    ],
)
def test_errors_of_machines_are_not(text):
    assert not maybe_data_error(Thrown(text))
    assert not maybe_data_error(Thrown("org.apache.spark.SparkException: task failed", cause=text))


def test_errors_that_java_did_not_throw_are_not():
    assert not maybe_data_error(RuntimeError("java.lang.IllegalArgumentException"))
