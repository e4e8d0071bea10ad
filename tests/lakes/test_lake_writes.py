"""What is written to tables of Delta Lake and Iceberg, step by step: values, keys, other writers, crashes."""

from __future__ import annotations

import datetime as dt
import math
import shutil
import threading
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from lakehouses import DeltaFolder, IcebergFolder, IcebergRest, Lakehouse, Writer
from pyiceberg.transforms import DayTransform

import iceberg_server
import object_store
from refusals import refusal
from velostream.config import Settings
from velostream.connectors.base import SinkContext
from velostream.engine.opening.connect import open_sink
from velostream.model.uri import Uri

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int32())])
UTC_MICROS = pa.timestamp("us", tz="UTC")
KINDS = pa.schema(
    [
        ("id", pa.int64()),
        ("yes", pa.bool_()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("number", pa.int32()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("exact", pa.decimal128(38, 10)),
        ("amount", pa.decimal128(9, 2)),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("at", UTC_MICROS),
        ("local", pa.timestamp("us")),
        ("list", pa.list_(pa.string())),
        ("map", pa.map_(pa.string(), pa.int32())),
        ("deep", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.struct([("z", pa.decimal128(10, 2))])))])),
    ]
)
FULL: dict[str, Any] = {
    "id": 1,
    "yes": True,
    "tiny": -128,
    "small": 2,
    "number": 3,
    "single": 1.5,
    "double": -0.1,
    "exact": Decimal("1234567890123456789012345678.0123456789"),
    "amount": Decimal("12345.67"),
    "text": "a'\"\n\\ %\U0001f600",
    "bytes": b"\x00\xff",
    "day": dt.date(1, 1, 1),
    "at": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    "local": dt.datetime(2024, 1, 2, 3, 4, 5, 678901),
    "list": ["x", None, ""],
    "map": [("k", 1), ("n", None)],
    "deep": {"x": None, "y": [{"z": Decimal("1.10")}, None]},
}
EMPTY: dict[str, Any] = dict.fromkeys(KINDS.names) | {"id": 2}


def by_id(lake: Lakehouse, table: str) -> list[dict[str, Any]]:
    return sorted(lake.read(table).to_pylist(), key=lambda row: str(row["id"]))


# --- values and keys --------------------------------------------------------------------------------------


def test_every_type_is_written_as_it_is(any_lake: Lakehouse) -> None:
    writer = Writer(any_lake, "kinds", KINDS, ["id"])
    writer.write([FULL, EMPTY])
    assert by_id(any_lake, "kinds") == [FULL, EMPTY]
    writer.write([{**FULL, "text": "new"}], [FULL])
    assert by_id(any_lake, "kinds") == [{**FULL, "text": "new"}, EMPTY]


KEYS: dict[str, list[Any]] = {
    "at": [FULL["at"], dt.datetime(1, 1, 1, tzinfo=dt.UTC), None],
    "local": [FULL["local"], None],
    "day": [FULL["day"], dt.date(2024, 2, 29)],
    "exact": [Decimal("1.5"), Decimal("-1.5"), None],
    "bytes": [b"", b"\xff", b"\x00"],
    "text": ["", "'", '"', "a" * 300, "\U0010ffff" * 100, "e\u0301", "é", None],
    "yes": [True, False, None],
    "double": [math.nan, math.inf, 0.0, None],
    "tiny": [-1, 1],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", sorted(KEYS))
def test_rows_are_found_by_keys_of_every_type(lake: Lakehouse, name: str) -> None:
    values = KEYS[name]
    writer = Writer(lake, "keyed", pa.schema([KINDS.field(name), ("v", pa.int32())]), [name])
    for value in values:
        writer.write([{name: value, "v": 0}])
    writer.write([{name: value, "v": 1} for value in values], [{name: value, "v": 0} for value in values])
    assert [row["v"] for row in lake.read("keyed").to_pylist()] == [1] * len(values)
    writer.write([], [{name: values[0], "v": 1}])
    assert len(lake.read("keyed")) == len(values) - 1


def test_zero_has_no_sign_in_a_key(lake: Lakehouse) -> None:
    writer = Writer(lake, "zero", pa.schema([("d", pa.float64()), ("v", pa.int32())]), ["d"])
    writer.write([{"d": -0.0, "v": 1}])
    writer.write([{"d": 0.0, "v": 2}], [{"d": -0.0, "v": 1}])
    assert [row["v"] for row in lake.read("zero").to_pylist()] == [2]


def test_a_key_of_several_columns_is_found_as_a_whole(lake: Lakehouse) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.float64()), ("v", pa.int32())])
    keys = [(a, b) for a in ("x", "y", None) for b in (1.0, math.nan, None)]
    writer = Writer(lake, "two", schema, ["a", "b"])
    writer.write([{"a": a, "b": b, "v": 0} for a, b in keys])
    gone = [("y", math.nan), (None, None), ("x", 1.0)]
    writer.write([{"a": "x", "b": 1.0, "v": 5}], [{"a": a, "b": b, "v": 0} for a, b in gone])
    found = Counter((row["a"], str(row["b"]), row["v"]) for row in lake.read("two").to_pylist())
    wanted = [(a, str(b), 0) for a, b in keys if (a, str(b)) not in {(a, str(b)) for a, b in gone}]
    assert found == Counter([*wanted, ("x", "1.0", 5)])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("columns", ["text", "day", "number", "at", "amount", "yes", "text, number"])
