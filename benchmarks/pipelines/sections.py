"""What is measured, section by section: each contender in a process of its own, in turn within a round."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.measure import in_process, median_interval, medians
from benchmarks.pipelines import flink_setup
from benchmarks.pipelines.recovery import killed_and_back
from benchmarks.pipelines.windows import BY_HAND, FLINK, TIMES
from benchmarks.pipelines.workload import fill, fill_ticks
from velostream.connectors.kafka.client.cluster import Cluster
from velostream.connectors.kafka.options import KafkaOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

Figures = dict[str, Any]
"""By contender: its figures, or `cannot` with the reason."""

Way = Callable[[int], Figures]
"""One run of one contender; it gets the number of the round."""

FLINK_QUERIES = ("filter", "group")
NO_LOOKUP = (
    "its SQL joins a stream to a table as of now only where a connector looks rows up; "
    "else it keeps the rows of both sides"
)
TIMEOUT = 900.0
FOLLOWERS = ("by_hand", "ours")


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    rows: int = 2_000_000
    queries: tuple[str, ...] = ("filter", "group", "join")
    rounds: int = 2
    """Of the groups, whose figures are looked at most closely; everything else is run once."""
    loads: int = 4
    partitions: tuple[int, ...] = (1, 2, 8)
    scaling_rows: int = 4_000_000
    """So many that the start of a statement, which no partition makes faster, hardly counts."""
    scaling_loads: int = 4
    rate: int = 1000
    warm_seconds: int = 30
    seconds: int = 30
    recovery_rows: int = 500_000
    copied_rows: int = 1_000_000
    copied_loads: int = 4
    sink_rows: int = 500_000
    windows: tuple[str, ...] = ("tumbling", "sliding", "session", "changes", "rows")
    window_rows: int = 1_000_000
    window_loads: int = 4
    window_batch: int = 250_000
    """Most records of a micro-batch, so that windows reach over several."""
    changes_batch: int = 50_000
    """The same for EMIT CHANGES, where each micro-batch shows windows anew."""
    clean_rounds: int = 10


SMOKE = Sizes(
    rows=20_000,
    queries=("group",),
    rounds=1,
    loads=2,
    partitions=(1,),
    scaling_rows=10_000,
    scaling_loads=2,
    rate=500,
    warm_seconds=3,
    seconds=3,
    recovery_rows=10_000,
    copied_rows=10_000,
    copied_loads=2,
    sink_rows=10_000,
    windows=("tumbling",),
    window_rows=10_000,
    window_loads=2,
    window_batch=4000,
    clean_rounds=2,
)
"""Whether everything runs, and nothing about how fast."""


class Bench:
    """A broker, its topics, and who takes part."""

    def __init__(self, folder: Path, brokers: str, sizes: Sizes, contenders: Sequence[str]) -> None:
        self._folder, self._brokers, self._sizes = folder, brokers, sizes
        self._contenders = contenders
        self._cluster = Cluster(KafkaOptions.model_validate({"bootstrap.servers": brokers}))
        self._filled: dict[str, int] = {}

    def loads(self) -> Figures:
        """From a topic of two partitions, filled beforehand, into a table."""
        sizes = self._sizes
        topic = self._topic(2, sizes.rows)
        found: Figures = {}
        for query in sizes.queries:
            expected = self._filled[topic] if query == "filter" else sizes.rows
            common = (self._brokers, topic, query, str(expected), str(sizes.loads))
            ways = {name: self._same(f"pipelines.{name}", *common) for name in self._taking_part()}
            if "by_hand" in self._contenders and query == "filter":
                ways["by_hand_whole"] = self._same("pipelines.by_hand", *common, "whole")
            if "flink" in self._contenders and query in FLINK_QUERIES:
                ways["flink"] = partial(self._flink, common)
            found[query] = self._in_turn(query, ways, sizes.rounds if query == "group" else 1)
            if "flink" in self._contenders and query not in FLINK_QUERIES:
                found[query]["flink"] = {"cannot": NO_LOOKUP}
        return found

    def latency(self) -> Figures:
        """From produce to readable by key, at a steady rate into groups."""

        def followed(name: str, number: int) -> Figures:
            topic = self._new_topic(f"followed-{name}-{number}", 2)
            return self._run("pipelines.latency", name, self._brokers, topic, "2", *self._pace())

        return self._in_turn("latency", {name: partial(followed, name) for name in self._taking_part()})

    def scaling(self) -> Figures:
        """(b) with more and more partitions, each one whole pipeline; and one split, and read by a batch."""
        sizes = self._sizes
        ways: dict[str, Way] = {}

        def way(partitions: int, module: str, *more: str) -> Way:
            topic = self._topic(partitions, sizes.scaling_rows)
            common = ("group", str(sizes.scaling_rows), str(sizes.scaling_loads))
            return self._same(f"pipelines.{module}", self._brokers, topic, *common, *more)

        for partitions in sizes.partitions:
            ways[f"{partitions} sticky"] = way(partitions, "ours", "sticky")
        ways["1 smart"] = way(1, "ours", "smart")
        ways["1 batch by hand"] = way(1, "by_hand", "batch")
        return self._in_turn("scaling", ways)

    def recovery(self) -> Figures:
        """kill -9 of a process that keeps a table of all groups, and its return."""
        rows = self._sizes.recovery_rows

        def back(name: str, number: int) -> Figures:
            topic = self._new_topic(f"killed-{name}-{number}", 2)
            fill(self._brokers, topic, rows, 2)
            return killed_and_back(name, self._folder / topic, self._brokers, topic)

        return self._in_turn("recovery", {name: partial(back, name) for name in self._taking_part()})

    def copies(self) -> Figures:
        """(e) from topic to topic: records per second by guarantee, and the sink by itself."""
        sizes = self._sizes
        topic = self._topic(2, sizes.copied_rows)
        found: Figures = {}
        for name in self._taking_part():
            arguments = (name, self._brokers, topic, str(sizes.copied_rows), str(sizes.copied_loads))
            done = self._attempt(f"copies: {name}", self._same("pipelines.copies", *arguments))
            found |= {name: done} if "cannot" in done else done
        found["sink"] = self._attempt("copies: sink", self._same("kafka_sink", str(sizes.sink_rows)))
        return found

    def copy_latency(self) -> Figures:
        """(e) from topic to topic: how long a record takes, in micro-batches and in real-time mode."""

        def copied(name: str, number: int) -> Figures:
            # No topic is called realtime: EXPLAIN is searched for that word.
            topic, copy = (
                self._new_topic(f"{end}-{names.index(name)}-{number}", 2) for end in ("from", "to")
            )
            return self._run("pipelines.copy_latency", name, self._brokers, topic, copy, "2", *self._pace())

        names = [*self._taking_part(), *(["realtime"] if "ours" in self._contenders else [])]
        return self._in_turn("copy latency", {name: partial(copied, name) for name in names})

    def windows(self) -> Figures:
        """Windows of trades with 1,000 keys, from a topic of two partitions, in micro-batches."""
        sizes = self._sizes
        topic = self._ticks()
        found: Figures = {}
        for window in sizes.windows:
            batch = sizes.changes_batch if window == "changes" else sizes.window_batch
            expected = self._filled[topic] * TIMES.get(window, 1)
            common = (self._brokers, topic, window, str(expected), str(sizes.window_loads))
            ways = {
                name: self._same(f"pipelines.windows_{name}", *common, str(batch))
                for name in self._taking_part()
                if name == "ours" or window in BY_HAND
            }
            if "flink" in self._contenders and window in FLINK:
                ways["flink"] = partial(self._flink, common)
            found[window] = self._in_turn(window, ways, sizes.rounds if window == "tumbling" else 1)
        return found

    def clean_path(self) -> Figures:
        """Tumbling windows with and without what keeps bad and late rows, where there are none."""
        if "ours" not in self._contenders:
            return {}
        sizes, topic = self._sizes, self._ticks()
        numbers = (self._filled[topic], sizes.clean_rounds, sizes.window_batch)
        way = self._same("pipelines.clean_path", self._brokers, topic, *map(str, numbers))
        used = self._attempt("clean path", way)
        if "cannot" in used:
            return {"kept": used}
        found: Figures = {}
        for other in ("dropped", "unseen"):
            ratios = [kept / without for kept, without in zip(used["kept"], used[other], strict=True)]
            found[f"kept beside {other}"] = {**median_interval(ratios), "pairs": len(ratios)}
        return {**found, "cpu": used}

    # --- inside -----------------------------------------------------------------------------------------

    def _taking_part(self) -> list[str]:
        return [name for name in FOLLOWERS if name in self._contenders]

    def _pace(self) -> tuple[str, str, str]:
        return str(self._sizes.rate), str(self._sizes.warm_seconds), str(self._sizes.seconds)

    def _topic(self, partitions: int, rows: int) -> str:
        """A topic of trades; the same for the same numbers."""
        name = f"trades-{partitions}-{rows}"
        if name not in self._filled:
            self._new_topic(name, partitions)
            with _told(f"filling {name}"):
                self._filled[name] = fill(self._brokers, name, rows, partitions)
        return name

    def _ticks(self) -> str:
        """A topic of trades in the order of their times."""
        rows = self._sizes.window_rows
        name = f"ticks-2-{rows}"
        if name not in self._filled:
            self._new_topic(name, 2)
            with _told(f"filling {name}"):
                self._filled[name] = fill_ticks(self._brokers, name, rows, 2)
        return name

    def _new_topic(self, name: str, partitions: int) -> str:
        self._cluster.create(name, partitions, 1)
        return name

    def _in_turn(self, section: str, ways: Mapping[str, Way], rounds: int = 1) -> Figures:
        """Every way once in each round; medians. One that cannot is not tried again."""
        runs: dict[str, list[Figures]] = {name: [] for name in ways}
        for number in range(rounds):
            for name, way in ways.items():
                if not any("cannot" in run for run in runs[name]):
                    label = f"{section}, round {number + 1} of {rounds}: {name}"
                    runs[name].append(self._attempt(label, way, number))
        return {
            name: next((run for run in taken if "cannot" in run), None) or medians(taken)
            for name, taken in runs.items()
        }

    def _attempt(self, label: str, way: Way, number: int = 0) -> Figures:
        """What it finds; a failure is a figure too, since the others go on."""
        with _told(label):
            try:
                return way(number)
            except (RuntimeError, AssertionError, flink_setup.NoFlinkError) as exc:
                print(f" cannot: {exc}", file=sys.stderr)
                return {"cannot": reason(str(exc))}

    def _same(self, module: str, *arguments: str) -> Way:
        """A way that is the same in each round."""

        def run(_: int) -> Figures:
            return self._run(module, *arguments)

        return run

    def _run(self, module: str, *arguments: str) -> Figures:
        return in_process(module, *arguments, timeout=TIMEOUT)

    def _flink(self, arguments: Sequence[str], number: int) -> Figures:
        flink = flink_setup.prepared(self._folder)
        more = ["verify"] if number == 0 else []
        return in_process(
            "pipelines.flink",
            *arguments,
            str(flink.jar),
            *more,
            python=flink.python,
            environment=flink.environment,
            timeout=TIMEOUT,
        )


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Say on the error output what runs, and then how long it took."""
    began = time.monotonic()
    print(f"{what} …", end="", file=sys.stderr, flush=True)
    yield
    print(f" {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def reason(text: str) -> str:
    """The line of an error that says what is wrong: of Java's the innermost, else the last."""
    lines = text.strip().splitlines()
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes or lines)[-1][:500]


SECTIONS: dict[str, Callable[[Bench], Figures]] = {
    "loads": Bench.loads,
    "latency": Bench.latency,
    "scaling": Bench.scaling,
    "recovery": Bench.recovery,
    "copies": Bench.copies,
    "copy_latency": Bench.copy_latency,
    "windows": Bench.windows,
    "clean_path": Bench.clean_path,
}
