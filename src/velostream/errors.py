"""The exceptions of Velostream, as one tree.

Each class defines what a caller needs to decide: a stable `code`, who is to blame, whether retrying can help,
and the exit code of the command line. Each instance has a message (lowercase, no final period, the object
named), optionally a detail, a hint, and the location in the user's SQL. None of them holds a secret.
"""

from __future__ import annotations

from difflib import get_close_matches
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from velostream.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Iterable

    from velostream.location import Location


class Blame(StrEnum):
    """Who has to act."""

    YOU = "you"
    OUTSIDE = "outside"
    US = "us"


class VelostreamError(Exception):
    """Base of every error that Velostream raises on purpose."""

    code: ClassVar[str] = "internal"
    blame: ClassVar[Blame] = Blame.US
    retryable: ClassVar[bool] = False
    attempts: ClassVar[int | None] = None
    """How many times in a row a job retries; None: until it works."""
    health: ClassVar[str] = "degraded"
    """The health of a table whose job retries because of this error."""
    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        location: Location | None = None,
        retry_after: float | None = None,
    ) -> None:
        # The texts of an error are shown, logged and sent from here on, so secrets are removed once.
        self.message = redact(message)
        super().__init__(self.message)
        self.detail = redact(detail) if detail else detail
        self.hint = redact(hint) if hint else hint
        self.location = location
        self.retry_after = retry_after
        """Seconds that a server asks to wait before the next attempt."""

    def at(self, location: Location | None) -> VelostreamError:
        """The same error with a location in the user's text, if it has none yet."""
        if self.location is None:
            self.location = location
        return self

    def __str__(self) -> str:
        parts = [self.message]
        if self.location is not None:
            parts = [f"{self.location}: {self.message}", self.location.caret()]
        if self.detail:
            parts.append(self.detail)
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)

    def as_dict(self) -> dict[str, object]:
        """The error as JSON-ready data, for the socket and `--format json`."""
        place = self.location
        return {
            "code": self.code,
            "blame": str(self.blame),
            "retryable": self.retryable,
            "message": self.message,
            "detail": self.detail,
            "hint": self.hint,
            "line": place.line if place else None,
            "column": place.column if place else None,
        }


class InternalError(VelostreamError):
    """A bug of ours: an invariant did not hold."""

    code = "internal"


# --- the user's SQL ---------------------------------------------------------------------------------


class SqlError(VelostreamError):
    """A statement cannot be accepted as it is."""

    code = "sql"
    blame = Blame.YOU


class SqlSyntaxError(SqlError):
    """The text is not in the language."""

    code = "sql.syntax"


class UnknownNameError(SqlError):
    """A table, column, function, property, job or connector that does not exist."""

    code = "sql.unknown_name"


class AmbiguousNameError(SqlError):
    """A column that several relations have."""

    code = "sql.ambiguous_name"


class UnsafeError(SqlError):
    """A function or statement that could run code or reach files outside the model."""

    code = "sql.unsafe"


class UnsupportedError(SqlError):
    """Valid SQL that this version parses and checks but does not execute."""

    code = "sql.unsupported"


class TypeMismatchError(SqlError):
    """An expression whose types do not fit, or whose result would lose digits."""

    code = "sql.type"


class PropertyError(SqlError):
    """A property with a value that does not fit."""

    code = "sql.property"


class DuplicateNameError(SqlError):
    """CREATE of a name that is taken."""

    code = "sql.duplicate_name"


class ChangedStatementError(SqlError):
    """A statement differs from the one recorded in the data directory."""

    code = "sql.changed_statement"


class CycleError(SqlError):
    """Statements that depend on each other in a circle."""

    code = "sql.cycle"


class KeyExistsError(SqlError):
    """INSERT of a key that the table already holds."""

    code = "sql.key_exists"


# --- configuration and the data directory -----------------------------------------------------------


class ConfigError(VelostreamError):
    """A setting, file or flag that does not fit."""

    code = "config"
    blame = Blame.YOU
    exit_code = 2


class DataDirError(VelostreamError):
    """The data directory is locked, of another format, or unreadable."""

    code = "data_dir"
    blame = Blame.YOU
    exit_code = 2


class CorruptDataError(DataDirError):
    """A durable file fails its checksum or cannot be parsed."""

    code = "data_dir.corrupt"
    blame = Blame.OUTSIDE
    exit_code = 1


class StorageError(DataDirError):
    """The system refuses a file operation: no space, no permission, too many open files, a failing disk."""

    code = "data_dir.storage"
    blame = Blame.OUTSIDE
    retryable = True
    exit_code = 1


class JavaError(ConfigError):
    """No usable Java, or Spark does not start."""

    code = "java"


# --- the outside ------------------------------------------------------------------------------------


class SourceError(VelostreamError):
    """A source cannot be used; subclasses are the categories of failure."""

    code = "source"
    blame = Blame.OUTSIDE


class SourceMissingError(SourceError):
    """The topic, file, table or bucket does not exist (yet)."""

    code = "source.missing"
    retryable = True
    health = "disconnected"


class FileMissingError(SourceMissingError):
    """The file does not exist (yet), or no file matches."""

    health = "file not found"


