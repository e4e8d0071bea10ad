"""Running things in processes of their own and telling how long they took."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Run:
    """Figures that one process printed as its last line of JSON, and what it cost."""

    figures: dict[str, Any]
    cpu_seconds: float


def in_process(module: str, *arguments: str) -> Run:
    """Run a module of this package by itself. It prints its figures as one line of JSON."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        capture_output=True,
        text=True,
        cwd=HERE.parent,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"{module} failed:\n{done.stderr[-2000:]}")
    cpu = (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
    return Run(json.loads(done.stdout.strip().splitlines()[-1]), cpu)


def medians(runs: list[Run]) -> dict[str, float]:
    """The median of every figure, and of the CPU time."""
    names = runs[0].figures
    found = {name: median(float(run.figures[name]) for run in runs) for name in names}
    return found | {"cpu_seconds": median(run.cpu_seconds for run in runs)}
