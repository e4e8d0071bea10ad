"""Files that are too large to be held in memory when they change."""

from __future__ import annotations

import pytest

from files_model import keys, reader_of
from refusals import refusal
from velostream.connectors.files.spool import draft
from velostream.connectors.files.watch import edits as rewrite
from velostream.errors import SourceConfigError

ROWS = [f"{number:04d},x\n" for number in range(1000)]


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(rewrite, "COMPARED_BYTES", 5000)
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "".join(ROWS))
    return path


@pytest.fixture
def reads(monkeypatch):
    """The sizes of the lists of records that were held at once."""
    sizes = []
    real = draft.Draft.records

    def records(self, pieces):
        found = real(self, pieces)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(draft.Draft, "records", records)
    return sizes


def test_a_stream_refuses_an_edit_that_it_cannot_follow(path, tmp_path):
    reader = reader_of(path, tmp_path, table=False)
    reader.settle()
    path.write_text(path.read_text().replace("0003,x", "0003,y"))
    for _ in range(2):
        with refusal("source.config", path, why="stream"):
            reader.step()
        reader.reopen()
    path.write_text("a,b\n" + "".join(ROWS) + "new,x\n")
    assert sum(reader.settle().values()) == 1001
    assert not reader.bad


def test_a_stream_refuses_a_few_rows_of_a_large_file(path, tmp_path):
    reader = reader_of(path, tmp_path, table=False, buffer_size="4096")
    reader.settle()
    path.write_text("a,b\n" + "".join(ROWS[-10:]))
    with pytest.raises(SourceConfigError):
        reader.step()


@pytest.mark.parametrize("between", [False, True])
def test_a_large_file_that_is_truncated_and_begins_anew(path, tmp_path, reads, between):
    reader = reader_of(path, tmp_path, table=False, buffer_size="4096")
    reader.settle()
    if between:
        path.write_text("")
        reader.settle()
    path.write_text("a,b\nnew,x\nlast,x\n")
    assert sum(reader.settle().values()) == 1002
    assert reader.bad
    assert max(reads) < 1000
    path.write_text("a,b\nnew,x\nlast,x\nmore,x\n")
    assert sum(reader.settle().values()) == 1003


def test_a_large_file_that_becomes_small_is_not_held_for_a_table(path, tmp_path, reads):
    reader = reader_of(path, tmp_path, buffer_size="4096")
    reader.settle()
    path.write_text("a,b\n0003,x\n")
    assert keys(reader.settle()) == ["0003"]
    assert max(reads, default=0) < 1000


@pytest.mark.parametrize("table", [True, False], ids=["table", "stream"])
@pytest.mark.parametrize("end", ["\n", "y\n", "\nmore,x\n"])
def test_a_last_line_that_grows_is_compared_alone(path, tmp_path, reads, table, end):
    path.write_text(path.read_text() + "last,x")
    reader = reader_of(path, tmp_path, table=table, buffer_size="4096")
    reader.settle()
    reads.clear()
    with path.open("a") as out:
        out.write(end)
    found = reader.settle()
    assert sum(found.values()) == 1001 + (end == "\nmore,x\n") + (end == "y\n" and not table)
    assert ("last", f"x{end.split()[0]}" if end == "y\n" else "x") in found
    assert 0 < max(reads) < 1000


def test_a_large_file_that_becomes_shorter_is_compared_as_far_as_it_goes(path, tmp_path, reads):
    reader = reader_of(path, tmp_path, table=False, buffer_size="4096")
    reader.settle()
    path.write_text("a,b\n" + "".join(ROWS[:5]))
    reader.settle()
    assert max(reads) < 1000
    path.write_text("a,b\n" + "".join(ROWS) + "new,x\n")
    assert sum(reader.settle().values()) == 1001
    assert not reader.bad
