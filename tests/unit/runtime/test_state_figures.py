"""How large what a job remembers is, and how fast it grows."""

from __future__ import annotations

from time import monotonic

import pytest

from velostream.runtime.jobs.statistics import Statistics


def test_nothing_is_told_before_a_look():
    stats = Statistics().figures()
    assert (stats.state_rows, stats.state_bytes, stats.state_growth) == (None, None, None)


def test_growth_is_rows_a_minute_since_the_oldest_look_of_five_minutes():
    statistics, now = Statistics(), monotonic()
    for minutes, rows in ((10, 0), (4, 100), (2, 180), (0, 300)):
        statistics.holds(rows, rows * 8, now - minutes * 60)
    stats = statistics.figures()
    assert (stats.state_rows, stats.state_bytes) == (300, 2400)
    assert stats.state_growth == pytest.approx(50, rel=0.01)


def test_what_was_there_at_the_start_is_no_growth():
    statistics, now = Statistics(), monotonic()
    statistics.holds(0, 0, now - 120)
    statistics.begins()
    statistics.holds(1000, 8000, now - 60)
    statistics.holds(940, 7520, now)
    assert statistics.figures().state_growth == pytest.approx(-60, rel=0.01)
    statistics.begins()
    statistics.holds(940, 7520, monotonic())
    assert statistics.figures().state_growth is None
