"""Bad rows are kept once, however often a batch is attempted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from velostream.model.changes import BadRow
from velostream.runtime.dead_letters import DeadLetters
from velostream.serving.store import TableStore

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def letters(tmp_path):
    with TableStore(tmp_path) as store:
        yield DeadLetters(store)


def bad(offset: int) -> BadRow:
    return BadRow("not a number", "x.csv", "x.csv", str(offset), b"x")


def offsets(letters: DeadLetters) -> list[str]:
    return sorted(letters.table.snapshot().column("offset").to_pylist())


def test_another_attempt_adds_what_the_first_did_not(letters):
    assert letters.keep("t", "decoding", "5", [bad(1), bad(1), bad(2)], NOON) == 3
    later = NOON + timedelta(seconds=1)
    assert letters.keep("t", "decoding", "5", [bad(1), bad(1), bad(2)], later) == 0
    assert letters.keep("t", "decoding", "5", [bad(1), bad(1), bad(2), bad(3)], later) == 1
    assert letters.keep("t", "decoding", "5", [bad(2), bad(3)], later) == 0
    assert offsets(letters) == ["1", "1", "2", "3"]


def test_the_same_row_in_another_batch_is_another_letter(letters):
    letters.keep("t", "decoding", "5", [bad(1)], NOON)
    letters.keep("t", "decoding", "6", [bad(1)], NOON + timedelta(seconds=1))
    letters.keep("u", "decoding", "6", [bad(1)], NOON + timedelta(seconds=2))
    letters.keep("t", "computing", "6", [], NOON + timedelta(seconds=3))
    assert offsets(letters) == ["1", "1", "1"]