def test_partitioned_tables_hold_every_value(lake: Lakehouse, columns: str) -> None:
    writer = Writer(lake, "parted", KINDS, ["id"], partition_by=columns)
    texts = ["a/b", "ü %=", " ", "c:d", None, "__HIVE_DEFAULT_PARTITION__"]
    rows = [
        {**FULL, "id": place, "text": text, "number": place % 2, "yes": place == 1}
        for place, text in enumerate(texts)
    ]
    if isinstance(lake, DeltaFolder):
        rows = rows[:-1]  # Delta's own name of NULL.
    writer.write([*rows, {**EMPTY, "id": 9}])
    moved = [{**row, "text": "moved", "number": 7} for row in rows[:2]]
    writer.write(moved, rows[:2])
    writer.write([], [rows[3]])
    assert by_id(lake, "parted") == [*moved, rows[2], *rows[4:], {**EMPTY, "id": 9}]


def test_what_a_partition_of_delta_cannot_hold_is_refused(delta: DeltaFolder) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    writer = Writer(delta, "empty", schema, ["id"], partition_by="p")
    writer.write([{"id": 1, "p": ""}, {"id": 2, "p": None}])
    assert delta.rows("empty") == Counter([(2, None)])
    assert len(writer.refused) == 1
    with refusal("sink.config", "bytes"):
        Writer(delta, "bytes", KINDS, ["id"], partition_by="bytes")


def test_partitions_that_iceberg_computes(iceberg: IcebergFolder) -> None:
    writer = Writer(
        iceberg, "computed", KINDS, ["id"], partition_by="day(at), bucket(4, id), truncate(2, text)"
    )
    rows = [{**FULL, "id": number, "text": f"{number}{number}x"} for number in range(20)]
    writer.write(rows)
    writer.write([{**row, "yes": False} for row in rows[:5]], rows[:6])
    assert sorted(by_id(iceberg, "computed"), key=lambda row: row["id"]) == [
        *({**row, "yes": False} for row in rows[:5]),
        *rows[6:],
    ]
    spec = iceberg.catalog.load_table("ns.computed").spec()
    assert [str(field.transform) for field in spec.fields] == ["day", "bucket[4]", "truncate[2]"]
    with refusal("sink.config", "double"):
        Writer(iceberg, "double", KINDS, ["id"], partition_by="double")
    with refusal("sink.config", "week(at)"):
        Writer(iceberg, "week", KINDS, ["id"], partition_by="week(at)")
    with refusal("sink.config", "computed", why="not as the statement says"):
        Writer(iceberg, "computed", KINDS, ["id"], partition_by="id")


def test_rows_by_key_among_many_files(
    lake: Lakehouse, rounds: Callable[[int, int], int], rng: Random
) -> None:
    """The same as a dictionary, whatever is added, replaced and deleted."""
    writer = Writer(lake, "many", COLUMNS, ["id"])
    there: dict[int, int] = {}
    for step in range(rounds(25, 400)):
        keys = rng.sample(range(60), rng.randint(1, 12))
        gone = [{"id": key, "v": there[key]} for key in keys if key in there]
        added = [{"id": key, "v": step} for key in keys if rng.random() < 0.7]
        writer.write(added, gone)
        for row in gone:
            del there[row["id"]]
        there |= {row["id"]: step for row in added}
    assert lake.rows("many") == Counter(there.items())


