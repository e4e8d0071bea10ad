"""What is on disk survives a full disk, torn entries and restarts."""

from __future__ import annotations

import errno
import gzip
import os
from itertools import count

import pytest

from files_model import TEXTS, keys, open_source, reader_of
from refusals import refusal
from velostream.connectors.files.spool import pending_files as written
from velostream.connectors.files.spool import spool
from velostream.disk import journal


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    reader = reader_of(path, tmp_path)
    reader.settle()
    with path.open("a") as out:
        out.write("3,4\n")
    real = os.fsync
    for module, failing in ((written.os, 1), (journal.os, 2)):
        calls = iter(range(100))

        def full(handle, calls=calls, failing=failing):
            if next(calls) + 1 >= failing:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(handle)

        monkeypatch.setattr(module, "fsync", full)
        with refusal("data_dir.storage", why="no space left on device") as caught:
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
    with refusal("data_dir.corrupt", "journal", why="at byte"):
        reader.reopen()


def test_committed_ranges_are_forgotten_but_live_rows_stay(tmp_path):
    path = tmp_path / "x.csv"
    reader = reader_of(path, tmp_path)
    for number in range(5):
        path.write_text(f"a,b\n1,2\n{number},x\n")
        reader.settle()
    kept = reader.source.spool
    before = len(list(kept.segment_folder.iterdir()))
    kept.compact(reader.offset["spool"])
    assert len(list(kept.segment_folder.iterdir())) < before
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


@pytest.mark.parametrize("compacted", [False, True])
def test_a_damaged_file_is_reported_once(tmp_path, compacted):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "x.csv").write_text("a,b\n1,2\n")
    damaged = folder / "y.csv.gz"
    damaged.write_bytes(b"garbage")
    reader = reader_of(f"{folder}/", tmp_path)
    reader.settle()
    for _ in range(3):
        if compacted:
            reader.source.spool.compact(reader.offset["spool"])
        reader.reopen()
        assert keys(reader.settle()) == ["1"]
        assert [bad.partition for bad in reader.bad] == [str(damaged)]
    damaged.write_bytes(b"other garbage")
    reader.settle()
    assert len(reader.bad) == 2
    damaged.write_bytes(gzip.compress(b"a,b\n3,4\n"))
    assert keys(reader.settle()) == ["1", "3"]
    damaged.write_bytes(b"garbage again")
    reader.settle()
    reader.reopen()
    assert keys(reader.settle()) == ["1", "3"]
    assert len(reader.bad) == 3
    damaged.unlink()
    assert keys(reader.settle()) == ["1"]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_full_disk_when_the_journal_is_shortened(tmp_path, monkeypatch, caplog, failing):
    monkeypatch.setattr(spool, "COMPACT_ENTRIES", 1)
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    reader = reader_of(path, tmp_path)
    reader.settle()
    real, calls = os.fsync, count(1)

    def full(handle):
        if next(calls) >= failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        reader.source.commit(reader.offset)
    assert "could not be shortened: file" in caplog.text
    assert sorted(entry.name for entry in (tmp_path / "spool").iterdir()) == ["journal", "segments"]
    path.write_text("a,b\n1,2\n3,4\n")
    assert keys(reader.settle()) == ["1", "3"]
    reader.reopen()
    assert keys(reader.settle()) == ["1", "3"]
    reader.source.commit(reader.offset)
    head, _ = (tmp_path / "spool" / "journal").read_text().splitlines()
    assert '"journal":' in head, "whose it is, and all that is there"
