"""What all tests share: one Spark session, waiting without sleeping, and seeds that can be repeated."""

from __future__ import annotations

import os
import random
import time
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


class WaitUntil(Protocol):
    """`wait_until(condition, timeout)`: the condition's first true value; fails when the deadline passes."""

    def __call__(self, condition: Callable[[], T], timeout: float = 30.0) -> T: ...


def pytest_report_header() -> str:
    return f"seed: {SEED} (repeat with {SEED_VARIABLE}={SEED})"


def pytest_configure() -> None:
    # Processes that a test starts draw from the same seed.
    os.environ[SEED_VARIABLE] = str(SEED)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on a cluster come last: their session replaces the local one, and a process has only one."""
    items.sort(key=lambda item: CLUSTER in item.path.parents)


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
    from velostream.runtime.session import start_session, stop_session

    session = start_session(None, {}, tmp_path_factory.mktemp("spark"))
    yield session
    stop_session(session)


@pytest.fixture(scope="session", autouse=True)
def no_java_left() -> Iterator[None]:
    """Every JVM that the tests started in this process has ended with them."""
    yield
    from velostream.runtime import session

    left = [engine for engine in session._engines if engine.jvm.process.poll() is None]
    assert not left, "a test did not stop its Spark session"