# --- tables of others -------------------------------------------------------------------------------------


def test_columns_that_are_not_written_keep_their_values(lake: Lakehouse) -> None:
    wide = pa.schema([*COLUMNS, ("w", pa.string())])
    lake.make("wide", wide, pa.table([[1, 2, 3], [1, 2, 3], ["x", "y", "z"]], schema=wide))
    writer = Writer(lake, "wide", COLUMNS, ["id"])
    writer.write([{"id": 1, "v": 5}, {"id": 4, "v": 5}], [{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    assert lake.rows("wide") == Counter([(1, 5, "x"), (3, 3, "z"), (4, 5, None)])


def test_narrow_rows_fit_into_wide_columns(lake: Lakehouse) -> None:
    there = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("d", pa.decimal128(20, 4))])
    lake.make("wider", there)
    ours = pa.schema([("id", pa.int64()), ("v", pa.int32()), ("d", pa.decimal128(9, 2))])
    Writer(lake, "wider", ours, ["id"]).write([{"id": 1, "v": 2, "d": Decimal("1.25")}])
    assert lake.rows("wider") == Counter([(1, 2, Decimal("1.2500"))])


def test_rows_that_do_not_fit_are_told_at_once(lake: Lakehouse) -> None:
    lake.make("narrow", pa.schema([("id", pa.int32()), ("v", pa.int32())]))
    with refusal("sink.config", "id", "int64", "int32"):
        Writer(lake, "narrow", COLUMNS)
    lake.make("other", pa.schema([("ID", pa.int64()), ("v", pa.int32())]))
    with refusal("sink.config", "id", "ID"):
        Writer(lake, "other", COLUMNS)
    lake.make("demanding", pa.schema([*COLUMNS, pa.field("must", pa.string(), nullable=False)]))
    with refusal("sink.config", "must"):
        Writer(lake, "demanding", COLUMNS)
    with refusal("sink.config", "s", why="rows are not found by such a key"):
        Writer(lake, "key", pa.schema([("s", pa.struct([("x", pa.int32())]))]), ["s"])
    with refusal("sink.config", "d", why="cannot hold"):
        Writer(lake, "times", pa.schema([("d", pa.duration("us"))]))
    with refusal("sink.config", why="have none"):
        Writer(lake, "upsert", COLUMNS, mode="upsert")


def test_rows_without_a_value_that_is_demanded_are_set_aside(lake: Lakehouse) -> None:
    demanding = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("m", pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))),
            ("s", pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("w", pa.string())])),
            ("l", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        ]
    )
    lake.make("demands", demanding)
    ours = pa.schema(
        [
            ("id", pa.int64()),
            ("m", pa.map_(pa.string(), pa.int32())),
            ("s", pa.struct([("x", pa.int32())])),
            ("l", pa.list_(pa.int32())),
        ]
    )
    writer = Writer(lake, "demands", ours, ["id"])
    fine = {"m": [("a", 1)], "s": {"x": 1}, "l": [1]}
    writer.write(
        [
            {"id": 0, "m": None, "s": None, "l": None},
            {"id": 1, **fine},
            {"id": 2, **fine, "l": [1, None]},
            {"id": 3, **fine, "s": {"x": None}},
            {"id": 4, **fine, "m": [("a", 1), ("b", None)]},
            {"id": None, **fine},
        ]
    )
    assert by_id(lake, "demands") == [
        {"id": 0, "m": None, "s": None, "l": None},
        {"id": 1, "m": [("a", 1)], "s": {"x": 1, "w": None}, "l": [1]},
    ]
    assert sorted(reason.split('"')[1] for reason in writer.refused) == ["id", "l.element", "m.value", "s.x"]
    # The row that a refused one would have replaced goes, as its source says.
    writer.write([{"id": 1, **fine, "l": [None]}], [{"id": 1, **fine}])
    assert [row["id"] for row in by_id(lake, "demands")] == [0]


