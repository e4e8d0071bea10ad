"""One query, four ways: asked ad hoc, kept from before its rows came, kept from after, and plain Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from equivalence.truth import Truth, differences
from velostream.errors import JobError, VelostreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from velostream.runtime.instance import Instance

BEFORE, AFTER = "before", "after"


@dataclass
class Findings:
    """What came of some queries."""

    agreed: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    """Queries that are answered ad hoc and cannot be kept, each with the reason given."""
    invalid: dict[str, str] = field(default_factory=dict)
    """Queries that Spark refuses, and so did every other way."""
    uncomputable: dict[str, str] = field(default_factory=dict)
    """Queries that fail over these rows, on Spark and ad hoc: rows that a kept table leaves out."""
    wrong: dict[str, list[str]] = field(default_factory=dict)

    def __add__(self, other: Findings) -> Findings:
        return Findings(
            self.agreed + other.agreed,
            self.refused | other.refused,
            self.invalid | other.invalid,
            self.uncomputable | other.uncomputable,
            self.wrong | other.wrong,
        )

    def told(self) -> str:
        """For a person: what is wrong first, then the refusals by reason."""
        lines = [
            f"{self.agreed} agreed, {len(self.refused)} refused, {len(self.invalid)} not Spark SQL,"
            f" {len(self.uncomputable)} fail over these rows"
        ]
        for sql, why in self.wrong.items():
            lines += ["", sql, *(f"  {line}" for line in why)]
        reasons = Counter(reason.splitlines()[0] for reason in self.refused.values())
        lines += ["", *(f"{count} x {reason}" for reason, count in reasons.most_common())]
        return "\n".join(lines)


class FourWays:
    """Holds queries over the tables of a database against each other.

    The tables are empty when this is made. `fill` brings their rows, `change` changes them. `extended`: the
    queries may be more than Spark's SQL; where Spark does not understand one, its ad hoc answer is right.
    """

    def __init__(
        self,
        spark: SparkSession,
        database: Instance,
        tables: Sequence[str],
        fill: Callable[[Instance], None],
        change: Callable[[Instance], None],
        extended: bool = False,
    ) -> None:
        self._spark = spark
        self._database = database
        self._tables = tables
        self._fill = fill
        self._change = change
        self._extended = extended

    def compare(self, queries: Sequence[str]) -> Findings:
        """Run them all, side by side."""
        kept: dict[tuple[str, int], Exception | None] = {}
        self._create(queries, BEFORE, kept)
        self._fill(self._database)
        self._create(queries, AFTER, kept)
        self._change(self._database)
        rested = self._database.wait_idle(300)
        relations = {name: self._database.sql(f"SELECT * FROM {name}").arrow() for name in self._tables}
        truth = Truth(self._spark, relations)
        found = Findings()
        for number, sql in enumerate(queries):
            refusals = {way: kept[way, number] for way in (BEFORE, AFTER)}
            self._judge(found, truth, number, sql, refusals, rested)
        return found

    def drop(self, queries: Sequence[str]) -> None:
        """Drop what was made of the queries."""
        for number in range(len(queries)):
            for way in (BEFORE, AFTER):
                self._database.sql(f"DROP TABLE IF EXISTS {way}_{number}")

    def _create(
        self, queries: Sequence[str], way: str, kept: dict[tuple[str, int], Exception | None]
    ) -> None:
        for number, sql in enumerate(queries):
            kept[way, number] = None
            try:
                self._database.sql(f"CREATE TABLE {way}_{number} AS {sql}")
            except Exception as exc:  # whatever it is, it is what a user would see
                kept[way, number] = exc

    def _judge(
        self,
        found: Findings,
        truth: Truth,
        number: int,
        sql: str,
        refusals: dict[str, Exception | None],
        rested: bool,
    ) -> None:
        wanted = _attempt(lambda: truth.rows(sql))
        asked = _attempt(lambda: self._database.sql(sql).arrow())
        if isinstance(wanted, Exception):
            if all(isinstance(each, VelostreamError) for each in (asked, *refusals.values())):
                found.invalid[sql] = str(wanted)
                return
            if isinstance(wanted, JobError) and isinstance(asked, JobError):
                found.uncomputable[sql] = str(wanted)
                return
            if not self._extended or isinstance(asked, Exception):
                found.wrong[sql] = [
                    f"Spark refuses: {str(wanted)[:300]}",
                    f"asked: {_told(asked)}",
                    *_reasons(refusals),
                ]
                return
            wanted = asked
        if isinstance(asked, Exception):
            found.wrong[sql] = [f"not answered ad hoc: {_told(asked)}", *_reasons(refusals)]
            return
        lines = [f"ad hoc: {line}" for line in differences(asked, wanted)]
        if all(isinstance(each, VelostreamError) for each in refusals.values()) and not lines:
            found.refused[sql] = str(refusals[BEFORE])
            return
        for way, refusal in refusals.items():
            if refusal is not None:
                lines.append(f"{way}: refused: {_told(refusal)}")
                continue
            table = self._database.table(f"{way}_{number}")
            job = next((job for job in self._database.jobs() if job.name == table.name), None)
            if job is not None and (job.state not in ("running", "finished") or not rested):
                lines.append(f"{way}: {job.state}: {job.reason}")
            lines += [f"{way}: {line}" for line in differences(table.snapshot(), wanted)]
        if lines:
            found.wrong[sql] = lines
        else:
            found.agreed += 1


def _attempt(ask: Callable[[], pa.Table]) -> pa.Table | Exception:
    try:
        return ask()
    except Exception as exc:  # whatever it is, it is what a user would see
        return exc


def _told(answer: pa.Table | Exception) -> str:
    if isinstance(answer, Exception):
        return f"{type(answer).__name__} {str(answer)[:400]}"
    return f"{answer.num_rows} rows"


def _reasons(refusals: dict[str, Exception | None]) -> list[str]:
    return [f"{way}: {'kept' if why is None else _told(why)}" for way, why in refusals.items()]
