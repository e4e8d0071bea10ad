"""What other processes may ask of the one that holds a data directory, by the name of the operation."""

from __future__ import annotations

import base64
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import ClosedError, TableError
from velostream.runtime.answers.events import (
    Answer,
    AnswerEvent,
    Awaiting,
    Changes,
    Following,
    answers,
    streamed,
)
from velostream.runtime.socket.protocol import Frame, Request, figures, keys_of, row_of, values_of
from velostream.serving.table.end import End

if TYPE_CHECKING:
    from velostream.model.tables import TableSpec
    from velostream.runtime.instance import Instance
    from velostream.runtime.statements.dml import Params
    from velostream.serving.contract.table import Table
    from velostream.serving.table.record import Row

Operation = Callable[["Instance", Request], Generator[Frame]]

# --- statements -------------------------------------------------------------------------------------


def _sql(database: Instance, request: Request) -> Generator[Frame]:
    """Run statements; SELECTs that follow their tables go on until the client leaves."""
    events = answers(
        database,
        request.text,
        _params(request),
        follow=bool(request.header.get("follow")),
        stop=request.stop,
        once=bool(request.header.get("once")),
        read_only=request.read_only,
    )
    with closing(events):
        yield from map(_frame, events)


def _stream(database: Instance, request: Request) -> Generator[Frame]:
    """Follow one SELECT until the client leaves."""
    once = bool(request.header.get("once"))
    events = streamed(database, request.text, _params(request), once=once, stop=request.stop)
    with closing(events):
        yield from map(_frame, events)


def _params(request: Request) -> Params:
    """The bound parameters: they travel as the one row of a table, so that each keeps its type."""
    kind = request.header.get("params")
    if kind is None:
        return None
    values = values_of(request.tables[0])
    return values if kind == "named" else tuple(values.values())


def _frame(event: AnswerEvent) -> Frame:
    if isinstance(event, Answer):
        result = event.result
        said = {"message": result.message, "engine": result.engine}
        lines = {"warnings": result.warnings, "notes": result.notes}
        return {"event": "answer", **said, **lines}, [result.table]
    if isinstance(event, Awaiting):
        return {"event": "awaiting", "reason": event.reason}, []
    if isinstance(event, Following):
        told = {"key": event.key, "retracts": event.retracts, "order": event.order}
        return {"event": "following", **told}, [event.schema.empty_table()]
    assert isinstance(event, Changes)
    return {"event": "changes"}, [event.added, *([event.removed] if event.removed is not None else [])]


# --- the database -----------------------------------------------------------------------------------


def relations(database: Instance) -> dict[str, list[str]]:
    """Every name that can be used in FROM, with its known columns."""
    found: dict[str, list[str]] = {name: [] for name in database.store.names()}
    for name in database.catalog.names():
        relation = database.catalog.lookup(name)
        found[name] = list(relation.column_names or ()) if relation is not None else []
    return found


def _relations(database: Instance, _: Request) -> Generator[Frame]:
    yield {"relations": relations(database)}, ()


def _verify(database: Instance, _: Request) -> Generator[Frame]:
    yield {"reports": [report.as_dict() for report in database.verify()]}, ()


def _jobs(database: Instance, _: Request) -> Generator[Frame]:
    yield {"jobs": [figures(job) for job in database.jobs()]}, ()


def _wait_idle(database: Instance, request: Request) -> Generator[Frame]:
    yield {"idle": database.wait_idle(float(request.header["timeout"]))}, ()


# --- tables -----------------------------------------------------------------------------------------


def _opened(database: Instance, request: Request) -> Table:
    """The table of the request; ClosedError when its client opened another one of the same name."""
    name = str(request.header["table"])
    table = database.table(name)
    known = request.header.get("id")
    if known is not None and known != database.store.identity(table.name):
        message, hint = End.REPLACED.told(name)
        raise ClosedError(message, hint=hint)
    return table


def _changed(database: Instance, request: Request) -> Table:
    if request.read_only:
        raise TableError(
            f'table "{request.header["table"]}" was opened read-only',
            hint="connect without read_only=True to change it",
        )
    return _opened(database, request)


def _table(database: Instance, request: Request) -> Generator[Frame]:
    table = _opened(database, request)
    yield {"id": database.store.identity(table.name), "spec": _described(table.spec)}, ()


