"""Generates the text of a bound statement, in our dialect; parsing it gives an equal statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from velostream.errors import InternalError
from velostream.model import statements as model
from velostream.sql.parse.dialect import Velostream
from velostream.sql.types import quote, spark_ddl
from velostream.sql.windows.clauses import emit_text, window_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from velostream.model.uri import Uri


def generate(statement: model.Statement) -> str:
    """The statement as text."""
    try:
        write: Callable[[Any], str] = _WRITERS[type(statement)]
    except KeyError:
        raise InternalError(f"no text for {type(statement).__name__}") from None
    return write(statement)


def _expression(node: exp.Expr) -> str:
    return node.sql(dialect=Velostream)


def text_literal(text: str) -> str:
    """A text in quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _properties(properties: Mapping[str, str], word: str = "WITH") -> str:
    items = ", ".join(f"{text_literal(name)} = {text_literal(value)}" for name, value in properties.items())
    return f"{word} ({items})"


def _uri(uri: Uri) -> str:
    return text_literal(uri.text)


def _query(query: model.Query, properties: Mapping[str, str]) -> str:
    tree = query.tree.copy()
    sources = {source.id: source for source in query.sources}
    marks: dict[str, str] = {}
    for table in tree.find_all(exp.Table):
        source = sources.get(table.name)
        if source is None or not isinstance(table.this, exp.Identifier):
            continue
        # A name that cannot occur in SQL stands for the source while sqlglot generates the rest.
        mark = f"\ue000{source.id}\ue000"
        marks[f"`{mark}`"] = _source(source)
        table.set("this", exp.to_identifier(mark, quoted=True))
    clauses = _clauses(query, tree)
    text = " ".join(filter(None, [_expression(tree), *clauses]))
    for mark, replacement in marks.items():
        text = text.replace(mark, replacement)
    if properties:
        return f"{text} {_properties(properties)}"
    # Otherwise a source's own WITH at the very end would be parsed as the statement's.
    return f"{text} WITH ()" if any(source.properties for source in query.sources) else text


def _clauses(query: model.Query, tree: exp.Query) -> list[str]:
    window = ""
    if query.window is not None:
        window = window_text(query.window, tuple(_expression(part) for part in query.window.partition_by))
    return [window, emit_text(query.emit)]


def _source(source: model.SourceRef) -> str:
    if source.declared_in is not None:
        name = quote(source.declared_in)
    else:
        name = _uri(source.uri)
    return f"{name} {_properties(source.properties)}" if source.properties else name


def _columns(columns: tuple[model.ColumnDef, ...], key: tuple[str, ...], extra: str = "") -> str:
    if not columns:
        return ""
    inline = tuple(column.name for column in columns if column.primary_key)
    parts = [_column(column) for column in columns]
    if key and key != inline:
        parts.append(f"PRIMARY KEY ({', '.join(map(quote, key))})")
    return f" ({', '.join(filter(None, [*parts, extra]))})"


def _column(column: model.ColumnDef) -> str:
    default = f" DEFAULT {_expression(column.default)}" if column.default is not None else ""
    primary = " PRIMARY KEY" if column.primary_key else ""
    return f"{quote(column.name)} {spark_ddl(column.type)}{default}{primary}"


def _head(kind: str, statement: Any) -> str:
    replace_ = " OR REPLACE" if statement.or_replace else ""
    exists = " IF NOT EXISTS" if statement.if_not_exists else ""
    return f"CREATE{replace_} {kind}{exists} {quote(statement.name)}"


def _create_table(statement: model.CreateTable) -> str:
    key = () if "key" in statement.properties else statement.key
    head = _head("TABLE", statement) + _columns(statement.columns, key)
    if statement.query is not None:
        return f"{head} AS {_query(statement.query, statement.properties)}"
    return f"{head} {_properties(statement.properties)}" if statement.properties else head


def _create_stream(statement: model.CreateStream) -> str:
    return f"{_head('STREAM', statement)} AS {_query(statement.query, statement.properties)}"


def _create_view(statement: model.CreateView) -> str:
    return f"{_head('VIEW', statement)} AS {_query(statement.query, {})}"


