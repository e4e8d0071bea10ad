"""Task slots for queries that never release theirs: in real-time mode one for each partition.

A local master has as many slots as cores, and such tasks mostly wait. So they bring their own: Spark's local
scheduler counts a slot as free when a task reports its end, and the end of a task that it never started adds
one. Nothing else changes: batches are divided into as many tasks as before. Spark's log reports for each that
it ignores an update of task -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from velostream.spark.session import local_cores

if TYPE_CHECKING:
    from pyspark import SparkContext

_NO_TASK = -1


@dataclass
class _Slots:
    made: int = 0
    used: int = 0


_slots: WeakKeyDictionary[SparkContext, _Slots] = WeakKeyDictionary()
_lock = Lock()


def take_slots(context: SparkContext, count: int) -> None:
    """Add so many slots to a local Spark; released ones are reused first."""
    with _lock:
        slots = _slots.setdefault(context, _Slots())
        slots.used += count
        missing = max(slots.used - slots.made, 0)
        slots.made += missing
    if missing and local_cores(str(context.master)) is not None:
        _add(context, missing)


def give_back_slots(context: SparkContext, count: int) -> None:
    """Release slots for reuse."""
    with _lock:
        _slots.setdefault(context, _Slots()).used -= count


def _add(context: SparkContext, count: int) -> None:
    jvm: Any = context._jvm  # noqa: SLF001
    backend = context._jsc.sc().schedulerBackend()  # noqa: SLF001
    ended = jvm.org.apache.spark.TaskState.FINISHED()
    for _ in range(count):
        backend.statusUpdate(_NO_TASK, ended, jvm.java.nio.ByteBuffer.allocate(0))
