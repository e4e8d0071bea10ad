"""Late rows of files: the letter names the file, the byte at which the record begins, and its text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

SOURCE = 'WITH ("event.time.column" = "ts", "file.debounce" = "1ms")'
KINDS = {
    "tumbling": "SELECT k, SUM(n) AS v FROM {s} WINDOW TUMBLING(1m) GROUP BY k EMIT CHANGES",
    "session": "SELECT k, SUM(n) AS v FROM {s} WINDOW SESSION(30s) GROUP BY k EMIT CHANGES",
    "kept": "SELECT k, COUNT(DISTINCT n) AS v FROM {s} WINDOW TUMBLING(1m) GROUP BY k EMIT CHANGES",
    "over": "SELECT n, SUM(n) OVER (PARTITION BY k ORDER BY _event_time ROWS 1 PRECEDING) AS v FROM {s}",
    "joined": (
        "SELECT a.n FROM {s} a JOIN {s} b ON a.k = b.k AND b._event_time BETWEEN a._event_time "
        "AND a._event_time + INTERVAL '10' SECOND"
    ),
}


def test_a_late_row_of_a_file_is_its_line(database, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    early = "n,k,ts\n0,ä,2026-05-01T12:00:00Z\n1,ä,2026-05-01T12:05:00Z\n"
    path.write_text(early, encoding="utf-8")
    database.sql(f"CREATE SOURCE late_file (n BIGINT, k STRING, ts TIMESTAMP) FROM file://{path} {SOURCE}")
    for kind, query in KINDS.items():
        database.sql(f"CREATE TABLE late_{kind} AS {query.format(s='late_file')}")
    assert database.wait_idle(60)
    line = '2, ä ,"2026-05-01T12:00:01Z"'
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    assert database.wait_idle(60)
    for kind in KINDS:
        told = database.sql(f"SELECT * FROM dead_letters WHERE job = 'late_{kind}'").rows()
        assert [letter.kind for letter in told] == ["late"] * (2 if kind == "joined" else 1), kind
        for letter in told:
            assert (letter.partition, letter.offset) == (str(path), str(len(early.encode())))
            assert letter.raw.decode() == line
        (answer,) = database.sql(f"REPLAY DEAD LETTERS WHERE job = 'late_{kind}'").rows()
        assert (answer.taken, answer.left) == (0, len(told))
        assert answer.reason.startswith("late: "), kind
