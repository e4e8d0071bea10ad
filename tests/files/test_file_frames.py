"""Files as Spark sees them: exact values, marked bad rows, and the same by either way to the executors."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "connectors"))
from files_model import open_source
from velostream.connectors.files.read.dataframes import FrameReader
from velostream.connectors.files.spool import merges
from velostream.connectors.files.spool.merges import merge_small

pytestmark = pytest.mark.spark

TYPED = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("rate", pa.float64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("ok", pa.bool_()),
    ]
)


def rows_of(frame, names):
    return Counter(tuple(row.values()) for row in frame.select(*names).toArrow().to_pylist())


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_values_are_exact_and_misfits_are_marked(spark, tmp_path):
    path = write(
        tmp_path / "x.csv",
        "id,name,price,rate,day,at,ok",
        "1,ann,12345.67,1e3,2024-02-29,2024-01-01T10:00:00Z,true",
        '2,"two\nlines",0.10,0.5,,2024-01-01 10:00:00.123456,false',
        '3,"say ""hi""",7,,,2024-01-01T12:00:00+02:00,',
        "4,cut,1.239,,,,",
        "5,zeros,1.2300,,,,",
        "6,big,123456789.01,,,,",
        "7,text,abc,,,,",
        "8.5,half,1,,,,",
        "9,few",
        "10,many,1,,,,,,",
        "11,exponent,1.5e1,,,,",
        "12,small,1e-3,,,,",
        "13,day,,,2024-02-30,,",
        "14,flag,,,,,yes",
    )
    source = open_source(str(path), tmp_path / "spool", schema=TYPED)
    end = source.latest(None)
    found = source.frame(spark, None, end, None, careful=True).toArrow().to_pylist()
    good = [row for row in found if row["_bad"] is None]
    assert good[:3] == [
        {
            "id": 1,
            "name": "ann",
            "price": Decimal("12345.67"),
            "rate": 1000.0,
            "day": date(2024, 2, 29),
            "at": datetime(2024, 1, 1, 10, tzinfo=UTC),
            "ok": True,
            "_bad": None,
        },
        {
            "id": 2,
            "name": "two\nlines",
            "price": Decimal("0.10"),
            "rate": 0.5,
            "day": None,
            "at": datetime(2024, 1, 1, 10, 0, 0, 123456, tzinfo=UTC),
            "ok": False,
            "_bad": None,
        },
        {
            "id": 3,
            "name": 'say "hi"',
            "price": Decimal("7.00"),
            "rate": None,
            "day": None,
            "at": datetime(2024, 1, 1, 10, tzinfo=UTC),
            "ok": None,
            "_bad": None,
        },
    ]
    assert [(row["id"], row["price"]) for row in good[3:]] == [(5, Decimal("1.23")), (11, Decimal("15.00"))]
    reasons = {bad.raw.decode().split(",")[0]: bad.reason for bad in source.bad_rows(None, end)}
    assert reasons == {
        "4": 'column "price": "1.239" is not a DECIMAL(10,2): it has 3 digits after the point',
        "6": 'column "price": "123456789.01" is not a DECIMAL(10,2): it is too large',
        "7": 'column "price": "abc" is not a DECIMAL(10,2)',
        "8.5": 'column "id": "8.5" is not a BIGINT',
        "9": "2 fields where 7 are expected",
        "10": "9 fields where 7 are expected",
        "12": 'column "price": "1e-3" is not a DECIMAL(10,2): it has 3 digits after the point',
        "13": 'column "day": "2024-02-30" is not a DATE',
        "14": 'column "ok": "yes" is not a BOOLEAN',
    }


