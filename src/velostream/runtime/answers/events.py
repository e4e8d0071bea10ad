"""Results of statements as a sequence of events: the same in this process and over the socket."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.model.statements import SelectStatement
from velostream.runtime.statements.live_select import LiveSelect

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from threading import Event

    import pyarrow as pa

    from velostream.model.statements import Statement
    from velostream.runtime.answers.result import Result
    from velostream.runtime.instance import Instance
    from velostream.runtime.statements.dml import Params


@dataclass(frozen=True)
class Answer:
    """A statement has finished."""

    result: Result


@dataclass(frozen=True)
class Awaiting:
    """A followed SELECT waits for its sources before it can begin; again with each attempt."""

    reason: str


@dataclass(frozen=True)
class Following:
    """A followed SELECT begins; `Changes` follow until it ends or its reader leaves."""

    schema: pa.Schema
    key: tuple[str, ...]
    retracts: bool
    """Whether later rows replace earlier ones, so that a reader keeps a table rather than a list."""
    order: tuple[tuple[str, bool], ...] = ()
    """The columns of its ORDER BY, as far as the result has them, and whether each descends."""


@dataclass(frozen=True)
class Changes:
    """Changes of a followed SELECT: rows added and rows retracted."""

    added: pa.Table
    removed: pa.Table | None


AnswerEvent = Answer | Awaiting | Following | Changes


def answers(
    database: Instance,
    text: str,
    params: Params = None,
    *,
    follow: bool,
    stop: Event,
    once: bool = False,
    read_only: bool = False,
) -> Generator[AnswerEvent]:
    """Run the statements of a text. With `follow`, a SELECT that follows runs until `stop` is set.

    With `once`, INSERT INTO a URI writes what its sources have now, and leaves no job behind.
    """
    statements = database.statements(text, params, read_only=read_only)
    yield from run_all(database, statements, params, follow=follow, stop=stop, once=once)


def run_all(
    database: Instance,
    statements: Iterable[Statement],
    params: Params = None,
    *,
    follow: bool,
    stop: Event,
    once: bool = False,
) -> Generator[AnswerEvent]:
    """The same for bound statements."""
    for statement in statements:
        if follow and isinstance(statement, SelectStatement) and statement.follows:
            yield from followed(database, statement, stop, params)
        else:
            yield Answer(database.executor.run(statement, params, once=once))


def streamed(
    database: Instance, text: str, params: Params = None, *, once: bool, stop: Event
) -> Generator[AnswerEvent]:
    """Follow one SELECT, whether or not it says EMIT CHANGES."""
    yield from _events(database.stream(text, params, once=once, left=stop), stop)


def followed(
    database: Instance, statement: SelectStatement, stop: Event, params: Params = None
) -> Generator[AnswerEvent]:
    """A SELECT that follows its sources or tables: its rows as they arrive and change."""
    site = database.jobs_by_name.site
    yield from _events(LiveSelect(site, statement, params, once=site.once, left=stop), stop)


def _events(select: LiveSelect, stop: Event) -> Generator[AnswerEvent]:
    with closing(select.begin()) as reasons:
        yield from map(Awaiting, reasons)
    with select as live:
        if live.schema is None:
            return
        table = live.table
        key = table.spec.key if table is not None else ()
        names = live.schema.names
        yield Following(
            live.schema,
            tuple(k for k in key if k in names),
            table is not None or not live.query.continuous,
            _order(live.query.tree, names),
        )
        for added, removed in live.batches(stop):
            yield Changes(added, removed)


def _order(tree: exp.Query, names: Sequence[str]) -> tuple[tuple[str, bool], ...]:
    """The leading columns of ORDER BY that the result shows."""
    found: list[tuple[str, bool]] = []
    order = tree.args.get("order")
    for term in order.expressions if order is not None else ():
        if not isinstance(term.this, exp.Column) or term.this.name not in names:
            break
        found.append((term.this.name, bool(term.args.get("desc"))))
    return tuple(found)
