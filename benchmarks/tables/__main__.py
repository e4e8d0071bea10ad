"""`make bench-tables`: the serving table beside a plain dict, DuckDB, SQLite and polars.

Every contender runs in a process of its own, one after the other within a round; figures are medians over the
rounds. Machines are noisy, so each figure has its CPU time beside it, and its ratio to the others.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import HERE, in_process
from benchmarks.tables.contenders import CONTENDERS
from benchmarks.tables.goals import OURS, goals, told

Figures = dict[str, dict[str, float]]
SMALL_TABLE = 10_000
_REPEATED_UPTO = 1_000_000
"""Rows up to which a size is run several times; ten million take minutes."""


def run(rows: int, rounds: int) -> dict[str, Figures]:
    """The median figures of every contender at one size."""
    found: dict[str, list[Figures]] = {name: [] for name in CONTENDERS}
    for number in range(rounds):
        for name, runs in found.items():
            print(
                f"{rows:,} rows, round {number + 1} of {rounds}: {name} …",
                end="",
                file=sys.stderr,
                flush=True,
            )
            started = time.monotonic()
            runs.append(in_process("tables.figures", name, str(rows)))
            print(f" {time.monotonic() - started:.0f} s", file=sys.stderr)
    return {name: _medians(runs) for name, runs in found.items()}


def _medians(runs: list[Figures]) -> Figures:
    return {
        figure: {part: median(run[figure][part] for run in runs) for part in values}
        for figure, values in runs[0].items()
    }


def _speed(figure: dict[str, float], part: str) -> float:
    return figure["count"] / max(figure[part], 1e-9)


def ratios(found: dict[str, Figures]) -> dict[str, dict[str, float]]:
    """How many times as fast as each other contender we are, by CPU time; bytes: how many times as many."""
    compared: dict[str, dict[str, float]] = {}
    for figure, ours in found[OURS].items():
        others = {
            name: figures[figure] for name, figures in found.items() if figure in figures and name != OURS
        }
        compared[figure] = {
            name: ours["bytes"] / max(theirs["bytes"], 1)
            if "bytes" in ours
            else _speed(ours, "cpu") / _speed(theirs, "cpu")
            for name, theirs in others.items()
        }
    return compared


def _shown(figure: dict[str, float], part: str) -> str:
    if "bytes" in figure:
        return f"{figure['bytes']:,.0f} B/row"
    if figure["count"] > 1 or figure[part] < 1e-4:
        return f"{_speed(figure, part):,.0f}/s"
    return f"{figure[part] * 1000:,.3f} ms"


def show(rows: int, found: dict[str, Figures], compared: dict[str, dict[str, float]]) -> None:
    """One line per figure: ours, its CPU time, and how many times as fast as the others that is."""
    others = [name for name in found if name != OURS]
    head = "".join(f"{'× ' + name:>14}" for name in others)
    print(f"\n{rows:,} rows{'':24}{'wall':>18}{'CPU':>18}{head}")
    for figure, values in found[OURS].items():
        times = "".join(f"{_ratio(compared[figure].get(name)):>14}" for name in others)
        wall, cpu = (_shown(values, part) for part in ("wall", "cpu"))
        print(f"{figure:<34}{wall:>18}{'' if 'bytes' in values else cpu:>18}{times}")


def show_goals(rows: int, found: dict[str, Figures]) -> dict[str, bool]:
    """One line per goal; which of them hold."""
    reached = {}
    print(f"\nWhat is to hold at {rows:,} rows")
    for goal in goals(rows):
        line, reached[goal.text] = told(goal, found)
        print(line)
    return reached


def join_costs(large: int) -> dict[str, Any]:
    """What a batch of a stream costs when it is joined to a small table and to a large one."""
    found = {}
    for rows in (SMALL_TABLE, large):
        print(f"a stream joined to {rows:,} rows …", file=sys.stderr)
        found[f"{rows:,} rows"] = in_process("tables.joins", str(rows))
    small, other = found.values()
    times = {part: other[part] / small[part] for part in small}
    print(f"\nA batch of a stream joined to {large:,} rows, beside {SMALL_TABLE:,}; at most 1.5 × is to hold")
    for part, value in times.items():
        print(f"{part:<34}{small[part] * 1000:>14,.0f} ms{other[part] * 1000:>14,.0f} ms{value:>10.2f} ×")
    return {"seconds per batch": found, "times the small table's": times}


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def main() -> None:
    """Run, print tables, keep the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables")
    parser.add_argument("--rows", default="100000,1000000,10000000", help="table sizes, with commas between")
    parser.add_argument(
        "--rounds", type=int, default=3, help="of sizes up to a million; larger ones run once"
    )
    parser.add_argument("--out", type=Path, default=HERE / "tables.json")
    arguments = parser.parse_args()
    kept: dict[str, Any] = {"python": platform.python_version(), "rounds": arguments.rounds, "rows": {}}
    sizes = [int(each) for each in arguments.rows.split(",")]
    for rows in sizes:
        found = run(rows, arguments.rounds if rows <= _REPEATED_UPTO else 1)
        compared = ratios(found)
        show(rows, found, compared)
        reached = show_goals(rows, found)
        kept["rows"][str(rows)] = {"figures": found, "times as fast as": compared, "goals that hold": reached}
        arguments.out.write_text(json.dumps(kept, indent=1) + "\n")
    kept["stream joined to a table"] = join_costs(max(sizes))
    arguments.out.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