@pytest.mark.parametrize("columns", [["price"], ["name", "id"], []], ids=["price", "two", "none"])
def test_only_used_columns_are_judged_but_the_number_of_fields_always(spark, tmp_path, columns):
    path = write(tmp_path / "x.csv", "id,name,price", "1,a,2.50", "x,b,1", "3,c", "4,d,1,5", "5,e,1.239")
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(10, 2))])
    source = open_source(str(path), tmp_path / "spool", schema=schema)
    end = source.latest(None)
    found = source.frame(spark, None, end, columns, careful=True).toArrow().to_pylist()
    bad = {row["_bad"] for row in found if row["_bad"] is not None}
    wrong = {"price": {"5,e,1.239"}, "name": {"x,b,1"}}
    assert bad == {"3,c", "4,d,1,5", *wrong.get(columns[0] if columns else "", set())}
    with pytest.raises(Exception, match=r"MALFORMED_RECORD|VELOSTREAM_BAD_ROW"):
        source.frame(spark, None, end, columns).collect()


def test_a_clean_range_has_neither_mark_nor_weight(spark, tmp_path):
    path = write(tmp_path / "x.csv", "id,name", "1,a")
    source = open_source(str(path), tmp_path / "spool", schema=None)
    first = source.latest(None)
    assert source.frame(spark, None, first, None).columns == ["id", "name"]
    write(path, "id,name", "2,a", "3,b")
    second = source.latest(first)
    changed = source.frame(spark, first, second, None)
    assert changed.columns == ["id", "name", "_weight"]
    assert rows_of(changed, ["id", "_weight"]) == {(1, -1): 1, (2, 1): 1, (3, 1): 1}
    assert source.frame(spark, second, second, ["id", "_offset"]).count() == 0


def test_rows_that_never_got_in_are_not_taken_back(spark, tmp_path):
    path = write(tmp_path / "x.csv", "id,name", "1,a", "x,b")
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    source = open_source(str(path), tmp_path / "spool", schema=schema)
    first = source.latest(None)
    write(path, "id,name", "3,c")
    second = source.latest(first)
    changed = source.frame(spark, first, second, None, careful=True).where("_bad IS NULL")
    assert rows_of(changed, ["id", "_weight"]) == {(1, -1): 1, (3, 1): 1}
    assert rows_of(source.frame(spark, first, second, None), ["id", "_weight"]) == {(1, -1): 1, (3, 1): 1}


def test_system_columns(spark, tmp_path):
    path = write(tmp_path / "x.csv", "id,name", "1,a", "2,b")
    with path.open("a") as out:
        out.write("\r\n3,c\r\n")
    source = open_source(str(path), tmp_path / "spool", schema=None)
    end = source.latest(None)
    for columns in (
        ["id", "_offset", "_partition", "_timestamp", "_position"],
        ["id", "_timestamp", "_position"],
    ):
        found = source.frame(spark, None, end, columns).orderBy("_position").toArrow().to_pylist()
        assert [row["id"] for row in found] == [1, 2, 3]
        assert all(abs((row["_timestamp"] - datetime.now(UTC)).total_seconds()) < 60 for row in found)
        if "_offset" in columns:
            assert [row["_offset"] for row in found] == [8, 12, 18]
            assert {row["_partition"] for row in found} == {str(path)}


def test_positions_stay_with_their_rows(spark, tmp_path):
    path = write(tmp_path / "x.csv", "id,name", "1,a", "2,b", "3,c")
    source = open_source(str(path), tmp_path / "spool", schema=None)
    first = source.latest(None)
    before = rows_of(source.frame(spark, None, first, ["id", "_position"], careful=True), ["id", "_position"])
    write(path, "id,name", "1,a", "9,new", "3,c")
    second = source.latest(first)
    changed = source.frame(spark, first, second, ["id", "_position"], careful=True)
    gone = rows_of(changed.where("_weight < 0"), ["id", "_position"])
    assert {row[0] for row in gone} == {2}
    assert gone <= before
    after = rows_of(
        source.frame(spark, None, second, ["id", "_position"], careful=True),
        ["id", "_position"],
    )
    assert before - gone <= after
    assert max(after, key=lambda row: row[1])[0] == 9


