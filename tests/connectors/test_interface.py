"""What a connector of one's own is asked for, and what becomes of its answers: a test for each line of the
table "What other engines call it" in docs/connectors.md.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import stations
from stations import SEEN, StationsConnector, add

import velostream
from refusals import refusal
from velostream.connectors import Connector, Sink, Source, registry, tasks
from velostream.connectors.delivered import delivered
from velostream.testing.contract import source_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import WaitUntil

    from velostream import Database

pytestmark = pytest.mark.spark


def rows(db: Database, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in db.sql(query).rows())


def asked(what: str) -> list[tuple[Any, ...]]:
    return [each[1:] for each in SEEN if each[0] == what]


def follow(db: Database, folder: Path, columns: str = "id, name", **properties: str) -> None:
    """A table over the stations; `a_b` is the property a.b."""
    given = {"how": "rows", **{name.replace("_", "."): value for name, value in properties.items()}}
    pairs = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    db.sql(f"CREATE TABLE t AS SELECT {columns} FROM stations://{folder} WITH ({pairs})")


# --- the table of the page --------------------------------------------------------------------------------


def test_initialise(db: Database, folder: Path):
    """`Connector.source` opens, with typed options and a context; `discover` tells the columns."""
    add(folder, "north", {"id": 1, "name": "a"})
    follow(db, folder)
    assert asked("open")
    assert all(owner.endswith("__source_1") for (owner,) in asked("open") if owner)
    assert db.table("t").schema.names[:2] == ["id", "name"]
    with refusal("source.missing", f"{folder}/nowhere") as caught:
        db.sql(f"CREATE TABLE u AS SELECT id FROM stations://{folder}/nowhere")
    assert caught.value.hint == "it holds the records of stations"


def test_shut_down(spark: object, tmp_path: Path, folder: Path):
    """`close`, once for each `source`: when the statement is stopped, or the process ends."""
    add(folder, "north", {"id": 1, "name": "a"})
    with velostream.connect(tmp_path / "data") as db:
        follow(db, folder)
        db.sql("DROP TABLE t")
        assert len(asked("close")) == len(asked("open")) > 0
        follow(db, folder)
    assert len(asked("close")) == len(asked("open"))


def test_next_batch(folder: Path, tmp_path: Path):
    """`read` yields batches of any size; the engine takes `batch.size` rows at a time, 10,000 by default."""
    add(folder, "north", *({"id": number, "name": "a"} for number in range(25)))
    uri = f"stations://{folder}"
    for said, sizes in (({}, [25]), ({"batch.size": "10"}, [10, 10, 5])):
        source = source_of(uri, tmp_path, said)
        end = source.latest(None)
        assert source.batch_rows == int(said.get("batch.size", 10_000))
        assert [batch.num_rows for batch in source.read("north", None, end["north"])] == [1] * 25
        batches = list(delivered(source, "north", None, end["north"]))
        assert [batch.num_rows for batch in batches] == sizes
        source.close()


def test_backpressure(db: Database, folder: Path):
    """`max.rows.per.batch` bounds a step, whatever has piled up; partitions share it."""
    add(folder, "north", *({"id": number, "name": "n"} for number in range(20)))
    add(folder, "south", {"id": 100, "name": "s"})
    follow(db, folder, max_rows_per_batch="6")
    assert db.wait_idle()
    assert len(db.table("t")) == 21
    first, *others = [dict(offset) for (offset,) in asked("commit")]
    assert first == {"north": 5, "south": 1}
    assert [offset["north"] for offset in others] == [11, 17, 20]


def test_has_more(db: Database, folder: Path, wait_until: WaitUntil):
    """`latest` is another position where there is more; `finished` where there never is again."""
    add(folder, "north", {"id": 1, "name": "a"})
    follow(db, folder)
    polls = len(asked("latest"))
    wait_until(lambda: len(asked("latest")) > polls + 3)
    assert len(asked("rows")) == 1  # What is there is read once, and nothing while nothing comes.
    db.sql(f"CREATE TABLE u AS SELECT id FROM stations://{folder} WITH ('ends' = 'true')")
    wait_until(lambda: db.job("u").state == "finished")


def test_commit(db: Database, folder: Path):
    """`commit` is called with the position that has become durable with the rows, and no sooner."""
    add(folder, "north", {"id": 1, "name": "a"})
    follow(db, folder)
    add(folder, "north", {"id": 2, "name": "b"})
    db.table("t").wait_for("id = 2")
    assert db.wait_idle()
    assert asked("commit") == [({"north": 1},), ({"north": 2},)]
    order = [each for each in SEEN if each[0] in ("rows", "commit")]
    assert [each[0] for each in order] == ["rows", "commit"] * 2


@pytest.mark.parametrize("how", ["rows", "bytes"])
def test_current_offset(spark: object, tmp_path: Path, folder: Path, how: str):
    """It is recorded in the commit of the rows, and given to `latest`: a restart goes on from there."""
    add(folder, "north", {"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    with velostream.connect(tmp_path / "data") as db:
        follow(db, folder, how=how)
        assert db.wait_idle()
        (job,) = db.sql("SHOW JOBS").rows()
        if how == "rows":  # What can be counted is shown.
            assert [(p["partition"], p["lag"]) for p in job.partitions] == [("north", 0)]
    (last,) = asked("latest")[-1]
    SEEN.clear()
    add(folder, "north", {"id": 3, "name": "c"})
    with velostream.connect(tmp_path / "data") as db:
        db.table("t").wait_for("id = 3")
        assert rows(db, "SELECT id FROM t") == [(1,), (2,), (3,)]
    assert asked("latest")[0] == (last,)
    assert last == {"north": 2 if how == "rows" else {"bytes": 46, "records": 2}}


@pytest.mark.parametrize(("how", "at"), [("rows", 2), ("tasks", 2), ("bytes", {"bytes": 46, "records": 2})])
def test_seek(db: Database, folder: Path, how: str, at: object, monkeypatch: pytest.MonkeyPatch):
    """`starting.offsets`: the positions after which a statement begins to read; others from the first row."""
    monkeypatch.setattr(tasks, "FEW_ROWS", 0)
    add(folder, "north", {"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"})
    add(folder, "south", {"id": 4, "name": "d"})
    begin = json.dumps({"north": at, **({"later": 1} if how == "rows" else {})})
    follow(db, folder, "*, _partition AS station, _offset AS number", starting_offsets=begin, how=how)
    assert rows(db, "SELECT id, station, number FROM t") == [(3, "north", 2), (4, "south", 0)]
    if how == "rows":  # A partition that comes later begins where it was said to.
        add(folder, "later", {"id": 5, "name": "e"}, {"id": 6, "name": "f"})
        db.table("t").wait_for("id = 6")
        assert rows(db, "SELECT id FROM t") == [(3,), (4,), (6,)]


def test_seeking_reports_no_record_before(db: Database, folder: Path):
    add(folder, "north", "{bad", {"id": 1, "name": "a"})
    follow(db, folder, starting_offsets='{"north": 1}')
    add(folder, "north", "{worse")
    db.sql("CREATE TABLE letters AS SELECT job, offset FROM dead_letters")
    db.table("letters").wait_for("offset = '2'")
    assert rows(db, "SELECT job, offset FROM dead_letters") == [("t", "2")]


@pytest.mark.parametrize(
    ("begin", "code"),
    [("north: 2", "sql.property"), ("[2]", "sql.property"), ('{"north": "b"}', "source.config")],
)
def test_seeking_a_place_that_is_none(db: Database, folder: Path, begin: str, code: str):
    add(folder, "north", {"id": 1, "name": "a"})
    with refusal(code):
        follow(db, folder, starting_offsets=begin)


def test_offsets_are_json(db: Database, folder: Path):
    """Positions are any JSON; what comes back after a restart is what was told (see also the contract)."""
    add(folder, "north", {"id": 1, "name": "a"})
    source = source_of(f"stations://{folder}", folder, {"how": "bytes"})
    told = source.latest(None)
    assert json.loads(json.dumps(told)) == told == {"north": {"bytes": 23, "records": 1}}
    assert source.latest(json.loads(json.dumps(told))) == told


def test_watermark(db: Database, folder: Path):
    """From the rows of each partition, by a column; or from the source itself, where it knows."""

    add(folder, "north", *({"id": hour, "name": f"2026-01-01T{hour:02}:30:00Z"} for hour in (1, 2, 3)))
    add(folder, "south", {"id": 9, "name": "2026-01-01T01:45:00Z"})
    db.sql(
        f"CREATE SOURCE s (id BIGINT, name STRING) FROM stations://{folder} "
        "WITH ('event.time.column' = 'name')"
    )
    db.sql(
        "CREATE TABLE t AS SELECT hour(window_start) AS hour, COUNT(*) AS n FROM s "
        "WINDOW TUMBLING(INTERVAL '1' HOUR)"
    )
    assert db.wait_idle()
    assert len(db.table("t")) == 0  # The slowest partition decides.
    add(folder, "south", {"id": 10, "name": "2026-01-01T02:15:00Z"})
    db.table("t").wait_for("n = 2")
    assert rows(db, "SELECT hour, n FROM t") == [(1, 2)]


def test_watermark_that_the_source_tells(db: Database, folder: Path, wait_until: WaitUntil):
    """`Partitioned.watermark`: no row will be earlier, whatever the rows themselves say."""
    add(folder, "north", {"id": 1, "name": "2026-01-01T01:30:00Z"})
    db.sql(f"CREATE SOURCE s FROM stations://{folder} WITH ('event.time.column' = 'name', 'how' = 'live')")
    db.sql("CREATE TABLE t AS SELECT COUNT(*) AS n FROM s WINDOW TUMBLING(INTERVAL '1' HOUR)")
    assert db.wait_idle()
    assert len(db.table("t")) == 0
    (folder / "hour").write_text("3")
    add(folder, "north", {"id": 2, "name": "2026-01-01T03:10:00Z"})
    wait_until(lambda: rows(db, "SELECT n FROM t") == [(1,)])
    (job,) = [job for job in db.sql("SHOW JOBS").rows() if job.name == "t"]
    assert job.watermark == datetime(2026, 1, 1, 3, tzinfo=UTC)


def test_partition_count(db: Database, folder: Path):
    """The partitions are those that `latest` names; one that comes later is read from its beginning."""
    add(folder, "north", {"id": 1, "name": "a"})
    follow(db, folder)
    add(folder, "south", {"id": 2, "name": "b"})
    db.table("t").wait_for("id = 2")
    assert db.wait_idle()
    (job,) = db.sql("SHOW JOBS").rows()
    assert sorted((p["partition"], p["records"]) for p in job.partitions) == [("north", 1), ("south", 1)]


def test_partitions_are_read_by_tasks_side_by_side(
    db: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tasks, "FEW_ROWS", 0)
    for station in ("north", "south"):
        add(folder, station, *({"id": number, "name": station} for number in range(30)))
    db.sql(
        f"CREATE TABLE t AS SELECT id, name, _offset AS number, CAST(spark_partition_id() AS INT) AS task "
        f"FROM stations://{folder} WITH ('how' = 'tasks', 'batch.size' = '10')"
    )
    assert rows(db, "SELECT COUNT(*), COUNT(DISTINCT id), SUM(number) FROM t") == [(60, 30, 2 * 435)]
    assert len(rows(db, "SELECT DISTINCT task FROM t")) > 1
    assert asked("rows") == []  # Nothing was read in this process.


def test_columns_of_partition_and_offset(db: Database, folder: Path):
    """`_partition` and `_offset`; `SELECT *` leaves them out."""
    add(folder, "north", {"id": 1, "name": "a"}, "{bad", {"id": 2, "name": "b"})
    add(folder, "south", {"id": 3, "name": "c"})
    follow(db, folder, "*, _partition AS station, _offset AS number")
    found = rows(db, "SELECT station, number, id FROM t")
    assert found == [("north", 0, 1), ("north", 2, 2), ("south", 0, 3)]
    assert rows(db, "SELECT job, partition, offset, CAST(raw AS STRING) FROM dead_letters") == [
        ("t", "north", "1", "{bad")
    ]


def test_type_and_id(db: Database, folder: Path):
    """The type is the connector's name, the id that of the statement's job and its source."""
    add(folder, "north", {"id": 1, "name": "a"}, "{bad")
    follow(db, folder)
    assert db.table("t").stats().datasource_type == "stations"
    (job,) = db.sql("SHOW JOBS").rows()
    assert (job.name, job.kind) == ("t", "table")
    assert f"{job.id} __source_1" in {owner for (owner,) in asked("open")}
    ((source, letter),) = rows(db, "SELECT source, job FROM dead_letters")
    assert (source, letter) == ("stations", "t")


def test_factory(db: Database, folder: Path):
    """The registry: by class, by instance, by an entry point; found by scheme, and by SQL function."""
    found = registry.by_scheme("stations")
    assert found is not None
    assert found.connector is registry.by_name("stations").connector
    add(folder, "north", {"id": 1, "name": "a"})
    assert rows(db, f"SELECT id FROM stations('{folder}') LIMIT 1") == [(1,)]

    class Other(StationsConnector):
        name = "otherstations"
        schemes = ("otherstations",)
        functions = ()

    velostream.register(Other())
    try:
        assert rows(db, f"SELECT id FROM otherstations://{folder} LIMIT 1") == [(1,)]
    finally:
        registry.default_registry().forget("otherstations")
    with refusal("sql.unknown_name", "otherstations") as caught:
        db.sql(f"SELECT id FROM otherstations://{folder} LIMIT 1")
    assert "stations" in (caught.value.hint or "")


# --- what else the page promises --------------------------------------------------------------------------


def test_at_most_nine_methods_three_of_them_abstract():
    for kind, most in ((Source, 9), (Sink, 9)):
        own = [name for name, each in vars(kind).items() if callable(each) and not name.startswith("_")]
        assert len(own) <= most, own
    assert Source.__abstractmethods__ == {"discover", "latest", "read"}
    assert Sink.__abstractmethods__ == {"write", "recover"}
    assert stations.NumberedSource.__abstractmethods__ == {"discover", "newest", "rows"}
    assert not Connector.__abstractmethods__


def test_options_are_checked_shown_and_kept_secret(
    db: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    add(folder, "north", {"id": 1, "name": "a"})
    shown = {line.property: line for line in db.sql("SHOW PROPERTIES FOR stations").rows()}
    assert shown["how"][2:5] == ("rows | tasks | bytes | live", "rows", "how they are read")
    assert set(shown) == {"folder", "how", "api.key", "ends", "batch.size", "starting.offsets"}
    with refusal("sql.unknown_name", "api.kee", at="'api.kee'") as caught:
        follow(db, folder, api_kee="x")
    assert caught.value.hint == 'did you mean "api.key"?'
    with refusal("sql.property", "how"):
        follow(db, folder, how="by-ear")
    monkeypatch.setenv("STATION_KEY", "cAnary-0f-th3-stations")
    follow(db, folder, api_key="${env:STATION_KEY}")
    told = "".join(
        str(db.sql(text).rows()) for text in ("SHOW CREATE t", "SHOW JOBS", "EXPLAIN SELECT id FROM t")
    )
    assert "cAnary" not in told


@pytest.mark.parametrize("columns", ["id BIGINT", "id INT, name STRING", "id BIGINT, name STRING, more INT"])
def test_columns_that_a_source_cannot_have(db: Database, folder: Path, columns: str):
    """What the user declares is never passed over; a source that can may return it from `discover`."""
    add(folder, "north", {"id": 1, "name": "a"})
    db.sql(f"CREATE SOURCE s ({columns}) FROM stations://{folder}")
    with refusal("source.config", "id", "BIGINT", "name", "STRING") as caught:
        db.sql("CREATE TABLE t AS SELECT id FROM s")
    assert "CAST" in (caught.value.hint or "")


def test_folders_that_are_not_allowed(spark: object, tmp_path: Path, folder: Path):
    add(folder, "north", {"id": 1, "name": "a"})
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    with velostream.connect(tmp_path / "data", allowed_roots=[str(allowed)]) as db:
        with refusal("sql.unsafe", folder):
            follow(db, folder)
        with refusal("sql.unsafe", folder):
            db.sql(f"INSERT INTO stations://{folder} SELECT 1 AS id, 'a' AS name")


@pytest.mark.parametrize(
    ("failure", "state", "health"),
    [("unreachable", "degraded", "disconnected"), ("locked", "failed", "failed")],
)
def test_errors_by_category(
    db: Database, folder: Path, wait_until: WaitUntil, failure: str, state: str, health: str
):
    """A network that fails is tried again, a key that is refused is not; the table stays readable."""
    add(folder, "north", {"id": 1, "name": "a"})
    follow(db, folder)
    (folder / failure).touch()
    wait_until(lambda: db.job("t").state == state)
    assert db.table("t").get is not None
    assert rows(db, "SELECT id FROM t") == [(1,)]
    stats = db.table("t").stats()
    assert stats.health == health
    assert f"stations: {failure}" in (stats.health_reason or "")
    if state == "degraded":
        (folder / failure).unlink()
        add(folder, "north", {"id": 2, "name": "b"})
        db.table("t").wait_for("id = 2")
        assert db.table("t").stats().health == "healthy"


def test_an_error_in_a_task_is_the_same_error(db: Database, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tasks, "FEW_ROWS", 0)
    add(folder, "north", {"id": 1, "name": "a"})
    (folder / "refuse").touch()
    with refusal("source.data", why="stations: what came is no record") as caught:
        follow(db, folder, how="tasks")
    assert caught.value.hint == "remove the file refuse"


def test_a_sink_that_refuses_a_row_and_cannot_delete(db: Database, folder: Path, wait_until: WaitUntil):
    copies = folder / "copies"
    db.sql("CREATE TABLE mine (id INT PRIMARY KEY, name STRING)")
    db.sql("INSERT INTO mine VALUES (1, 'a'), (2, '')")
    db.sql(f"INSERT INTO stations://{copies} SELECT id, name FROM mine EMIT CHANGES")
    assert db.wait_idle()
    written = [json.loads(line) for path in copies.glob("*.json") for line in path.read_text().splitlines()]
    assert written == [{"id": 1, "name": "a"}]
    assert rows(db, "SELECT reason FROM dead_letters") == [("no name",)]
    with refusal("sql.unsupported", "exactly_once"):
        db.sql(
            f"INSERT INTO stations://{copies} SELECT id, name FROM mine WITH ('delivery' = 'exactly_once')"
        )
    db.sql("DELETE FROM mine WHERE id = 1")
    (job,) = [job for job in db.jobs() if job.kind == "insert"]
    wait_until(lambda: db.job(job.name).state == "failed")
    assert "can only append" in (db.job(job.name).reason or "")
