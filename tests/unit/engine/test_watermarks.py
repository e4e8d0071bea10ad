"""How far event time has come: the slowest partition that is not idle decides."""

from __future__ import annotations

import json

from velostream.engine.event_time.watermark import Watermarks
from velostream.model.windows import EventTime


def marks(recorded=None, now=0.0, **times) -> Watermarks:
    return Watermarks(times or {"s": EventTime(delay=10, idle=60.0)}, recorded, now)


def test_the_slowest_partition_decides_less_the_delay():
    found = marks()
    found.saw("s", {"0": 100, "1": 50}, now=0)
    assert found.reached(0) == 40
    found.saw("s", {"1": 200}, now=1)
    assert found.reached(1) == 90


def test_a_partition_without_rows_holds_back_until_it_is_idle():
    found = marks()
    found.saw("s", {"0": 100, "1": None}, now=0)
    assert found.reached(59) is None
    found.saw("s", {"0": 110, "1": None}, now=59)
    assert found.reached(60) == 100


def test_it_never_goes_back():
    found = marks()
    found.saw("s", {"0": 100}, now=0)
    found.move_to(found.reached(0))
    found.saw("s", {"1": 20}, now=1)
    assert found.reached(1) == 90
    found.move_to(5)
    assert found.at == 90


def test_when_all_are_silent_the_furthest_has_been_seen():
    found = marks()
    found.saw("s", {"0": 100, "1": 50}, now=0)
    assert found.reached(60) == 90


def test_of_several_inputs_each_has_its_own_delay_and_all_have_to_be_known():
    found = marks(a=EventTime(delay=0, idle=60.0), b=EventTime(delay=30, idle=60.0))
    found.saw("a", {"0": 100}, now=0)
    assert found.reached(0) is None
    found.saw("b", {"0": 110}, now=0)
    assert found.reached(0) == 80


def test_what_a_source_says_itself_counts():
    found = marks()
    found.saw("s", {"0": 100}, now=0)
    found.tell("s", 500)
    assert found.reached(0) == 500
    found.tell("s", 400)
    assert found.reached(0) == 500


def test_a_restart_finds_it_where_it_was():
    before = marks()
    before.saw("s", {"0": 100, "1": 50}, now=0)
    before.move_to(before.reached(0))
    after = marks(json.loads(json.dumps(before.recorded())), now=1000)
    assert after.at == 40
    after.saw("s", {"1": 70}, now=1001)
    assert after.reached(1001) == 60
    assert after.times() == {"0": 100, "1": 70}


def test_a_copy_moves_by_itself():
    found = marks()
    found.saw("s", {"0": 100}, now=0)
    ahead = found.copy()
    ahead.saw("s", {"0": 300}, now=1)
    ahead.move_to(ahead.reached(1))
    assert (found.at, found.times(), ahead.at) == (None, {"0": 100}, 290)


def test_of_very_many_partitions_the_silent_ones_are_forgotten():
    found = marks()
    found.saw("s", {str(number): number for number in range(1000)}, now=0)
    found.saw("s", {"7": 2000}, now=50)
    found.forget_idle(61)
    assert found.times() == {"7": 2000}
    assert found.reached(61) == 1990
    found.saw("s", {str(number): number for number in range(1000)}, now=62)
    found.forget_idle(200, named={"s"})
    assert len(found.times()) == 1000
