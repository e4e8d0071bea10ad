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
from typing import Any

from benchmarks.data import write_objects, write_trades
from benchmarks.measure import HERE, in_process, medians

ROWS = 1_000_000


def load(path: Path, rounds: int, *, doubles: bool) -> dict[str, object]:
    """A table over a file of a million rows, beside the same aggregation by hand; interleaved runs."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for _ in range(rounds):
        runs.setdefault("by hand", []).append(in_process("by_hand", str(path), "DECIMAL(18,2)"))
        runs.setdefault("velostream", []).append(in_process("ours", str(path), "DECIMAL(18,2)"))
        if doubles:
            runs.setdefault("velostream over DOUBLE", []).append(in_process("ours", str(path), "DOUBLE"))
    found = {name: medians(figures) for name, figures in runs.items()}
    theirs, mine = found["by hand"], found["velostream"]
    ratios = {f"speed against by hand, {name}": theirs[name] / mine[name] for name in theirs}
    if doubles:
        over_double = found["velostream over DOUBLE"]
        ratios |= {
            f"decimal SUM against DOUBLE, {name}": over_double[name] / mine[name]
            for name in ("warm", "warm cpu")
        }
    return {"rows": ROWS, **{f"{name}, seconds": figures for name, figures in found.items()}, **ratios}


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
        empty.append(float(in_process("empty_session")["up_at"]) - started)
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
        comma, objects = Path(folder) / "trades.csv", Path(folder) / "trades.jsonl"
        write_trades(comma, ROWS)
        write_objects(comma, objects)
        found = {
            "start": start_up(Path(folder), arguments.rounds),
            "load of CSV": load(comma, arguments.rounds, doubles=True),
            "load of JSON": load(objects, arguments.rounds, doubles=False),
        }
    for name, figures in found.items():
        print(f"\n{name}")
        for figure, value in figures.items():
            shown = value if not isinstance(value, dict) else {k: round(v, 2) for k, v in value.items()}
            print(f"  {figure:<36} {round(shown, 2) if isinstance(shown, float) else shown}")
    (HERE / "results.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


main()
