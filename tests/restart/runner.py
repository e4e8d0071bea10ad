"""An application in a process that can be killed: `runner.py data-directory app.sql`.

Commands come on standard input, one per line, and each is answered with one line: `idle` waits until every
job has taken in what there is, `jobs` gives their states and reasons as JSON, `java` the process id of the
JVM, `sql …` executes a statement, `dump …` writes every table into a folder, `snapshot` lets every table
write its own, `quit` closes the database. `die place number`, or VELOSTREAM_TEST_KILL = "place number" from
the start, ends the process with SIGKILL when that place is reached for the given time; see `PLACES`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from velostream.runtime.instance import open_instance

if TYPE_CHECKING:
    from collections.abc import Callable


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def replace(owner: Any, name: str, instead: Callable[..., Any]) -> None:
    """Put `instead(original, *arguments)` in the place of a function."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *arguments, **named: instead(original, *arguments, **named))


def before(number: int) -> Callable[..., Any]:
    left = [number]

    def instead(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] <= 0:
            die()
        return original(*arguments, **named)

    return instead


def after(number: int) -> Callable[..., Any]:
    left = [number]

    def instead(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        left[0] -= 1
        if left[0] <= 0:
            die()
        return result

    return instead


def half_written(number: int) -> Callable[..., Any]:
    """The file that would be replaced as a whole is left half written beside the old one."""
    left = [number]

    def instead(original: Callable[..., Any], path: Path, text: bytes, **how: Any) -> None:
        left[0] -= 1
        if left[0] <= 0:
            path.with_name(f"{path.name}.new").write_bytes(text[: len(text) // 2])
            die()
        original(path, text, **how)

    return instead


def place(kill: str) -> None:
    """Arrange for the end, at "place number"."""
    from velostream.connectors.databases.change_log import ChangeLog
    from velostream.connectors.databases.source import DatabaseSource
    from velostream.connectors.file.source import FileSource
    from velostream.connectors.files.spool.draft import Draft
    from velostream.connectors.files.spool.spool import Spool
    from velostream.engine.bad_rows.dead_letters import DeadLetters
    from velostream.engine.delta.log import DeltaLog
    from velostream.engine.outputs.outputs import SinkJournal
    from velostream.runtime.catalog import file as catalog_file
    from velostream.serving.durable import snapshots
    from velostream.serving.durable.log import Log
    from velostream.serving.durable.table_files import Journal
    from velostream.spark import delta

    places: dict[str, tuple[Any, str, Callable[[int], Callable[..., Any]]]] = {
        "sink written, not recorded": (SinkJournal, "append", before),
        "sink recorded": (SinkJournal, "append", after),
        "table computed, not logged": (Log, "append", before),
        "table logged, not published": (Journal, "record", after),
        "table committed, source not told": (FileSource, "commit", before),
        "segments written, not in the journal": (Spool, "append", before),
        "spooled, not announced": (Spool, "append", after),
        "while spooling": (Draft, "write", after),
        "changes received, not in their log": (ChangeLog, "append", before),
        "changes logged, not acknowledged": (ChangeLog, "append", after),
        "everything is to be read again": (ChangeLog, "begin_load", after),
        "changes committed, their log not told": (DatabaseSource, "commit", before),
        "before a snapshot": (snapshots, "write", before),
        "after a snapshot": (snapshots, "write", after),
        "while the catalogue is written": (catalog_file, "replace_file", half_written),
        "catalogue written": (catalog_file, "replace_file", after),
        "dead letters kept, batch not": (DeadLetters, "keep", after),
        "before a merge of Delta's": (delta, "merge", before),
        "Delta committed, nobody told": (DeltaLog, "written", before),
    }
    name, _, number = kill.rpartition(" ")
    owner, function, when = (places | in_lakes() if "lake" in name else places)[name]
    replace(owner, function, when(int(number)))


def in_lakes() -> dict[str, tuple[Any, str, Callable[[int], Callable[..., Any]]]]:
    """Places in the sinks of Delta Lake and Iceberg, whose libraries take a while to load."""
    from pyiceberg.table import Transaction

    from velostream.connectors.delta import sink as delta_sink
    from velostream.connectors.lakes.sink import LakeSink

    return {
        "step of a lake intended, not written": (LakeSink, "write", before),
        "step of a lake written": (LakeSink, "write", after),
        "committed to the lake of Delta, not synced": (delta_sink, "sync_commits", before),
        "files of Iceberg's lake written, not committed": (Transaction, "commit_transaction", before),
        "committed to Iceberg's lake, nobody told": (Transaction, "commit_transaction", after),
    }


PLACES = {
    "sink written, not recorded": 4,
    "sink recorded": 4,
    "table computed, not logged": 12,
    "table logged, not published": 12,
    "table committed, source not told": 12,
    "segments written, not in the journal": 12,
    "spooled, not announced": 12,
    "while spooling": 12,
    "before a snapshot": 1,
    "after a snapshot": 1,
    "while the catalogue is written": 8,
    "catalogue written": 8,
    "dead letters kept, batch not": 2,
}
"""Places to die at, and up to which number the time may be drawn. Delta's and those in lakes have tests."""


def main() -> None:
    """Run the application until standard input ends."""
    data_dir, app = sys.argv[1:]
    import pyarrow.parquet as pq

    from velostream.engine.inputs import feed
    from velostream.runtime.statements.application import Application
    from velostream.spark import session

    # Both ways are taken: the smallest tables are computed as a whole, the others followed by key.
    feed.FEW_ROWS = 10
    kill = os.environ.get("VELOSTREAM_TEST_KILL")
    if kill:
        place(kill)
    database = open_instance(data_dir)
    Application(database, database.check(Path(app).read_text(), app)).start()
    print("ready", flush=True)
    for line in sys.stdin:
        command = line.strip()
        if command == "idle":
            print(database.wait_idle(120), flush=True)
        elif command == "snapshot":
            for table in database.store.tables().values():
                table.checkpoint()
            print("done", flush=True)
        elif command.startswith("sql "):
            database.sql(command.removeprefix("sql "))
            print("done", flush=True)
        elif command.startswith("die "):
            place(command.removeprefix("die "))
            print("done", flush=True)
        elif command.startswith("dump "):
            for name, table in database.store.tables().items():
                pq.write_table(table.snapshot(), Path(command.removeprefix("dump ")) / f"{name}.parquet")
            print("done", flush=True)
        elif command == "jobs":
            told = {job.name: [job.state, job.reason] for job in database.jobs()}
            print(json.dumps(told), flush=True)
        elif command == "java":
            print(session.java_processes()[0], flush=True)
        elif command == "quit":
            database.close()
            print("closed", flush=True)
            return


if __name__ == "__main__":
    main()
