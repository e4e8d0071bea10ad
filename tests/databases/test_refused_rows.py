"""Rows that a server refuses: for others of the step, for what is there, at the end of the transaction."""

from __future__ import annotations

from collections import Counter
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from shops import Shop

from refusals import refusal
from velostream.config import Settings
from velostream.connectors.base import SinkContext
from velostream.engine.opening.connect import open_sink
from velostream.model.columns import WEIGHT
from velostream.model.uri import Uri

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mysql_shops import MySqlShop
    from tests.conftest import WaitUntil

    from velostream import Database
    from velostream.connectors.base import Sink
    from velostream.model.changes import BadRow

pytestmark = pytest.mark.sampled(2)
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
Change = tuple[int, Any, str | None]


def rows(*changes: Change, schema: pa.Schema = SCHEMA) -> pa.Table:
    """A step: -1 retracts a row, 1 adds one."""
    ordered = sorted(changes, key=lambda change: change[0])
    columns = [pa.array([change[1 + n] for change in ordered], field.type) for n, field in enumerate(schema)]
    weights = pa.array([change[0] for change in ordered], pa.int64())
    return pa.table([*columns, weights], names=[*schema.names, WEIGHT])


class Writer:
    """A sink, its next step, and what it has refused."""

    def __init__(self, shop: Shop | MySqlShop, folder: Path, key: tuple[str, ...], schema: pa.Schema) -> None:
        self.refused: list[BadRow] = []
        self.context = SinkContext(
            folder / "state", schema, key, unique=bool(key), job="job", refuse=self.refused.extend
        )
        self._folder, self._shop, self._step = folder, shop, 0
        self.sink: Sink | None = None

    def open(self, table: str) -> None:
        settings = Settings(data_dir=self._folder / "data")
        self.sink = open_sink(Uri(self._shop.uri(table)), {}, settings, self.context)
        self.sink.recover(None)

    def close(self) -> None:
        if self.sink is not None:
            self.sink.close()

    def write(self, step: pa.Table) -> None:
        assert self.sink is not None
        self.sink.intend(self._step, step)
        self.sink.write(self._step, step)
        self._step += 1

    @property
    def reasons(self) -> list[str]:
        return [row.reason for row in self.refused]


@contextmanager
def writing(
    shop: Shop | MySqlShop,
    folder: Path,
    table: str = "target",
    *,
    key: tuple[str, ...] = ("id",),
    schema: pa.Schema = SCHEMA,
) -> Iterator[Writer]:
    with closing(Writer(shop, folder, key, schema)) as made:
        made.open(table)
        yield made


def there(shop: Shop | MySqlShop, table: str = "target") -> Counter[tuple[Any, ...]]:
    return shop.rows(f"SELECT id, name FROM {table}")


@pytest.fixture
def target(each_shop: Shop | MySqlShop) -> Shop | MySqlShop:
    each_shop.sql.execute("CREATE TABLE target (id bigint PRIMARY KEY, name varchar(20) UNIQUE)")
    return each_shop


def test_rows_of_one_step_that_cannot_both_be_there(target: Shop | MySqlShop, tmp_path: Path) -> None:
    with writing(target, tmp_path) as writer:
        writer.write(rows((1, 5, "same"), (1, 6, "same"), (1, 7, "other")))
        assert there(target) == Counter([(5, "same"), (7, "other")])
        assert len(writer.refused) == 1
        assert b'"id":6' in writer.refused[0].raw


def test_a_value_of_a_row_that_is_deleted_is_free(target: Shop | MySqlShop, tmp_path: Path) -> None:
    """Also where another row of the step is refused, or takes the value before it is given up."""
    target.sql.execute("INSERT INTO target VALUES (1, 'x'), (7, 'seven'), (8, 'eight')")
    with writing(target, tmp_path) as writer:
        taken = [(-1, 7, "seven"), (1, 7, "eight"), (-1, 8, "eight"), (1, 8, "new")]
        writer.write(rows((-1, 1, "x"), (1, 2, "x"), (1, 3, "far too long for the column"), *taken))  # type: ignore[arg-type]
        assert there(target) == Counter([(2, "x"), (7, "eight"), (8, "new")])
        assert [b'"id":3' in row.raw for row in writer.refused] == [True]


