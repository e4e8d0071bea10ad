"""Dead letters in a process that can be killed: its arguments are `data-directory input output mode kill`.

Rows whose `a` and `b` are equal make a map with the same key twice, which Spark refuses unless it is told
that the last wins. The mode `make` makes statements and reads all; `replay` has Spark told, and replays all
letters; with `kill`, "place number", the process ends with SIGKILL when that place is reached for the given
time. What there is in the end is printed as JSON; `look` does no more than that.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from velostream.runtime.instance import open_instance

SETTING = "spark.sql.mapKeyDedupPolicy"
NUMBER = "element_at(map_from_arrays(array(a, b), array(n, n)), a)"
STATEMENTS = """
CREATE TABLE picked AS SELECT {number} AS n FROM file://{input} WHERE 1 / z > 0;
CREATE TABLE sums AS SELECT n % 2 AS g, SUM({number}) AS s, COUNT(*) AS c
FROM file://{input} WHERE 1 / z > 0 GROUP BY n % 2;
CREATE STREAM written AS SELECT {number} AS n FROM file://{input} WHERE 1 / z > 0 WITH ("sink" = "file://{output}");
"""
PLACES = (
    "nothing written down",
    "written down",
    "computed, not logged",
    "logged",
    "sink written, not recorded",
    "in the result, letters there",
    "letters gone",
    "done",
)


def die(kill: str) -> None:
    """Arrange for the end."""
    from velostream.engine.bad_rows.dead_letters import DeadLetters
    from velostream.engine.outputs.outputs import SinkJournal
    from velostream.engine.replay.intent import Pending
    from velostream.serving.durable.log import Log

    functions: tuple[tuple[Any, str, bool], ...] = (
        (Pending, "intend", False),
        (Pending, "intend", True),
        (Log, "append", False),
        (Log, "append", True),
        (SinkJournal, "append", False),
        (DeadLetters, "answer", False),
        (DeadLetters, "answer", True),
        (Pending, "done", True),
    )
    place, _, number = kill.rpartition(" ")
    owner, name, after = dict(zip(PLACES, functions, strict=True))[place]
    original = getattr(owner, name)
    left = [int(number)]

    def instead(*arguments: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] <= 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **named)
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, instead)


def main() -> None:
    """One life."""
    data, given, output, mode, kill = sys.argv[1:]
    conf = {SETTING: "EXCEPTION" if mode == "make" else "LAST_WIN"}
    with open_instance(data, conf=conf) as database:
        if mode == "make":
            database.sql(STATEMENTS.format(input=given, output=output, number=NUMBER))
        assert database.wait_idle(120)
        if kill:
            die(kill)
        if mode == "replay":
            replayed = database.sql("REPLAY DEAD LETTERS").rows()
            assert all(row.tried == row.taken + row.left for row in replayed), replayed
        letters = database.sql("SELECT job, raw FROM dead_letters").rows()
        told = {
            "picked": database.table("picked").snapshot()["n"].to_pylist(),
            "sums": [tuple(row) for row in database.table("sums").rows()],
            "written": [json.loads(line)["n"] for line in Path(output).read_text().splitlines()],
            "letters": [(row.job, int(row.raw.split(b",")[0])) for row in letters],
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
