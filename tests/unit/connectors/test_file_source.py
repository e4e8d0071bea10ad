"""What a file source does in each situation that the random changes do not reach."""

from __future__ import annotations

import errno
import gzip
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files_model import TEXTS, Reader, open_source

from velostream.connectors import registry
from velostream.connectors.base import SourceContext
from velostream.connectors.file import draft, journal, rewrite, tracker
from velostream.connectors.properties import build_options
from velostream.errors import CorruptDataError, SourceConfigError, SourceMissingError, SourceStorageError
from velostream.model.uri import Uri

if TYPE_CHECKING:
    from collections import Counter

AB = pa.schema([("a", pa.string()), ("b", pa.string())])


def keys(rows: Counter) -> list[str]:
    return sorted(row[0] for row in rows.elements())


def reader_of(path: Path | str, tmp_path: Path, **how) -> Reader:
    return Reader(str(path), tmp_path / "spool", schema=AB, **how)


# --- what is there -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"", []),
        (b"a,b\n", []),
        (b"a,b", []),
        (b"a,b\n1,2", ["1"]),
        (b"a,b\r\n1,2\r\n3,4\r\n", ["1", "3"]),
        (b"a,b\n1,2\r\n3,4\n", ["1", "3"]),
        (b"\xef\xbb\xbfa,b\n1,2\n", ["1"]),
        ("a,b\n1,é\n".encode("utf-16"), ["1"]),
        (b"a,b\n\n1,2\n\n\n3,4\n\n", ["1", "3"]),
        (b'a,b\n"x\ny",2\n3,4\n', ["3", "x\ny"]),
        (b'a,b\n5" pipe,2\n3,4\n', ['5" pipe', "3"]),
        (b'a,b\n1,"open\n3,4\n', ["1", "3"]),
        (b"b,a\n2,1\n", ["1"]),
    ],
)
def test_contents(tmp_path, content, rows):
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    assert keys(reader_of(path, tmp_path, once=True).settle()) == sorted(rows)


@pytest.mark.parametrize("suffix", [".csv.gz", ".csv.zst"])
def test_compressed_files_grow_and_change(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"

    def pack(text: str) -> bytes:
        if suffix.endswith("gz"):
            return gzip.compress(text.encode())
        return pa.compress(text.encode(), codec="zstd", asbytes=True)

    path.write_bytes(pack("a,b\n1,2\n3,4\n"))
    reader = reader_of(path, tmp_path)
    assert keys(reader.settle()) == ["1", "3"]
    if suffix.endswith("gz"):
        with path.open("ab") as out:
            out.write(pack("5,6\n"))
        first = reader.offset
        assert keys(reader.settle()) == ["1", "3", "5"]
        assert [
            (s.rows, w) for s, w in reader.source._spool.changes(first["spool"], reader.offset["spool"])
        ] == [(1, 1)]
    path.write_bytes(pack("a,b\n1,2\n"))
    assert keys(reader.settle()) == ["1"]
    path.write_bytes(pack("a,b\n1,2\n3,3\n")[:-6])
    assert keys(reader.settle()) == ["1"]
    assert "damaged or unfinished" in reader.bad[-1].reason
    path.write_bytes(pack("a,b\n1,2\n3,3\n"))
    assert keys(reader.settle()) == ["1", "3"]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b'{"a": "1"}\n{"a": "2", "b": "x"}\n', ["1", "2"]),
        (b'[{"a": "1"}, {"a": "2",\n "b": "x,]"}]', ["1", "2"]),
        (b'{\n  "a": "1",\n  "b": "x"\n}\n', ["1"]),
        (b'{"a": "1"}', ["1"]),
        (b"[]", []),
        (b"  \n", []),
    ],
)
def test_json_files(tmp_path, content, rows):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    assert keys(reader_of(path, tmp_path, once=True).settle()) == rows


