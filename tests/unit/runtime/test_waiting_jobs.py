"""Statements whose source tells no columns yet, and files that cannot start as a whole; without Spark."""

from __future__ import annotations

from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry

from refusals import refusal
from velostream.config import load
from velostream.errors import (
    DeadlineError,
    SourceEmptyError,
    SourceMissingError,
    SourceNetworkError,
    VelostreamError,
)
from velostream.model.jobs import JobState
from velostream.runtime.instance import Instance
from velostream.runtime.metrics import Figures
from velostream.runtime.statements.application import Application

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import WaitUntil

EMPTY = 'CREATE TABLE t AS SELECT * FROM file://{} WITH ("file.create.empty" = "true")'


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[], Instance]:
    return lambda: Instance(load(None, data_dir=tmp_path / "data"))


def waiting(database: Instance) -> dict[str, str | None]:
    return {job.name: job.reason for job in database.jobs() if job.state is JobState.WAITING}


def attempts(database: Instance) -> dict[tuple[str, str], float]:
    registry = CollectorRegistry()
    registry.register(Figures(database))
    found = [sample for family in registry.collect() for sample in family.samples]
    return {
        (sample.labels["statement"], sample.labels["outcome"]): sample.value
        for sample in found
        if sample.name == "velostream_connection_attempts_total"
    }


def test_a_job_waits_for_its_first_row(
    opened: Callable[[], Instance], tmp_path: Path, wait_until: WaitUntil
) -> None:
    path = tmp_path / "late.csv"
    with opened() as database:
        made = database.sql(EMPTY.format(path))
        assert (
            made.message
            == f'table "t" created, and waits: "{path}" holds no row yet to tell its columns from'
        )
        assert path.exists()
        database.sql("CREATE TABLE sums AS SELECT k, SUM(v) AS total FROM t GROUP BY k")
        wait_until(lambda: set(waiting(database)) == {"t", "sums"})
        assert waiting(database)["sums"] == 'table "t" has no columns yet: it waits for its first record'
        assert database.wait_idle(30)
        for use in (lambda: database.table("t"), lambda: database.sql("SELECT * FROM sums")):
            with pytest.raises(SourceEmptyError):
                use()
        tables = {row.name: (row.health, row.reason) for row in database.sql("SHOW TABLES").rows()}
        assert tables["t"] == ("degraded", "waits for its first record")
        assert database.sql("DESCRIBE t").rows() == []
        assert attempts(database)["t", "source.empty"] > 0
        with refusal("sql.duplicate_name", "t"):
            database.sql(EMPTY.format(path))
    with opened() as database:
        wait_until(lambda: set(waiting(database)) == {"t", "sums"})
        database.sql("STOP JOB t")
        assert database.job("t").state is JobState.STOPPED
        database.sql("RESUME JOB t")
        wait_until(lambda: "t" in waiting(database))
        with refusal("sql.duplicate_name", "sums"):
            database.sql("DROP TABLE t")
        database.sql("DROP TABLE sums; DROP TABLE t")
        assert database.jobs() == []
    with opened() as database:
        assert database.jobs() == []
        assert [row.name for row in database.sql("SHOW TABLES").rows()] == ["dead_letters"]


def test_a_closed_folder_of_a_waiting_table_can_be_read(
    opened: Callable[[], Instance], tmp_path: Path
) -> None:
    with opened() as database:
        database.sql(EMPTY.format(tmp_path / "late.csv"))
    reader = Instance(load(None, data_dir=tmp_path / "data"), read_only=True)
    with reader, pytest.raises(SourceEmptyError, match="has no columns yet"):
        reader.sql("SELECT * FROM t")


def test_what_reads_to_the_end_does_not_wait(tmp_path: Path) -> None:
    with Instance(load(None, data_dir=tmp_path / "data"), once=True) as database:
        with refusal("source.empty", why="no row yet"):
            database.sql(EMPTY.format(tmp_path / "late.csv"))
        assert database.jobs() == []


def test_a_broker_that_cannot_be_reached_is_tried_until_the_time_is_over(
    opened: Callable[[], Instance],
) -> None:
    waits = '"topic.wait.timeout" = "6s", "topic.retry.interval" = "100ms"'
    with opened() as database:
        with pytest.raises(SourceNetworkError):
            database.sql(f"CREATE TABLE t AS SELECT * FROM kafka://127.0.0.1:1/x WITH ({waits})")
        assert attempts(database)["t", "source.network"] > 1
        assert database.jobs() == []


def test_creation_that_waits_ends_with_the_database(opened: Callable[[], Instance], tmp_path: Path) -> None:
    began, failures = Event(), list[VelostreamError]()
    database = Instance(load(None, data_dir=tmp_path / "data"), tell=lambda _: began.set())

    def create() -> None:
        try:
            database.sql(
                f'CREATE TABLE t AS SELECT * FROM file://{tmp_path}/no.csv WITH ("file.wait.timeout" = "1h")'
            )
        except VelostreamError as error:
            failures.append(error)

    creating = Thread(target=create)
    creating.start()
    assert began.wait(30)
    database.close()
    creating.join(30)
    assert len(failures) == 1


FILE = """
CREATE TABLE users AS SELECT * FROM delta:///shop/users;
CREATE TABLE h (id INT);
CREATE TABLE names AS SELECT u.name FROM users u;
CREATE TABLE initials AS SELECT left(name, 1) AS i FROM names;
CREATE TABLE gone AS SELECT * FROM file:///nowhere/gone.csv;
INSERT INTO h VALUES (1), (2);
SELECT * FROM h;
SELECT * FROM names;
"""


def test_others_are_kept_going(opened: Callable[[], Instance]) -> None:
    with opened() as database:
        application = Application(database, database.check(FILE), keep_going=True)
        done: list[str | None] = []
        application.start(lambda step: done.append(step.result.message))
        assert done == ['table "h" created', '2 rows inserted into "h"', None]
        told = [
            (getattr(each.statement, "name", "SELECT"), each.error.message)
            for each in application.not_started
        ]
        assert told == [
            ("users", "delta:// is a sink: it is written, and not read"),
            ("names", 'skipped: it needs "users", which did not start'),
            ("initials", 'skipped: it needs "names", which did not start'),
            ("gone", 'file "/nowhere/gone.csv" does not exist'),
            ("SELECT", 'skipped: it needs "names", which did not start'),
        ]
        assert isinstance(application.not_started[3].error, SourceMissingError)
        assert application.followed == ()


def test_without_that_nothing_starts(opened: Callable[[], Instance]) -> None:
    with opened() as database:
        with refusal("sql.unsupported", "delta"):
            Application(database, database.check(FILE)).start()
        assert [row.name for row in database.sql("SHOW TABLES").rows()] == ["dead_letters"]


def test_when_the_time_is_over_the_rest_is_not_started(opened: Callable[[], Instance]) -> None:
    with opened() as database:
        application = Application(database, database.check("CREATE TABLE h (id INT)"))
        database.executor.stopping.set()
        application.start()
        (left,) = application.not_started
        assert isinstance(left.error, DeadlineError)