def test_values_that_are_swapped(target: Shop | MySqlShop, tmp_path: Path) -> None:
    target.sql.execute("INSERT INTO target VALUES (1, 'one'), (2, 'two')")
    with writing(target, tmp_path) as writer:
        writer.write(rows((-1, 1, "one"), (1, 1, "two"), (-1, 2, "two"), (1, 2, "one")))
        assert there(target) == Counter([(1, "two"), (2, "one")])
        assert writer.refused == []


def test_the_version_before_a_refused_one_goes(target: Shop | MySqlShop, tmp_path: Path) -> None:
    """It is not true any more; and what it held is free for others."""
    target.sql.execute("INSERT INTO target VALUES (1, 'one'), (2, 'two')")
    with writing(target, tmp_path) as writer:
        step = [(-1, 1, "one"), (1, 1, "far too long for the column"), (-1, 2, "two"), (1, 2, "one")]
        writer.write(rows(*step))  # type: ignore[arg-type]
        assert there(target) == Counter([(2, "one")])
        assert [b'"id":1' in row.raw for row in writer.refused] == [True]


def test_a_deletion_that_is_refused(target: Shop | MySqlShop, tmp_path: Path) -> None:
    sql = target.sql
    sql.execute("INSERT INTO target VALUES (1, 'parent'), (2, 'alone')")
    sql.execute("CREATE TABLE children (id int, parent bigint, FOREIGN KEY (parent) REFERENCES target (id))")
    sql.execute("INSERT INTO children VALUES (1, 1)")
    with writing(target, tmp_path) as writer:
        writer.write(rows((-1, 1, "parent"), (-1, 2, "alone"), (1, 3, "new")))
        assert there(target) == Counter([(1, "parent"), (3, "new")])
        assert ["foreign key" in reason for reason in writer.reasons] == [True]
        # A letter that is written again deletes it, once that may be.
        step = rows((-1, 1, "parent"))
        writer.refused.clear()
        assert writer.sink is not None
        writer.sink.try_out(step)
        assert len(writer.refused) == 1
        sql.execute("DELETE FROM children")
        writer.refused.clear()
        writer.sink.try_out(step)
        assert writer.refused == []
        assert (1, "parent") in there(target)


