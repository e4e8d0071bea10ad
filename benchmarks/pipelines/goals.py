"""What pipelines are meant to reach in this benchmark, and whether they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.goal import Goal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Found = dict[str, Any]

ORIGINAL = 74_000
"""Records per second of the original in Rust, on one core and in memory, for the same groups: its best."""


def told(goal: Goal, found: Found) -> dict[str, Any]:
    """The figure, and whether it holds; None for both where a figure is missing."""
    try:
        value = goal.value(found)
    except (KeyError, ZeroDivisionError):
        return {"goal": goal.text, "wanted": goal.wanted, "value": None, "holds": None}
    return {"goal": goal.text, "wanted": goal.wanted, "value": value, "holds": goal.holds(value)}


def goals() -> Iterator[Goal]:
    """All of them, in the order of the report."""
    yield Goal("filter, warm: speed beside every column", "×", 1, _speed("filter", "by_hand_whole", "warm"))
    for query in ("group", "join"):
        yield Goal(f"{query}, warm: speed beside by hand", "×", 1, _speed(query, "by_hand", "warm"))
    yield Goal("group, warm: speed beside PyFlink", "×", 1, _speed("group", "flink", "warm"))
    yield Goal("group, cold: time beside PyFlink", "×", 1.3, _cold_time, at_most=True)
    yield Goal("group, warm", "records/s", 2 * ORIGINAL, _rate)
    yield Goal(
        "one partition: speed beside a batch", "×", 0.95, _scaled("1 batch by hand", "1 sticky", "warm")
    )
    yield Goal("two partitions: speed beside one", "×", 1.7, _scaled("1 sticky", "2 sticky", "warm"))
    yield Goal("CPU per record, most of 1 to 8 partitions", "×", 1.1, _spread, at_most=True)
    yield Goal("produce to readable, p50 beside by hand", "×", 0.5, _latency, at_most=True)
    yield Goal("exactly once: time beside at least once", "×", 1.25, _exactly_once, at_most=True)
    yield Goal("topic to topic in micro-batches, p50 beside by hand", "×", 1, _copied, at_most=True)
    for share, bound in (("p50", 20), ("p99", 200)):
        yield Goal(f"topic to topic in real time, {share}", "ms", bound, _realtime(share), at_most=True)
    for window, bound in (("tumbling", 0.95), ("sliding", 0.8), ("session", 0.8)):
        yield Goal(
            f"{window} windows, warm: speed beside by hand", "×", bound, _window_speed(window, "by_hand")
        )
    yield Goal("tumbling windows with EMIT CHANGES, warm", "records/s", 50_000, _window_rate("changes"))
    yield Goal("windows of 100 rows, warm", "records/s", 100_000, _window_rate("rows"))
    for other, text in (("dropped", "keeping bad and late rows"), ("unseen", "looking for them, too")):
        yield Goal(f"{text}: CPU, none there", "×", 1.03, _kept(other), at_most=True)


def _window_speed(window: str, other: str) -> Callable[[Found], float]:
    return lambda found: found["windows"][window][other]["warm"] / found["windows"][window]["ours"]["warm"]


def _window_rate(window: str) -> Callable[[Found], float]:
    return lambda found: found["sizes"]["window_rows"] / found["windows"][window]["ours"]["warm"]


def _kept(other: str) -> Callable[[Found], float]:
    return lambda found: found["clean_path"][f"kept beside {other}"]["median"]


def _speed(query: str, other: str, when: str) -> Callable[[Found], float]:
    return lambda found: found["loads"][query][other][when] / found["loads"][query]["ours"][when]


def _cold_time(found: Found) -> float:
    return 1 / _speed("group", "flink", "cold")(found)


def _rate(found: Found) -> float:
    return float(found["sizes"]["rows"] / found["loads"]["group"]["ours"]["warm"])


def _scaled(other: str, ours: str, part: str) -> Callable[[Found], float]:
    return lambda found: found["scaling"][other][part] / found["scaling"][ours][part]


def _spread(found: Found) -> float:
    used = [found["scaling"][f"{n} sticky"]["warm cpu"] for n in found["sizes"]["partitions"]]
    return float(max(used) / min(used))


def _latency(found: Found) -> float:
    return float(found["latency"]["ours"]["p50"] / found["latency"]["by_hand"]["p50"])


def _exactly_once(found: Found) -> float:
    return float(found["copies"]["exactly once"]["warm"] / found["copies"]["at least once"]["warm"])


def _copied(found: Found) -> float:
    return float(found["copy_latency"]["ours"]["p50"] / found["copy_latency"]["by_hand"]["p50"])


def _realtime(share: str) -> Callable[[Found], float]:
    return lambda found: found["copy_latency"]["realtime"][share]
