"""The WINDOW and EMIT clauses, and durations in SQL."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from velostream.model.durations import format_duration, parse_duration
from velostream.model.statements import Emit, EmitMode, WindowKind, WindowSpec
from velostream.sql.types import quote

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

    from velostream.errors import SqlSyntaxError
    from velostream.sql.parse.dialect import VelostreamParser

WINDOW_WORDS = ("TUMBLING", "SLIDING", "HOPPING", "CUMULATING", "SESSION", "ROWS")
_KINDS = {
    "TUMBLING": WindowKind.TUMBLING,
    "SLIDING": WindowKind.SLIDING,
    "HOPPING": WindowKind.SLIDING,
    "CUMULATING": WindowKind.CUMULATING,
    "SESSION": WindowKind.SESSION,
    "ROWS": WindowKind.ROWS,
}
_TABLES = {
    "TUMBLE": (WindowKind.TUMBLING, ("SIZE", "OFFSET")),
    "HOP": (WindowKind.SLIDING, ("SLIDE", "SIZE", "OFFSET")),
    "CUMULATE": (WindowKind.CUMULATING, ("STEP", "SIZE", "OFFSET")),
    "SESSION": (WindowKind.SESSION, ("GAP",)),
}
"""Window functions in FROM: the kind of each, and the names of its lengths in order."""
_UNITS = {
    "MICROSECOND": timedelta(microseconds=1),
    "MILLISECOND": timedelta(milliseconds=1),
    "SECOND": timedelta(seconds=1),
    "MINUTE": timedelta(minutes=1),
    "HOUR": timedelta(hours=1),
    "DAY": timedelta(days=1),
    "WEEK": timedelta(weeks=1),
}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_SHORT = re.compile(r"[\d.]+[A-Za-z]+")
_FORMS = {
    WindowKind.TUMBLING: "WINDOW TUMBLING(INTERVAL '5' MINUTE) or WINDOW TUMBLING EVERY 5 MINUTES",
    WindowKind.SLIDING: "WINDOW SLIDING(INTERVAL '10' MINUTE, INTERVAL '2' MINUTE) (size, advance)",
    WindowKind.SESSION: "WINDOW SESSION(INTERVAL '30' SECOND)",
    WindowKind.ROWS: "WINDOW ROWS 100 PARTITION BY symbol",
    WindowKind.CUMULATING: "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '10' MINUTE) "
    "(step, size)",
}


def parse_window(parser: VelostreamParser) -> tuple[WindowSpec, exp.Column | None]:
    """The rest of a WINDOW clause, from its kind on, and the time column."""
    start = parser.current
    kind = _KINDS[start.text.upper()]
    parser.advance()
    if kind is WindowKind.ROWS:
        return _parse_rows(parser)
    column, durations = _parse_arguments(parser) if parser.match(TokenType.L_PAREN) else (None, [])
    partition_by: tuple[exp.Expr, ...] = ()
    named: dict[str, Length] = {}
    offset: timedelta | None = None
    while True:
        word = parser.current.text.upper()
        if word == "PARTITION BY" and not partition_by:
            partition_by = parser.partition_by()
        elif word in ("EVERY", "SIZE", "ADVANCE", "GAP") and word not in named:
            parser.advance()
            named[word] = _parse_length(parser)
        elif word == "OFFSET" and parser.following.token_type == TokenType.INTERVAL and offset is None:
            parser.advance()
            offset = _fixed_offset(parser, start, _parse_length(parser))
        else:
            break
    spec = _checked(parser, start, kind, _column_text(column), durations, named, partition_by)
    return replace(spec, offset=offset or None), column


def _fixed_offset(parser: VelostreamParser, start: Token, offset: Length | None) -> timedelta | None:
    if isinstance(offset, Months):
        raise parser.syntax_error("an offset is of a fixed length", start)
    return offset


def parse_window_table(parser: VelostreamParser) -> tuple[exp.Expr, WindowSpec, exp.Column | None]:
    """The relation, window and time of TUMBLE, HOP, CUMULATE or SESSION in FROM.

    `TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' MINUTE)`, or with names: `SIZE => INTERVAL '5' MINUTE`.
    """
    start = parser.current
    kind, lengths = _TABLES[start.text.upper()]
    parser.advance(2)
    arguments = _TableArguments(parser, ("DATA", "TIMECOL", *lengths))
    while not parser.match(TokenType.R_PAREN):
        if arguments.given and not parser.match(TokenType.COMMA):
            raise parser.syntax_error("expected , or )")
        arguments.parse()
    relation, column = arguments.given.get("DATA"), arguments.given.get("TIMECOL")
    if not isinstance(relation, exp.Expr):
        raise parser.syntax_error(f"{start.text.upper()} needs a relation", start)
    assert column is None or isinstance(column, exp.Column)
    named = {n: v for n, v in arguments.given.items() if isinstance(v, timedelta | Months)}
    offset = _fixed_offset(parser, start, named.pop("OFFSET", None))
    named = {"ADVANCE" if name in ("SLIDE", "STEP") else name: value for name, value in named.items()}
    name = _column_text(column)
    spec = _checked(parser, start, kind, name, [], named, arguments.partition_by)
    return relation, replace(spec, offset=offset or None), column


class _TableArguments:
    """The arguments of a window function in FROM."""

    def __init__(self, parser: VelostreamParser, names: tuple[str, ...]) -> None:
        self._parser = parser
        self._names = names
        self._named = False
        self.given: dict[str, exp.Expr | Length] = {}
        self.partition_by: tuple[exp.Expr, ...] = ()

    def parse(self) -> None:
        """The next argument."""
        parser = self._parser
        token, name = parser.current, parser.current.text.upper()
        if parser.following.token_type == TokenType.FARROW:
            if name not in self._names:
                hint = f"arguments are {', '.join(self._names)}"
                raise parser.syntax_error(f'unknown argument "{token.text}"', token, hint)
            parser.advance(2)
            self._named = True
        else:
            left = [each for each in self._names if each not in self.given]
            if self._named or not left:
                raise parser.syntax_error("an argument too many" if not left else "expected a name and =>")
            name = left[0]
            if name == "TIMECOL" and not _at_time(parser):
                # The event time of a source need not be named.
                self._names = tuple(each for each in self._names if each != name)
                self.parse()
                return
        if name in self.given:
            raise parser.syntax_error(f"{name} is given twice", token)
        self.given[name] = self._value(name)

    def _value(self, name: str) -> exp.Expr | Length:
        parser = self._parser
        if name == "TIMECOL":
            if not parser.words("DESCRIPTOR", "("):
                return _parse_column(parser)
            column = _parse_column(parser)
            parser.close()
            return column
        if name != "DATA":
            return _parse_length(parser)
        parser.words("TABLE")
        relation = parser.relation_or_query()
        self.partition_by = _parse_table_partition(parser)
        return relation


def _at_time(parser: VelostreamParser) -> bool:
    return parser.current.text.upper() == "DESCRIPTOR" or _at_column(parser)


def _parse_table_partition(parser: VelostreamParser) -> tuple[exp.Expr, ...]:
    """One column, or several in parentheses: a bare comma would begin the next argument."""
    if not parser.match(TokenType.PARTITION_BY):
        return ()
    if not parser.match(TokenType.L_PAREN):
        return (_parse_column(parser),)
    columns: list[exp.Expr] = [_parse_column(parser)]
    while parser.match(TokenType.COMMA):
        columns.append(_parse_column(parser))
    parser.close()
    return tuple(columns)


def _parse_rows(parser: VelostreamParser) -> tuple[WindowSpec, exp.Column | None]:
    parenthesis = parser.match(TokenType.L_PAREN)
    column = None
    if parenthesis and _at_column(parser):
        column = _parse_column(parser)
        parser.match(TokenType.COMMA)
    token = parser.current
    if token.token_type != TokenType.NUMBER or not token.text.isdigit() or token.text == "0":
        raise parser.syntax_error("WINDOW ROWS needs a number of rows", hint=_FORMS[WindowKind.ROWS])
    parser.advance()
    parser.words("ROWS")
    if parenthesis:
        parser.close()
    spec = WindowSpec(
        WindowKind.ROWS,
        rows=int(token.text),
        time_column=_column_text(column),
        partition_by=parser.partition_by(),
    )
    return spec, column


def _column_text(column: exp.Column | None) -> str | None:
    return ".".join(part.name for part in column.parts) if column is not None else None


def _parse_arguments(parser: VelostreamParser) -> tuple[exp.Column | None, list[Length]]:
    column: exp.Column | None = None
    durations: list[Length] = []
    while True:
        if not durations and column is None and parser.words("DESCRIPTOR", "("):
            column = _parse_column(parser)
            parser.close()
        elif not durations and column is None and _at_column(parser):
            column = _parse_column(parser)
        else:
            durations.append(_parse_length(parser))
        if not parser.match(TokenType.COMMA):
            break
    parser.close()
    return column, durations


def _at_column(parser: VelostreamParser) -> bool:
    token, after = parser.current, parser.following
    if token.token_type in (TokenType.INTERVAL, TokenType.NUMBER, TokenType.STRING):
        return False
    return not token.text[:1].isdigit() and after.token_type in (TokenType.COMMA, TokenType.DOT)


def _parse_column(parser: VelostreamParser) -> exp.Column:
    column = parser.column()
    if not isinstance(column, exp.Column):
        raise parser.syntax_error("expected the column that holds the time")
    return column


class Months(int):
    """A length of whole months."""


Length = timedelta | Months


def _parse_length(parser: VelostreamParser) -> Length:
    """Like `parse_duration_token`, but also months, quarters and years."""
    token, after = parser.current, parser.following
    if token.token_type == TokenType.INTERVAL:
        interval = parser.interval()
        months = _interval_months(interval)
        if months is not None:
            return months
        try:
            return interval_duration(interval)
        except ValueError as exc:
            raise parser.syntax_error(str(exc), token) from exc
    each = _MONTHS.get(after.text.upper().removesuffix("S"))
    if token.token_type == TokenType.NUMBER and each is not None and token.text.isdigit():
        parser.advance(2)
        return Months(int(token.text) * each)
    return parse_duration_token(parser)


def _interval_months(node: exp.Expr | None) -> Months | None:
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal) or node.unit is None:
        return None
    each = _MONTHS.get(node.unit.name.upper().removesuffix("S"))
    return Months(int(node.this.name) * each) if each is not None and node.this.name.isdigit() else None


def parse_duration_token(parser: VelostreamParser) -> timedelta:
    """`INTERVAL '5' MINUTE`, `5 MINUTES`, `5m` or `'5m'`."""
    token = parser.current
    if token.token_type == TokenType.INTERVAL:
        interval = parser.interval()
        try:
            return interval_duration(interval)
        except ValueError as exc:
            raise parser.syntax_error(str(exc), token) from exc
    parser.advance()
    unit = _UNITS.get(parser.current.text.upper().removesuffix("S"))
    if token.token_type == TokenType.NUMBER and unit is not None:
        parser.advance()
        return _times(unit, token.text)
    text = token.text
    if token.token_type == TokenType.NUMBER and (form := _SHORT.match(parser.piece.text, token.start)):
        # `30s` is several tokens, because Spark has numbers such as 30S (a SMALLINT).
        text = form[0]
        while parser.current and parser.current.start < form.end():
            parser.advance()
    try:
        return parse_duration(text)
    except ValueError as exc:
        raise parser.syntax_error(
            f'"{text}" is not a duration', token, hint="write INTERVAL '5' MINUTE, 5 MINUTES or 5m"
        ) from exc


def interval_duration(node: exp.Expr | None) -> timedelta:
    """The length of an interval literal, or a sum of them; ValueError for months, years and all else."""
    if isinstance(node, exp.Add):
        return interval_duration(node.this) + interval_duration(node.expression)
    if isinstance(node, exp.Paren):
        return interval_duration(node.this)
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal) and node.unit is not None:
        unit = _UNITS.get(node.unit.name.upper().removesuffix("S"))
        if unit is not None:
            return _times(unit, node.this.name)
        raise ValueError(
            f"an interval of {node.unit.name.lower()} has no fixed length; write days, hours or less"
        )
    raise ValueError("expected an interval such as INTERVAL '5' MINUTE")


def _times(unit: timedelta, count: str) -> timedelta:
    try:
        return unit * float(count)
    except (ValueError, OverflowError) as exc:
        raise ValueError(f'"{count}" is not a number of units') from exc


def _checked(
    parser: VelostreamParser,
    start: object,
    kind: WindowKind,
    column: str | None,
    durations: list[Length],
    named: dict[str, Length],
    partition_by: tuple[exp.Expr, ...],
) -> WindowSpec:
    def wrong(message: str) -> SqlSyntaxError:
        return parser.syntax_error(message, start, hint=f"write {_FORMS[kind]}")  # type: ignore[arg-type]

    names = {
        WindowKind.TUMBLING: ("SIZE",),
        WindowKind.SLIDING: ("SIZE", "ADVANCE"),
        WindowKind.CUMULATING: ("SIZE", "ADVANCE"),
        WindowKind.SESSION: ("GAP",),
    }[kind]
    every = "ADVANCE" if kind is WindowKind.SLIDING else names[0]
    given = {every if name == "EVERY" else name: value for name, value in named.items()}
    if len(given) < len(named) or len(durations) > len(names) or not set(given) <= set(names):
        raise wrong(f"{kind} window takes {' and '.join(names).lower()}")
    for name, value in zip(names, durations, strict=False):
        if name in given:
            raise wrong(f"{name.lower()} of the window is given twice")
        given[name] = value
    missing = [name.lower() for name in names if name not in given]
    if missing:
        raise wrong(f"{kind} window needs its {' and '.join(missing)}")
    months = next((int(value) for value in given.values() if isinstance(value, Months)), None)
    if months is not None and kind is not WindowKind.TUMBLING:
        raise wrong(f"a month has no fixed length, which a {kind} window needs")
    fixed = {name: value for name, value in given.items() if isinstance(value, timedelta)}
    if months == 0 or any(value <= timedelta(0) for value in fixed.values()):
        raise wrong(f"{kind} window must be longer than nothing")
    if kind is WindowKind.SLIDING and fixed["ADVANCE"] > fixed["SIZE"]:
        raise wrong("advance of a sliding window cannot be longer than its size")
    if kind is WindowKind.CUMULATING and fixed["SIZE"] % fixed["ADVANCE"]:
        raise wrong("the size of cumulating windows is a whole number of steps")
    return WindowSpec(
        kind,
        size=fixed.get("SIZE"),
        months=months,
        advance=fixed.get("ADVANCE"),
        gap=fixed.get("GAP"),
        time_column=column,
        partition_by=partition_by,
    )


def parse_emit(parser: VelostreamParser) -> Emit:
    """EMIT FINAL, EMIT CHANGES or EMIT CHANGES EVERY 5 SECONDS."""
    parser.advance()
    mode = EmitMode(parser.current.text.lower())
    parser.advance()
    every = None
    if mode is EmitMode.CHANGES and parser.words("EVERY"):
        every = parse_duration_token(parser)
    return Emit(mode, every, explicit=True)


def window_text(spec: WindowSpec, expressions: tuple[str, ...]) -> str:
    """The clause in our dialect; `expressions` is PARTITION BY as text."""
    column = [".".join(quote(part) for part in spec.time_column.split("."))] if spec.time_column else []
    if spec.kind is WindowKind.ROWS:
        text = f"WINDOW ROWS({column[0]}, {spec.rows})" if column else f"WINDOW ROWS {spec.rows}"
    else:
        lengths = [_interval_text(each) for each in (spec.size, spec.advance, spec.gap) if each is not None]
        lengths += [f"INTERVAL '{spec.months}' MONTH"] if spec.months is not None else []
        text = f"WINDOW {spec.kind.upper()}({', '.join([*column, *lengths])})"
        if spec.offset is not None:
            text += f" OFFSET INTERVAL '{spec.offset // timedelta(microseconds=1)}' MICROSECOND"
    return f"{text} PARTITION BY {', '.join(expressions)}" if expressions else text


def emit_text(emit: Emit) -> str:
    """The clause in our dialect; empty for a default."""
    if not emit.explicit:
        return ""
    every = f" EVERY {_interval_text(emit.every)}" if emit.every is not None else ""
    return f"EMIT {emit.mode.upper()}{every}"


def _interval_text(length: timedelta) -> str:
    return f"'{format_duration(length)}'"
