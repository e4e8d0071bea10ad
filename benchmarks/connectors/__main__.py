"""`make bench-connectors`: a connector of one's own beside Spark's data sources, S3 beside Spark's reader."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.connectors.objects import FORMATS, put_small, put_trades, running
from benchmarks.goal import Goal
from benchmarks.measure import HERE, in_process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Found = dict[str, Any]
_LONGEST = 3_600.0


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    rows: int = 5_000_000
    step: int = 1_000_000
    """Rows of a micro-batch, on both sides."""
    rounds: int = 3
    objects: int = 1_000
    size: int = 1_000_000
    listed: int = 100_000
    new: int = 5
    poll: str = "1s"
    """Between two listings."""


SMOKE = Sizes(rows=200_000, step=100_000, rounds=1, objects=10, size=100_000, listed=1_500, new=2)


def main() -> int:
    """Run, print the figures and the goals, keep them as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.connectors", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="small sizes: whether it runs, not how fast")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--output", type=Path, help="where the JSON goes; with --smoke nowhere by default")
    given = parser.parse_args()
    sizes = SMOKE if given.smoke else Sizes(rounds=given.rounds or Sizes.rounds)
    output = given.output or (None if given.smoke else HERE / "connectors.json")
    found: Found = json.loads(output.read_text()) if output is not None and output.exists() else {}
    found["machine"] = {"cores": os.cpu_count(), "python": platform.python_version()}
    found["sizes"] = asdict(sizes)
    for name in given.sections:
        said = {"commit": _commit(), "load before": os.getloadavg()[0]}
        found[name] = SECTIONS[name](sizes, given.formats) | said
        print(json.dumps({name: found[name]}, indent=1), flush=True)
    if output is not None:
        output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    # Small sizes say nothing about speed.
    for goal in () if given.smoke else GOALS:
        try:
            value = goal.value(found)
        except KeyError:
            continue
        print(f"{'holds' if goal.holds(value) else 'MISSED':7} {goal.text}: {value:,.3f}; {goal.wanted}")
    return 0


def connector(sizes: Sizes, _: Sequence[str]) -> Found:
    """Arrow batches of 10,000 rows into a stateless query."""
    rows, step = str(sizes.rows), str(sizes.step)
    contenders = {
        "bare": lambda: in_process("connectors.bare", rows, step, timeout=_LONGEST),
        "tasks": lambda: in_process("connectors.ours", rows, step, "tasks", timeout=_LONGEST),
        "driver": lambda: in_process("connectors.ours", rows, step, "driver", timeout=_LONGEST),
    }
    return {"rows": sizes.rows, **_in_turn(contenders, sizes.rounds)}


def load(sizes: Sizes, formats: Sequence[str]) -> Found:
    """Objects of a bucket into a table, beside Spark's own reader of them."""
    found: Found = {}
    for form in formats:
        with (
            tempfile.TemporaryDirectory(prefix="velostream-bench-") as folder,
            running(Path(folder)) as store,
        ):
            address = json.dumps(asdict(store))
            _say(f"{form}: filling the bucket …")
            filled = put_trades(store, form, sizes.objects, sizes.size)
            ours = ("connectors.buckets", address, "load", form, str(filled["rows"]))
            contenders = {
                "spark": lambda: in_process("connectors.s3a", address, form, timeout=_LONGEST),  # noqa: B023
                "ours": lambda: in_process(*ours, timeout=_LONGEST),  # noqa: B023
            }
            found[form] = {**filled, **_in_turn(contenders, sizes.rounds)}
            # At once: the others take minutes.
            _say(json.dumps({form: found[form]}))
    return found


def listing(sizes: Sizes, _: Sequence[str]) -> Found:
    """One new object among many, from its put until its row can be read."""
    with tempfile.TemporaryDirectory(prefix="velostream-bench-") as folder, running(Path(folder)) as store:
        _say(f"filling the bucket with {sizes.listed:,} objects …")
        put_small(store, sizes.listed)
        _say("reading it …")
        arguments = (json.dumps(asdict(store)), "notice", str(sizes.listed), str(sizes.new), sizes.poll)
        figures = in_process("connectors.buckets", *arguments, timeout=_LONGEST)
    return {"objects": sizes.listed, **figures}


def _in_turn(contenders: Mapping[str, Callable[[], Found]], rounds: int) -> Found:
    """The medians of each contender; RuntimeError where their results differ."""
    runs: dict[str, list[Found]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, run in contenders.items():
            _say(f"round {number + 1} of {rounds}: {name} …")
            runs[name].append(run())
    if len({run.pop("result", None) for each in runs.values() for run in each}) != 1:
        raise RuntimeError("the results differ")
    return {
        name: {figure: median(run[figure] for run in each) for figure in each[0]}
        for name, each in runs.items()
    }


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _commit() -> str:
    """What was measured."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    return done.stdout.strip()


SECTIONS = {"connector": connector, "load": load, "listing": listing}


def _speed(way: str) -> Goal:
    return Goal(
        f"a Python connector read {way}, warm",
        "rows a second",
        500_000,
        lambda found: found["connector"]["rows"] / found["connector"][_WAYS[way]]["warm"],
    )


def _beside_bare(way: str, figure: str, named: str) -> Goal:
    return Goal(
        f"the same beside a bare data source of Spark's, {way}, {named}",
        "times as long",
        1.1,
        lambda found: found["connector"][_WAYS[way]][figure] / found["connector"]["bare"][figure],
        at_most=True,
    )


def _beside_s3a(form: str) -> Goal:
    return Goal(
        f"objects of {form} into a table, beside Spark's reader, warm",
        "times as fast",
        0.9,
        lambda found: found["load"][form]["spark"]["warm"] / found["load"][form]["ours"]["warm"],
    )


_WAYS = {"by tasks": "tasks", "in the driver": "driver"}
GOALS = (
    *(_speed(way) for way in _WAYS),
    *(
        _beside_bare(way, figure, named)
        for way in _WAYS
        for figure, named in (("warm", "wall time"), ("warm cpu", "processor time"))
    ),
    *(_beside_s3a(form) for form in FORMATS),
    Goal(
        "one new object among many, from put to readable, the longest",
        "s",
        5.0,
        lambda found: found["listing"]["longest"],
        at_most=True,
    ),
)

if __name__ == "__main__":
    sys.exit(main())
