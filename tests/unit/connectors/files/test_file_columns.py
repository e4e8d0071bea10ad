"""The columns of files: discovered, declared, widened."""

from __future__ import annotations

import time

import pyarrow as pa

from files_model import AB, Reader, keys, open_source


def test_types_are_discovered(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(
        "n,d,e,t,day,at,ok,zip,tel,none,big,huge,wide\n"
        "1,1.5,1e3,x,2024-01-01,2024-01-01T00:00Z,true,00501,+491,,9223372036854775807,9223372036854775808,1\n"
        "-2,-22.125,2.5,,2024-01-02,2024-01-01 10:00,FALSE,12345,+492,,1,1,12345678901234567890.12345678901\n"
    )
    schema = open_source(str(path), tmp_path / "spool", schema=None).discover()
    assert schema == pa.schema(
        [
            ("n", pa.int64()),
            ("d", pa.decimal128(18, 3)),
            ("e", pa.float64()),
            ("t", pa.string()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("ok", pa.bool_()),
            ("zip", pa.string()),
            ("tel", pa.string()),
            ("none", pa.string()),
            ("big", pa.int64()),
            ("huge", pa.decimal128(20, 0)),
            ("wide", pa.decimal128(31, 11)),
        ]
    )


def test_json_types_are_discovered(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(
        '{"a": 1, "s": {"p": 1.10, "t": ["x"]}, "l": [1, 2.5]}\nbroken\n{"a": 2, "new": "2024-01-01"}\n'
    )
    assert open_source(str(path), tmp_path / "spool", schema=None).discover() == pa.schema(
        [
            ("a", pa.int64()),
            ("s", pa.struct([("p", pa.decimal128(18, 2)), ("t", pa.list_(pa.string()))])),
            ("l", pa.list_(pa.decimal128(18, 1))),
            ("new", pa.date32()),
        ]
    )


def test_discovery_of_a_large_file_is_bounded(tmp_path):
    path = tmp_path / "x.csv"
    body = "".join(f"t{n},u{n % 99},AAPL,{n},{n % 1000}.25,2024-01-01T10:00:00Z\n" for n in range(100_000))
    path.write_text("id,user,symbol,quantity,price,at\n" + body + "z,z,z,z,z,z\n")
    source = open_source(str(path), tmp_path / "spool", schema=None)
    begin = time.process_time()
    schema = source.discover()
    assert time.process_time() - begin < 1
    # The end of the file was looked at too.
    assert schema.field("quantity").type == pa.string()


def test_files_without_a_header_go_by_place(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("1,x\n2,y\n")
    source = open_source(str(path), tmp_path / "spool", schema=None, header="false")
    assert source.discover() == pa.schema([("_c0", pa.int64()), ("_c1", pa.string())])
    declared = Reader(str(path), tmp_path / "declared", schema=AB, header="false")
    assert keys(declared.settle()) == ["1", "2"]


def test_other_delimiters_quotes_and_nulls(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("a\tb\n'1\t1'\tNA\n2\t\n")
    rows = Reader(str(path), tmp_path / "spool", schema=AB, quote="'", null="NA").settle()
    assert rows == {("1\t1", None): 1, ("2", None): 1}


def test_a_new_column_widens(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    source = open_source(str(path), tmp_path / "spool", schema=None)
    first = source.latest(None)
    source.discover()
    path.write_text("a,b,c\n1,2,3.5\n")
    second = source.latest(first)
    assert source.new_columns(first, second)
    assert source.widen(first, second).field("c").type == pa.decimal128(18, 1)
    assert not source.new_columns(first, second)


def test_only_the_number_that_needs_room_widens(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("n,price\n1,1.50\n")
    source = open_source(str(path), tmp_path / "spool", schema=None)
    first = source.latest(None)
    source.discover()
    with path.open("a") as out:
        out.write("7,1.239\nnot a number,1.00\n")
    assert source.widen(first, source.latest(first)) == pa.schema(
        [("n", pa.int64()), ("price", pa.decimal128(19, 3))]
    )


def test_a_new_json_field_widens(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n')
    source = open_source(str(path), tmp_path / "spool", schema=None)
    first = source.latest(None)
    source.discover()
    with path.open("a") as out:
        out.write('{"a": 1.5}\n{"a": 1, "extra": {"x": true}}\n')
    second = source.latest(first)
    assert source.new_columns(first, second)
    assert source.widen(first, second) == pa.schema(
        [("a", pa.decimal128(20, 1)), ("extra", pa.struct([("x", pa.bool_())]))]
    )


def test_declared_columns_do_not_widen(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    source = open_source(str(path), tmp_path / "spool", schema=pa.schema([("a", pa.int64())]))
    first = source.latest(None)
    path.write_text("a,b,c\n1.5,2,3\n")
    second = source.latest(first)
    assert not source.new_columns(first, second)
    assert source.widen(first, second) is None