def test_a_json_document_changes_by_its_elements(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('[{"a": "1"}, {"a": "2"}, {"a": "3"}]')
    reader = reader_of(path, tmp_path)
    reader.settle()
    first = reader.offset
    path.write_text('[{"a": "1"},\n {"a": "9"}, {"a": "3"}]')
    assert keys(reader.settle()) == ["1", "3", "9"]
    changes = reader.source._spool.changes(first["spool"], reader.offset["spool"])
    assert sorted((segment.rows, weight) for segment, weight in changes) == [(1, -1), (1, 1)]


def test_a_folder_of_mixed_names(tmp_path):
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    (folder / "x.csv").write_text("a,b\n1,2\n")
    (folder / "deep" / "y.jsonl").write_text('{"a": "3"}\n')
    (folder / ".hidden.csv").write_text("a,b\n8,8\n")
    (folder / "z.csv.tmp").write_text("a,b\n9,9\n")
    (folder / "readme.txt").write_text("nothing to see")
    assert keys(reader_of(f"{folder}/", tmp_path).settle()) == ["1", "3"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.csv", ["a1.csv", "a2.csv"]),
        ("a?.csv", ["a1.csv", "a2.csv"]),
        ("a[!1].csv", ["a2.csv"]),
        ("**/*.csv", ["a1.csv", "a2.csv", "a3.csv"]),
        ("*/a3.csv", ["a3.csv"]),
        ("a{1,3}.csv", ["a1.csv"]),
        ("**/a{1,3}.{csv,json}", ["a1.csv", "a3.csv"]),
    ],
)
def test_patterns(tmp_path, pattern, names):
    from velostream.connectors.file.paths import FileSet

    (tmp_path / "sub").mkdir()
    for name in ("a1.csv", "a2.csv", "b.txt", "sub/a3.csv"):
        (tmp_path / name).write_text("")
    assert [Path(p).name for p in FileSet(f"{tmp_path}/{pattern}").list()] == names


# --- watching ------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


def slow_source(path: Path, tmp_path: Path, clock: Clock, **properties: str):
    found = registry.by_scheme("file")
    options = build_options(found.options, {"path": str(path), **properties}, "file")
    context = SourceContext(spool=tmp_path / "spool", schema=AB, declared=True, clock=clock)
    return found.connector.source(Uri(f"file://{path}"), options, context)


def test_an_unfinished_line_waits_until_the_file_is_quiet(tmp_path):
    path, clock = tmp_path / "x.csv", Clock()
    path.write_text("a,b\n1,2\n3,")
    source = slow_source(path, tmp_path, clock)
    first = source.latest(None)
    assert [b.to_pydict()["a"] for b in source.read("spool", None, first["spool"])] == [["1"]]
    assert source.latest(first) == first
    clock.now += timedelta(seconds=1)
    second = source.latest(first)
    assert [b.to_pydict()["a"] for b in source.read("spool", first["spool"], second["spool"])] == [["3"]]
    with path.open("a") as out:
        out.write("4\n")
    third = source.latest(second)
    changes = [
        (b.to_pydict()["b"], b.to_pydict()["_weight"])
        for b in source.read("spool", second["spool"], third["spool"])
    ]
    assert sorted(changes, key=str) == [(["4"], [1]), ([None], [-1])]


def test_an_edit_waits_until_the_file_is_quiet(tmp_path):
    path, clock = tmp_path / "x.csv", Clock()
    path.write_text("a,b\n1,2\n")
    source = slow_source(path, tmp_path, clock)
    first = source.latest(None)
    path.write_text("")
    assert source.latest(first) == first
    path.write_text("a,b\n1,3\n")
    assert source.latest(first) == first
    clock.now += timedelta(seconds=1)
    second = source.latest(first)
    assert [
        (b.to_pydict()["b"], b.to_pydict()["_weight"])
        for b in source.read("spool", first["spool"], second["spool"])
    ]


