"""`make bench`: loading and starting, ours beside hand-written PySpark, medians of five."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.data import write_trades
from benchmarks.measure import HERE, Run, in_process, medians

ROWS = 1_000_000


def load(folder: Path, rounds: int) -> dict[str, object]:
    """A table over a CSV of a million rows, beside the same aggregation by hand; interleaved runs."""
    path = folder / "trades.csv"
    write_trades(path, ROWS)
    ours: list[Run] = []
    by_hand: list[Run] = []
    doubles: list[Run] = []
    for _ in range(rounds):
        by_hand.append(in_process("by_hand", str(path), "DECIMAL(18,2)"))
        ours.append(in_process("ours", str(path), "DECIMAL(18,2)"))
        doubles.append(in_process("ours", str(path), "DOUBLE"))
    mine, theirs, as_double = medians(ours), medians(by_hand), medians(doubles)
    return {
        "rows": ROWS,
        "by hand, seconds": theirs,
        "velostream, seconds": mine,
        "velostream over DOUBLE, seconds": as_double,
        "speed against by hand, cold": theirs["cold"] / mine["cold"],
        "speed against by hand, warm": theirs["warm"] / mine["warm"],
        "decimal SUM against DOUBLE, warm": as_double["warm"] / mine["warm"],
    }


def start_up(folder: Path, rounds: int) -> dict[str, object]:
    """From starting the process to the first row of `velo run`, beside an empty PySpark session."""
    (folder / "small.csv").write_text("name,amount\na,1.50\nb,2.25\na,3.00\n", encoding="utf-8")
    application = folder / "app.sql"
    application.write_text(
        "CREATE TABLE totals AS SELECT name, SUM(amount) AS total "
        f"FROM file://{folder}/small.csv GROUP BY name;\n"
        "SELECT * FROM totals ORDER BY name;\n",
        encoding="utf-8",
    )
    empty, first = [], []
    for number in range(rounds):
        started = time.time()
        empty.append(float(in_process("empty_session").figures["up_at"]) - started)
        first.append(_first_row(application, folder / f"data-{number}"))
    return {
        "empty PySpark session, seconds": median(empty),
        "velo run to first row, seconds": median(first),
        "difference, seconds": median(first) - median(empty),
    }


def _first_row(application: Path, data: Path) -> float:
    command = [
        sys.executable,
        "-m",
        "velostream",
        "run",
        str(application),
        "--data-dir",
        str(data),
        "--format",
        "json",
    ]
    started = time.time()
    with subprocess.Popen(
        [*command, "--once"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(os.environ)
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seconds = time.time() - started
        process.stdout.read()
    if process.returncode != 0:
        raise RuntimeError(f"velo run ended with {process.returncode}")
    return seconds


def main() -> None:
    """Run, print a table, keep the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="velostream-bench-") as folder:
        found = {
            "start": start_up(Path(folder), arguments.rounds),
            "load": load(Path(folder), arguments.rounds),
        }
    for name, figures in found.items():
        print(f"\n{name}")
        for figure, value in figures.items():
            shown = value if not isinstance(value, dict) else {k: round(v, 2) for k, v in value.items()}
            print(f"  {figure:<36} {round(shown, 2) if isinstance(shown, float) else shown}")
    (HERE / "results.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


main()
