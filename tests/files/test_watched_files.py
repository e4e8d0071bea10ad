"""Files change under running and stopped jobs; tables that copy and tables that aggregate follow."""

from __future__ import annotations

import resource
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from cases import ABC, ONE_FILE, SEVERAL_FILES, START, Case, Rows

from refusals import refusal
from velostream.config import load
from velostream.runtime.instance import Instance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]
CASES = (*ONE_FILE, *SEVERAL_FILES)
QUICK = '"file.debounce" = "100ms"'


KINDS = {
    "copied": "SELECT k, v FROM {uri}",
    "summed": "SELECT k, SUM(v) AS s, COUNT(*) AS n, MAX(v) AS m FROM {uri} GROUP BY k",
}


class Situation:
    """All cases in one database: created together, acted on together, awaited together.

    Each case has a table that copies or one that aggregates, taking turns, or with `both` one of each.
    """

    def __init__(self, root: Path, opened: Any, *, stopped: bool, both: bool) -> None:
        self._root = root
        self.tables = {
            case.name: [kind for turn, kind in enumerate(KINDS) if both or turn == (index + stopped) % 2]
            for index, case in enumerate(CASES)
        }
        self.database: Instance = opened(root / "data")
        for case in CASES:
            self._create(case)
        assert self.database.wait_idle(120), self.database.jobs()
        self.first = {case.name: self._found(case) for case in CASES}
        if stopped:
            self.database.close()
        for case in CASES:
            case.action(root / case.name)
        if stopped:
            self.database = opened(root / "data")
        assert self.database.wait_idle(120), self.database.jobs()
        self.jobs = {job.name: job for job in self.database.jobs()}
        self.last = {case.name: self._found(case) for case in CASES}
        self.letters = Counter(row.job for row in self.database.sql("SELECT job FROM dead_letters"))

    def _create(self, case: Case) -> None:
        for name, content in case.initial.items():
            path = self._root / case.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        uri = f"file://{self._root / case.name}/{case.source}"
        for kind in self.tables[case.name]:
            query = KINDS[kind].format(uri=uri)
            self.database.sql(f"CREATE TABLE {case.name}_{kind} AS {query} WITH ({QUICK})")

    def _found(self, case: Case) -> dict[str, Counter[tuple[Any, ...]]]:
        return {
            kind: Counter(map(tuple, self.database.table(f"{case.name}_{kind}").rows()))
            for kind in self.tables[case.name]
        }


@pytest.fixture(scope="module", params=["running", "stopped"])
def situation(request: pytest.FixtureRequest, tmp_path_factory, opened, rounds) -> Iterator[Situation]:
    stopped, both = request.param == "stopped", rounds(1, 2) == 2
    found = Situation(tmp_path_factory.mktemp("files"), opened, stopped=stopped, both=both)
    yield found
    found.database.close()


def wanted(rows: Rows, kind: str) -> Counter[tuple[Any, ...]]:
    """What a table of the kind holds when the files have these rows."""
    if kind == "copied":
        return Counter(rows)
    groups: dict[str | None, list[int | None]] = {}
    for k, v in rows:
        groups.setdefault(k, []).append(v)
    sums: Counter[tuple[Any, ...]] = Counter()
    for k, values in groups.items():
        known = [v for v in values if v is not None]
        sums[k, sum(known) if known else None, len(values), max(known, default=None)] += 1
    return sums


@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tables_follow_the_files(case: Case, situation: Situation):
    for kind in situation.tables[case.name]:
        name = f"{case.name}_{kind}"
        assert situation.first[case.name][kind] == wanted(case.first, kind)
        assert situation.last[case.name][kind] == wanted(case.rows, kind)
        assert situation.letters[name] == case.letters
        assert situation.jobs[name].state == ("degraded" if case.outage else "running")


# --- one at a time --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def database(tmp_path_factory, opened) -> Instance:
    return opened(tmp_path_factory.mktemp("shared") / "data")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return request.node.name.removeprefix("test_").split("[")[0]


def rows(database: Instance, name: str) -> Rows:
    return sorted((tuple(row) for row in database.table(name).rows()), key=repr)


def test_a_file_that_vanishes_is_an_outage_and_the_job_goes_on_after_it(database, tmp_path, name, wait_until):
    path = tmp_path / "x.csv"
    path.write_bytes(START)
    database.sql(f"CREATE TABLE {name} AS SELECT k, v FROM file://{path} WITH ({QUICK})")
    database.sql(f"CREATE TABLE {name}_d AS SELECT COUNT(*) AS n FROM {name}")
    path.unlink()
    wait_until(lambda: database.job(name).state == "degraded", 60)
    assert str(path) in database.job(name).info.reason
    # The table is told right after the job.
    wait_until(lambda: database.table(name).stats().health == "file not found")
    assert rows(database, name) == ABC
    shown = {row.name: row for row in database.sql("SHOW TABLES")}[name]
    assert (shown.health, str(path) in shown.reason) == ("file not found", True)
    wait_until(lambda: database.table(f"{name}_d").stats().health == "degraded")
    assert f'table "{name}" has no file: ' in database.table(f"{name}_d").stats().health_reason
    path.write_bytes(START + b"d,4\n")
    wait_until(lambda: rows(database, name) == [*ABC, ("d", 4)], 60)
    wait_until(lambda: database.job(name).state == "running")
    wait_until(lambda: database.table(name).stats().health == "healthy")
    wait_until(lambda: database.table(f"{name}_d").stats().health == "healthy")


