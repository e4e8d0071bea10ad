"""The difference of two lists of records leads from one to the other, in order, and is small."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from velostream.connectors.files.watch import differences as module
from velostream.connectors.files.watch.differences import Hunk, differences

few = st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"e"]), max_size=12)
many = st.lists(st.integers(0, 60).map(lambda number: b"%d" % number), max_size=60)


def applied(old: list[bytes], new: list[bytes], hunks: list[Hunk]) -> list[bytes]:
    """The new list made of the hunks, and of the old one where there are none."""
    result: list[bytes] = []
    position = 0
    for hunk in hunks:
        assert position <= hunk.first <= hunk.last
        result += old[position : hunk.first]
        assert hunk.begin == len(result)
        result += new[hunk.begin : hunk.end]
        position = hunk.last
    return result + old[position:]


@given(st.one_of(st.tuples(few, few), st.tuples(many, many)), st.sampled_from([1, 2, 2000]))
def test_it_leads_from_one_to_the_other(lists, most):
    old, new = lists
    kept, module.MOST_HUNKS = module.MOST_HUNKS, most
    try:
        hunks = differences(old, new)
    finally:
        module.MOST_HUNKS = kept
    assert len(hunks) <= most
    assert applied(old, new, hunks) == new
    assert bool(hunks) == (old != new)


@given(st.sets(st.integers(0, 199)), st.sets(st.integers(0, 199)))
def test_distinct_records_cost_only_what_changed(gone, changed):
    old = [b"%d" % number for number in range(200)]
    new = [record + b"x" if n in changed else record for n, record in enumerate(old) if n not in gone]
    hunks = differences(old, new)
    assert applied(old, new, hunks) == new
    assert sum(hunk.last - hunk.first for hunk in hunks) == len(gone | changed)


def test_a_moved_record_is_taken_back_and_added():
    assert differences([b"a", b"b", b"c"], [b"b", b"c", b"a"]) == [Hunk(0, 1, 0, 0), Hunk(3, 3, 2, 3)]


def test_the_cost_is_bounded():
    old = [b"%d" % (number % 1000) for number in range(100_000)]
    new = [b"%d" % (number % 999) for number in range(100_000)]
    distinct = [b"%d" % number for number in range(100_000)]
    begin = time.process_time()
    for one, other in ((old, new), (distinct, distinct[::-1]), (distinct, distinct[1::2]), (old, distinct)):
        assert applied(one, other, differences(one, other)) == other
    assert time.process_time() - begin < 10
