"""What a file source does when files change, in the situations that random changes do not reach."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from files_model import AB, keys, open_source, reader_of
from velostream.connectors import registry
from velostream.connectors.base import SourceContext
from velostream.connectors.file import folder as local
from velostream.connectors.files.spool import draft
from velostream.connectors.files.watch import edits as rewrite
from velostream.connectors.files.watch import growth, look, tracker
from velostream.connectors.properties import build_options
from velostream.errors import StorageError
from velostream.model.uri import Uri

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.sampled(3)


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


def written_again_meanwhile(monkeypatch, path: Path, moment: str) -> list[str]:
    """Empty a file once, as an editor does that is about to write it anew; holds the moment when done."""
    done: list[str] = []
    owner, name = (local.Folder, "look") if moment == "listed" else (look, "read_at")
    real = getattr(owner, name)

    def interrupted(*given):
        found = real(*given) if moment == "listed" else None
        if not done:
            path.write_text("")
            done.append(moment)
        return found if moment == "listed" else real(*given)

    monkeypatch.setattr(owner, name, interrupted)
    return done


@pytest.mark.parametrize("moment", ["listed", "opened"])
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("x.csv", "a,b\n1,2\n3,4\n", "a,b\n1,2\n3,5\n"), ("x.json", '[{"a":"1"}]', '[{"a":"1"},{"a":"2"}]')],
)
def test_a_file_that_is_emptied_while_it_is_looked_at_is_not_empty(
    tmp_path, monkeypatch, moment, name, old, new
):
    path, clock = tmp_path / name, Clock()
    path.write_text(old)
    os.utime(path, (0, 0))
    source = slow_source(path, tmp_path, clock)
    first = source.latest(None)
    path.write_text(new)
    os.utime(path, (60, 60))
    done = written_again_meanwhile(monkeypatch, path, moment)
    assert source.latest(first) == first
    assert done
    path.write_text(new)
    clock.now = datetime.now(UTC) + timedelta(seconds=1)
    second = source.latest(first)
    changes = [
        (row["b"] or row["a"], row["_weight"])
        for batch in source.read("spool", first["spool"], second["spool"])
        for row in batch.to_pylist()
    ]
    assert sorted(changes) == ([("4", -1), ("5", 1)] if name == "x.csv" else [("2", 1)])


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
    assert not reader.source.spool.changes(first["spool"], reader.offset["spool"])


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
    assert sorted((s.rows, w) for s, w in source.spool.changes(first["spool"], second["spool"])) == [
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
    changes = reader.source.spool.changes(first["spool"], reader.offset["spool"])
    assert sum(segment.rows for segment, weight in changes if weight < 0) == 3
    assert sum(segment.rows for segment, weight in changes if weight > 0) == 3
    spool = reader.source.spool
    records = draft.Draft(spool, 0, 1).records(spool.files[str(path)].pieces)
    assert [record.decode() for record in records] == lines


def test_a_large_load_comes_in_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(growth, "STEP_BYTES", 20_000)
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
    monkeypatch.setattr(tracker, "VERIFIED_STEP", 10_000)
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
    while not reader.step() and reader.source.unread:
        looks += 1
    assert (0 if place == 0.01 else 2) <= looks < 12
    assert ("other" in keys(reader.settle())) == (place is not None)
    assert reader.source.settled()
    opened = []
    monkeypatch.setattr(local.Folder, "open", lambda _, path: opened.append(path))
    assert not reader.step()
    assert opened == [], "a file that was compared is compared again"


def test_two_files_that_were_known_by_one_inode(tmp_path):
    """A replacement with the same content is not written down, and systems use inodes again."""
    folder = tmp_path / "in"
    folder.mkdir()
    first, second, third = (folder / name for name in ("a.csv", "b.csv", "c.csv"))
    first.write_text("a,b\n1,2\n")
    reader = reader_of(folder / "*.csv", tmp_path)
    reader.settle()
    os.link(first, folder / ".kept")
    (folder / "new.tmp").write_text("a,b\n1,2\n")
    (folder / "new.tmp").replace(first)
    (folder / ".kept").rename(second)
    assert keys(reader.settle()) == ["1", "1"]
    reader.reopen()
    second.rename(third)
    first.unlink()
    assert keys(reader.settle()) == ["1"]


def test_a_renamed_file_when_the_disk_is_full(tmp_path, monkeypatch):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "x.csv").write_text("a,b\n1,2\n")
    reader = reader_of(folder / "*.csv", tmp_path)
    reader.settle()
    (folder / "x.csv").rename(folder / "y.csv")

    def full(entry):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(reader.source.spool, "append", full)
        with pytest.raises(StorageError):
            reader.step()
    (folder / "y.csv").unlink()
    assert keys(reader.settle()) == []


def test_a_header_that_is_seen_before_it_is_finished(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    reader = reader_of(path, tmp_path)
    reader.settle()
    path.write_text("a,b,")
    assert keys(reader.settle()) == []
    path.write_text("a,b,c\n1,2,3\n")
    assert keys(reader.settle()) == ["1"]
