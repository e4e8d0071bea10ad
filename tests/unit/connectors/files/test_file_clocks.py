"""Clocks that are put back, and files that say they are from the future."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest

from files_model import AB, open_source
from velostream.connectors.files.watch import tracker


class Clock:
    def __init__(self) -> None:
        self.now = datetime.now(UTC) + timedelta(seconds=10)

    def __call__(self) -> datetime:
        return self.now


def source_of(path, tmp_path, clock, **how):
    return open_source(str(path), tmp_path / "spool", schema=AB, clock=clock, **how)


def instants(source, end):
    rows = [row for batch in source.read("spool", None, end["spool"]) for row in batch.to_pylist()]
    return [row["a"] for row in sorted(rows, key=lambda row: row["_timestamp"])]


@pytest.mark.parametrize("restart", [None, "merged", "compacted"])
def test_rows_are_in_the_order_of_reading(tmp_path, restart):
    path, clock = tmp_path / "x.csv", Clock()
    path.write_text("a,b\n")
    source = source_of(path, tmp_path, clock)
    offset = None
    for number in range(9):
        with path.open("a") as out:
            out.write(f"{number},x\n")
        offset = source.latest(offset)
        clock.now -= timedelta(hours=1)
        if restart and number == 7:
            source.commit(offset)
            assert len(source.spool.live) == 1
            if restart == "compacted":
                source.spool.compact(offset["spool"])
            source = source_of(path, tmp_path, clock)
    assert instants(source, offset) == [str(number) for number in range(9)]


def test_waits_go_on_when_the_clock_is_put_back(tmp_path):
    folder, clock = tmp_path / "in", Clock()
    folder.mkdir()
    path, other = folder / "x.csv", folder / "y.csv"
    path.write_text("a,b\n1,x\n2,unfinished")
    other.write_text("a,b\n3,x\n")
    clock.now = datetime.now(UTC)
    source = source_of(f"{folder}/", tmp_path, clock, file_debounce="10s")
    offset = source.latest(None)
    assert instants(source, offset) == ["1", "3"]
    other.unlink()
    assert source.latest(offset) == offset
    clock.now -= timedelta(hours=1)
    assert source.latest(offset) == offset
    clock.now += timedelta(seconds=11)
    offset = source.latest(offset)
    assert instants(source, offset) == ["1", "2"]
    assert source.settled()


def test_a_file_from_the_future_is_compared_once(tmp_path, monkeypatch):
    path, clock = tmp_path / "x.csv", Clock()
    path.write_text("a,b\n1,x\n")
    ahead = (clock.now + timedelta(days=1)).timestamp()
    os.utime(path, (ahead, ahead))
    source = source_of(path, tmp_path, clock)
    compared = []
    real = tracker.unchanged
    monkeypatch.setattr(tracker, "unchanged", lambda *what, **how: compared.append(1) or real(*what, **how))
    offset = None
    for _ in range(9):
        offset = source.latest(offset)
        clock.now += timedelta(seconds=1)
    assert instants(source, offset) == ["1"]
    assert len(compared) == 1
