"""Runs cases: one Spark for all of them, a data directory and a clock for each."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from velostream.config import Settings, load
from velostream.connectors.registry import default_registry
from velostream.errors import CaseError, CaseFailedError, VelostreamError
from velostream.testing.cases import Way
from velostream.testing.cells import NOON
from velostream.testing.connector import NAME, CaseConnector

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from pyspark.sql import SparkSession

    from velostream.runtime.instance import Instance
    from velostream.testing.cases import Case


class Clock:
    """The clock of a case."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        """The time."""
        return self.now


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case in one way of running it."""

    case: Case
    way: Way
    seconds: float
    error: VelostreamError | None = None

    @property
    def passed(self) -> bool:
        """Whether everything was as the case expects."""
        return self.error is None

    def check(self) -> None:
        """Raise the failure, if there is one."""
        if self.error is not None:
            raise self.error


class Bench:
    """Runs cases one after the other. Use it in a `with`; Spark starts with the first case.

    `settings` are those of `velostream.config.load`, for Spark's master and configuration. `prepare` is
    called with each database that is opened, for example to add Python functions.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        prepare: Callable[[Instance], object] = lambda _: None,
        timeout: float = 60.0,
    ) -> None:
        self.settings = settings if settings is not None else load()
        self.prepare = prepare
        self.timeout = timeout
        """Seconds in which a step must settle."""
        self.connector = CaseConnector()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._spark: SparkSession | None = None

    def __enter__(self) -> Self:
        default_registry().register(self.connector)
        self._folder = tempfile.TemporaryDirectory(prefix="velostream-test-", ignore_cleanup_errors=True)
        return self

    def __exit__(self, *_: object) -> None:
        default_registry().forget(NAME)
        if self._spark is not None:
            from velostream.spark.session import stop_session

            stop_session(self._spark)
            self._spark = None
        if self._folder is not None:
            self._folder.cleanup()

    def start(self) -> None:
        """Start Spark, if it is not running."""
        from velostream.spark.session import start_session

        if self._folder is None:
            raise CaseError("a bench is used in a with")
        if self._spark is None:
            # Sessions of the cases' databases share its JVM, which ends with the last of them.
            self._spark = start_session(
                self.settings.master, self.settings.conf, Path(self._folder.name) / "spark"
            )

    def run(self, case: Case, way: Way = Way.STRAIGHT) -> Outcome:
        """Run a case; failed expectations are part of the outcome."""
        from velostream.testing.runner import CaseRun

        self.start()
        assert self._folder is not None
        error: VelostreamError | None = None
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(dir=self._folder.name, ignore_cleanup_errors=True) as folder:
            try:
                CaseRun(self, case, way, Path(folder)).run()
            except CaseError as exc:
                error = exc
            except VelostreamError as exc:
                error = CaseFailedError(str(exc), location=case.location)
            finally:
                self.connector.stage = None
        return Outcome(case, way, time.perf_counter() - started, error)