def _described(spec: TableSpec) -> dict[str, Any]:
    """A specification as it is sent: without its statement, which readers do not need."""
    return {
        "name": spec.name,
        "key": spec.key,
        "options": spec.options,
        "datasource_type": spec.datasource_type,
        "owner": spec.owner,
        "schema": base64.b64encode(spec.schema.serialize().to_pybytes()).decode(),
    }


def _stats(database: Instance, request: Request) -> Generator[Frame]:
    yield {"stats": figures(_opened(database, request).stats())}, ()


def _get(database: Instance, request: Request) -> Generator[Frame]:
    table = _opened(database, request)
    keys = keys_of(request.tables[0])
    if len(keys) == 1:
        found = [table.get(*keys[0])]
    else:
        found = table.get_many([key if len(key) > 1 else key[0] for key in keys])
    yield {"found": [row is not None for row in found]}, [_rows(table, found)]


def _rows(table: Table, found: Iterable[Row | None]) -> pa.Table:
    """The rows that were found, in the table's types."""
    schema = table.spec.visible_schema
    columns = list(zip(*(row for row in found if row is not None), strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _batches(database: Instance, request: Request) -> Generator[Frame]:
    table = _opened(database, request)
    yield {}, [table.spec.visible_schema.empty_table()]
    for batch in table.stream(request.header.get("where")):
        yield {}, [pa.Table.from_batches([batch])]


def _page(database: Instance, request: Request) -> Generator[Frame]:
    table = _opened(database, request)
    rows = table.page(int(request.header["limit"]), int(request.header["offset"]))
    yield {}, [_rows(table, rows)]


def _column(database: Instance, request: Request) -> Generator[Frame]:
    column = _opened(database, request).column(str(request.header["column"]), request.header.get("where"))
    yield {}, [pa.table({"value": column})]


def _scalar(database: Instance, request: Request) -> Generator[Frame]:
    table = _opened(database, request)
    value = table.scalar(str(request.header["expression"]), request.header.get("where"))
    yield {}, [row_of({"value": value})]


def _fetch_where(database: Instance, request: Request) -> Generator[Frame]:
    table = _opened(database, request)
    yield {}, [table.fetch_where(list(request.header["columns"]), request.tables[0])]


def _next_version(database: Instance, request: Request) -> Generator[Frame]:
    """The newest version, once it is beyond the one that the client has seen, or the time is over."""
    changelog = _opened(database, request).changelog
    changelog.wait(int(request.header["seen"]), float(request.header["timeout"]), request.stop.is_set)
    yield {"version": changelog.newest()}, ()


def _changes(database: Instance, request: Request) -> Generator[Frame]:
    changelog = _opened(database, request).changelog
    for version, rows in changelog.between(int(request.header["after"]), int(request.header["upto"])):
        yield {"version": version}, [rows]


def _insert(database: Instance, request: Request) -> Generator[Frame]:
    yield {"count": _changed(database, request).insert(request.tables[0])}, ()


def _upsert(database: Instance, request: Request) -> Generator[Frame]:
    yield {"count": _changed(database, request).upsert(request.tables[0])}, ()


def _update(database: Instance, request: Request) -> Generator[Frame]:
    table = _changed(database, request)
    (key,) = keys_of(request.tables[0])
    yield {"count": table.update(key if len(key) > 1 else key[0], **values_of(request.tables[1]))}, ()


def _delete(database: Instance, request: Request) -> Generator[Frame]:
    table = _changed(database, request)
    if table.spec.key:
        keys: Any = [key if len(key) > 1 else key[0] for key in keys_of(request.tables[0])]
    else:
        keys = request.tables[0]
    yield {"count": table.delete(keys)}, ()


OPERATIONS: Mapping[str, Operation] = {
    "sql": _sql,
    "stream": _stream,
    "relations": _relations,
    "verify": _verify,
    "jobs": _jobs,
    "wait_idle": _wait_idle,
    "table": _table,
    "stats": _stats,
    "get": _get,
    "batches": _batches,
    "page": _page,
    "column": _column,
    "scalar": _scalar,
    "fetch_where": _fetch_where,
    "next_version": _next_version,
    "changes": _changes,
    "insert": _insert,
    "upsert": _upsert,
    "update": _update,
    "delete": _delete,
}
