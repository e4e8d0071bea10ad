"""`make bench-pipelines`: from Kafka into tables and topics, beside PySpark by hand and PyFlink's SQL."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import HERE
from benchmarks.pipelines.goals import goals, told
from benchmarks.pipelines.report import show
from benchmarks.pipelines.sections import SECTIONS, SMOKE, Bench, Sizes
from velostream.devtools.broker.process import BrokerProcess, free_port

CONTENDERS = ("by_hand", "ours", "flink")


def main() -> int:
    """Run, print tables, keep the figures as JSON; 1 when somebody could not, but for PyFlink."""
    arguments = _arguments()
    # So that whoever ends this ends the contenders, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    chosen = {name: value for name, value in vars(arguments).items() if name in _SIZES and value is not None}
    sizes = replace(SMOKE if arguments.smoke else Sizes(), **chosen)
    contenders = [name for name in CONTENDERS if name not in arguments.without]
    output = arguments.output or (None if arguments.smoke else HERE / "pipelines.json")
    found = _kept(output, asdict(sizes), arguments.sections)
    with tempfile.TemporaryDirectory(prefix="velostream-bench-", ignore_cleanup_errors=True) as name:
        broker = BrokerProcess(Path(name) / "broker", free_port())
        broker.start()
        try:
            bench = Bench(Path(name), broker.address, sizes, contenders)
            for section in arguments.sections:
                began, load = time.monotonic(), os.getloadavg()[0]
                found[section] = SECTIONS[section](bench)
                found["measured"][section] = {
                    "commit": _commit(),
                    "load before": load,
                    "seconds": time.monotonic() - began,
                }
                # At once: who waits for half an hour may look at what is there, also when the rest fails.
                show({"sizes": found["sizes"], section: found[section]})
        finally:
            broker.kill()
    # Small sizes say nothing about speed.
    if not arguments.smoke:
        found["goals"] = [told(goal, found) for goal in goals()]
        show({"sizes": found["sizes"], "goals": found["goals"]})
    if output is not None:
        output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(any(_cannot(found[section]) for section in arguments.sections))


def _kept(output: Path | None, sizes: dict[str, Any], sections: list[str]) -> dict[str, Any]:
    """What the file says of sections that are not measured now, with the same sizes."""
    try:
        before = json.loads(output.read_text(encoding="utf-8")) if output is not None else {}
    except FileNotFoundError:
        before = {}
    now = json.loads(json.dumps(sizes))
    same = all(now.get(name) == size for name, size in before.get("sizes", {}).items())
    others = {name: before[name] for name in SECTIONS if name in before and name not in sections and same}
    measured = {name: told for name, told in before.get("measured", {}).items() if name in others}
    machine = {"cores": os.cpu_count(), "python": platform.python_version()}
    return {"machine": machine, "sizes": sizes, "measured": measured, **others}


def _commit() -> str:
    """What was measured."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    return done.stdout.strip()


_SIZES = {field.name: field for field in fields(Sizes)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipelines")
    parser.add_argument("--smoke", action="store_true", help="small sizes: whether it runs, not how fast")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--without", nargs="+", choices=CONTENDERS, default=[])
    parser.add_argument("--output", type=Path, help="where the JSON goes; with --smoke nowhere by default")
    for name, field in _SIZES.items():
        option = f"--{name.replace('_', '-')}"
        default = field.default
        if isinstance(default, tuple):
            parser.add_argument(option, dest=name, type=partial(_several, type(default[0])))
        else:
            parser.add_argument(option, dest=name, type=int)
    return parser.parse_args()


def _several(kind: type, text: str) -> tuple[Any, ...]:
    """Values with commas between them."""
    return tuple(map(kind, text.split(",")))


def _cannot(figures: dict[str, Any], name: str = "") -> bool:
    """Whether anybody failed who should not."""
    if "cannot" in figures:
        return name not in ("flink", "realtime")
    return any(_cannot(inner, key) for key, inner in figures.items() if isinstance(inner, dict))


if __name__ == "__main__":
    sys.exit(main())