def test_merged_segments_keep_positions_and_order(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(merges, "FEWEST", 2)
    path = write(tmp_path / "x.csv", "id,name", "0,a")
    source = open_source(str(path), tmp_path / "spool", schema=None)
    end = source.latest(None)
    for number in range(1, 9):
        with path.open("a") as out:
            out.write(f"{number},{'a' if number % 2 else 'b'}\n")
        end = source.latest(end)
    write(path, "id,name", "9,new", *path.read_text().splitlines()[1:])
    end = source.latest(end)

    def seen():
        columns = ["id", "_position", "_timestamp", "_partition"]
        exact = rows_of(source.frame(spark, None, end, columns, careful=True), columns)
        native = source.frame(spark, None, end, ["id", "_position"]).orderBy("_position").toArrow()
        return exact, native["id"].to_pylist()

    before = seen()
    assert before[1] == list(range(10))
    while merge_small(source.spool, end["spool"]):
        pass
    assert len(source.spool.live) == 1
    assert seen() == before


def test_json_numbers_keep_their_digits(spark, tmp_path):
    path = write(
        tmp_path / "x.jsonl",
        '{"id": 1, "v": 12345678901234567890.123456789, "n": {"w": [0.10, 1234567890123456.78]}}',
        '{"id": 2, "v": "7.250", "n": null}',
        '{"id": 3, "v": 1.0000000001, "n": {"w": []}}',
        '{"id": 4, "v": 5, "n": {"w": [0.105]}}',
        '{"id": "5"}',
        '{"id": 6',
        '{"id": 7.5}',
    )
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("v", pa.decimal128(29, 9)),
            ("n", pa.struct([("w", pa.list_(pa.decimal128(18, 2)))])),
        ]
    )
    source = open_source(str(path), tmp_path / "spool", schema=schema)
    end = source.latest(None)
    found = source.frame(spark, None, end, None, careful=True).toArrow().to_pylist()
    good = {row["id"]: (row["v"], row["n"]) for row in found if row["_bad"] is None}
    assert good == {
        1: (
            Decimal("12345678901234567890.123456789"),
            {"w": [Decimal("0.10"), Decimal("1234567890123456.78")]},
        ),
        2: (Decimal("7.25"), None),
    }
    assert len([row for row in found if row["_bad"] is not None]) == 5
    assert len(list(source.bad_rows(None, end))) == 5


def test_widening_follows_the_data(spark, tmp_path):
    path = write(tmp_path / "x.csv", "id,price", "1,1.50")
    source = open_source(str(path), tmp_path / "spool", schema=None)
    first = source.latest(None)
    assert source.discover() == pa.schema([("id", pa.int64()), ("price", pa.decimal128(18, 2))])
    with path.open("a") as out:
        out.write("2.5,1.239\nx,1\n")
    second = source.latest(first)
    source.frame(spark, first, second, None, careful=True)
    assert not source.new_columns(first, second)
    wider = pa.schema([("id", pa.decimal128(20, 1)), ("price", pa.decimal128(19, 3))])
    assert source.widen(first, second) == wider
    found = source.frame(spark, first, second, None, careful=True).toArrow().to_pylist()
    assert [(r["id"], r["price"]) for r in found if r["_bad"] is None] == [(Decimal("2.5"), Decimal("1.239"))]
    assert source.widen(first, second) is None


@pytest.mark.parametrize("form", ["parquet", "orc", "avro"])
def test_binary_formats(spark, tmp_path, form):
    table = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "price": pa.array([Decimal("1.10"), None], pa.decimal128(10, 2)),
            "at": pa.array(
                [datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=UTC), None], pa.timestamp("us", tz="UTC")
            ),
            "name": pa.array(["a", None]),
        }
    )
    path = tmp_path / f"x.{form}"
    save(table, path, form)
    source = open_source(str(path), tmp_path / "spool", schema=None)
    first = source.latest(None)
    assert source.discover().names == ["id", "price", "at", "name"]
    assert source.discover().field("price").type == pa.decimal128(10, 2)
    assert source.frame(spark, None, first, None).toArrow().to_pylist() == table.to_pylist()
    shipped = source.frame(spark, None, first, ["id", "price", "at", "name", "_offset"]).toArrow().to_pylist()
    assert [row.pop("_offset") for row in shipped] == [0, 1]
    assert shipped == table.to_pylist()
    save(table.slice(1), path, form)
    second = source.latest(first)
    summed = Counter()
    for row in source.frame(spark, first, second, ["id"]).toArrow().to_pylist():
        summed[row["id"]] += row["_weight"]
    assert {key: value for key, value in summed.items() if value} == {1: -1}


