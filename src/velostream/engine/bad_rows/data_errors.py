"""Which errors are caused by a row, rather than by the machine, the program or the statement.

An error is certainly caused by a row if its SQLSTATE is a data exception, or a user's function raised it.
Spark also throws errors without an error class where a value is out of bounds. So any other error that is not
known to come from the machine may be caused by a row, and is if the query fails on that row alone (`search`).
A value that does not fit into memory is such an error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from velostream.engine.inputs.spreading import FAILED
from velostream.errors import JobError, SparkEndedError, VelostreamError
from velostream.plan.groups.merge import SumOverflowError
from velostream.spark.failures import error_condition, error_states, error_text, of_statement

if TYPE_CHECKING:
    from collections.abc import Iterator

_DATA_EXCEPTION = "22"
"""The SQLSTATE class "data exception": errors that a value causes."""
_OF_ROWS = (
    "USER_RAISED_EXCEPTION",
    "PYTHON_EXCEPTION",
    "FAILED_EXECUTE_UDF",
    "FAILED_READ_FILE",
    "MALFORMED_CSV_RECORD",
    "MALFORMED_PROTOBUF_MESSAGE",
    "DUPLICATED_MAP_KEY",
    "COLLECTION_SIZE_LIMIT_EXCEEDED",
)
"""Prefixes of Spark's other error classes that a row can cause, by itself or in a user's function."""
_OF_FILES = ("FAILED_READ_FILE.FILE_NOT_EXIST", "FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER")
"""Error classes with such a prefix that concern a file as a whole."""
_OF_THE_MACHINE = ("08", "53", "54", "55", "57", "58")
"""SQLSTATE classes of connections, resources, objects in use, operator intervention and system errors."""
_CLASS = re.compile(r"\b(?:[a-z_]\w*\.)+[A-Z][\w$]*(?:Exception|Error)\b")
_MACHINE = re.compile(
    r"org\.apache\.(kafka|hadoop)\.|io\.netty\.|py4j\."
    r"|org\.apache\.spark\.(shuffle|memory|rpc|network|storage|TaskKilled|ExecutorDead|BarrierJob)"
    r"|java\.io\.(IO|EOF|FileNotFound|InterruptedIO|UncheckedIO|NotSerializable|InvalidClass)"
    r"|java\.net\.(Socket|Connect|UnknownHost|NoRouteToHost|Bind|PortUnreachable)"
    r"|java\.nio\.(channels|file)\."
    r"|java\.util\.concurrent\.(Timeout|Rejected|Cancellation)"
    r"|java\.lang\.(Interrupted|VirtualMachine|Linkage|NoClassDef|ClassNotFound|NoSuch|Security)"
)
"""Java's errors of machines, networks and class paths."""
_MEMORY_OF_THE_MACHINE = re.compile(
    r"OutOfMemoryError: (unable to create|Metaspace|Compressed class|GC overhead|Map failed"
    r"|Cannot reserve|Direct buffer)"
)
"""Java's messages when memory is short for threads, classes or buffers, and not for a single value."""


def data_error(exc: BaseException) -> bool:
    """Whether Spark's failure was certainly caused by a row of the input."""
    if isinstance(exc, SumOverflowError):
        return True
    if _refused(exc):
        return False
    condition = error_condition(exc) or ""
    if condition.startswith(_OF_ROWS) and condition not in _OF_FILES:
        return True
    return any(state.startswith(_DATA_EXCEPTION) for state in error_states(exc))


def maybe_data_error(exc: BaseException) -> bool:
    """Whether Spark's failure may have been caused by a row: certainly, or with an unspecific error."""
    if data_error(exc):
        return True
    causes = list(_causes(exc))
    if _refused(exc) or not any(map(_from_java, causes)) or any(map(_told_apart, causes)):
        return False
    if error_condition(exc) in _OF_FILES:
        return False
    if any(state.startswith(_OF_THE_MACHINE) for state in error_states(exc)):
        return False
    text = error_text(exc)
    return not (_MEMORY_OF_THE_MACHINE.search(text) or any(map(_MACHINE.match, _CLASS.findall(text))))


def _refused(exc: BaseException) -> bool:
    return any(of_statement(cause) or FAILED in str(cause) for cause in _causes(exc))


def _causes(exc: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = exc
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _from_java(exc: BaseException) -> bool:
    """Whether the error was thrown in Java, and is not a broken connection to Java."""
    return (getattr(exc, "java_exception", None) or getattr(exc, "_origin", None)) is not None


def _told_apart(exc: BaseException) -> bool:
    """Whether it is an error of Velostream with a known cause: a source, a sink, a table, Spark's end."""
    if isinstance(exc, SparkEndedError):
        return True
    return isinstance(exc, VelostreamError) and not isinstance(exc, JobError)