def test_rows_that_violate_a_constraint_are_set_aside(delta: DeltaFolder) -> None:
    mixed = pa.schema([("Id", pa.int64()), ("v", pa.int32())])
    delta.make("checked", mixed)
    DeltaTable(str(delta.folder / "checked")).alter.add_constraint({"few": 'v < 10 AND "Id" > 0'})
    for key in (["Id"], []):
        writer = Writer(delta, "checked", mixed, key)
        writer.write([{"Id": 1, "v": 1}, {"Id": 2, "v": 20}, {"Id": 3, "v": None}, {"Id": -4, "v": 1}])
        assert len(writer.refused) == 3
        assert all("few" in reason for reason in writer.refused)
        writer.sink.try_out(writer.changes([{"Id": 9, "v": 99}, {"Id": 8, "v": 8}]))
        assert len(writer.refused) == 4
    assert delta.rows("checked") == Counter({(1, 1): 2})


def test_tables_of_delta_that_cannot_be_written_as_asked(delta: DeltaFolder) -> None:
    path = str(delta.folder / "t")
    for settings, why in (
        ({"delta.appendOnly": "true"}, "takes no updates"),
        ({"delta.enableDeletionVectors": "true"}, "deletion vectors"),
        ({"delta.columnMapping.mode": "name"}, "maps its columns"),
    ):
        DeltaTable.create(path, COLUMNS, configuration=settings)
        with refusal("sink.config", path, why=why):
            Writer(delta, "t", COLUMNS, ["id"])
        shutil.rmtree(path)
    DeltaTable.create(path, COLUMNS, configuration={"delta.appendOnly": "true"})
    writer = Writer(delta, "t", COLUMNS, ["id"], mode="append")
    assert not writer.sink.takes_deletes
    writer.write([{"id": 1, "v": 1}])
    assert delta.rows("t") == Counter([(1, 1)])


def test_the_change_feed_of_a_table_has_our_changes(delta: DeltaFolder) -> None:
    path = str(delta.folder / "fed")
    DeltaTable.create(path, COLUMNS, configuration={"delta.enableChangeDataFeed": "true"})
    writer = Writer(delta, "fed", COLUMNS, ["id"])
    writer.write([{"id": 1, "v": 1}])
    writer.write([{"id": 1, "v": 2}], [{"id": 1, "v": 1}])
    writer.write([], [{"id": 1, "v": 2}])
    feed = pa.table(DeltaTable(path).load_cdf(0).read_all())
    assert Counter(feed["_change_type"].to_pylist()) == Counter(
        ["insert", "update_preimage", "update_postimage", "delete"]
    )


def test_a_table_whose_partitions_changed_is_written_on(iceberg: IcebergFolder) -> None:
    writer = Writer(iceberg, "evolving", KINDS, ["id"])
    writer.write([FULL, EMPTY])
    with iceberg.catalog.load_table("ns.evolving").update_spec() as update:
        update.add_field("at", DayTransform())
    writer.write([{**FULL, "yes": False}], [FULL])
    writer.write([], [EMPTY])
    assert by_id(iceberg, "evolving") == [{**FULL, "yes": False}]


def test_columns_that_come_later(any_lake: Lakehouse) -> None:
    inner = pa.struct([("x", pa.int32())])
    writer = Writer(any_lake, "grows", pa.schema([*COLUMNS, ("s", inner)]), ["id"])
    writer.write([{"id": 1, "v": 1, "s": {"x": 1}}, {"id": 2, "v": 2, "s": None}])
    wide = pa.struct([("x", pa.int32()), ("y", pa.string())])
    writer.schema = pa.schema([*COLUMNS, ("s", wide), ("local", pa.timestamp("us")), ("n", pa.int64())])
    writer.again()
    moment = dt.datetime(2024, 1, 2)
    row = {"id": 2, "v": 3, "s": {"x": 2, "y": "b"}, "local": moment, "n": 5}
    writer.write([row], [{**row, "v": 2}])
    assert by_id(any_lake, "grows") == [
        {"id": 1, "v": 1, "s": {"x": 1, "y": None}, "local": None, "n": None},
        row,
    ]


