"""A spool stays in few segments, whatever the number of looks that filled it."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime, timedelta
from itertools import count

import pyarrow as pa
import pytest

from files_model import Reader, weighted
from velostream.connectors.files.spool import merges
from velostream.connectors.files.spool.segments import Segment

AB = pa.schema([("a", pa.string()), ("b", pa.string())])


def append(path, text):
    with path.open("ab") as out:
        out.write(text)


def reader_of(path, tmp_path, **how):
    return Reader(str(path), tmp_path / "spool", schema=AB, **how)


def follow(reader, path, texts):
    for text in texts:
        append(path, text)
        assert reader.step()
        reader.source.commit(reader.offset)


def test_many_appends_make_few_segments_and_one_piece(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n")
    reader = reader_of(path, tmp_path)
    follow(reader, path, (b"%d,x\n" % number for number in range(500)))
    live = reader.source.spool.live
    assert len(live) < 30
    assert len(reader.source.spool.files[str(path)].pieces) == len(live)
    assert len(list(reader.source.spool.segment_folder.iterdir())) < 300
    assert sum(reader.settle().values()) == 500
    reader.reopen()
    assert sum(reader.settle().values()) == 500
    path.write_bytes(path.read_bytes().replace(b"\n250,x\n", b"\n250,y\n"))
    first = reader.offset
    assert sum(reader.settle().values()) == 500
    changes = reader.source.spool.changes(first["spool"], reader.offset["spool"])
    assert sorted((segment.rows, weight) for segment, weight in changes) == [(1, -1), (1, 1)]


@pytest.mark.parametrize(
    "texts",
    [
        [b'1,"x\ny"\n', b"2,x\n", b"3,\x1e\n", b"4,z\r\n", b"\n\n5,z\n"],
        [b"1,x\r\n", b"2,x\r\n"],
        [b"1,x\n\xff,y\n", b"2,x\n"],
    ],
    ids=["separators", "line ends", "gaps"],
)
def test_records_of_any_kind(tmp_path, monkeypatch, texts):
    monkeypatch.setattr(merges, "FEWEST", 2)
    path = tmp_path / "x.csv"
    path.write_text("a,b\n")
    reader = reader_of(path, tmp_path)
    follow(reader, path, texts * 4)
    before = weighted(reader.source, None, reader.offset["spool"], placed=True)
    reader.settle()
    assert len(reader.source.spool.live) < len(texts) * 2
    reader.reopen()
    assert weighted(reader.source, None, reader.offset["spool"], placed=True) == before


def test_positions_after_the_committed_one_are_read_as_before(tmp_path, monkeypatch):
    monkeypatch.setattr(merges, "FEWEST", 2)
    path = tmp_path / "x.csv"
    path.write_text("a,b\n")
    reader = reader_of(path, tmp_path)
    positions = []
    for number in range(6):
        append(path, b"%d,x\n" % number)
        reader.step()
        positions.append(reader.offset["spool"])
    path.write_bytes(path.read_bytes().replace(b"1,x", b"1,y"))
    reader.step()
    positions.append(reader.offset["spool"])
    ends = positions[3:]

    def seen():
        source = reader.source
        snapshots = [weighted(source, None, end, placed=True) for end in ends]
        return snapshots, [
            weighted(source, one, other, placed=True) for one in ends for other in ends if one < other
        ]

    before = seen()
    live = len(reader.source.spool.live)
    reader.source.commit({"spool": ends[0]})
    assert len(reader.source.spool.live) < live
    assert seen() == before
    reader.reopen()
    assert seen() == before
    reader.source.spool.compact(ends[0])
    assert seen() == before
    reader.reopen()
    assert seen() == before
    reader.settle()


def test_an_inserted_record_keeps_pieces_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(merges, "FEWEST", 2)
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,x\n3,x\n")
    reader = reader_of(path, tmp_path)
    reader.step()
    path.write_text("a,b\n1,x\n2,x\n3,x\n")
    reader.step()
    for _ in range(3):
        reader.source.commit(reader.offset)
    assert len(reader.source.spool.live) == 1
    path.write_text("a,b\n1,x\n2,x\n4,x\n")
    assert sorted(row[0] for row in reader.settle()) == ["1", "2", "4"]
    path.write_text("a,b\n1,x\n4,x\n")
    assert sorted(row[0] for row in reader.settle()) == ["1", "4"]


def test_a_stream_is_merged_too(tmp_path, monkeypatch):
    monkeypatch.setattr(merges, "FEWEST", 2)
    path = tmp_path / "x.csv"
    path.write_text("a,b\n")
    reader = reader_of(path, tmp_path, table=False)
    for number in range(10):
        path.write_text(f"a,b\n{number},x\n")
        reader.step()
        reader.source.commit(reader.offset)
    assert len(reader.source.spool.live) < 5
    assert sum(reader.settle().values()) == 10


def test_a_full_disk_leaves_segments_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(merges, "FEWEST", 2)
    path = tmp_path / "x.csv"
    path.write_text("a,b\n")
    reader = reader_of(path, tmp_path)
    for number in range(3):
        append(path, b"%d,x\n" % number)
        reader.step()
    files = sorted(reader.source.spool.segment_folder.iterdir())
    real = os.fsync
    for failing in range(1, 5):
        calls = count(1)

        def full(handle, calls=calls, failing=failing):
            if next(calls) == failing:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(handle)

        monkeypatch.setattr(os, "fsync", full)
        reader.source.commit(reader.offset)
        monkeypatch.setattr(os, "fsync", real)
        assert sorted(reader.source.spool.segment_folder.iterdir()) == files
        assert sum(reader.settle().values()) == 3
    reader.source.commit(reader.offset)
    assert len(reader.source.spool.live) == 1
    reader.reopen()
    assert sum(reader.settle().values()) == 3


def test_the_number_of_segments_is_logarithmic_and_the_work_too(rng):
    live: list[Segment | None] = []
    written = 0
    for number in range(20_000):
        size = rng.choice([10, 100, 10_000])
        live.append(Segment(f"{number}", "text", 1, size, 0, ()))
        chosen = merges.choose(live)
        if chosen:
            first = live.index(chosen[0])
            total = sum(segment.size for segment in chosen)
            written += total
            live[first : first + len(chosen)] = [Segment(chosen[0].name, "text", 1, total, 0, ())]
    whole = sum(segment.size for segment in live)
    assert len(live) < 80
    assert written < 25 * whole


def test_other_columns_and_segments_in_use_are_not_crossed():
    def segment(name, columns=("a",), kind="text"):
        return Segment(name, kind, 1, 10, 0, (), columns)

    names = [f"{number}" for number in range(6)]
    some = [segment(name) for name in names]
    assert merges.choose([*some, None, *some]) == []
    assert merges.choose([*some, segment("x", ("b",)), *some]) == []
    assert merges.choose([*some, segment("x", kind="parquet"), *some]) == []
    assert merges.choose([*some, *some[:2], None]) == [*some, *some[:2]]


def test_instants_are_kept_to_the_microsecond(tmp_path, monkeypatch):
    monkeypatch.setattr(merges, "FEWEST", 2)
    path = tmp_path / "x.csv"
    path.write_text("a,b\n")
    begin = datetime(2026, 9, 27, tzinfo=UTC)
    # The first tick is taken as the source is opened.
    ticks = count(-1)
    reader = reader_of(path, tmp_path, clock=lambda: begin + timedelta(microseconds=next(ticks)))
    follow(reader, path, (b"%d,x\n" % number for number in range(9)))
    assert any(segment.timed for segment in reader.source.spool.live.values())
    found = weighted(reader.source, None, reader.offset["spool"], placed=True)
    assert sorted(row[2] for row in found) == [begin + timedelta(microseconds=n) for n in range(9)]
