"""Rows of topics that come too late: their letters are the records themselves, and can be tried again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from kafka_clients import Sent

if TYPE_CHECKING:
    from velostream.runtime.instance import Instance

pytestmark = pytest.mark.spark

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def record(number: int, seconds: int | None, partition: int = 0) -> Sent:
    at = (NOON + timedelta(seconds=seconds)).isoformat() if seconds is not None else None
    # White space and a field that nobody knows are part of a record's bytes.
    text = json.dumps({"id": number, "k": "a", "ts": at, "more": [1, 2]}, indent=1)
    return Sent(text, f"m{number}", partition=partition)


WINDOW = "SELECT k, {what} AS v FROM {s} s WINDOW {window} GROUP BY k EMIT CHANGES"
KINDS = {
    "tumbling": (WINDOW.format(what="SUM(id)", window="TUMBLING(1m)", s="{s}"), ("a", 2)),
    "sliding": (WINDOW.format(what="SUM(id)", window="SLIDING(2m, 1m)", s="{s}"), ("a", 2)),
    "session": (WINDOW.format(what="SUM(id)", window="SESSION(30s)", s="{s}"), ("a", 2)),
    "kept": (WINDOW.format(what="SUM(DISTINCT id)", window="TUMBLING(1m)", s="{s}"), ("a", 2)),
    "looked_up": (
        "SELECT n.title, SUM(s.id) AS v FROM {s} s JOIN titles n ON n.k = s.k WINDOW TUMBLING(1m) "
        "GROUP BY n.title EMIT CHANGES",
        ("A", 2),
    ),
    "over": (
        "SELECT id, SUM(id) OVER (PARTITION BY k ORDER BY _event_time ROWS 1 PRECEDING) AS v FROM {s} s",
        (2, 2),
    ),
    "joined": (
        "SELECT s.id, o.id AS v FROM {s} s LEFT JOIN {o} o ON s.k = o.k "
        "AND o._event_time BETWEEN s._event_time AND s._event_time + INTERVAL '10' SECOND",
        (2, None),
    ),
}


@pytest.fixture(scope="module")
def titles(database) -> None:
    database.sql("CREATE TABLE titles (k STRING PRIMARY KEY, title STRING)")
    database.sql("INSERT INTO titles VALUES ('a', 'A')")


def letters(database: Instance, job: str) -> list[Any]:
    return database.sql(f"SELECT * FROM dead_letters WHERE job = '{job}' ORDER BY letter").rows()


def taken(database: Instance, *tables: str) -> list[list[tuple[Any, ...]]]:
    return [[tuple(row)[:2] for row in database.table(table).rows()] for table in tables]


def test_a_late_row_is_its_record_and_can_be_tried_again(
    database, titles, topic, produce, consume, rng, rounds
):
    """Statements of several kinds over one topic; the second topic is only there to be joined."""
    kinds = rng.sample(sorted(KINDS), rounds(3, len(KINDS)))
    name, other = topic(2), topic(1)
    for each in (name, other):
        database.sql(
            f"CREATE SOURCE s_{each} (id BIGINT, k STRING, ts TIMESTAMP) FROM kafka://{each} "
            'WITH ("event.time.column" = "ts", "auto.offset.reset" = "earliest", "idle.timeout" = "1ms")'
        )
    queries = {
        f"{kind}_{name}": (query.format(s=f"s_{name}", o=f"s_{other}"), expected)
        for kind, (query, expected) in ((kind, KINDS[kind]) for kind in kinds)
    }

    def take(*records: Sent, of_other: Sent | None = None) -> None:
        produce(name, records)
        if of_other is not None:
            produce(other, [of_other])
        assert database.wait_idle(120)

    for job, (query, _) in queries.items():
        database.sql(f"CREATE TABLE {job} AS {query}")
    take(record(0, 0, 1))
    take(record(1, 300, 1), of_other=record(9, 300))
    take(record(2, 1, 1), record(3, None, 1))
    written = {each.json["id"]: each for each in consume(name)}
    for job, (_, expected) in queries.items():
        found = {letter.kind: letter for letter in letters(database, job)}
        for what, number in (("late", 2), ("timing", 3)):
            letter = found.pop(what)
            assert (letter.source, letter.partition) == (f"kafka://{name}", f"{name}/1"), job
            assert (letter.offset, letter.raw) == (str(written[number].offset), written[number].value)
            assert letter.event_time is not None
        assert not found
        # Its window has closed, or the watermark has passed it, and nothing has changed since.
        (answer,) = database.sql(f"REPLAY DEAD LETTERS WHERE job = '{job}'").rows()
        assert (answer.tried, answer.taken, answer.left) == (2, 0, 2), job
        assert answer.reason.startswith("late: ") or answer.reason == "the event time is null"
        assert expected not in taken(database, job)[0]
    # Statements that take late rows, and have not read the record: they begin at the end.
    for job, (query, _) in queries.items():
        sources = ("s.", "o.") if job.startswith("joined") else ("s.",) if job.startswith("looked") else ("",)
        options = ", ".join(f'"{alias}auto.offset.reset" = "latest"' for alias in sources)
        database.sql(f'CREATE OR REPLACE TABLE {job} AS {query} WITH ("late.rows" = "update", {options})')
    take(record(4, 400, 1), of_other=record(9, 400))
    take(record(5, 500, 1), of_other=record(9, 500))
    for job, (_, expected) in queries.items():
        (answer,) = database.sql(f"REPLAY DEAD LETTERS WHERE job = '{job}' AND kind = 'late'").rows()
        assert (answer.tried, answer.taken, answer.left) == (1, 1, 0), (job, answer)
        assert expected in taken(database, job)[0], job
        assert [letter.kind for letter in letters(database, job)] == ["timing"]
