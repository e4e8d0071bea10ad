"""What the benchmark of pipelines makes of its measurements."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.measure import (
    in_process,
    median_interval,
    peak_memory,
    percentile,
    processor_seconds,
    seconds_since_start,
)
from benchmarks.pipelines.goals import goals, told
from benchmarks.pipelines.latency import watch
from benchmarks.pipelines.loads import summed_up
from benchmarks.pipelines.report import lines
from benchmarks.pipelines.windows import LATENESS
from benchmarks.pipelines.workload import CLOSING, FILTERED_ABOVE, ticks, trades


class Readable:
    """Probes that become readable one look after another; each was sent a second before."""

    def __init__(self) -> None:
        self.looks = 0

    def sent(self, user: str) -> int | None:
        self.looks += 1
        return time.time_ns() // 1000 - 1_000_000 if int(user[1:]) * 2 < self.looks else None

    def close(self) -> None:
        """Nothing is open."""


def test_processor_time_counts_children_that_have_ended() -> None:
    before = processor_seconds()
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)
    # The kernel counts in hundredths of a second.
    assert 0.2 <= processor_seconds() - before < 5


def test_memory_and_age_of_this_process() -> None:
    assert peak_memory() > 10_000_000
    first = seconds_since_start()
    assert 0 < first <= seconds_since_start()


def test_a_contender_that_takes_too_long_is_ended() -> None:
    with pytest.raises(RuntimeError, match=r"took longer than 0\.2 s"):
        in_process("pipelines.probe", "127.0.0.1:1", "nothing", "1", "1", "60", timeout=0.2)


def test_a_contender_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="not enough values to unpack"):
        in_process("pipelines.probe")


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_percentiles(share: float, expected: float) -> None:
    assert percentile(list(range(100, 0, -1)), share) == expected


@pytest.mark.parametrize(
    ("count", "low", "high"), [(1, 1, 1), (5, 1, 5), (6, 1, 6), (9, 2, 8), (10, 2, 9), (20, 6, 15)]
)
def test_a_median_has_an_interval_by_order_alone(count: int, low: int, high: int) -> None:
    """As in the tables of the sign test."""
    found = median_interval([float(number) for number in range(count, 0, -1)])
    assert found == {"median": (count + 1) / 2, "low": low, "high": high}


def test_every_probe_is_seen_once_in_each_partition() -> None:
    seen = watch(Readable(), expected=7, partitions=2, deadline=time.monotonic() + 30)
    assert len(seen) == 7
    assert all(1000 <= milliseconds < 2000 for milliseconds in seen)


def test_a_probe_that_never_comes_is_told() -> None:
    class Nothing(Readable):
        def sent(self, user: str) -> int | None:
            return None

    with pytest.raises(RuntimeError, match=r"probes \[0, 1\] did not become readable"):
        watch(Nothing(), expected=4, partitions=2, deadline=time.monotonic())


def test_the_first_load_is_cold_and_the_second_does_not_count() -> None:
    runs = [{"load": float(n), "load cpu": 2.0 * n} for n in (9, 7, 2, 4)]
    assert summed_up(runs) == {"cold": 9, "cold cpu": 18, "warm": 3, "warm cpu": 6}
    assert summed_up(runs[:2])["warm"] == 7


def test_trades_are_the_same_for_the_same_seed() -> None:
    first, again = list(trades(500)), list(trades(500))
    assert first == again
    assert all(f'"quantity":{quantity},' in value and f'"{user}"' in value for user, quantity, value in first)
    assert 0 < sum(quantity > FILTERED_ABOVE for _, quantity, _ in trades(2000)) < 100


def test_ticks_are_out_of_order_by_less_than_windows_wait_and_the_last_close_them() -> None:
    times = []
    for symbol, value in ticks(5000, 2):
        record = json.loads(value)
        assert record["symbol"] == symbol
        times.append((symbol, datetime.fromisoformat(record["ts"])))
    assert [symbol == CLOSING for symbol, _ in times] == [False] * 4998 + [True] * 2
    seen = behind = timedelta(0)
    first = times[0][1]
    for _, at in times[:-2]:
        behind, seen = max(behind, seen - (at - first)), max(seen, at - first)
    assert timedelta(0) < behind < timedelta(seconds=LATENESS)
    assert min(at for _, at in times[-2:]) - first > seen + timedelta(minutes=10)


def taken(cold: float, warm: float) -> dict[str, float]:
    return {"start": cold + 2, "cold": cold, "cold cpu": cold, "warm": warm, "warm cpu": warm, "memory": 100}


def found() -> dict[str, Any]:
    return {
        "sizes": {
            "rows": 1_000_000,
            "rate": 1000,
            "partitions": (1, 2),
            "scaling_rows": 10,
            "recovery_rows": 20,
            "window_rows": 1000,
        },
        "loads": {
            "group": {"by_hand": taken(20, 10), "ours": taken(12, 5), "flink": taken(8, 6)},
            "join": {"by_hand": taken(20, 10), "ours": taken(12, 20), "flink": {"cannot": "no such join"}},
        },
        "latency": {"ours": {"p50": 100, "p99": 200}, "by_hand": {"p50": 250, "p99": 900}},
        "scaling": {"1 sticky": taken(9, 8), "2 sticky": taken(5, 4)},
        "recovery": {"ours": {"answers": 0.75, "goes on": 6.5}, "by_hand": {"goes on": 9.25}},
        "copy_latency": {"realtime": {"cannot": "not in this version"}},
        "windows": {
            "tumbling": {"by_hand": taken(20, 9), "ours": taken(12, 10)},
            "rows": {"ours": taken(12, 0.005)},
        },
        "clean_path": {
            "kept beside unseen": {"median": 1.05, "low": 1.01, "high": 1.09, "pairs": 10},
            "cpu": {"kept": [2.0], "unseen": [1.9]},
        },
    }


def test_goals_hold_fall_short_or_were_not_measured() -> None:
    verdicts = {goal["goal"]: goal for goal in (told(goal, found()) for goal in goals())}
    assert (verdicts["group, warm: speed beside PyFlink"]["value"], verdicts["group, warm"]["value"]) == (
        1.2,
        200_000,
    )
    assert verdicts["group, cold: time beside PyFlink"]["holds"] is False
    assert verdicts["join, warm: speed beside by hand"]["value"] == 0.5
    assert verdicts["produce to readable, p50 beside by hand"]["holds"] is True
    assert verdicts["two partitions: speed beside one"]["value"] == 2
    assert verdicts["CPU per record, most of 1 to 8 partitions"]["value"] == 2
    assert verdicts["tumbling windows, warm: speed beside by hand"]["holds"] is False
    assert verdicts["windows of 100 rows, warm"]["value"] == 200_000
    assert verdicts["looking for them, too: CPU, none there"]["holds"] is False
    for missing in (
        "filter, warm: speed beside every column",
        "keeping bad and late rows: CPU, none there",
        "topic to topic in real time, p50",
    ):
        assert (verdicts[missing]["value"], verdicts[missing]["holds"]) == (None, None)


def test_the_report_tells_figures_and_who_could_not() -> None:
    figures = found()
    report = "\n".join(lines(figures | {"goals": [told(goal, figures) for goal in goals()]}))
    assert "PyFlink" in report
    assert "cannot: no such join" in report
    assert "cannot: not in this version" in report
    assert "200,000" in report
    assert re.search(r"velostream +0\.75 +6\.50\n +PySpark by hand +– +9\.25", report)
    assert re.search(r"kept beside unseen +1\.050 +1\.010 +1\.090 +10\n", report)
    assert "FALLS SHORT" in report
    assert "not measured" in report
