"""Delta's log as we read it without Spark, and the state that we keep in it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from velostream.engine.delta import commit_metadata as state
from velostream.engine.delta.commit_metadata import State
from velostream.engine.delta.log import DeltaLog
from velostream.model.changes import Commit

if TYPE_CHECKING:
    from pathlib import Path

COMMIT = Commit("job", 7, {"__source_1": {"a.csv": 12}}, datetime(2024, 1, 2, tzinfo=UTC), {"lost": ["x"]})


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    found = DeltaLog(tmp_path / "rows")
    found.folder.mkdir(parents=True)
    return found


def commit(log: DeltaLog, version: int, said: State | None, *actions: dict[str, Any]) -> None:
    info = {"commitInfo": {"timestamp": 1000 * version}}
    if said is not None:
        info["commitInfo"]["userMetadata"] = said.text()
    lines = [json.dumps(each) for each in (info, *actions)]
    (log.folder / f"{version:020d}.json").write_text("\n".join(lines) + "\n")


def add(path: str, **more: Any) -> dict[str, Any]:
    return {"add": {"path": path, "size": 10, **more}}


def test_an_empty_folder_is_an_empty_table(tmp_path, log):
    assert (log.newest(), state.load(tmp_path, log)) == (None, State())


def test_the_newest_commit_tells_the_state(tmp_path, log):
    first = State(number=1, sequence=1, next_row=5, rows=5, changed=5, commit=COMMIT)
    commit(log, 0, first, add("one"))
    assert state.load(tmp_path, log) == replace(first, physical=0)
    # Another program compacted the files: the state is ours still, at its version.
    commit(log, 1, None, {"remove": {"path": "one"}}, add("two%20x"))
    assert state.load(tmp_path, log) == replace(first, physical=1)
    assert log.live() == {tmp_path / "rows" / "two x": 10}


def test_positions_that_moved_without_rows_count_until_the_next_commit(tmp_path, log):
    first = State(number=1, sequence=1, commit=COMMIT)
    commit(log, 0, first)
    moved = replace(first, sequence=2, commit=replace(COMMIT, batch=8))
    state.move(tmp_path, moved)
    assert state.load(tmp_path, log) == replace(moved, physical=0)
    later = replace(moved, number=2, sequence=3, commit=replace(COMMIT, batch=9))
    commit(log, 1, later)
    assert state.load(tmp_path, log) == replace(later, physical=1)


def test_commits_are_found_by_the_version_of_the_table(log):
    for version, number in enumerate((1, 2, 2, 3)):
        commit(log, version, None if version == 2 else State(number=number))
    assert [log.first_after(number) for number in range(4)] == [0, 1, 3, None]


def test_a_vector_of_deleted_rows_is_a_file_of_the_table(tmp_path, log):
    # From the protocol's own example of an encoded path.
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^"}
    commit(log, 0, State(), add("one"))
    commit(log, 1, State(), {"remove": {"path": "one"}}, add("one", deletionVector=vector))
    name = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert log.live() == {tmp_path / "rows" / "one": 10, tmp_path / "rows" / "ab" / name: None}
    assert tmp_path / "rows" / "ab" / name in list(log.written(1))


def test_what_a_checkpoint_holds_need_not_be_kept(tmp_path, log):
    for version in range(4):
        commit(log, version, State(number=version + 1), add(f"f{version}"))
    rows = pa.table(
        {"add": [{"path": f"f{n}", "size": 10, "deletionVector": None} for n in range(3)] + [None]}
    )
    pq.write_table(rows, log.folder / f"{2:020d}.checkpoint.parquet")
    before = log.live()
    log.forget_before(1)
    assert log.versions() == [0, 1, 2, 3]
    log.forget_before(3)
    assert log.versions() == [2, 3]
    assert log.live() == before == {tmp_path / "rows" / f"f{n}": 10 for n in range(4)}
