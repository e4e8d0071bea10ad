"""What all tests share: one Spark session, waiting without sleeping, and seeds that can be repeated."""

from __future__ import annotations

import os
import random
import signal
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

T = TypeVar("T")
CLUSTER = Path(__file__).parent / "cluster"
SEED_VARIABLE = "VELOSTREAM_TEST_SEED"
SEED = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(2**32))

SOAK = os.environ.get("VELOSTREAM_SOAK") == "1"

_SIGNALS = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGQUIT: signal.SIG_DFL,
}


class WaitUntil(Protocol):
    """`wait_until(condition, timeout)`: the condition's first true value; fails when the deadline passes."""

    def __call__(self, condition: Callable[[], T], timeout: float = 30.0) -> T: ...


def pytest_report_header() -> str:
    return f"seed: {SEED} (repeat with {SEED_VARIABLE}={SEED})"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A failure by chance can be repeated, also where the header is not shown."""
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(pytest_report_header())


def pytest_configure() -> None:
    # Processes that a test starts draw from the same seed.
    os.environ[SEED_VARIABLE] = str(SEED)
    # Workers are told the size of the terminal they were started from; those of tests have their own.
    for name in ("LINES", "COLUMNS"):
        os.environ.pop(name, None)
    # Where the tests themselves are run in the background, Ctrl-C is ignored by all that they start.
    for number, handler in _SIGNALS.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    if not SOAK:
        # Tests start many JVMs and keep none for long: code that is compiled once, and not again for speed,
        # takes about a seventh less of the processor, and so does a garbage collector of one thread.
        os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long runs only in `make soak`, which runs nothing else.

    Tests on a cluster come last: their session replaces the local one, and a process has only one.
    """

    def long(item: pytest.Item) -> bool:
        sampled = "rounds" in getattr(item, "fixturenames", ())
        return item.get_closest_marker("soak") is not None or (SOAK and sampled)

    # A whole run takes its part of tests that cost much and vary little; an area, or a file, is run whole.
    sampling = not SOAK and os.environ.get("VELOSTREAM_TEST_ALL") != "1" and not _chosen(config)
    kept = [item for item in items if long(item) == SOAK and not (sampling and _left_out(item))]
    dropped = [item for item in items if item not in set(kept)]
    items[:] = sorted(kept, key=lambda item: CLUSTER in item.path.parents)
    if dropped:
        config.hook.pytest_deselected(items=dropped)


def _chosen(config: pytest.Config) -> bool:
    """Whether the run is of certain files or tests, and not of everything."""
    return [Path(part).name for part in config.args] != ["tests"]


def _left_out(item: pytest.Item) -> bool:
    """Whether a test marked with `sampled(n)` is not the turn of this seed."""
    marker = item.get_closest_marker("sampled")
    return marker is not None and zlib.crc32(f"{SEED} {item.nodeid}".encode()) % marker.args[0] != 0


@pytest.fixture(scope="session")
def rounds() -> Callable[[int, int], int]:
    """`rounds(sample, full)`: how often a random test repeats, here and in `make soak`."""
    return lambda sample, full: full if SOAK else sample


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Randomness of this test's own: the same for the same seed, whichever other tests run."""
    return random.Random(f"{SEED} {request.node.nodeid}")


@pytest.fixture(scope="session")
def wait_until() -> WaitUntil:
    """Ask again until it holds. An exception counts as "not yet" and is shown if time runs out."""

    def wait(condition: Callable[[], T], timeout: float = 30.0) -> T:
        deadline = time.monotonic() + timeout
        while True:
            failure: Exception | None = None
            value: T | None = None
            try:
                value = condition()
            except Exception as exc:
                failure = exc
            if value:
                return value
            if time.monotonic() > deadline:
                pytest.fail(f"did not hold within {timeout} s; last: {failure!r}, {value!r}")
            time.sleep(0.02)

    return wait


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark of this process; sessions that code under test starts with the same master share its JVM."""
    from velostream.spark.session import start_session, stop_session

    session = start_session(None, {}, tmp_path_factory.mktemp("spark"))
    yield session
    stop_session(session)


@pytest.fixture(scope="session")
def velostream_spark(spark: SparkSession) -> SparkSession:
    """The plugin's, which the contract suite asks for, is the same."""
    return spark


@pytest.fixture(scope="session", autouse=True)
def no_java_left() -> Iterator[None]:
    """Every JVM that the tests started in this process has ended with them."""
    yield
    from velostream.spark import session

    assert not session.java_processes(), "a test did not stop its Spark session"
