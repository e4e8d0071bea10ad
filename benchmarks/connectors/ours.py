"""A connector over Arrow batches, into a stateless query. Usage: ours ROWS STEP [driver]"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import velostream
from benchmarks.connectors.rows import COLUMNS, QUERY, batches, kept
from benchmarks.measure import loads
from velostream.connectors import Connector, NumberedSource, SourceOptions, TaskReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from velostream import connectors
    from velostream.connectors import Source, SourceContext, Uri


class MadeUpOptions(SourceOptions):
    rows: int


class MadeUp(NumberedSource):
    """Read in the driver."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def discover(self) -> pa.Schema:
        return COLUMNS

    def newest(self) -> Mapping[str, int]:
        return {"all": self._rows}

    def rows(self, partition: str, first: int, last: int) -> Iterator[pa.RecordBatch]:
        return batches(first, last)


class MadeUpInTasks(MadeUp, TaskReader):
    """Read by Spark's tasks."""


class MadeUpConnector(Connector):
    name = "madeup"
    schemes = ("tasks", "driver")
    Options = MadeUpOptions

    def source(self, uri: Uri, options: connectors.Options, context: SourceContext) -> Source:
        assert isinstance(options, MadeUpOptions)
        return (MadeUpInTasks if uri.scheme == "tasks" else MadeUp)(options.rows)


def main() -> None:
    rows, step, scheme = int(sys.argv[1]), int(sys.argv[2]), (*sys.argv[3:], "tasks")[0]
    velostream.register(MadeUpConnector)
    with tempfile.TemporaryDirectory() as folder, velostream.connect(folder) as db:
        db.spark()

        def load(number: int) -> None:
            source = f'{scheme}://all?rows={rows} WITH ("max.rows.per.batch" = "{step}")'
            db.sql(f"CREATE TABLE t{number} AS {QUERY.format(rows=source)}")
            table = db.table(f"t{number}")
            while len(table) < kept(rows):
                time.sleep(0.002)
            assert len(table) == kept(rows)

        print(json.dumps(loads(load)))


if __name__ == "__main__":
    # Under the name by which Spark's tasks import it.
    from benchmarks.connectors.ours import main as run

    run()
