"""Runs the steps of jobs on a small database, so that Java can record the classes; used by `prepare`."""

from __future__ import annotations

import sys
from pathlib import Path

from velostream.config import load
from velostream.runtime.instance import Instance
from velostream.spark.session import start_session, stop_session

EXIT_TIMEOUT = 200.0
"""Seconds; Java writes 100 MB of classes while it exits."""

_SCRIPT = """
CREATE TABLE trades AS SELECT * FROM file://{folder}/t.csv WITH ("key" = "id");
CREATE TABLE totals AS
SELECT symbol, COUNT(*) AS n, SUM(price) AS total, MAX(price) AS most, SUM(price * qty) / COUNT(*) AS mean
FROM file://{folder}/t.csv GROUP BY symbol HAVING COUNT(*) > 0;
CREATE TABLE names AS SELECT DISTINCT symbol, name FROM file://{folder}/n.jsonl WHERE name IS NOT NULL;
CREATE TABLE named AS SELECT n.name, t.total FROM totals t LEFT JOIN names n ON t.symbol = n.symbol;
CREATE TABLE made AS SELECT symbol, AVG(price) AS mean FROM datagen://trades?rows=10 GROUP BY symbol;
SELECT symbol, upper(symbol), row_number() OVER (ORDER BY total) AS place FROM totals ORDER BY 1;
"""


def warm_up(database: Instance, folder: Path) -> None:
    """Read, merge, retract and join tiny inputs in the ways that jobs do."""
    trades = folder / "t.csv"
    trades.write_text("id,symbol,price,qty,at\n1,A,1.50,1,2024-01-01T00:00:00Z\n2,B,2.25,2,\n")
    (folder / "n.jsonl").write_text('{"symbol":"A","name":"Alpha"}\n{"symbol":"B","name":"Beta"}\n')
    database.sql(_SCRIPT.format(folder=folder))
    trades.write_text("id,symbol,price,qty,at\n1,A,1.75,1,2024-01-01T00:00:00Z\n3,B,2.25,2,\n")
    for job in database.jobs_by_name:
        job.wait(lambda j: j.stats.batches > 1 or not j.state.alive, timeout=10)


def main(folder: Path, archive: Path, *base: Path) -> None:
    """Warm up a session and write the archive of its classes, on top of `base` if given."""
    options = [f"-XX:SharedArchiveFile={path}" for path in base]
    options += [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    settings = load(None, data_dir=folder / "data", conf={"spark.driver.extraJavaOptions": " ".join(options)})
    spark = start_session(settings.master, settings.conf, settings.data_dir)
    try:
        with Instance(settings) as database:
            warm_up(database, folder)
    finally:
        stop_session(spark, EXIT_TIMEOUT)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
