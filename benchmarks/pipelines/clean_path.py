"""What keeping bad and late rows costs where there are none: processor seconds of tumbling windows, in turn.

Usage: python -m benchmarks.pipelines.clean_path BROKERS TOPIC EXPECTED ROUNDS BATCH

- `kept`: as it is by default, bad and late rows become dead letters.
- `dropped`: the statement asks for nothing to be kept: it fails at a bad record, and only counts late rows.
- `unseen`: nothing is looked for. Records are decoded by Spark's `from_json` with the declared columns, which
  rounds, replaces and makes nulls where a record is bad; late windows are merged like others. No property
  gives this: it is done to our own functions here.
"""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING
from unittest.mock import patch

import velostream
from benchmarks.measure import timed
from benchmarks.pipelines.windows_ours import declare, load
from velostream.connectors.kafka.read.dataframes import KafkaFrames
from velostream.engine.event_time.late_windows import LateWindows
from velostream.formats.columns.dataframes import RECORD
from velostream.formats.columns.types import spark_name
from velostream.formats.json import records as json_records
from velostream.sql.types import literal, quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

DROPPED = ' WITH ("on.error" = "fail", "late.rows" = "drop")'
WARM = 2
"""Rounds that do not count."""


@contextmanager
def unseen() -> Iterator[None]:
    """Our functions without all that looks for bad and late rows."""
    with (
        patch.object(json_records, "decode_fast", _decode),
        patch.object(KafkaFrames, "_needs_value", False),
        patch.object(LateWindows, "left_out", _all_in_time),
    ):
        yield


def _decode(records: DataFrame, fields: Sequence[pa.Field], passed: Sequence[str] = ()) -> DataFrame:
    through = [quote(name) for name in passed]
    ddl = literal(", ".join(f"{quote(field.name)} {spark_name(field.type)}" for field in fields))
    parsed = records.selectExpr(f"from_json(CAST({RECORD} AS STRING), {ddl}) AS t", *through)
    return parsed.selectExpr("t.*", *through)


def _all_in_time(late: LateWindows, plus: pa.Table, *_: object) -> pa.Table:
    return plus


def main() -> None:
    brokers, topic, expected, rounds, batch = sys.argv[1:6]
    used: dict[str, list[float]] = {"kept": [], "dropped": [], "unseen": []}
    with tempfile.TemporaryDirectory() as folder, velostream.connect(folder) as db:
        db.spark()
        declare(db, brokers, topic, batch)
        for number in range(-WARM, int(rounds)):
            # Each goes first in its turn, so that what one leaves to the next is nobody's burden alone.
            turn = number % len(used)
            for name in [*used, *used][turn : turn + len(used)]:
                figures: dict[str, float] = {}
                table = f"{name}_{number + WARM}"
                properties = DROPPED if name == "dropped" else ""
                with unseen() if name == "unseen" else nullcontext(), timed(figures, "load"):
                    load(db, "tumbling", int(expected), table, properties)
                if number >= 0:
                    used[name].append(figures["load cpu"])
    print(json.dumps(used))


main()
