"""Each file of a folder is decoded as its own name says."""

from __future__ import annotations

import pyarrow as pa
import pytest

from files_model import keys, open_source, reader_of, weighted
from velostream.connectors.files.spool import merges


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("path", ["{}/", "{}/*.{{csv,tsv}}"])
def test_commas_and_tabs_in_one_folder(folder, tmp_path, path, monkeypatch):
    monkeypatch.setattr(merges, "FEWEST", 2)
    (folder / "a.csv").write_text("a,b\n1,x\ty\n")
    (folder / "b.tsv").write_text("a\tb\n2\tx,y\n")
    reader = reader_of(path.format(folder), tmp_path)
    for number in range(3, 9):
        with (folder / "a.csv").open("a") as out:
            out.write(f"{number},x\n")
        with (folder / "b.tsv").open("a") as out:
            out.write(f"{number}\ty\n")
        reader.settle()
        reader.source.commit(reader.offset)
    rows = reader.settle()
    assert not reader.bad
    assert {("1", "x\ty"), ("2", "x,y"), ("8", "x"), ("8", "y")} <= set(rows)
    assert sum(rows.values()) == 14
    (folder / "a.csv").unlink()
    assert keys(reader.settle()) == [*"2345678"]
    (folder / "b.tsv").unlink()
    assert keys(reader.settle()) == []


@pytest.mark.parametrize("beside", ["README.txt", "a.json", None])
def test_tabs_whatever_lies_beside_them(folder, tmp_path, beside):
    if beside:
        (folder / beside).write_text('{"a": "9", "b": "9"}\n')
    (folder / "x.tsv").write_text("a\tb\n1\t2\n")
    reader = reader_of(f"{folder}/", tmp_path)
    assert keys(reader.settle()) == ["1", "9"] if beside == "a.json" else ["1"]
    assert not reader.bad


def test_columns_that_widen_and_bad_rows_of_each(folder, tmp_path):
    (folder / "a.csv").write_text("a,b\n1,2\n")
    (folder / "b.tsv").write_text("a\tb\n3\t4\n")
    source = open_source(f"{folder}/", tmp_path / "spool", schema=None)
    assert source.discover() == pa.schema([("a", pa.int64()), ("b", pa.int64())])
    first = source.latest(None)
    (folder / "c.tsv").write_text("a\tb\tc\n5\t6.5\t7\nbad\n")
    second = source.latest(first)
    assert source.new_columns(first, second)
    wider = source.widen(first, second)
    assert wider is not None
    assert wider.names == ["a", "b", "c"]
    assert pa.types.is_decimal(wider.field("b").type)
    assert [bad.raw for bad in source.bad_rows(first, second)] == [b"bad"]
    assert sorted(row[0] for row in weighted(source, None, second["spool"])) == [1, 3, 5]
