"""A whole statement into a topic, killed again and again: each row of its file is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import random

    from kafka_clients import Consume, Topics

    from velostream.devtools.broker.process import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(3)]

APP = """
CREATE STREAM rows AS SELECT id, grp FROM file://{log}
  WITH ("sink" = "kafka://{rows}", "key" = "grp", "delivery" = "exactly_once", "file.debounce" = "20ms");
CREATE STREAM groups AS SELECT grp, COUNT(*) AS n FROM file://{log} GROUP BY grp
  WITH ("sink" = "kafka://{groups}", "delivery" = "exactly_once", "file.debounce" = "20ms");
"""
CODE = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[4])
import sink_runner
from velostream.runtime.instance import open_instance
from velostream.runtime.statements.application import Application
if sys.argv[3]:
    sink_runner.die(sys.argv[3].rpartition(" ")[0], int(sys.argv[3].rpartition(" ")[2]))
database = open_instance(sys.argv[1])
Application(database, database.check(Path(sys.argv[2]).read_text(), "app.sql")).start()
print("ready", flush=True)
for line in sys.stdin:
    print(database.wait_idle(60), flush=True)
database.close()
"""


@pytest.mark.timeout(1800)
def test_each_row_and_the_last_of_each_group(
    broker: BrokerProcess, topic: Topics, consume: Consume, tmp_path: Path, rng: random.Random, rounds
) -> None:
    import sink_runner

    log, app = tmp_path / "log.csv", tmp_path / "app.sql"
    rows, groups = topic(3), topic(1)
    app.write_text(APP.format(log=log, rows=rows, groups=groups))
    log.write_text("id,grp\n")
    written: list[tuple[int, str]] = []

    def feed() -> None:
        new = [(len(written) + n + 1, rng.choice("abc")) for n in range(rng.randint(1, 50))]
        with log.open("a") as out:
            out.writelines(f"{number},{grp}\n" for number, grp in new)
        written.extend(new)

    def life(kill: str) -> subprocess.Popen[str]:
        arguments = [str(tmp_path / "data"), str(app), kill, str(Path(__file__).parent)]
        return subprocess.Popen(
            [sys.executable, "-c", CODE, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "VELOSTREAM_KAFKA_BROKERS": broker.address},
        )

    feed()
    places = [place for place in sorted(sink_runner.PLACES) if "settl" not in place]
    for _ in range(rounds(2, 20)):
        process = life(f"{rng.choice(places)} {rng.randint(1, 4)}")
        for _ in range(200):
            feed()
            try:
                process.wait(rng.uniform(0.1, 0.5))
                break
            except subprocess.TimeoutExpired:
                continue
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    process = life("")
    out, _ = process.communicate("idle\n", timeout=150)
    assert out.split() == ["ready", "True"]
    found = consume(rows)
    assert sorted((record.json["id"], record.json["grp"]) for record in found) == written
    # Their order within a step is not compared: Spark reads the pieces of a file in an order of its own.
    last = {record.key: record.json["n"] for record in consume(groups)}
    assert last == Counter(grp.encode() for _, grp in written)
