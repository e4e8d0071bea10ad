"""Repartitioning of a source's rows over Spark's tasks, as a statement asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.connectors.capabilities import SparkReader
from velostream.errors import ConfigError, JobError
from velostream.plan.spreading import HASH, ROUND_ROBIN, SMART, STICKY, STRATEGIES, Spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

    from velostream.connectors.base import Source

    Strategy = Callable[[pa.RecordBatch, int], Any]

_PLACE = "__place"
FAILED = "PARTITION_STRATEGY_FAILED"
"""Prefix of an error in a user's strategy, which is not the fault of a row."""


class Strategies:
    """The strategies that users registered, by name."""

    def __init__(self) -> None:
        self._known: dict[str, Strategy] = {}

    def names(self) -> tuple[str, ...]:
        """The registered names."""
        return tuple(self._known)

    def known(self, name: str) -> bool:
        """Whether a statement may use it now."""
        return name in STRATEGIES or name in self._known

    def add(self, name: str, function: Strategy) -> None:
        """Register one; later statements use it, running ones keep theirs."""
        if name in STRATEGIES:
            raise ConfigError(f'"{name}" is a strategy that is built in', hint="give yours another name")
        self._known[name] = function

    def spreading(self, spread: Spread, source: Source) -> Spreading | None:
        """A strategy prepared for one source; None where its rows keep their partitions."""
        if spread.strategy == STICKY:
            SparkReader.of(source).splits = False
            return None
        if spread.strategy == SMART:
            SparkReader.of(source).tasks = spread.partitions
            if spread.partitions is None or source.traits.takes_tasks:
                return None
        return Spreading(spread, self._known.get(spread.strategy))


@dataclass(frozen=True)
class Spreading:
    """Repartitions frames."""

    spread: Spread
    function: Strategy | None

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The same rows, in other partitions."""
        from pyspark.sql import functions as f

        spread = self.spread
        many = spread.partitions or frame.sparkSession.sparkContext.defaultParallelism
        if spread.strategy == HASH:
            return frame.repartition(many, *(f.expr(key) for key in spread.keys))
        if spread.strategy == ROUND_ROBIN:
            return frame.repartition(many)
        if self.function is not None:
            placed = frame.mapInArrow(_placed(spread.strategy, self.function, many), _with_place(frame))
            return placed.repartitionById(many, _PLACE).drop(_PLACE)
        found = frame.rdd.getNumPartitions()
        if found == many:
            return frame
        return frame.coalesce(many) if found > many else frame.repartition(many)


def strategy_failed(said: str) -> JobError | None:
    """The error of a user's strategy, if Spark's message is about one; else None."""
    at = said.find(FAILED)
    if at < 0:
        return None
    return JobError(
        said[at + len(FAILED) + 2 :].splitlines()[0],
        hint="a strategy takes a record batch and the number of partitions, and gives a number for each row",
    )


def _with_place(frame: DataFrame) -> Any:
    from pyspark.sql.types import IntegerType, StructField, StructType

    return StructType([*frame.schema.fields, StructField(_PLACE, IntegerType())])


def _placed(
    name: str, function: Strategy, many: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # Runs in a Python worker, so everything it needs is in the closure.
    def place(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np

        for batch in batches:
            try:
                given = np.asarray(function(batch, many), dtype=np.int64)
                if given.shape != (batch.num_rows,):
                    raise ValueError(f"it gave {given.shape} numbers for {batch.num_rows} rows")
            except Exception as exc:
                text = f'{FAILED}: partition strategy "{name}" failed: {type(exc).__name__}: {exc}'
                raise RuntimeError(text) from None
            column = pa.array((given % many).astype(np.int32))
            yield pa.RecordBatch.from_arrays([*batch.columns, column], [*batch.schema.names, _PLACE])

    return place
