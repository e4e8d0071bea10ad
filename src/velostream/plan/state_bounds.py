"""State of a statement: what it has to keep between batches, and what bounds its growth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from velostream.model.durations import format_duration
from velostream.plan.plans import GroupsPlan, OverPlan, RecomputePlan, UpsertPlan
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from velostream.plan.plans import Plan
    from velostream.plan.time.kept_rows import KeptRows

TTL = '"state.ttl"'


@dataclass(frozen=True)
class Remembered:
    """One kind of state that a job keeps."""

    what: str
    bound: str | None = None
    """What bounds its size; None when nothing does."""
    grows: str = ""
    """What it grows with, where nothing bounds it."""
    advice: str = ""
    """What the user could do to bound it; empty where nothing helps."""
    endless: bool = False
    """Whether it grows with every row, whatever the rows hold: then the user is warned unasked."""

    @property
    def told(self) -> str:
        """The text EXPLAIN prints after "bounded:"."""
        if self.bound is not None:
            return f"yes, {self.bound}"
        return f"no, it grows with {self.grows}" + (f"; {self.advice}" if self.advice else "")

    @property
    def warning(self) -> str | None:
        """The warning printed when the statement is created; None where none is needed."""
        if not self.endless or self.bound is not None:
            return None
        return f"state grows without bound: {self.what}; {self.advice}"


@dataclass(frozen=True)
class Keeping:
    """What decides how long a statement's state is kept."""

    ttl: timedelta | None = None
    """`state.ttl`."""
    beside: bool = False
    """Whether the result is kept as state beside the job, because changes of it are written elsewhere."""
    only_grows: bool = True
    """Whether no input can retract rows."""
    streams: bool = True
    """Whether the statement reads sources, and not only tables."""
    names: Mapping[str, str] | None = None
    """From the id of each input to the name that users know."""

    @property
    def forgetting(self) -> str | None:
        """The duration of `state.ttl` as text; None where it is not set."""
        return format_duration(self.ttl) if self.ttl is not None else None


def of_plan(plan: Plan, keeping: Keeping) -> Remembered | None:
    """The state that the result of a plan is for the next batch; None for a stateless plan."""
    if isinstance(plan, GroupsPlan):
        if plan.closes:
            return _windows(plan, keeping)
        if not plan.grouped:
            return Remembered("one row of accumulators", "there is only that one")
        what = "one row of accumulators per group" if plan.mergeable else "one row per group"
        return _by_key(what, "groups", keeping)
    if isinstance(plan, UpsertPlan):
        return _by_key("the last row of each key", "keys", keeping)
    if isinstance(plan, OverPlan):
        return _over(plan)
    if isinstance(plan, RecomputePlan):
        return Remembered("the result", grows="the result itself")
    return None


def _over(plan: OverPlan) -> Remembered:
    if plan.bounded:
        what = "the rows that OVER looks back to"
        ends = "OVER looks back no further"
        return Remembered(what, grows="the number of keys") if plan.keys else Remembered(what, ends)
    return Remembered(
        "all rows, which OVER looks back to, beside the job",
        grows="every row",
        advice="ORDER BY the event time with ROWS BETWEEN n PRECEDING AND … bounds it",
        endless=True,
    )


def _by_key(what: str, each: str, keeping: Keeping) -> Remembered:
    if keeping.beside:
        what += ", beside the job"
    ttl = keeping.forgetting
    if ttl is not None:
        return Remembered(what, f"{TTL} forgets {each} without a new row for {ttl}")
    advice = ""
    if keeping.streams and keeping.only_grows:
        advice = f"{TTL} forgets those without a new row for that long"
    return Remembered(what, grows=f"the number of {each}", advice=advice)


def _windows(plan: GroupsPlan, keeping: Keeping) -> Remembered:
    assert plan.windowing is not None
    what = (
        "one row of accumulators per window and group" if plan.mergeable else "one row per window and group"
    )
    if keeping.beside:
        what += ", beside the job"
    ttl, corrected = keeping.forgetting, plan.windowing.late == "update"
    if ttl is not None:
        return Remembered(what, f"{TTL} forgets a window {ttl} after it has closed")
    if not keeping.beside:
        return Remembered(
            what,
            grows="time: windows that have closed stay in the table",
            advice='"retention" lets rows leave it',
        )
    if keeping.only_grows and not corrected:
        return Remembered(what, "a window is forgotten when it has closed and its row is written")
    why = "late rows may correct any of them" if corrected else "the input can retract rows"
    return Remembered(
        f"{what}, also of windows that have closed: {why}",
        grows="time",
        advice=f"{TTL} forgets a window that long after it has closed",
        endless=True,
    )


def of_rows(rows: KeptRows, plan: Plan, keeping: Keeping) -> Remembered:
    """The state kept for one input: its rows, or the last row per key."""
    name = (keeping.names or {}).get(rows.relation, rows.relation)
    if rows.message_key is not None:
        return Remembered(f"the last row of each message key of {name}", grows="the number of message keys")
    if rows.last:
        what = f"the last row of each key of {name}, and those that the watermark has not passed"
        return Remembered(what, grows="the number of keys")
    if rows.keep is not None:
        return Remembered(
            f"rows of {name}", "the watermark drops a row when no match for it can arrive any more"
        )
    if rows.bounds:
        return Remembered(f"the rows of {name} that the clock has not passed", "the clock drops them")
    what = f"all rows of {name}, beside the job"
    why = _unmerged(plan)
    if why:
        what += f", since {why} cannot be merged"
    windowing = plan.windowing if isinstance(plan, GroupsPlan) and plan.closes else None
    if windowing is not None and windowing.late != "update":
        return Remembered(what, "a row is forgotten when every window that it is in has closed")
    ttl = keeping.forgetting
    if ttl is not None:
        after = "its windows have closed" if windowing is not None else "it came"
        return Remembered(what, f"{TTL} forgets a row {ttl} after {after}")
    return Remembered(
        what,
        grows="every row",
        advice=f"{TTL} forgets a row that long after it came"
        if windowing is None
        else f"{TTL} forgets rows that long after their windows have closed",
        endless=True,
    )


def _unmerged(plan: Plan) -> str:
    if not isinstance(plan, GroupsPlan):
        return ""
    return ", ".join(each.call.sql(dialect=SPARK) for each in plan.aggregates if not each.mergeable)


def warnings(found: Sequence[Remembered | None]) -> tuple[str, ...]:
    """The warnings of all unbounded state."""
    return tuple(each.warning for each in found if each is not None and each.warning is not None)