class SourceEmptyError(SourceMissingError):
    """The source exists, but has no record yet to tell its columns from."""

    code = "source.empty"
    health = "degraded"


class SourceNetworkError(SourceError):
    """The source cannot be reached."""

    code = "source.network"
    retryable = True
    health = "disconnected"
    exit_code = 3


class SourceLostError(SourceError):
    """Records were lost from the source before they were read; the rest can be read without them."""

    code = "source.lost"
    retryable = True


class SourceGapError(SourceError):
    """Changes were lost at the source before they were read, and the statement says to fail then."""

    code = "source.gap"


class SourceUnreadableError(SourceError):
    """A file or folder exists, but the system fails to read it."""

    code = "source.unreadable"
    retryable = True


class SourceAuthError(SourceError):
    """The source refuses our credentials or permissions."""

    code = "source.auth"
    exit_code = 3


class SourceConfigError(SourceError):
    """The source is reachable, but the request to it is invalid."""

    code = "source.config"
    blame = Blame.YOU


class SourceDataError(SourceError):
    """The source's data cannot be decoded and the statement says to fail."""

    code = "source.data"


class SinkError(VelostreamError):
    """A sink cannot be written."""

    code = "sink"
    blame = Blame.OUTSIDE
    retryable = True


class SinkChangedError(SinkError):
    """A sink's output was changed by somebody else: continuing could destroy rows that are not ours."""

    code = "sink.changed"
    retryable = False


class SinkMissingError(SinkError):
    """The topic, table or bucket that is written to does not exist (yet)."""

    code = "sink.missing"


class SinkNetworkError(SinkError):
    """The sink cannot be reached, or does not answer in time."""

    code = "sink.network"
    exit_code = 3


class SinkAuthError(SinkError):
    """The sink refuses our credentials or permissions."""

    code = "sink.auth"
    retryable = False
    exit_code = 3


class SinkConfigError(SinkError):
    """The sink is reachable, but the request to it is invalid."""

    code = "sink.config"
    blame = Blame.YOU
    retryable = False


class SinkFencedError(SinkError):
    """Another process writes for this job: this one's open transaction was aborted, and it must stop."""

    code = "sink.fenced"
    retryable = False


# --- running ----------------------------------------------------------------------------------------


class TableError(VelostreamError):
    """A table cannot do what was asked (read-only, no key)."""

    code = "table"
    blame = Blame.YOU


class TableWriterError(TableError):
    """Another process has written to a table; nothing of the commit was kept."""

    code = "table.writer"
    blame = Blame.OUTSIDE
    retryable = True


class ClosedError(VelostreamError):
    """A database, table, subscription or SELECT is used after it was closed, dropped or replaced."""

    code = "closed"
    blame = Blame.YOU


class MemoryBudgetError(TableError):
    """A table reached its memory budget; it stays readable."""

    code = "table.memory"


class LaggingReaderError(TableError):
    """A subscriber is behind the changes that the table keeps."""

    code = "table.lagging_reader"
    retryable = True


class JobError(VelostreamError):
    """A job failed while running."""

    code = "job"
    blame = Blame.OUTSIDE


class ReplayInterruptedError(JobError):
    """A replay failed where only the output can say whether it took place: the job is reopened."""

    code = "job.replay_interrupted"
    retryable = True


class StepError(JobError):
    """A step failed for a reason that may be over at the next attempt: memory, a disk, a lost process."""

    code = "job.step"
    retryable = True
    attempts = 5


class SparkEndedError(JobError):
    """The Spark that runs the jobs has died."""

    code = "job.spark_ended"

    def __init__(self, message: str = "Spark has ended", **parts: Any) -> None:
        hint = "see the end of logs/spark.log; start again, and every job resumes where it was"
        super().__init__(message, **{"hint": hint} | parts)


class RowError(JobError):
    """A row could not be computed and the statement says to fail."""

    code = "job.row"
    blame = Blame.YOU


class ReplayError(JobError):
    """Dead letters cannot be replayed."""

    code = "job.replay"
    blame = Blame.YOU


class ConnectionFailedError(VelostreamError):
    """The process that holds the data directory does not answer."""

    code = "connection"
    blame = Blame.OUTSIDE
    retryable = True
    exit_code = 3


class CaseError(VelostreamError):
    """A test case cannot be read."""

    code = "case"
    blame = Blame.YOU


class CaseFailedError(CaseError):
    """The result of a test case differs from its expectation."""

    code = "case.failed"


class DeadlineError(VelostreamError):
    """Something did not happen within its time limit."""

    code = "timeout"
    blame = Blame.OUTSIDE
    retryable = True
    exit_code = 4


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The valid name most like `name`, for "did you mean"; None when nothing is close."""
    by_folded = {candidate.casefold(): candidate for candidate in candidates}
    match = get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[match[0]] if match else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """A hint naming the nearest valid name, or None."""
    match = nearest(name, candidates)
    return f'did you mean "{match}"?' if match else None


def numbered(options: Iterable[str]) -> str:
    """Numbered suggestions, as the detail of an error."""
    return "\n".join(f"  {number}. {text}" for number, text in enumerate(options, start=1))