def test_without_watch_it_ends(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    reader = reader_of(path, tmp_path, watch="false")
    assert keys(reader.settle()) == ["1"]
    assert reader.source.finished(reader.offset)
    path.write_text("a,b\n1,2\n3,4\n")
    assert not reader.step()
    reader.reopen()
    assert keys(reader.settle()) == ["1", "3"]


def test_a_single_file_that_vanishes_is_an_outage(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    reader = reader_of(path, tmp_path)
    reader.settle()
    assert reader.source.health() == ("healthy", None)
    path.unlink()
    assert keys(reader.settle()) == ["1", "3"]
    assert reader.source.health() == ("file not found", f"{path} does not exist")
    path.write_text("a,b\n1,2\n5,6\n")
    assert keys(reader.settle()) == ["1", "5"]
    assert reader.source.health() == ("healthy", None)


def test_a_folder_that_vanishes_is_an_outage(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "x.csv").write_text("a,b\n1,2\n")
    (folder / "y.csv").write_text("a,b\n3,4\n")
    reader = reader_of(folder / "*.csv", tmp_path)
    reader.settle()
    folder.rename(tmp_path / "away")
    assert keys(reader.settle()) == ["1", "3"]
    assert reader.source.health()[0] == "file not found"
    (tmp_path / "away").rename(folder)
    (folder / "y.csv").unlink()
    assert keys(reader.settle()) == ["1"]


def test_a_renamed_file_keeps_its_rows(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "x.csv").write_text("a,b\n1,2\n")
    reader = reader_of(folder / "*.csv", tmp_path)
    reader.settle()
    first = reader.offset
    (folder / "x.csv").rename(folder / "y.csv")
    reader.settle()
    assert not reader.source._spool.changes(first["spool"], reader.offset["spool"])


def test_one_edited_line_of_many_costs_two_rows(tmp_path):
    path = tmp_path / "x.csv"
    lines = [f"{number},x" for number in range(50_000)]
    path.write_text("\n".join(["a,b", *lines, ""]))
    source = open_source(str(path), tmp_path / "spool", schema=AB, buffer_size="65536")
    first = source.latest(None)
    while (later := source.latest(first)) != first:
        first = later
    lines[20_000] = "20000,y"
    path.write_text("\n".join(["a,b", *lines, ""]))
    second = source.latest(first)
    assert sorted((s.rows, w) for s, w in source._spool.changes(first["spool"], second["spool"])) == [
        (1, -1),
        (1, 1),
    ]


def test_distant_edits_of_one_save_cost_their_own_rows(tmp_path):
    path = tmp_path / "x.csv"
    lines = [f"{number},x" for number in range(50_000)]
    path.write_text("\n".join(["a,b", *lines, ""]))
    reader = reader_of(path, tmp_path, buffer_size="65536")
    reader.settle()
    first = reader.offset
    lines[100] = "100,y"
    lines.insert(20_000, "new,y")
    del lines[40_000:40_002]
    lines.append("end,y")
    path.write_text("\n".join(["a,b", *lines, ""]))
    assert sum(reader.settle().values()) == 50_000
    changes = reader.source._spool.changes(first["spool"], reader.offset["spool"])
    assert sum(segment.rows for segment, weight in changes if weight < 0) == 3
    assert sum(segment.rows for segment, weight in changes if weight > 0) == 3
    spool = reader.source._spool
    records = draft.Draft(spool, 0, 1).records(spool.files[str(path)].pieces)
    assert [record.decode() for record in records] == lines


def test_a_large_load_comes_in_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(tracker, "STEP_BYTES", 20_000)
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "".join(f"{number},x\n" for number in range(20_000)))
    reader = reader_of(path, tmp_path, buffer_size="10000")
    steps = 0
    while reader.step():
        steps += 1
    assert steps > 5
    assert sum(reader.settle().values()) == 20_000


def test_a_file_too_large_to_compare_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(rewrite, "COMPARED_BYTES", 10)
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n3,4\n5,6\n")
    reader = reader_of(path, tmp_path)
    reader.settle()
    path.write_text("a,b\n1,2\n3,9\n5,6\n")
    assert keys(reader.settle()) == ["1", "3", "5"]


def test_an_edit_of_the_same_size_and_time_is_found_after_a_restart(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    os.utime(path, ns=(10**18, 10**18))
    reader = reader_of(path, tmp_path)
    reader.settle()
    with path.open("r+b") as out:
        out.write(b"a,b\n7,2\n")
    os.utime(path, ns=(10**18, 10**18))
    reader.reopen()
    assert keys(reader.settle()) == ["7"]


@pytest.mark.parametrize("place", [0.01, 0.5, 0.99, None])
def test_a_large_file_is_compared_in_steps_after_a_restart(tmp_path, monkeypatch, place):
    monkeypatch.setattr(tracker, "_VERIFIED_STEP", 10_000)
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "".join(f"{number:05d},x\n" for number in range(10_000)))
    os.utime(path, ns=(10**18, 10**18))
    reader = reader_of(path, tmp_path, buffer_size="4096")
    reader.settle()
    if place is not None:
        with path.open("r+b") as out:
            out.seek(4 + 8 * int(10_000 * place))
            out.write(b"other")
        os.utime(path, ns=(10**18, 10**18))
    reader.reopen()
    looks = 0
    while not reader.step() and reader.source._tracker.unread:
        looks += 1
    assert (0 if place == 0.01 else 2) <= looks < 12
    assert ("other" in keys(reader.settle())) == (place is not None)
    assert reader.source.settled()
    assert reader.source._tracker._done


def test_ten_thousand_small_files(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(10_000):
        (folder / f"{number}.csv").write_text(f"a,b\n{number},x\n")
        os.utime(folder / f"{number}.csv", (1, 1))
    reader = reader_of(folder / "*.csv", tmp_path)
    assert sum(reader.settle().values()) == 10_000
    assert len(reader.source._spool.live) <= 2
    begin = time.process_time()
    assert not reader.step()
    assert time.process_time() - begin < 1
    (folder / "5000.csv").write_text("a,b\nnew,x\n")
    (folder / "6000.csv").unlink()
    first = reader.offset
    assert sum(reader.settle().values()) == 9_999
    changes = reader.source._spool.changes(first["spool"], reader.offset["spool"])
    assert sum(segment.rows for segment, _ in changes) == 3


# --- rows that are none --------------------------------------------------------------------------------


def test_invalid_utf8_is_set_aside_with_its_bytes(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"a,b\n1,2\n\xff\xfe,3\n4,5\n")
    reader = reader_of(path, tmp_path)
    assert keys(reader.settle()) == ["1", "4"]
    (bad,) = reader.bad
    assert (bad.raw, bad.offset, bad.partition) == (b"\xff\xfe,3", "8", str(path))
    assert "UTF-8" in bad.reason
    assert reader.source.has_bad_rows(None, reader.offset)
    with path.open("ab") as out:
        out.write(b"6,7\n")
    reader.settle()
    assert len(reader.bad) == 1


def test_a_stream_cannot_take_rows_back(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    reader = reader_of(path, tmp_path, table=False)
    assert reader.source.only_grows
    reader.settle()
    path.write_text("a,b\n1,2\n5,6\n7,8\n")
    assert keys(reader.settle()) == ["1", "3", "5", "7"]
    assert [(bad.raw, bad.reason) for bad in reader.bad] == [
        (b"3,4", "file changed before byte 12; a stream cannot take rows back")
    ]


def test_a_stream_says_how_many_rows_it_could_not_take_back(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "".join(f"{number},x\n" for number in range(1200)))
    reader = reader_of(path, tmp_path, table=False)
    reader.settle()
    path.write_text("a,b\n0,x\n1199,x\n")
    assert sum(reader.settle().values()) == 1200
    assert [bad.raw for bad in reader.bad[:-1]] == [b"%d,x" % number for number in range(1, 1001)]
    assert reader.bad[-1].raw == b""
    assert reader.bad[-1].reason.endswith("a stream cannot take rows back; 198 more rows of it are not shown")


def test_a_stream_says_that_a_binary_file_was_replaced(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": ["1", "2"], "b": ["x", "x"]}), path)
    reader = reader_of(path, tmp_path, table=False)
    reader.settle()
    pq.write_table(pa.table({"a": ["3"], "b": ["x"]}), path)
    assert keys(reader.settle()) == ["1", "2", "3"]
    assert [bad.reason.partition("; ")[2] for bad in reader.bad] == [
        "a stream cannot take rows back; 2 rows of it are not shown"
    ]


def test_a_file_that_leaves_a_stream_is_logged(tmp_path, caplog):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "x.csv").write_text("a,b\n1,2\n3,4\n")
    (folder / "y.csv").write_text("a,b\n5,6\n")
    reader = reader_of(folder / "*.csv", tmp_path, table=False)
    reader.settle()
    (folder / "x.csv").unlink()
    assert keys(reader.settle()) == ["1", "3", "5"]
    assert not reader.bad
    assert f"{folder / 'x.csv'} is gone; a stream cannot take its 2 rows back" in caplog.text


# --- columns -------------------------------------------------------------------------------------------


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


# --- what is missing -----------------------------------------------------------------------------------


def test_a_missing_file_says_what_to_do(tmp_path):
    (tmp_path / "orders.csv").write_text("")
    with pytest.raises(SourceMissingError) as caught:
        open_source(str(tmp_path / "order.csv"), tmp_path / "spool").check()
    assert str(caught.value).splitlines() == [
        f'file "{tmp_path}/order.csv" does not exist',
        "  1. check the path",
        '  2. wait for it:         WITH ("file.wait.timeout" = "30s")',
        '  3. start with none:     WITH ("file.create.empty" = "true")',
        f'  4. did you mean "{tmp_path}/orders.csv"?',
    ]


def test_a_pattern_without_match_says_where_it_looked(tmp_path):
    (tmp_path / "orders.csv").write_text("")
    with pytest.raises(SourceMissingError) as caught:
        open_source(str(tmp_path / "app-*.json"), tmp_path / "spool").check()
    assert str(caught.value).splitlines() == [
        f'no file matches "{tmp_path}/app-*.json"',
        f'  1. check the pattern: looked in "{tmp_path}", which holds orders.csv, spool',
        '  2. wait for a match:    WITH ("file.wait.timeout" = "30s")',
    ]


def test_create_empty_and_unknown_formats(tmp_path):
    path = tmp_path / "deep" / "x.csv"
    source = open_source(str(path), tmp_path / "spool", file_create_empty="true")
    source.check()
    assert path.read_bytes() == b""
    with pytest.raises(SourceMissingError, match="holds no row yet"):
        open_source(str(path), tmp_path / "other", schema=None).discover()
    (tmp_path / "x.what").write_text("a")
    with pytest.raises(SourceConfigError, match="is not told by its name"):
        open_source(str(tmp_path / "x.what"), tmp_path / "third").check()


# --- durability ----------------------------------------------------------------------------------------


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    reader = reader_of(path, tmp_path)
    reader.settle()
    with path.open("a") as out:
        out.write("3,4\n")
    real = os.fsync
    for module, failing in ((draft.os, 1), (journal.os, 2)):
        calls = iter(range(100))

        def full(handle, calls=calls, failing=failing):
            if next(calls) + 1 >= failing:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(handle)

        monkeypatch.setattr(module, "fsync", full)
        with pytest.raises(SourceStorageError, match="no space left on device") as caught:
            reader.step()
        assert caught.value.retryable
        monkeypatch.setattr(module, "fsync", real)
    assert len(list((tmp_path / "spool" / "segments").iterdir())) == 1
    reader.reopen()
    assert keys(reader.settle()) == ["1", "3"]


def test_a_torn_journal_entry_is_cut_off_and_a_damaged_one_is_an_error(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    reader = reader_of(path, tmp_path)
    reader.settle()
    entries = tmp_path / "spool" / "journal"
    whole = entries.read_bytes()
    entries.write_bytes(whole + b"00000000 {half")
    reader.reopen()
    assert entries.read_bytes() == whole
    path.write_text("a,b\n1,2\n3,4\n")
    assert keys(reader.settle()) == ["1", "3"]
    whole = entries.read_bytes()
    entries.write_bytes(whole.replace(b'"position":1', b'"position":7', 1))
    with pytest.raises(CorruptDataError, match="is damaged at byte 0"):
        reader.reopen()


def test_committed_ranges_are_forgotten_but_live_rows_stay(tmp_path):
    path = tmp_path / "x.csv"
    reader = reader_of(path, tmp_path)
    for number in range(5):
        path.write_text(f"a,b\n1,2\n{number},x\n")
        reader.settle()
    spool = reader.source._spool
    before = len(list(spool.segment_folder.iterdir()))
    spool.compact(reader.offset["spool"])
    assert len(list(spool.segment_folder.iterdir())) < before
    reader.reopen()
    assert keys(reader.settle()) == ["1", "4"]
    path.write_text("a,b\n4,x\n")
    assert keys(reader.settle()) == ["4"]


def test_system_columns_stay_the_same_when_a_file_shifts(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    source = open_source(str(path), tmp_path / "spool", schema=TEXTS)
    first = source.latest(None)
    path.write_text("a,b\n0,0\n1,2\n3,4\n")
    second = source.latest(first)
    path.write_text("a,b\n0,0\n1,2\n")
    third = source.latest(second)

    def offsets(start, end):
        return [
            (row["a"], row["_offset"], row["_weight"])
            for batch in source.read("spool", start and start["spool"], end["spool"])
            for row in batch.to_pylist()
        ]

    assert offsets(None, first) == [("1", 4, 1), ("3", 8, 1)]
    assert offsets(second, third) == [("3", 8, -1)]
