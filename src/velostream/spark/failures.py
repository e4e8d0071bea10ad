"""Translates exceptions of Spark and Java to ours; none of theirs crosses this border."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from velostream.disk.full_disk import unkept, unkept_by_java
from velostream.errors import (
    InternalError,
    JobError,
    SparkEndedError,
    SqlError,
    StepError,
    UnknownNameError,
    VelostreamError,
)
from velostream.spark.messages import TRACEBACK, conditions, plain, root_cause, states

if TYPE_CHECKING:
    from collections.abc import Iterator


class translated:  # noqa: N801
    """A context that turns Spark's exceptions into ours."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, _: object) -> None:
        if not isinstance(exc, Exception):
            return
        error = _of_spark(exc)
        if error is not None:
            raise error from exc


def translate(exc: BaseException) -> VelostreamError:
    """Our error for any exception: the one border between foreign exceptions and what users read."""
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
"""SQLSTATE classes of errors caused by a statement or a value: retrying does not help."""


def _of_spark(exc: BaseException) -> VelostreamError | None:
    """Our error for one of Spark's; None when the exception is not Spark's."""
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
        # An exception of a Python function is reported without Spark's name for it.
        given = [each.getCondition() for each in _chain(exc) if hasattr(each, "getCondition")]
        found = [name for name in given if name not in around]
    return found[-1] if found else None


def error_states(exc: BaseException) -> set[str]:
    """The SQLSTATEs of all errors that Spark reports, from the innermost outwards."""
    return states(error_text(exc))


def of_statement(exc: BaseException) -> bool:
    """Whether Spark refused the statement itself, before any row was read."""
    from pyspark.errors import AnalysisException, ParseException

    return isinstance(exc, (AnalysisException, ParseException))


def error_text(exc: BaseException | None) -> str:
    """The whole text of an error: its own, its causes', and Java's with the stack."""
    parts: list[str] = []
    for each in _chain(exc):
        # The stack is included only where Spark is asked for it; the text taken when it was raised has all.
        parts += [_own_text(each), getattr(each, "_stackTrace", None) or ""]
    return "\n".join(part for part in parts if part)


def _chain(exc: BaseException | None) -> Iterator[BaseException]:
    """An exception and its causes, from outside in."""
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
    """The root cause in plain words: no codes, plans or stacks."""
    if isinstance(exc, VelostreamError):
        return exc.message
    return root_cause(error_text(exc)) or type(exc).__name__
