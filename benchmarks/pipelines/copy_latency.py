"""From one topic to another: how long a record takes.

Usage: python -m benchmarks.pipelines.copy_latency WAY BROKERS TOPIC COPY PARTITIONS RATE WARM SECONDS

WAY is ours, realtime or by_hand. Records of the first WARM seconds do not count. Prints p50 and p99 in
milliseconds as JSON, or `cannot` with the reason.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import HERE, percentile
from benchmarks.pipelines.copies import copy_statement, copying, source_statement
from benchmarks.pipelines.workload import STAMPED, STAMPED_COPY

if TYPE_CHECKING:
    from collections.abc import Iterator

REALTIME = '"latency" = "realtime"'
_TOLD = re.compile(r"real-?time", re.IGNORECASE)


class CannotError(Exception):
    """This way does not work, and why."""


@contextmanager
def ours(folder: Path, brokers: str, topic: str, copy: str, *properties: str) -> Iterator[None]:
    import velostream
    from velostream.errors import VelostreamError

    with velostream.connect(folder) as db:
        db.sql(source_statement(STAMPED, brokers, topic))
        statement = copy_statement("copied", STAMPED_COPY, brokers, copy, *properties)
        try:
            if REALTIME in properties and not _TOLD.search(db.explain(statement)):
                raise CannotError("EXPLAIN does not speak of real-time mode")
            db.sql(statement)
        except VelostreamError as exc:
            raise CannotError(exc.message) from exc
        yield


@contextmanager
def by_hand(folder: Path, brokers: str, topic: str, copy: str) -> Iterator[None]:
    from benchmarks.pipelines.plain_spark import session

    spark = session()
    query = copying(spark, brokers, topic, STAMPED_COPY, STAMPED, copy, folder / "checkpoint").start()
    yield
    query.stop()
    spark.stop()


def main() -> None:
    way, brokers, topic, copy, partitions, rate, warm, seconds = sys.argv[1:9]
    length = float(warm) + float(seconds)
    with tempfile.TemporaryDirectory() as name:
        if way == "by_hand":
            running = by_hand(Path(name), brokers, topic, copy)
        else:
            running = ours(Path(name), brokers, topic, copy, *([REALTIME] if way == "realtime" else []))
        try:
            with running:
                found = _sent(brokers, topic, partitions, rate, str(length), copy)
        except CannotError as exc:
            print(json.dumps({"cannot": str(exc)}))
            return
    counted = found[round(len(found) * float(warm) / length) :]
    print(json.dumps({"p50": percentile(counted, 0.5), "p99": percentile(counted, 0.99)}))


def _sent(*arguments: str) -> list[float]:
    """Milliseconds of each record, in the order of arrival."""
    command = [sys.executable, "-m", "benchmarks.pipelines.probe", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=HERE.parent, check=True)
    found: list[float] = json.loads(done.stdout)["milliseconds"]
    return found


main()