def test_rows_that_refer_to_each_other(each_shop: Shop | MySqlShop, tmp_path: Path) -> None:
    """What comes later in the step is there for what refers to it; only what refers to nothing is not."""
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("parent", pa.int64())])
    each_shop.sql.execute(
        "CREATE TABLE tree (id bigint PRIMARY KEY, name varchar(9), parent bigint, "
        "FOREIGN KEY (parent) REFERENCES tree (id))"
    )
    with writing(each_shop, tmp_path, "tree", schema=schema) as writer:
        step = pa.table(
            [[4, 3, 2, 1, 9, 5], ["d", "c", "b", "a", "z", "e"], [3, 2, 1, None, 77, 4], [1] * 6],
            names=[*schema.names, WEIGHT],
        ).cast(schema.append(pa.field(WEIGHT, pa.int64())))
        writer.write(step)
        assert there(each_shop, "tree") == Counter([(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")])
        assert [b'"id":9' in row.raw for row in writer.refused] == [True]


def test_a_constraint_that_is_checked_at_the_end(shop: Shop, tmp_path: Path) -> None:
    shop.sql.execute(
        "CREATE TABLE target (id bigint PRIMARY KEY, name text, "
        "other text GENERATED ALWAYS AS (nullif(name, 'none')) STORED)"
    )
    shop.sql.execute("CREATE TABLE names (name text PRIMARY KEY)")
    shop.sql.execute("INSERT INTO names VALUES ('known')")
    shop.sql.execute(
        "ALTER TABLE target ADD FOREIGN KEY (other) REFERENCES names (name) DEFERRABLE INITIALLY DEFERRED"
    )
    with writing(shop, tmp_path) as writer:
        writer.write(rows((1, 1, "known"), (1, 2, "unknown"), (1, 3, "none")))
        assert there(shop) == Counter([(1, "known"), (3, "none")])
        assert ["foreign key" in reason for reason in writer.reasons] == [True]


def test_a_constraint_that_two_rows_keep_together(shop: Shop, tmp_path: Path) -> None:
    """Each refers to the other, which is checked late; a third row is refused."""
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("other", pa.int64())])
    shop.sql.execute(
        "CREATE TABLE pairs (id bigint PRIMARY KEY, name varchar(9), "
        "other bigint NOT NULL REFERENCES pairs (id) DEFERRABLE INITIALLY DEFERRED)"
    )
    with writing(shop, tmp_path, "pairs", schema=schema) as writer:
        step = pa.table(
            [[1, 9, 2], ["a", "far too long", "b"], [2, 9, 1], [1] * 3], names=[*schema.names, WEIGHT]
        ).cast(schema.append(pa.field(WEIGHT, pa.int64())))
        writer.write(step)
        assert there(shop, "pairs") == Counter([(1, "a"), (2, "b")])
        assert [b'"id":9' in row.raw for row in writer.refused] == [True]


@pytest.mark.parametrize("state", ["P0001", "U0042", "23514"])
def test_a_trigger_that_refuses(shop: Shop, tmp_path: Path, state: str) -> None:
    shop.sql.execute("CREATE TABLE target (id bigint PRIMARY KEY, name text)")
    shop.sql.execute(
        "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.name = 'bad' THEN "
        f"RAISE EXCEPTION 'not this name' USING ERRCODE = '{state}'; END IF; RETURN NEW; END $$"
    )
    shop.sql.execute(
        "CREATE TRIGGER looks BEFORE INSERT OR UPDATE ON target FOR EACH ROW EXECUTE FUNCTION look()"
    )
    with writing(shop, tmp_path) as writer:
        writer.write(rows((1, 1, "good"), (1, 2, "bad")))
        assert there(shop) == Counter([(1, "good")])
        assert writer.reasons == ["not this name"]


def test_a_signal_that_refuses(mysql_shop: MySqlShop, tmp_path: Path) -> None:
    mysql_shop.sql.execute("CREATE TABLE target (id bigint PRIMARY KEY, name varchar(9))")
    mysql_shop.sql.execute(
        "CREATE TRIGGER looks BEFORE INSERT ON target FOR EACH ROW BEGIN IF NEW.name = 'bad' THEN "
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this name'; END IF; END"
    )
    with writing(mysql_shop, tmp_path) as writer:
        writer.write(rows((1, 1, "good"), (1, 2, "bad")))
        assert there(mysql_shop) == Counter([(1, "good")])
        assert writer.reasons == ["not this name"]


def test_a_view_that_checks_what_is_written(each_shop: Shop | MySqlShop, tmp_path: Path) -> None:
    each_shop.sql.execute("CREATE TABLE base (id bigint PRIMARY KEY, name varchar(9))")
    each_shop.sql.execute(
        "CREATE VIEW target AS SELECT id, name FROM base WHERE name <> 'bad' WITH CHECK OPTION"
    )
    with writing(each_shop, tmp_path, key=()) as writer:
        step = rows((1, 1, "good"), (1, 2, "bad")).drop_columns([WEIGHT])
        writer.write(step)
        assert there(each_shop) == Counter([(1, "good")])
        assert len(writer.refused) == 1


@pytest.mark.parametrize("rule", ["RESTRICT", "CASCADE"])
def test_rows_that_others_refer_to_are_updated(
    each_shop: Shop | MySqlShop, tmp_path: Path, rule: str
) -> None:
    """Where the target has other unique keys than ours, a row is not deleted to be inserted anew."""
    sql = each_shop.sql
    serial = "bigserial" if isinstance(each_shop, Shop) else "bigint AUTO_INCREMENT"
    sql.execute(f"CREATE TABLE target (own {serial} PRIMARY KEY, id bigint UNIQUE, name varchar(20) UNIQUE)")
    sql.execute(
        "CREATE TABLE children (id int, parent bigint, "
        f"FOREIGN KEY (parent) REFERENCES target (own) ON DELETE {rule})"
    )
    with writing(each_shop, tmp_path) as writer:
        writer.write(rows((1, 1, "one"), (1, 2, "two")))
        sql.execute("INSERT INTO children SELECT 1, own FROM target WHERE id = 1")
        writer.write(rows((-1, 1, "one"), (1, 1, "uno"), (1, 3, "three")))
        writer.write(rows((1, 4, "uno"), (1, 5, "five")))
        assert there(each_shop) == Counter([(1, "uno"), (2, "two"), (3, "three"), (5, "five")])
        assert len(writer.refused) == 1
    assert each_shop.rows("SELECT count(*) FROM children") == Counter([(1,)])


def test_columns_that_would_round_are_refused(each_shop: Shop | MySqlShop, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.decimal128(15, 2))])
    kinds = {"one": "numeric(15,1)", "two": "numeric(15,2)", "more": "numeric(20,4)"}
    for table, kind in kinds.items():
        each_shop.sql.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, name {kind})")
    with refusal("sink.config", "name", "DECIMAL(15,2)"), writing(each_shop, tmp_path, "one", schema=schema):
        pass
    for table in ("two", "more"):
        with writing(each_shop, tmp_path / table, table, schema=schema) as writer:
            writer.write(rows((1, 1, "0.07"), schema=pa.schema([SCHEMA.field("id"), ("name", pa.string())])))
            assert each_shop.rows(f"SELECT name * 100 FROM {table}") == Counter([(7,)])


