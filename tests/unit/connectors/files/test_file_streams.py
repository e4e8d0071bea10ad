"""Records that are no rows, and changes that a stream cannot follow."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from files_model import keys, reader_of
from velostream.connectors.file import FileConnector
from velostream.connectors.file.options import FileOptions


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
    assert FileConnector().traits(FileOptions(), table=False, once=False).only_grows
    reader.settle()
    path.write_text("a,b\n1,2\n5,6\n7,8\n")
    assert keys(reader.settle()) == ["1", "3", "5", "7"]
    assert [(bad.raw, bad.reason) for bad in reader.bad] == [
        (b"3,4", "file changed before byte 12; a stream cannot retract rows")
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
    assert reader.bad[-1].reason.endswith("a stream cannot retract rows; 198 more rows of it are not shown")


def test_a_stream_says_that_a_binary_file_was_replaced(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": ["1", "2"], "b": ["x", "x"]}), path)
    reader = reader_of(path, tmp_path, table=False)
    reader.settle()
    pq.write_table(pa.table({"a": ["3"], "b": ["x"]}), path)
    assert keys(reader.settle()) == ["1", "2", "3"]
    assert [bad.reason.partition("; ")[2] for bad in reader.bad] == [
        "a stream cannot retract rows; 2 rows of it are not shown"
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
    assert f"{folder / 'x.csv'} is gone; a stream cannot retract its 2 rows" in caplog.text


def test_what_was_copied_but_not_committed_is_put_right_before_it_is_handed_out(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    reader = reader_of(path, tmp_path)
    reader.settle()
    with path.open("a") as out:
        out.write("3\n")
    # A batch that failed: its range is known to the spool only.
    assert reader.source.latest(reader.offset) != reader.offset
    reader.reopen()
    path.write_text("a,b\n1,2\n3,4\n")
    assert keys(reader.settle()) == ["1", "3"]
    assert reader.bad == []


@pytest.mark.parametrize("shorter", ["", "a", "a,b\n", "a,b\n1,2\n", "a,b\n1,2\n3"])
def test_a_stream_that_saw_a_file_being_rewritten_doubles_nothing(tmp_path, shorter):
    path = tmp_path / "x.csv"
    whole = "a,b\n1,2\n3,4\n5,6\n"
    path.write_text(whole)
    reader = reader_of(path, tmp_path, table=False)
    reader.settle()
    # The writer is held up between truncating the file and writing it for longer than the debounce.
    path.write_text(shorter)
    reader.settle()
    reader.reopen()
    path.write_text(whole + "7,8\n")
    assert keys(reader.settle()) == ["1", "3", "5", "7"]
    assert not reader.bad


def test_a_file_that_begins_anew_is_new_to_a_stream(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    reader = reader_of(path, tmp_path, table=False)
    reader.settle()
    path.write_text("")
    assert keys(reader.settle()) == ["1", "3"]
    path.write_text("a,b\n5,6\n")
    assert keys(reader.settle()) == ["1", "3", "5"]
    assert [bad.raw for bad in reader.bad] == [b"1,2", b"3,4"]
