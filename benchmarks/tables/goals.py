"""What the table is meant to reach in this benchmark, and whether it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.goal import Goal
from benchmarks.tables.handing_over import FORMS, create_figure, insert_figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Figures = dict[str, dict[str, float]]
    Found = dict[str, Figures]

OURS = "velostream"


def told(goal: Goal, found: Found) -> tuple[str, bool]:
    """The line about a goal, and whether it holds."""
    value = goal.value(found)
    verdict = "holds" if goal.holds(value) else "FALLS SHORT"
    return f"{goal.text:<42}{goal.wanted:>28}{value:>16,.2f}  {verdict}", goal.holds(value)


def goals(rows: int) -> Iterator[Goal]:
    """The goals at one size. Speeds and times by CPU time, which other processes disturb least."""
    yield Goal("get random keys, beside a plain dict", "×", 0.6, _beside("get random keys", "plain dict"))
    yield Goal("get_many, beside a plain dict's loop", "×", 1, _beside("get_many", "plain dict"))
    if rows == 100_000:
        yield Goal("load", "rows/s", 1e6, _speed("load"))
        yield Goal("load durable and indexed", "rows/s", 5e5, _speed("load durable and indexed"))
        yield Goal("get random keys", "/s", 2e6, _speed("get random keys"))
        yield Goal("get hot keys", "/s", 4e6, _speed("get hot keys"))
        yield Goal("scalars, table changing", "/s", 1e6, _speed("scalars, table changing"))
        yield Goal("column values, table changing", "/s", 2e5, _speed("column values, table changing"))
        yield Goal("status = 'active' as Arrow", "ms", 2, _milliseconds("status = 'active' as Arrow"), True)
        yield Goal("SUM with predicate", "ms", 1, _milliseconds("SUM with predicate"), True)
        for name in ("COUNT(*), again", "COUNT with equality, again"):
            yield Goal(name, "/s", 1e6, _speed(name))
        yield Goal("stream as batches", "rows/s", 5e6, _speed("stream as batches"))
        yield Goal("stream as rows", "rows/s", 1e6, _speed("stream as rows"))
        for form in FORMS:
            for figure in (insert_figure(form), create_figure(form)):
                yield Goal(figure, "rows/s", 3e5, _speed(figure))
    if rows == 1_000_000:
        for name in ("", ", longest of 40", " beside a snapshot"):
            figure = f"upsert of 10,000{name}"
            yield Goal(figure, "ms", 60, _milliseconds(figure), True)
        yield Goal("recovery to SQL", "ms", 1000, _milliseconds("recovery to SQL", "wall"), True)
        yield Goal("recovery to get", "ms", 5000, _milliseconds("recovery to get", "wall"), True)
    if rows >= 1_000_000:
        yield Goal("writer beside 4 readers, of its speed alone", "×", 0.5, _writer)
        wait = _milliseconds("longest wait of a reader", "wall")
        yield Goal("longest wait of a reader", "ms", 50, wait, True)


def _beside(figure: str, other: str) -> Callable[[Found], float]:
    return lambda found: _rate(found[OURS][figure]) / _rate(found[other][figure])


def _speed(figure: str) -> Callable[[Found], float]:
    return lambda found: _rate(found[OURS][figure])


def _milliseconds(figure: str, part: str = "cpu") -> Callable[[Found], float]:
    return lambda found: 1000 * found[OURS][figure][part]


def _writer(found: Found) -> float:
    ours = found[OURS]
    return ours["writer alone"]["wall"] / ours["writer beside 4 readers"]["wall"]


def _rate(figure: dict[str, float]) -> float:
    return figure["count"] / max(figure["cpu"], 1e-9)
