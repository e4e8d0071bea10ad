"""A table that follows a topic, as long as it is read: ours, and PySpark written by hand into a dict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.pipelines.workload import FOLLOWED, STAMPED

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame


class Follower(Protocol):
    """Groups of a topic's trades, to be read by user."""

    def sent(self, user: str) -> int | None:
        """When the newest trade of this user was sent, in microseconds; None for a user that is not there."""

    def close(self) -> None:
        """End it."""


class Ours:
    """Velostream. Opened again on the same folder it goes on by itself."""

    def __init__(self, folder: Path, brokers: str, topic: str) -> None:
        import velostream

        self._db = velostream.connect(folder)
        if not any(job.name == "followed" for job in self._db.jobs()):
            self._db.sql(
                f"CREATE SOURCE trades ({STAMPED}) FROM kafka://{brokers}/{topic} "
                'WITH ("changelog" = "append")'
            )
            self._db.sql(f"CREATE TABLE followed AS {FOLLOWED.format(source='trades')}")
        self._table = self._db.table("followed")

    def sent(self, user: str) -> int | None:
        row: Any = self._table.get(user)
        return None if row is None else row.sent

    def close(self) -> None:
        self._db.close()


class ByHand:
    """Spark as it comes: a streaming aggregate, whose changed groups go into a dict."""

    def __init__(self, folder: Path, brokers: str, topic: str) -> None:
        from benchmarks.pipelines.plain_spark import decoded, session

        self._held: dict[str, dict[str, Any]] = {}
        self._spark = session()
        decoded(self._spark.readStream, brokers, topic, STAMPED).createOrReplaceTempView("trades")
        result = self._spark.sql(FOLLOWED.format(source="trades"))
        writer = result.writeStream.outputMode("update").foreachBatch(self._take)
        self._query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()

    def _take(self, batch: DataFrame, _: int) -> None:
        for row in batch.toArrow().to_pylist():
            self._held[row["user_id"]] = row

    def sent(self, user: str) -> int | None:
        row = self._held.get(user)
        return None if row is None else row["sent"]

    def close(self) -> None:
        self._query.stop()
        self._spark.stop()


FOLLOWERS: dict[str, type[Ours | ByHand]] = {"ours": Ours, "by_hand": ByHand}
