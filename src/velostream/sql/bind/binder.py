"""Binds statements: from the parsed form to the frozen objects that the layers below work with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from velostream.errors import SqlSyntaxError, UnknownNameError, did_you_mean
from velostream.model import statements as model
from velostream.sql.bind.alter import AlterBinder
from velostream.sql.bind.create import CreateBinder
from velostream.sql.bind.dml import ChangeBinder
from velostream.sql.bind.parts import Result, StatementBinder
from velostream.sql.known_relations import Relation, RelationKind
from velostream.sql.parse import syntax as raw

if TYPE_CHECKING:
    from collections.abc import Callable

    from velostream.sql.bind.context import Context


def bind(context: Context, statement: raw.Raw) -> Result:
    """The bound statement; invalid when errors were reported to the context."""
    binder, method = _BINDERS[type(statement)]
    return method(binder(context, statement), statement)


class ReadBinder(StatementBinder):
    """Binds statements that neither create anything nor change rows."""

    def select(self, node: raw.RawSelect) -> Result:
        """A query outside of another statement."""
        bound = self.query(node.query, node.properties, parameters=True, answered=True)
        self.refuse_sink(bound)
        return Result(model.SelectStatement(bound.query, bound.properties, **self.common))

    def show(self, node: raw.RawShow) -> Result:
        """SHOW."""
        connector = None
        if node.connector is not None:
            connector = next(
                (
                    name
                    for name in self.context.connectors.names()
                    if name.lower() == node.connector.text.lower()
                ),
                None,
            )
            by_scheme = self.context.connectors.by_scheme(node.connector.text.lower())
            connector = connector or (by_scheme.name if by_scheme is not None else None)
            if connector is None:
                names = [*self.context.connectors.names(), *self.context.connectors.schemes()]
                raise UnknownNameError(
                    f'unknown connector "{node.connector.text}"',
                    hint=did_you_mean(node.connector.text, names)
                    or f"connectors are {', '.join(sorted(set(names)))}",
                    location=node.connector.location,
                )
        return Result(model.Show(node.kind, connector, **self.common))

    def named(self, node: raw.RawNamed) -> Result:
        """SHOW CREATE and DESCRIBE."""
        relation = self.context.lookup(node.name.text)
        if relation is None:
            hint = did_you_mean(node.name.text, self.context.names())
            raise UnknownNameError(
                f'unknown table, stream, source or view "{node.name.text}"',
                hint=hint,
                location=node.name.location,
            )
        kind = model.ShowCreate if node.create else model.Describe
        return Result(kind(relation.name, **self.common))

    def explain(self, node: raw.RawExplain) -> Result:
        """EXPLAIN of anything."""
        inner = bind(self.context, node.statement)
        return Result(model.Explain(inner.statement, **self.common))

    def control(self, node: raw.RawControl) -> Result:
        """PAUSE, RESUME, STOP."""
        return Result(model.ControlJob(node.action, node.job, **self.common))

    def drop_job(self, node: raw.RawDropJob) -> Result:
        """DROP JOB."""
        return Result(model.DropJob(node.job, **self.common))

    def drop(self, node: raw.RawDrop) -> Result:
        """DROP."""
        relation = self.context.lookup(node.name.text)
        if relation is None and not node.if_exists:
            hint = did_you_mean(node.name.text, self.context.names())
            raise UnknownNameError(
                f'unknown {node.called} "{node.name.text}"',
                hint=hint or "write IF EXISTS",
                location=node.name.location,
            )
        if relation is not None and relation.kind.value != node.kind.value:
            raise SqlSyntaxError(
                f'"{relation.name}" is a {relation.kind}, not a {node.called}',
                hint=f"write DROP {relation.kind.upper()} {relation.name}",
                location=node.name.location,
            )
        return Result(
            model.Drop(
                node.kind,
                relation.name if relation else node.name.text,
                node.if_exists,
                node.called,
                **self.common,
            )
        )

    def replay(self, node: raw.RawReplay) -> Result:
        """REPLAY DEAD LETTERS."""
        dead = Relation(RelationKind.TABLE, "dead_letters")
        where = self.expression(node.where, dead) if node.where is not None else None
        return Result(model.ReplayDeadLetters(where, **self.common))


_BINDERS: dict[type[raw.Raw], tuple[type[StatementBinder], Callable[[Any, Any], Result]]] = {
    raw.RawCreate: (CreateBinder, CreateBinder.create),
    raw.RawInsert: (ChangeBinder, ChangeBinder.insert),
    raw.RawUpdate: (ChangeBinder, ChangeBinder.update),
    raw.RawDelete: (ChangeBinder, ChangeBinder.delete),
    raw.RawSelect: (ReadBinder, ReadBinder.select),
    raw.RawShow: (ReadBinder, ReadBinder.show),
    raw.RawNamed: (ReadBinder, ReadBinder.named),
    raw.RawExplain: (ReadBinder, ReadBinder.explain),
    raw.RawControl: (ReadBinder, ReadBinder.control),
    raw.RawDropJob: (ReadBinder, ReadBinder.drop_job),
    raw.RawDrop: (ReadBinder, ReadBinder.drop),
    raw.RawRename: (AlterBinder, AlterBinder.rename),
    raw.RawSet: (AlterBinder, AlterBinder.set),
    raw.RawAddColumn: (AlterBinder, AlterBinder.add_column),
    raw.RawReplay: (ReadBinder, ReadBinder.replay),
}
