"""Sources that a case fills: one step per position, the same rows however they are spread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from refusals import refusal
from velostream.connectors.base import SourceContext
from velostream.testing import Way, parse_cases
from velostream.testing import cases as model
from velostream.testing.cells import NOON, moment
from velostream.testing.connector import CaseSink, CaseSource, written_files
from velostream.testing.given_log import Entry, GivenLog, Layout

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = pa.schema([("id", pa.int64()), ("who", pa.string())])
CASE = """\
case c
given s
  id | who
  1 | ann
  2 | bob
  3 | bob
given s
    id | who
  -  2 | bob
     4 | ann
     x | ann
"""


def opened(folder: Path, text: str, way: Way) -> CaseSource:
    """A source with everything that a case gives it."""
    (case,) = parse_cases(text, "c.velotest").cases
    log = GivenLog(folder / f"{way}.jsonl", Layout.of(case, "s", way))
    for step in case.steps:
        if isinstance(step, model.Given):
            log.give(step, NOON)
        elif isinstance(step, model.Advance):
            log.append(Entry(watermark=step.to))
        elif isinstance(step, model.End):
            log.append(Entry(ended=True))
    context = SourceContext(folder, COLUMNS, declared=True)
    return CaseSource("s", context, log.path, log.layout)


def rows(source: CaseSource, start: dict[str, int] | None, end: dict[str, int]) -> list[dict[str, Any]]:
    found = [
        row
        for part, position in end.items()
        for batch in source.read(part, start[part] if start else None, position)
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: row["_position"])


@pytest.mark.parametrize("way", Way)
def test_each_step_is_a_position(tmp_path: Path, way: Way):
    source = opened(tmp_path, CASE, way)
    first = source.latest(None)
    second = source.latest(first)
    assert set(first.values()) == {1}
    assert set(second.values()) == {2}
    assert source.latest(second) == second
    assert len(first) == (3 if way is Way.SPREAD else 1)
    assert [row["id"] for row in rows(source, None, dict(first))] == [1, 2, 3]
    changed = rows(source, dict(first), dict(second))
    assert [(row["id"], row["_weight"]) for row in changed] == [(2, -1), (4, 1)]
    assert [row["id"] for row in rows(source, None, dict(second))] == [1, 3, 4]
    assert {row["_partition"] for row in changed} == {"0"}


def test_spread_rows_are_read_by_several_partitions(tmp_path: Path):
    source = opened(tmp_path, CASE, Way.SPREAD)
    filled = [part for part in source.latest(None) if next(source.read(part, None, 1)).num_rows]
    assert len(filled) == 3


def test_a_cell_that_does_not_fit_is_a_bad_row(tmp_path: Path):
    source = opened(tmp_path, CASE, Way.STRAIGHT)
    first = source.latest(None)
    assert not source.has_bad_rows(None, first)
    assert source.has_bad_rows(first, source.latest(first))
    (bad,) = source.bad_rows(first, source.latest(first))
    assert bad.reason == 'id: "x" is not a BIGINT'
    assert bad.raw == b"x | ann"


def test_the_watermark_and_the_end_stand_at_their_step(tmp_path: Path):
    text = "case c\ngiven s\n  id\n  1\nwatermark s 12:05\nwatermark s 12:01\nend s\n"
    source = opened(tmp_path, text, Way.SPREAD)
    positions = [source.latest(None)]
    while (after := source.latest(positions[-1])) != positions[-1]:
        positions.append(after)
    assert [source.watermark(p) for p in positions] == [None, *[moment("12:05")] * 3]
    assert [source.finished(p) for p in positions] == [False, False, False, True]


def test_partitions_that_are_named_are_kept_however_rows_are_spread(tmp_path: Path):
    text = "case c\ngiven s partition 1\n  id\n  1\n  2\n"
    for way in Way:
        source = opened(tmp_path, text, way)
        found = rows(source, None, dict(source.latest(None)))
        assert [(row["_partition"], row["_offset"]) for row in found] == [("1", 0), ("1", 1)]
        assert set(source.partitions(None, source.latest(None)) or ()) == {"0", "1"}


def test_where_a_case_tells_the_watermark_rows_are_of_other_partitions(tmp_path: Path):
    source = opened(tmp_path, "case c\ngiven s\n  id\n  1\n  2\nwatermark s 12:05\n", Way.SPREAD)
    found = rows(source, None, dict(source.latest(None)))
    assert [row["_partition"] for row in found] == ["0", "1"]


def test_a_row_that_was_not_given_cannot_be_taken_back(tmp_path: Path):
    with refusal("case", at="- 1"):
        opened(tmp_path, "case c\ngiven s\n  id\n  - 1\n", Way.STRAIGHT)


def test_columns_are_declared(tmp_path: Path):
    source = CaseSource("s", SourceContext(tmp_path), tmp_path / "none", Layout())
    with refusal("source.config", "test://s"):
        source.discover()


def test_what_was_written_and_not_recorded_is_undone(tmp_path: Path):
    sink = CaseSink(tmp_path / "out")
    sink.recover(None)
    recorded = sink.write(1, pa.table({"x": [1]}))
    sink.write(2, pa.table({"x": [2]}))
    again = CaseSink(tmp_path / "out")
    again.recover(recorded)
    again.write(2, pa.table({"x": [3]}))
    assert [
        pa.ipc.open_file(str(p)).read_all()["x"].to_pylist() for p in written_files(tmp_path / "out")
    ] == [
        [1],
        [3],
    ]
