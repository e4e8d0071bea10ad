"""Very many files."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "connectors"))
from files_model import reader_of


def test_ten_thousand_small_files(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(10_000):
        (folder / f"{number}.csv").write_text(f"a,b\n{number},x\n")
        os.utime(folder / f"{number}.csv", (1, 1))
    reader = reader_of(folder / "*.csv", tmp_path)
    assert sum(reader.settle().values()) == 10_000
    assert len(reader.source.spool.live) <= 2
    begin = time.process_time()
    assert not reader.step()
    assert time.process_time() - begin < 1
    (folder / "5000.csv").write_text("a,b\nnew,x\n")
    (folder / "6000.csv").unlink()
    first = reader.offset
    assert sum(reader.settle().values()) == 9_999
    changes = reader.source.spool.changes(first["spool"], reader.offset["spool"])
    assert sum(segment.rows for segment, _ in changes) == 3
