"""Opening a durable table again, in a process of its own; prints one line of JSON.

What counts is the time from opening to the first answer; starting Python and loading libraries does not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa

from benchmarks.tables.contenders import CONTENDERS
from benchmarks.tables.stopwatch import timed


def main() -> None:
    # With its first array pyarrow loads pandas, where that is installed, which takes as long as the rows.
    pa.array([1])
    held = CONTENDERS[sys.argv[1]](Path(sys.argv[2]))
    walls: list[float] = []
    cpus: list[float] = []
    with timed(walls, cpus):
        held.reopen()
        held.scalar("SUM(amount)", "status = 'active'")
    with timed(walls, cpus):
        held.getter()("txn_00000007")
    held.close()
    sql, first_get = ([wall, cpu] for wall, cpu in zip(walls, cpus, strict=True))
    both = [one + other for one, other in zip(sql, first_get, strict=True)]
    print(json.dumps({"recovery to SQL": sql, "recovery to get": both}))


if __name__ == "__main__":
    main()