@pytest.mark.parametrize("pattern", ["late.csv", "late-*.csv"], ids=["file", "pattern"])
def test_creation_waits_for_what_is_missing(spark, tmp_path, pattern):
    waiting = threading.Event()
    settings = load(None, data_dir=tmp_path / "data")
    with Instance(settings, tell=lambda _: waiting.set()) as database:
        uri = f"file://{tmp_path}/{pattern}"
        options = '"file.wait.timeout" = "60s", "file.retry.interval" = "100ms"'
        creating = threading.Thread(
            target=database.sql, args=(f"CREATE TABLE t AS SELECT * FROM {uri} WITH ({options})",)
        )
        creating.start()
        assert waiting.wait(60)
        (tmp_path / pattern.replace("*", "1")).write_bytes(START)
        creating.join(60)
        assert rows(database, "t") == ABC


def test_a_missing_file_is_told_with_what_to_do(database, tmp_path, name):
    with refusal("source.missing", f"{tmp_path}/none.csv"):
        database.sql(f"CREATE TABLE {name} AS SELECT * FROM file://{tmp_path}/none.csv")
    with refusal("source.missing", "none-*.csv"):
        database.sql(f"CREATE TABLE {name} AS SELECT * FROM file://{tmp_path}/none-*.csv")
    with refusal("source.missing", f"{tmp_path}/none.csv"):
        database.sql(
            f"CREATE TABLE {name} AS SELECT * FROM file://{tmp_path}/none.csv"
            ' WITH ("file.wait.timeout" = "300ms", "file.retry.interval" = "100ms")'
        )


def test_an_empty_file_is_created_on_demand(database, tmp_path, name):
    path = tmp_path / "new.csv"
    database.sql(
        f"CREATE SOURCE {name}_s (k STRING, v BIGINT) FROM file://{path}"
        f' WITH ("file.create.empty" = "true", {QUICK})'
    )
    database.sql(f"CREATE TABLE {name} AS SELECT * FROM {name}_s")
    assert path.exists()
    assert rows(database, name) == []
    path.write_bytes(START)
    assert database.wait_idle(60)
    assert rows(database, name) == ABC


@pytest.mark.timeout(600)
def test_ten_thousand_small_files(database, tmp_path, name):
    """Two looks at 10,000 files: the first reads them all, the second finds the one that is new."""
    for number in range(10_000):
        (tmp_path / f"f{number:05d}.csv").write_text(f"k,v\nx{number % 7},{number}\n")
    database.sql(
        f"CREATE TABLE {name} AS SELECT k, COUNT(*) AS n, SUM(v) AS s"
        f" FROM file://{tmp_path}/f*.csv GROUP BY k"
        f" WITH ({QUICK})"
    )
    assert database.wait_idle(300)
    assert sum(row.n for row in database.table(name).rows()) == 10_000
    assert database.table(name).get("x3").s == sum(range(3, 10_000, 7))
    (tmp_path / "f99999.csv").write_text("k,v\nx3,1\n")
    (tmp_path / "f00003.csv").unlink()
    assert database.wait_idle(300)
    assert database.table(name).get("x3").s == sum(range(3, 10_000, 7)) + 1 - 3


@contextmanager
def full_disk(most: int) -> Iterator[None]:
    """No file of this process may grow beyond `most` bytes: writing more fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


BIG = b"k,v\n" + b"".join(b"%s,%d\n" % (b"x" * 100, number) for number in range(5000))


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE {name} AS SELECT k, v FROM file://{path}",
        "CREATE TABLE {name} AS SELECT repeat(sha2(CAST(v AS STRING), 512), 20) AS k, v FROM file://{small}",
        "INSERT INTO file://{out}/x.csv SELECT repeat(k, 5000) AS k, v FROM file://{small}",
        "INSERT INTO file://{out}/x.parquet SELECT repeat(sha2(CAST(v AS STRING), 512), 500) AS k"
        ", v FROM file://{small}",
    ],
    ids=["spool", "table", "csv", "parquet"],
)
def test_a_full_disk_degrades_the_job_and_loses_nothing(statement, opened, tmp_path, wait_until):
    database = opened(tmp_path / "data")
    path, small = tmp_path / "big.csv", tmp_path / "small.csv"
    path.write_bytes(START)
    small.write_bytes(START)
    database.sql(statement.format(name="t", path=path, small=small, out=tmp_path / "out"))
    (info,) = database.jobs()
    database.sql(f"PAUSE JOB `{info.id}`")
    path.write_bytes(START + BIG[4:])
    small.write_bytes(START + b"".join(b"x,%d\n" % number for number in range(300)))
    with full_disk(200_000):
        database.sql(f"RESUME JOB `{info.id}`")
        job = database.job(info.id)
        wait_until(lambda: job.state in ("degraded", "failed"), 60)
        assert job.state == "degraded", job.info.reason
        assert "file too large" in job.info.reason
    wait_until(lambda: job.state == "running" and job.idle, 90)
    assert _count(database, tmp_path / "out") == (5003 if "{path}" in statement else 303)
    database.close()


def _count(database: Instance, out: Path) -> int:
    import pyarrow.parquet as pq

    if (out / "x.csv").exists():
        return len((out / "x.csv").read_text().splitlines()) - 1
    if (out / "x.parquet").exists():
        return int(pq.read_table(out / "x.parquet").num_rows)
    return len(database.table("t"))
