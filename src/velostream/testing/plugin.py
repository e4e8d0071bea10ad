"""The pytest plugin: fixtures for tests of one's own connectors and SQL; loads nothing until it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from velostream import Database

pytest.register_assert_rewrite("velostream.testing.contract.sources", "velostream.testing.contract.sinks")


@pytest.fixture(scope="session")
def velostream_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session for all tests of a run; databases that tests open share its Java process."""
    from velostream.spark.session import start_session, stop_session

    session = start_session(None, {}, tmp_path_factory.mktemp("spark"))
    yield session
    stop_session(session)


@pytest.fixture
def velostream_db(tmp_path: Path, velostream_spark: SparkSession) -> Iterator[Database]:
    """A database in a folder of the test's own, closed after it."""
    import velostream

    with velostream.connect(tmp_path / "velostream") as database:
        yield database