def test_types_of_iceberg_that_widen(iceberg: IcebergFolder, delta: DeltaFolder) -> None:
    before = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("d", pa.decimal128(5, 2))])
    after = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("d", pa.decimal128(9, 2))])
    for lake in (iceberg, delta):
        writer = Writer(lake, "widens", before, ["id"])
        writer.write([{"id": 1, "n": 1, "d": Decimal("1.25")}])
        writer.schema = after
        if lake is delta:
            with refusal("sink.config", "n", "int64", "int32"):
                writer.again()
        else:
            writer.again()
            writer.write([{"id": 2, "n": 2**40, "d": Decimal("1234567.25")}])
    wanted = [(1, 1, Decimal("1.25")), (2, 2**40, Decimal("1234567.25"))]
    assert iceberg.rows("widens") == Counter(wanted)


# --- crashes, copies and other writers ----------------------------------------------------------------------


def test_a_commit_whose_record_was_lost_is_recognised(any_lake: Lakehouse) -> None:
    writer = Writer(any_lake, "t", COLUMNS)
    writer.write([{"id": 1, "v": 1}])
    rows = writer.changes([{"id": 2, "v": 2}])
    intended = writer.sink.intend(1, rows)
    assert intended is not None
    writer.again()
    assert not writer.sink.settle(intended)
    lost = writer.sink.intend(1, rows)
    assert lost is not None
    writer.sink.write(1, rows)
    writer.again()
    assert not writer.sink.settle(intended)
    assert writer.sink.settle(lost)
    assert any_lake.rows("t") == Counter([(1, 1), (2, 2)])


def test_steps_that_change_nothing_are_recognised(any_lake: Lakehouse) -> None:
    writer = Writer(any_lake, "t", COLUMNS, ["id"])
    for number, gone in enumerate([[], [{"id": 9, "v": 9}]]):
        rows = writer.changes([] if gone else [{"id": 1, "v": 1}], gone)
        intended = writer.sink.intend(number, rows)
        assert intended is not None
        writer.sink.write(number, rows)
        sink = writer.open()
        assert sink.settle(intended)
        sink.close()


def test_a_file_that_was_cut_off_is_not_taken_for_whole(delta: DeltaFolder) -> None:
    writer = Writer(delta, "t", COLUMNS)
    writer.write([{"id": 1, "v": 1}])
    rows = writer.changes([{"id": 2, "v": 2}])
    intended = writer.sink.intend(1, rows)
    assert intended is not None
    writer.sink.write(1, rows)
    newest = max((delta.folder / "t").glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-10])
    writer.again()
    with refusal("sink", newest.name, why="not whole"):
        writer.sink.settle(intended)
    # What the hint says.
    (delta.folder / "t" / "_delta_log" / f"{2:020}.json").unlink()
    writer.again()
    assert not writer.sink.settle(intended)
    writer.write([{"id": 2, "v": 2}])
    assert delta.rows("t") == Counter([(1, 1), (2, 2)])


def test_another_copy_of_the_data_directory_is_noticed(any_lake: Lakehouse) -> None:
    writer = Writer(any_lake, "t", COLUMNS, ["id"])
    writer.write([{"id": 1, "v": 1}])
    known = writer.recorded
    copy = writer.state.with_name("copied")
    shutil.copytree(writer.state, copy)
    other = writer.open(known, copy)
    rows = writer.changes([{"id": 2, "v": 2}])
    other.intend(1, rows)
    other.write(1, rows)
    other.close()
    with refusal("sink.changed", why="another copy"):
        writer.write([{"id": 3, "v": 3}])
    assert any_lake.rows("t") == Counter([(1, 1), (2, 2)])


def test_a_table_that_was_put_back_is_noticed(lake: Lakehouse) -> None:
    writer = Writer(lake, "t", COLUMNS, ["id"])
    writer.write([{"id": 1, "v": 1}])
    place = lake.folder / ("t" if isinstance(lake, DeltaFolder) else "warehouse")
    shutil.copytree(place, lake.folder / "saved")
    writer.write([{"id": 2, "v": 2}])
    shutil.rmtree(place)
    shutil.copytree(lake.folder / "saved", place)
    with refusal("sink.changed", why="earlier state"):
        writer.again()
        writer.write([{"id": 3, "v": 3}])