def _create_source(statement: model.CreateSource) -> str:
    watermark = ""
    if statement.watermark is not None:
        column = quote(statement.watermark.column)
        delay = _delay(statement.watermark)
        watermark = f"WATERMARK FOR {column} AS {column} - {delay}"
    key = () if "key" in statement.properties else statement.key
    columns = () if "schema" in statement.properties and not watermark else statement.columns
    if columns or not watermark:
        shown = _columns(columns, key, watermark)
    else:
        shown = f" ({watermark})"
    text = f"{_head('SOURCE', statement)}{shown} FROM {_uri(statement.uri)}"
    return f"{text} {_properties(statement.properties)}" if statement.properties else text


def _delay(watermark: model.Watermark) -> str:
    micros = round(watermark.delay.total_seconds() * 1_000_000)
    return f"INTERVAL '{micros}' MICROSECOND"


def _insert(statement: model.InsertInto) -> str:
    head = f"INSERT{' OR REPLACE' if statement.or_replace else ''} INTO {quote(statement.table)}"
    return f"{head}{_rows(statement)}"


def _insert_into_sink(statement: model.InsertIntoSink) -> str:
    head = f"INSERT INTO {_uri(statement.uri)}"
    if statement.properties:
        head += f" {_properties(statement.properties)}"
    return f"{head}{_rows(statement)}"


def _rows(statement: model.InsertInto | model.InsertIntoSink) -> str:
    names = f" ({', '.join(map(quote, statement.columns))})" if statement.columns else ""
    if not statement.values:
        assert statement.query is not None
        return f"{names} {_query(statement.query, {})}"
    rows = (f"({', '.join(map(_expression, row))})" for row in statement.values)
    return f"{names} VALUES {', '.join(rows)}"


def _update(statement: model.Update) -> str:
    assignments = ", ".join(f"{quote(name)} = {_expression(value)}" for name, value in statement.assignments)
    return f"UPDATE {quote(statement.table)} SET {assignments}{_where(statement.where)}"


def _where(where: exp.Expr | None) -> str:
    return f" WHERE {_expression(where)}" if where is not None else ""


def _show(statement: model.Show) -> str:
    return f"SHOW {statement.kind.upper()}" + (
        f" FOR {quote(statement.connector)}" if statement.connector else ""
    )


def _add_column(statement: model.AddColumn) -> str:
    exists = " IF NOT EXISTS" if statement.if_not_exists else ""
    return f"ALTER TABLE {quote(statement.name)} ADD COLUMN{exists} {_column(statement.column)}"


def _drop(statement: model.Drop) -> str:
    exists = " IF EXISTS" if statement.if_exists else ""
    return f"DROP {(statement.called or statement.kind).upper()}{exists} {quote(statement.name)}"


_WRITERS: dict[type[model.Statement], Callable[[Any], str]] = {
    model.CreateTable: _create_table,
    model.CreateStream: _create_stream,
    model.CreateView: _create_view,
    model.CreateSource: _create_source,
    model.InsertInto: _insert,
    model.InsertIntoSink: _insert_into_sink,
    model.Update: _update,
    model.Delete: lambda statement: f"DELETE FROM {quote(statement.table)}{_where(statement.where)}",
    model.SelectStatement: lambda statement: _query(statement.query, statement.properties),
    model.Show: _show,
    model.ShowCreate: lambda statement: f"SHOW CREATE {quote(statement.name)}",
    model.Describe: lambda statement: f"DESCRIBE {quote(statement.name)}",
    model.Explain: lambda statement: f"EXPLAIN {generate(statement.statement)}",
    model.ControlJob: lambda statement: f"{statement.action.upper()} JOB {_job(statement.job)}",
    model.Drop: _drop,
    model.DropJob: lambda statement: f"DROP JOB {_job(statement.job)}",
    model.RenameTable: lambda statement: (
        f"ALTER TABLE {quote(statement.name)} RENAME TO {quote(statement.to)}"
    ),
    model.SetProperties: lambda statement: (
        f"ALTER TABLE {quote(statement.name)} {_properties(statement.properties, 'SET')}"
    ),
    model.AddColumn: _add_column,
    model.ReplayDeadLetters: lambda statement: f"REPLAY DEAD LETTERS{_where(statement.where)}",
}


def _job(job: str) -> str:
    return job if job.replace("-", "").replace("_", "").isalnum() else quote(job)
