"""A database whose clock stands in a file: `ageing_runner.py data-directory clock-file place number`.

It resumes what is in the data directory, prints `ready` and runs until it is killed: by itself, with SIGKILL,
before or after the record of the given number is appended to the log of a table.
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

from runner import after, before, replace


def main() -> None:
    data, clock_file, when, number = sys.argv[1:]
    from velostream.config import load
    from velostream.runtime.instance import Instance
    from velostream.serving.durable.log import Log

    replace(Log, "append", {"before": before, "after": after}[when](int(number)))
    clock = Path(clock_file)
    Instance(load(None, data_dir=Path(data)), clock=lambda: datetime.fromisoformat(clock.read_text()))
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