def test_a_table_that_was_replaced_is_left_alone(any_lake: Lakehouse) -> None:
    writer = Writer(any_lake, "t", COLUMNS, ["id"])
    for number in range(3):
        writer.write([{"id": number, "v": 1}])
    any_lake.drop("t")
    with refusal("sink.missing"):
        writer.write([{"id": 3, "v": 1}])
    with refusal("sink.missing", why="does not exist any more"):
        writer.again()
    any_lake.make("t", COLUMNS, pa.table([[7], [7]], schema=COLUMNS))
    with refusal("sink.changed", why="was replaced"):
        writer.again()
    assert any_lake.rows("t") == Counter([(7, 7)])


def test_a_folder_of_delta_that_is_replaced_meanwhile_is_left_alone(delta: DeltaFolder) -> None:
    writer = Writer(delta, "t", COLUMNS, ["id"])
    for number in range(3):
        writer.write([{"id": number, "v": 1}])
    version = DeltaTable(str(delta.folder / "t")).version()
    delta.drop("t")
    delta.make("t", COLUMNS)
    for _ in range(version):
        write_deltalake(str(delta.folder / "t"), pa.table([[7], [7]], schema=COLUMNS), mode="append")
    with refusal("sink.changed", why="was replaced"):
        writer.write([{"id": 3, "v": 1}])
    assert delta.rows("t") == Counter({(7, 7): version})


def test_a_table_that_is_altered_meanwhile(lake: Lakehouse) -> None:
    writer = Writer(lake, "t", pa.schema([*COLUMNS, ("w", pa.string())]), ["id"])
    row = {"id": 1, "v": 1, "w": "a"}
    writer.write([row])
    if isinstance(lake, DeltaFolder):
        more = pa.schema([("more", pa.string())]).empty_table()
        write_deltalake(str(lake.folder / "t"), more, mode="append", schema_mode="merge")
        writer.write([{**row, "w": "b"}], [row])
        assert lake.rows("t") == Counter([(1, 1, "b", None)])
        return
    assert isinstance(lake, IcebergFolder)
    with lake.catalog.load_table("ns.t").update_schema() as update:
        update.delete_column("w")
    with refusal("sink.config", "w"):
        writer.write([{**row, "v": 2}], [row])
    assert lake.rows("t") == Counter([(1, 1)])


def test_writers_at_the_same_time_lose_nothing(
    any_lake: Lakehouse, rounds: Callable[[int, int], int]
) -> None:
    """Two that write by key and one that appends, while the owner of the table rewrites it."""
    many = rounds(6, 60)
    writers = [Writer(any_lake, "t", COLUMNS, key) for key in (["id"], ["id"], [])]
    failures: list[BaseException] = []

    def write(place: int) -> None:
        try:
            for number in range(many):
                shared = [{"id": place * 1000 + 999, "v": number - 1}] if number and place < 2 else []
                added = [{"id": place * 1000 + number, "v": number}]
                if place < 2:
                    added.append({"id": place * 1000 + 999, "v": number})
                writers[place].write(added, shared)
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=write, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    wanted = [(place * 1000 + number, number) for place in range(3) for number in range(many)]
    assert any_lake.rows("t") == Counter([*wanted, (999, many - 1), (1999, many - 1)])


def test_maintenance_by_others_is_no_hindrance(lake: Lakehouse) -> None:
    writer = Writer(lake, "t", COLUMNS, ["id"])
    for number in range(6):
        writer.write([{"id": number, "v": 0}])
    if isinstance(lake, DeltaFolder):
        table = DeltaTable(str(lake.folder / "t"))
        table.optimize.compact()
        table.vacuum(0, enforce_retention_duration=False, dry_run=False)
        table.create_checkpoint()
        table.cleanup_metadata()
    else:
        assert isinstance(lake, IcebergFolder)
        table = lake.catalog.load_table("ns.t")
        table.overwrite(table.scan().to_arrow())
        older = [one.snapshot_id for one in table.refresh().metadata.snapshots][:-1]
        table.maintenance.expire_snapshots().by_ids(older).commit()
    writer.write([{"id": 0, "v": 1}], [{"id": 0, "v": 0}, {"id": 1, "v": 0}])
    writer.again()
    writer.write([{"id": 9, "v": 1}])
    assert lake.rows("t") == Counter([(0, 1), (9, 1), *((number, 0) for number in range(2, 6))])


