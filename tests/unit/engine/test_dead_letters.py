"""Bad rows are kept once, however often a batch is attempted, and not for ever."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from refusals import refusal
from velostream.engine.bad_rows.dead_letters import DeadLetters, Refused, keep_as_told
from velostream.engine.bad_rows.letter import NAME, edition
from velostream.model.changes import BadRow, Commit
from velostream.model.options import CommonOptions
from velostream.model.tables import TableSpec
from velostream.serving.table.store import TableStore

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def letters(tmp_path):
    with TableStore(tmp_path) as store:
        yield DeadLetters(store)


def bad(offset: int, reason: str = "not a number", raw: bytes = b"x") -> BadRow:
    return BadRow(reason, "x.csv", "x.csv", str(offset), raw)


def offsets(letters: DeadLetters) -> list[str]:
    return sorted(letters.table.snapshot().column("offset").to_pylist())


def test_another_attempt_adds_what_the_first_did_not(letters):
    assert letters.keep("t", "decoding", "5", [bad(1), bad(1), bad(2)], NOON) == 3
    later = NOON + timedelta(seconds=1)
    assert letters.keep("t", "decoding", "5", [bad(1), bad(1), bad(2)], later) == 0
    assert letters.keep("t", "decoding", "5", [bad(1), bad(1), bad(2), bad(3)], later) == 1
    assert letters.keep("t", "decoding", "5", [bad(2, "in other words"), bad(3)], later) == 0
    assert offsets(letters) == ["1", "1", "2", "3"]


def test_the_same_row_in_another_batch_is_another_letter(letters):
    letters.keep("t", "decoding", "5", [bad(1)], NOON)
    letters.keep("t", "decoding", "6", [bad(1)], NOON + timedelta(seconds=1))
    letters.keep("u", "decoding", "6", [bad(1)], NOON + timedelta(seconds=2))
    letters.keep("t", "computing", "6", [], NOON + timedelta(seconds=3))
    letters.of_job("1-t").keep("t", "decoding", "6", [bad(1)], NOON)
    letters.of_job("1-t", "live 0").keep("t", "decoding", "6", [bad(1)], NOON)
    assert offsets(letters) == ["1", "1", "1", "1", "1"]
    assert not letters.of_job("1-t", "live 1").left_over("t", "6")


def test_every_letter_says_what_failed(letters):
    for stage in ("decoding", "computing", "deriving", "summing", "writing", "late", "sorting"):
        letters.keep("t", stage, "0", [bad(1)], NOON)
    letters.keep("t", "decoding", "1", [BadRow("gone", "k", "k/0", "1-2", b"", kind="lost")], NOON)
    kinds = ["decode", "compute", "compute", "overflow", "write", "late", "sorting", "lost"]
    assert letters.table.snapshot()["kind"].to_pylist() == kinds
    assert letters.counts() == {("t", kind): count for kind, count in Counter(kinds).items()}
    assert letters.kept() == letters.counts()


def test_an_attempt_that_can_use_a_row_takes_back_what_an_earlier_one_kept(letters):
    job = letters.of_job("1-t")
    assert not job.left_over("t", "5")
    job.keep("t", "computing", "5", [bad(1), bad(2)], NOON)
    # The batch was not committed, and the process was started again.
    job = letters.of_job("1-t")
    assert job.left_over("t", "5")
    job.keep("t", "computing", "5", [bad(2)], NOON)
    job.settle("t", "5")
    assert offsets(letters) == ["2"]
    assert job.uncommitted("t", "5") == {2}
    job.committed()
    assert not job.left_over("t", "6")
    assert job.uncommitted("t", "6") == set()


def test_a_sink_that_takes_what_it_refused_before_leaves_no_letter(letters):
    letters.of_job("1-t").keep("t", "writing", "5", [bad(1), bad(2)], NOON)
    # The batch was not committed; meanwhile the topic takes larger records.
    job = letters.of_job("1-t")
    assert job.left_over("t", "5")
    job.settle("t", "5")
    job.keep("t", "writing", "5", [bad(2)], NOON)
    assert offsets(letters) == ["2"]


def test_letters_leave_or_get_another_reason_in_one_commit(letters):
    letters.keep("t", "decoding", "5", [bad(1), bad(2), bad(3)], NOON)
    version = letters.table.version
    letters.answer([1], {3: "worse"}, NOON)
    assert letters.table.version == version + 1
    rows = letters.table.snapshot().to_pylist()
    assert [(row["letter"], row["reason"], row["at"]) for row in rows] == [
        (2, "not a number", NOON),
        (3, "worse", NOON),
    ]


def test_numbers_are_not_given_twice(tmp_path):
    with TableStore(tmp_path) as store:
        letters = DeadLetters(store)
        letters.keep("t", "decoding", "5", [bad(1), bad(2)], NOON)
        letters.answer([1, 2], {}, NOON)
    with TableStore(tmp_path) as store:
        letters = DeadLetters(store)
        letters.keep("t", "decoding", "6", [bad(3)], NOON)
        assert letters.table.snapshot()["letter"].to_pylist() == [3]


def test_retention(tmp_path):
    with TableStore(tmp_path) as store:
        letters = DeadLetters(store, retention=timedelta(days=1))
        letters.keep("t", "decoding", "1", [bad(1), bad(2)], NOON)
        letters.keep("t", "decoding", "2", [bad(3)], NOON + timedelta(hours=12))
        assert letters.expire(NOON + timedelta(days=1)) == 0
        assert letters.expire(NOON + timedelta(days=1, seconds=1)) == 2
        assert offsets(letters) == ["3"]
        letters.keep("t", "decoding", "3", [bad(4)], NOON + timedelta(days=3))
        assert offsets(letters) == ["4"]


def test_the_oldest_leave_when_letters_take_too_much_memory(tmp_path):
    with TableStore(tmp_path) as store:
        letters = DeadLetters(store, most_bytes=100_000)
        for number in range(40):
            rows = [bad(number * 10 + each, raw=b"x" * 1000) for each in range(10)]
            letters.keep("t", "decoding", str(number), rows, NOON + timedelta(seconds=number))
        left = sorted(int(offset) for offset in offsets(letters))
        assert left[-1] == 399
        assert left == list(range(left[0], 400))
        assert 50 < len(left) < 80


def test_what_an_attempt_costs_does_not_grow_with_the_letters(letters, monkeypatch):
    for number in range(300):
        letters.keep("t", "decoding", str(number), [bad(number)], NOON)
    read: list[int] = []
    take = type(letters.table.version_object).take

    def counted(self, ids):
        read.append(len(ids))
        return take(self, ids)

    monkeypatch.setattr(type(letters.table.version_object), "take", counted)
    monkeypatch.setattr(
        type(letters.table.version_object), "physical", lambda self: pytest.fail("all are read")
    )
    letters.keep("t", "decoding", "299", [bad(299), bad(300)], NOON)
    assert sum(read) == 1


def test_a_table_of_an_earlier_version_is_taken_over(tmp_path):
    old = pa.schema(
        [
            ("job", pa.string()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("reason", pa.string()),
            ("source", pa.string()),
            ("partition", pa.string()),
            ("offset", pa.string()),
            ("raw", pa.binary()),
        ]
    )
    with TableStore(tmp_path) as store:
        table = store.create(TableSpec(NAME, old, datasource_type="dead letters"))
        row = {
            "job": "t",
            "at": NOON,
            "reason": "r",
            "source": "s",
            "partition": "p",
            "offset": "7",
            "raw": b"x",
        }
        rows = pa.Table.from_pylist([row, row | {"offset": "6", "at": NOON - timedelta(days=1)}], schema=old)
        table.commit_rows(rows, None, Commit("t", 0, {}, NOON, {"batches": {}}))
    assert edition(tmp_path) == 0
    with TableStore(tmp_path) as store:
        letters = DeadLetters(store)
        assert letters.table.snapshot().select(["letter", "offset", "kind", "raw"]).to_pylist() == [
            {"letter": 1, "offset": "6", "kind": None, "raw": b"x"},
            {"letter": 2, "offset": "7", "kind": None, "raw": b"x"},
        ]
    assert edition(tmp_path) == 1
    with TableStore(tmp_path, editions={NAME: edition(tmp_path)}) as store:
        letters = DeadLetters(store)
        letters.keep("t", "decoding", "5", [bad(8)], NOON)
        assert offsets(letters) == ["6", "7", "8"]
        assert store.names() == [NAME]


@pytest.mark.parametrize(("on_error", "kept"), [("dead_letter", 1), ("skip", 0), ("fail", 0)])
def test_on_error(letters, on_error, kept):
    options = CommonOptions.model_validate({"on.error": on_error})
    refused = Refused("t", options, letters)
    if on_error == "fail":
        with refusal("source.data", why="not a number"):
            keep_as_told(letters, "t", options, "computing", "5", [bad(1)])
        with refusal("sink.config", why="not a number"):
            refused([bad(1)])
        assert refused.count == 0
    else:
        keep_as_told(letters, "t", options, "computing", "5", [bad(1)])
        refused([bad(1)])
        assert refused.count == 1
    assert len(letters.table) == 2 * kept
