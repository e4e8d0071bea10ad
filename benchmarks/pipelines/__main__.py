"""`make bench-pipelines`: rows per second from a topic into a table, beside hand-written PySpark."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure import HERE, in_process, medians
from benchmarks.pipelines.workload import QUERIES, fill
from velostream.connectors.kafka.cluster import Cluster
from velostream.connectors.kafka.options import KafkaOptions
from velostream.runtime.broker import BrokerProcess, free_port

CONTENDERS = ("by_hand", "ours")


def main() -> None:
    """Run, print a table, keep the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipelines")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--queries", nargs="*", default=list(QUERIES))
    arguments = parser.parse_args()
    found: dict[str, Any] = {"rows": arguments.rows, "partitions": arguments.partitions}
    with tempfile.TemporaryDirectory(prefix="velostream-bench-") as folder:
        broker = BrokerProcess(Path(folder) / "broker", free_port())
        broker.start()
        try:
            options = KafkaOptions.model_validate({"bootstrap.servers": broker.address, "topic": "trades"})
            Cluster(options).create("trades", arguments.partitions, 1)
            fill(broker.address, "trades", arguments.rows, arguments.partitions)
            for query in arguments.queries:
                found[query] = _compared(broker.address, query, arguments.rows, arguments.rounds)
        finally:
            broker.kill()
    (HERE / "pipelines.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _compared(brokers: str, query: str, rows: int, rounds: int) -> dict[str, Any]:
    runs: dict[str, list[dict[str, Any]]] = {}
    for _ in range(rounds):
        for name in CONTENDERS:
            figures = in_process(f"pipelines.{name}", brokers, "trades", query, str(rows))
            runs.setdefault(name, []).append(figures)
    found = {name: medians(figures) for name, figures in runs.items()}
    print(f"\n{query}: {rows:,} records")
    for name, figures in found.items():
        shown = ", ".join(f"{k} {v:.2f}" for k, v in figures.items())
        speeds = " ".join(f"{rows / figures[when]:>10,.0f}/s {when}" for when in ("cold", "warm"))
        print(f"  {name:<10} {speeds}   {shown}")
    ratios = {name: found["by_hand"][name] / found["ours"][name] for name in found["ours"]}
    print("  speed against by hand: " + ", ".join(f"{name} {value:.2f}" for name, value in ratios.items()))
    return {**found, "speed against by hand": ratios}


main()
