"""Caches of queries over one table: answers per version, parsed queries per table.

The same text is queried far more often than the table changes. Parsing costs a millisecond, a simple query
without an engine a few microseconds, a cached answer two dict accesses.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from velostream.errors import TableError
from velostream.serving.columns.values import to_python
from velostream.serving.sql.selection import TooLarge, aggregate_of, column_of, values_of
from velostream.serving.sql.simple import SimpleQuestion, read_plainly, recognise
from velostream.sql.types import quote

if TYPE_CHECKING:
    import pyarrow as pa

    from velostream.model.tables import TableSpec
    from velostream.serving.memory.version import MemoryVersion
    from velostream.serving.sql.questions import Questions

_TEXTS = 4096
_ANSWERS = 20_000
_LISTS = 4096
_LONGEST_LIST = 4096
_INDEX_AFTER = 2
"""After this many equality queries that scan a column, the next one builds an index, which pays by then."""


class Asker:
    """Answers queries over one table. Thread safe: a race costs a second computation, not the answer."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._spec: TableSpec | None = None
        self._known: OrderedDict[tuple[str, str | None], SimpleQuestion | None] = OrderedDict()
        self._equalities: Counter[str] = Counter()
        self.remembered = count()
        """Counts cache hits; `next` is atomic."""
        self._asked = count()
        self._planned = count()

    def scalar(self, version: MemoryVersion, expression: str, where: str | None) -> Any:
        """One value; cached."""
        simple = self._simple(version.spec, expression, where)
        if simple is not None and simple.kind != "column":
            try:
                answer = aggregate_of(version, simple, indexed=self._indexed(simple))
            except TooLarge:
                answer = self._one_value(version, expression, where)
        else:
            answer = self._one_value(version, expression, where)
        if len(version.answers) >= _ANSWERS:
            version.answers.clear()
        version.answers[expression, where] = answer
        return answer

    def column(self, version: MemoryVersion, column: str, where: str) -> pa.ChunkedArray:
        """A column as Arrow."""
        simple = self._simple(version.spec, quote(column), where)
        if simple is None:
            return self._questions.ask(version, quote(column), where).column(0)
        return column_of(version, simple, indexed=self._indexed(simple))

    def values(self, version: MemoryVersion, column: str, where: str) -> list[Any]:
        """A column as Python values; cached unless it is long."""
        simple = self._simple(version.spec, quote(column), where)
        if simple is None:
            found = to_python(self._questions.ask(version, quote(column), where).column(0))
        else:
            found = values_of(version, simple, indexed=self._indexed(simple))
        if len(found) <= _LONGEST_LIST:
            if len(version.lists) >= _LISTS:
                version.lists.clear()
            version.lists[column, where] = found
            return found.copy()
        return found

    def _one_value(self, version: MemoryVersion, expression: str, where: str | None) -> Any:
        return one_value(expression, self._questions.ask(version, expression, where))

    # --- plans --------------------------------------------------------------------------------------

    def _simple(self, spec: TableSpec, projection: str, where: str | None) -> SimpleQuestion | None:
        if spec is not self._spec:
            self._known.clear()
            self._spec = spec
        key = (projection, where)
        try:
            known = self._known[key]
        except KeyError:
            plain = read_plainly(projection, where, spec)
            known = recognise(plain, spec) if plain is not None else None
            if known is None:
                known = recognise(self._questions.bound(spec, projection, where), spec)
            self._known[key] = known
            while len(self._known) > _TEXTS:
                self._known.popitem(last=False)
            if known is not None:
                next(self._asked)
            return known
        if known is not None:
            next(self._planned)
            self._recently(key)
        return known

    def _recently(self, key: tuple[str, str | None]) -> None:
        with suppress(KeyError):  # another thread dropped it
            self._known.move_to_end(key)

    def _indexed(self, simple: SimpleQuestion) -> bool:
        """Whether enough queries compared this column to pay for an index."""
        if simple.equality is None:
            return False
        self._equalities[simple.equality.column] += 1
        return self._equalities[simple.equality.column] > _INDEX_AFTER

    def counts(self, name: str) -> tuple[int, int]:
        """The number of queries over the table, and of those that found their answer or plan in a cache."""
        queries, hits = self._questions.counts(name)
        ready = _so_far(self.remembered) + _so_far(self._planned)
        return queries + ready + _so_far(self._asked), hits + ready


def _so_far(counter: count[int]) -> int:
    return int(counter.__reduce__()[1][0])


def one_value(expression: str, answer: pa.Table) -> Any:
    """The only value in the answer to an expression; raises TableError when there are more."""
    if answer.num_rows > 1 or answer.num_columns != 1:
        raise TableError(
            f'"{expression}" gives {answer.num_rows} rows of {answer.num_columns} columns, not one value',
            hint="use an aggregate such as SUM, or column_values",
        )
    values = to_python(answer.column(0))
    return values[0] if values else None