# --- a catalogue that is a server ---------------------------------------------------------------------------


@pytest.mark.parametrize("status", [500, 503, 504])
def test_a_commit_whose_answer_is_lost_is_not_written_twice(rest: IcebergRest, status: int) -> None:
    writer = Writer(rest, "t", COLUMNS)
    writer.write([{"id": 1, "v": 1}])
    rows = writer.changes([{"id": 2, "v": 2}])
    intended = writer.sink.intend(1, rows)
    assert intended is not None
    rest.server.lose_the_next_answer(status)
    with refusal("sink.network"):
        writer.sink.write(1, rows)
    writer.again()
    assert writer.sink.settle(intended)
    assert rest.rows("t") == Counter([(1, 1), (2, 2)])


def test_a_catalogue_that_refuses_us(rest: IcebergRest) -> None:
    with refusal("sink.auth"):
        Writer(rest, "t", COLUMNS, credential="id:wrong")
    with refusal("sink.network"):
        Writer(rest, "t", COLUMNS, uri="http://127.0.0.1:9")
    rest.properties = {**rest.properties, "table.create.if.missing": "false"}
    with refusal("sink.missing", "ns"):
        Writer(rest, "t", COLUMNS)


@pytest.mark.sampled(3)
def test_a_warehouse_in_an_object_store(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with (
        object_store.running(tmp_path / "store") as store,
        iceberg_server.running("s3://lake/warehouse") as server,
    ):
        bucket = object_store.Bucket(store, "lake")
        lake = IcebergRest(tmp_path, server, "")
        given = store.properties
        lake.properties = {**lake.properties, **given}
        lake.storage = {
            "s3.endpoint": store.endpoint,
            "s3.region": given.get("region", "us-east-1"),
            "s3.access-key-id": given["access.key.id"],
            "s3.secret-access-key": given["secret.access.key"],
        }
        writer = Writer(lake, "t", COLUMNS, ["id"])
        writer.write([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
        writer.write([{"id": 1, "v": 3}], [{"id": 1, "v": 1}, {"id": 2, "v": 2}])
        assert lake.rows("t") == Counter([(1, 3)])
        assert [key for key in bucket.keys("warehouse") if key.endswith(".parquet")]
        store.stop()
        rows = writer.changes([{"id": 5, "v": 5}])
        intended = writer.sink.intend(2, rows)
        assert intended is not None
        with refusal("sink"):
            writer.sink.write(2, rows)
        store.start()
        writer.again()
        assert not writer.sink.settle(intended)
        writer.write([{"id": 5, "v": 5}])
        assert lake.rows("t") == Counter([(1, 3), (5, 5)])
        elsewhere = Settings(
            data_dir=tmp_path / "data", allowed={"hosts": [server.uri.removeprefix("http://")]}
        )
        properties = {name: value for name, value in lake.properties.items() if name != "endpoint"}
        sink = open_sink(Uri(lake.uri("t")), properties, elsewhere, SinkContext(tmp_path / "other", COLUMNS))
        with refusal("sql.unsafe", "lake.s3.amazonaws.com"):
            sink.recover(None)
        sink.close()
        lake.close()


def test_what_iceberg_itself_reads(rest: IcebergRest, iceberg: IcebergFolder) -> None:
    for lake in (rest, iceberg):
        writer = Writer(lake, "t", KINDS, ["id"], partition_by="bucket(2, id), day(at)")
        writer.write([FULL, EMPTY])
        writer.write([{**FULL, "text": "new"}], [FULL])
        name = writer.lake.uri("t").rpartition("/")[2]
        place = name if lake is rest else lake.catalog.load_table(name).metadata_location
        found = sorted(rest.server.rows(place), key=lambda row: str(row["id"]))
        assert found[1] == dict.fromkeys(KINDS.names) | {"id": "2"}
        assert {name: found[0][name] for name in ("id", "exact", "amount", "text", "at", "local", "day")} == {
            "id": "1",
            "exact": str(FULL["exact"]),
            "amount": "12345.67",
            "text": "new",
            "at": "9999-12-31T23:59:59.999999Z",
            "local": "2024-01-02T03:04:05.678901",
            "day": "0001-01-01",
        }