def test_a_row_that_the_server_takes_no_packet_for(mysql_shop: MySqlShop, tmp_path: Path) -> None:
    mysql_shop.sql.execute("CREATE TABLE target (id bigint PRIMARY KEY, name longtext)")
    ((most,),) = mysql_shop.sql.execute("SELECT @@max_allowed_packet")
    with writing(mysql_shop, tmp_path) as writer:
        writer.write(rows((1, 1, "x" * (most // 2)), (1, 2, "x" * most), (1, 3, "é" * (most // 2 - 100))))
        found = mysql_shop.rows("SELECT id FROM target")
        assert found == Counter([(1,)])
        assert ["max_allowed_packet" in reason for reason in writer.reasons] == [True, True]


@pytest.mark.spark
def test_a_deletion_is_replayed(db: Database, shop: Shop, wait_until: WaitUntil) -> None:
    shop.sql.execute("CREATE TABLE target (id bigint PRIMARY KEY, name text)")
    shop.sql.execute("CREATE TABLE children (parent bigint REFERENCES target (id))")
    db.sql("CREATE TABLE named (id BIGINT PRIMARY KEY, name STRING)")
    db.sql("INSERT INTO named VALUES (1, 'one'), (2, 'two')")
    db.sql(f"INSERT INTO {shop.uri('target')} SELECT * FROM named EMIT CHANGES")
    wait_until(lambda: len(there(shop)) == 2)
    shop.sql.execute("INSERT INTO children VALUES (1)")
    db.table("named").delete([1])
    wait_until(lambda: len(db.sql("SELECT * FROM dead_letters").rows()) == 1)

    def replayed() -> tuple[int, int]:
        ((_, _, taken, left),) = (tuple(row)[:4] for row in db.sql("REPLAY DEAD LETTERS").rows())
        return taken, left

    assert replayed() == (0, 1)
    assert there(shop) == Counter([(1, "one"), (2, "two")])
    shop.sql.execute("DELETE FROM children")
    assert replayed() == (1, 0)
    assert there(shop) == Counter([(2, "two")])