def save(table: pa.Table, path: Path, form: str) -> None:
    if form == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(table, path)
    elif form == "orc":
        from pyarrow import orc

        orc.write_table(table, path)
    else:
        import fastavro

        fields = [
            {"name": "id", "type": "long"},
            {
                "name": "price",
                "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}],
            },
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
            {"name": "name", "type": ["null", "string"]},
        ]
        with path.open("wb") as out:
            fastavro.writer(out, {"type": "record", "name": "Row", "fields": fields}, table.to_pylist())


field = st.one_of(
    st.sampled_from(
        ["", "1", "-7", "12.50", "1.239", "1e2", "true", "2024-01-01", "2024-01-01T00:00:00Z", '"', '""', "'"]
    ),
    st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=6),
    st.text(st.sampled_from('a",\n\r \x1e'), max_size=6),
)


def as_csv(text: str, always: bool) -> str:
    return '"' + text.replace('"', '""') + '"' if always or any(c in text for c in '",\n\r') else text


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.lists(field, min_size=2, max_size=3), st.booleans()), min_size=1, max_size=40))
def test_either_way_to_the_executors_gives_the_same_rows(spark, tmp_path_factory, records):
    tmp_path = tmp_path_factory.mktemp("either")
    lines = [",".join(as_csv(text, always) for text in texts) for texts, always in records]
    path = tmp_path / "x.csv"
    path.write_bytes("".join(f"{line}\n" for line in ["a,b,c", *lines]).encode())
    schema = pa.schema([("a", pa.string()), ("b", pa.decimal128(10, 2)), ("c", pa.timestamp("us", tz="UTC"))])
    source = open_source(str(path), tmp_path / "spool", schema=schema)
    end = source.latest(None)
    native = source.frame(spark, None, end, None, careful=True)
    kept = FrameReader.local
    FrameReader.local = lambda self: False  # type: ignore[method-assign]
    try:
        shipped = source.frame(spark, None, end, None, careful=True)
    finally:
        FrameReader.local = kept  # type: ignore[method-assign]
    names = ["a", "b", "c", "_bad"]
    assert rows_of(native, names) == rows_of(shipped, names)
    texts = pa.schema([(name, pa.string()) for name in "abc"])
    plain = open_source(str(path), tmp_path / "plain", schema=texts)
    end = plain.latest(None)
    seen = rows_of(plain.frame(spark, None, end, None, careful=True).where("_bad IS NULL"), ["a", "b", "c"])
    wanted = Counter(tuple(t or None for t in texts) for texts, _ in records if len(texts) == 3)
    assert seen == wanted


@pytest.mark.parametrize("careful", [True, False])
def test_each_file_is_divided_as_its_name_says(spark, tmp_path, careful):
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "README.txt", "no table")
    write(folder / "a.csv", "id,name", "1,x\ty")
    write(folder / "b.tsv", "id\tname", "2\tx,y")
    source = open_source(f"{folder}/", tmp_path / "spool", schema=None)
    first = source.latest(None)
    found = source.frame(spark, None, first, None, careful=careful)
    assert rows_of(found, ["id", "name"]) == Counter([(1, "x\ty"), (2, "x,y")])
    assert not list(source.bad_rows(None, first))
    (folder / "a.csv").unlink()
    (folder / "b.tsv").unlink()
    second = source.latest(first)
    gone = source.frame(spark, first, second, None, careful=careful)
    assert rows_of(gone, ["id", "name", "_weight"]) == Counter([(1, "x\ty", -1), (2, "x,y", -1)])
