"""The SQL dialect: Spark's, plus sources, WITH, WINDOW and EMIT.

Functions are kept by name: sqlglot would turn many into nodes of its own and generate others from them, while
Spark must get what the user wrote. Only those of `TYPED` become typed nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from velostream.errors import SqlSyntaxError
from velostream.secrets import learn_value, secret
from velostream.sql.functions import WINDOW_TABLES
from velostream.sql.parse.syntax import RawEmit, RawProperty, RawWindow, RawWith
from velostream.sql.windows.clauses import WINDOW_WORDS, parse_emit, parse_window, parse_window_table

if TYPE_CHECKING:
    from velostream.location import Location
    from velostream.sql.text.script import Piece

TYPED = frozenset({"COUNT", "SUM", "AVG", "MIN", "MAX", "COALESCE"})
"""Functions that become sqlglot's own nodes; they are generated for Spark unchanged."""

_SPECIAL_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "SUBSTR", "TRIM")

# Our clauses are attached to sqlglot's nodes under these argument names until the binder takes them off.
EMIT = "velo_emit"
WITH = "velo_with"
WINDOW = "velo_window"
RELATION = "velo_relation"
WITHIN = "velo_within"
BUFFER = "velo_buffer"


class Clause(exp.Expression):
    """Carries one of our parsed clauses inside a sqlglot tree; never generated."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}

    @property
    def value(self) -> Any:
        """The clause."""
        return self.args["this"]


class VelostreamParser(SparkParser):
    """Parses one statement's tokens; `piece` maps them to the user's text."""

    piece: Piece
    _rows_buffer: exp.Literal | None = None

    FUNCTIONS = {name: build for name, build in SparkParser.FUNCTIONS.items() if name in TYPED}
    FUNC_TOKENS = SparkParser.FUNC_TOKENS | {TokenType.SESSION}
    FUNCTION_PARSERS = {name: SparkParser.FUNCTION_PARSERS[name] for name in _SPECIAL_SYNTAX}
    NO_PAREN_FUNCTION_PARSERS = {
        name: parse
        for name, parse in SparkParser.NO_PAREN_FUNCTION_PARSERS.items()
        if name in ("CASE", "TRANSFORM")
    }
    QUERY_MODIFIER_PARSERS = {
        **SparkParser.QUERY_MODIFIER_PARSERS,
        TokenType.WINDOW: lambda self: self._parse_any_window(),
    }
    PLACEHOLDER_PARSERS = {
        TokenType.PLACEHOLDER: lambda self: self.expression(exp.Placeholder(), token=self._prev),
        TokenType.COLON: lambda self: self._parse_named_placeholder(),
    }
    SET_OP_MODIFIERS = SparkParser.SET_OP_MODIFIERS | {EMIT, WITH}
    NO_PAREN_IF_COMMANDS = False
    ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}  # array(1, 2)[0] is a call and an index

    # --- doors for those who parse statements and clauses -----------------------------------------

    def start(self, piece: Piece, tokens: list[Token]) -> None:
        """Begin at the first token."""
        self.reset()
        self.piece, self.sql, self._chunks = piece, piece.text, [tokens]
        self._advance_chunk()

    @property
    def current(self) -> Token:
        """The next token to be read; false at the end."""
        return self._curr

    @property
    def following(self) -> Token:
        """The token after the current one."""
        return self._next

    @property
    def previous(self) -> Token:
        """The token read last."""
        return self._prev

    def advance(self, times: int = 1) -> None:
        """Read tokens."""
        self._advance(times)

    def match(self, kind: TokenType) -> bool:
        """Read the token if it is of this kind."""
        return self._match(kind)

    def words(self, *words: str) -> bool:
        """Read these words, all or none."""
        return self._match_text_seq(*words)

    def at_with(self) -> bool:
        """Whether WITH (…) comes next."""
        return self._match_pair(TokenType.WITH, TokenType.L_PAREN, advance=False)

    def close(self) -> None:
        """Read a closing parenthesis."""
        self._match_r_paren()

    def partition_by(self) -> tuple[exp.Expr, ...]:
        """PARTITION BY, if it is there."""
        return tuple(self._parse_partition_by())

    def interval(self) -> exp.Expr | None:
        """INTERVAL …."""
        return self._parse_interval()

    def column(self) -> exp.Expr | None:
        """A column with its qualifiers."""
        return self._parse_column()

    def condition(self) -> exp.Expr | None:
        """Any expression."""
        return self._parse_disjunction()

    def data_type(self) -> exp.Expr | None:
        """The type of a column."""
        return self._parse_types(schema=True)

    def relation(self, *, name_only: bool = False) -> exp.Expr | None:
        """A URI, a name or a function call, without alias."""
        relation: exp.Expr | None = self._parse_table_parts(schema=name_only)
        return relation

    def relation_or_query(self) -> exp.Expr:
        """A relation as in FROM, or a query in parentheses."""
        start = self._curr
        relation = self._parse_table()
        if not isinstance(relation, exp.Table | exp.Subquery):
            raise self.syntax_error("expected a relation", start)
        return relation

    # --- errors -----------------------------------------------------------------------------------

    def raise_error(self, message: str, token: Token | None = None) -> None:
        """Raise sqlglot's own exception, with the token attached so that the caller can locate it."""
        error = ParseError(message)
        error.token = token or self._curr or self._prev  # type: ignore[attr-defined]
        raise error

    def syntax_error(
        self, message: str, token: Token | None = None, hint: str | None = None
    ) -> SqlSyntaxError:
        """An error at a token (default: the current one, or the end)."""
        return SqlSyntaxError(
            message, hint=hint, location=self.token_location(token or self._curr or self._prev)
        )

    def token_location(self, first: Token, last: Token | None = None) -> Location:
        """The location of the tokens from `first` to `last`."""
        return self.piece.location(first.start, (last or first).end + 1)

    # --- relations --------------------------------------------------------------------------------

    def _parse_table_parts(self, schema: bool = False, *args: Any, **kwargs: Any) -> Any:
        table = super()._parse_table_parts(schema, *args, **kwargs)
        if isinstance(table, exp.Table) and not schema:
            self.attach_with(table)
        return table

    def _at_window_table(self, ahead: int = 0) -> bool:
        tokens = self._tokens[self._index + ahead : self._index + ahead + 2]
        if len(tokens) < 2 or tokens[1].token_type != TokenType.L_PAREN:
            return False
        return tokens[0].text.lower() in WINDOW_TABLES

    def _parse_window_table(self) -> exp.Subquery | None:
        """TUMBLE and the like, within TABLE(…) or not, as a subquery with the window attached."""
        wrapped = self._curr.text.upper() == "TABLE" and self._next.token_type == TokenType.L_PAREN
        if not self._at_window_table(2 if wrapped else 0):
            return None
        self._advance(2 if wrapped else 0)
        start = self._curr
        relation, spec, time_column = parse_window_table(self)
        location = self.token_location(start, self._prev)
        if wrapped:
            self.close()
        select = exp.Select(expressions=[exp.Star()], from_=exp.From(this=relation))
        select.set(RELATION, Clause(this=RawWindow(spec, location, time_column)))
        return exp.Subquery(this=select)

    def _parse_table_part(self, schema: bool = False) -> exp.Expr | None:
        if not schema and self._next.token_type == TokenType.L_PAREN and self._curr.text.isidentifier():
            # Any word can name a function here; `file` is a keyword elsewhere.
            return self._parse_function(anonymous=True, any_token=True, optional_parens=False)
        return super()._parse_table_part(schema)

    def _parse_table_hints(self) -> list[exp.Expr] | None:
        return None

    def _parse_table(self, schema: bool = False, joins: bool = False, *args: Any, **kwargs: Any) -> Any:
        windows = self._parse_window_table() if not schema else None
        if windows is not None:
            windows.set(
                "alias", self._parse_table_alias(kwargs.get("alias_tokens") or self.TABLE_ALIAS_TOKENS)
            )
            for join in self._parse_joins() if joins else ():
                windows.append("joins", join)
            return windows
        table = super()._parse_table(schema, joins, *args, **kwargs)
        if isinstance(table, exp.Table):
            self.attach_with(table)
        return table

    def attach_with(self, table: exp.Table) -> None:
        """Read a WITH (…) that belongs to a relation."""
        if table.args.get(WITH) is None and self.at_with():
            table.set(WITH, Clause(this=self.parse_with()))

    def _parse_table_alias(self, alias_tokens: Any = None) -> exp.TableAlias | None:
        if self._at_emit() or self._at_within():
            return None
        return super()._parse_table_alias(alias_tokens)

    def _parse_alias(self, this: Any, explicit: bool = False) -> Any:
        if self._at_emit() or self._at_streaming_window():
            return this
        return super()._parse_alias(this, explicit)

    def _parse_join(self, *args: Any, **kwargs: Any) -> Any:
        join = super()._parse_join(*args, **kwargs)
        if join is not None and self._at_within():
            self._advance()
            join.set(WITHIN, self._parse_interval())
        return join

    # --- clauses ----------------------------------------------------------------------------------

    def _at_emit(self) -> bool:
        return self._curr.text.upper() == "EMIT" and self._next.text.upper() in ("FINAL", "CHANGES")

    def _at_within(self) -> bool:
        return self._curr.text.upper() == "WITHIN" and self._next.token_type == TokenType.INTERVAL

    def _at_streaming_window(self) -> bool:
        return self._curr.token_type == TokenType.WINDOW and self._next.text.upper() in WINDOW_WORDS

    def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
        """As in sqlglot, but with any expressions, such as the conditions in `ROLLUP (a LIKE 'x%')`."""
        kind = (
            exp.Cube if self._match(TokenType.CUBE) else exp.Rollup if self._match(TokenType.ROLLUP) else None
        )
        if kind is None:
            return None
        return kind(expressions=[] if with_prefix else self._parse_wrapped_csv(self._parse_disjunction))

    def _parse_grouping_set(self) -> exp.Expr | None:
        """See `_parse_cube_or_rollup`."""
        return self._parse_grouping_sets() or self._parse_cube_or_rollup() or self._parse_disjunction()

    def _parse_query_modifiers(self, this: Any) -> Any:
        this = super()._parse_query_modifiers(this)
        while isinstance(this, exp.Query) and self._parse_own_modifier(this):
            this = super()._parse_query_modifiers(this)
        return this

    def _parse_own_modifier(self, this: exp.Query) -> bool:
        start = self._curr
        if self._at_emit():
            key, value = EMIT, Clause(this=RawEmit(parse_emit(self), self.token_location(start, self._prev)))
        elif self.at_with():
            key, value = WITH, Clause(this=self.parse_with())
        else:
            return False
        if this.args.get(key) is not None:
            raise self.syntax_error(f"{start.text.upper()} appears twice in one query", start)
        this.set(key, value)
        return True

    def _parse_any_window(self) -> tuple[str, Any]:
        start = self._curr
        if not self._at_streaming_window():
            return "windows", self._parse_window_clause()
        self._advance()
        spec, time_column = parse_window(self)
        location = self.token_location(start, self._prev)
        return WINDOW, Clause(this=RawWindow(spec, location, time_column))

    def _parse_window(self, this: Any, alias: bool = False) -> Any:
        outer, self._rows_buffer = self._rows_buffer, None
        window: Any = super()._parse_window(this, alias)
        buffer: Any = self._rows_buffer
        self._rows_buffer = outer
        if buffer is not None and isinstance(window, exp.Window):
            window.set(BUFFER, buffer)
            if window.args.get("spec") is None:
                window.set("spec", _last_rows(int(buffer.name)))
        return window

    def _parse_partition_and_order(self) -> Any:
        if self._match_text_seq("ROWS", "WINDOW", "BUFFER"):
            size = self._parse_number()
            if not isinstance(size, exp.Literal) or not size.name.isdigit() or size.name == "0":
                raise self.syntax_error("ROWS WINDOW BUFFER needs a number of rows", self._prev)
            self._match_text_seq("ROWS")
            self._rows_buffer = size
        return super()._parse_partition_and_order()

    def parse_with(self) -> RawWith:
        """WITH ("key" = "value", …), or SET with the same."""
        start = self._curr
        self._advance(2)
        properties: list[RawProperty] = []
        while not self._match(TokenType.R_PAREN):
            if properties and not self._match(TokenType.COMMA):
                raise self.syntax_error("expected , or ) in WITH")
            properties.append(self._parse_with_item())
        return RawWith(tuple(properties), self.token_location(start, self._prev), self._prev.end + 1)

    def _parse_with_item(self) -> RawProperty:
        key = self._curr
        if key.token_type != TokenType.STRING:
            raise self.syntax_error(
                "a property's name must be in quotes", hint='write WITH ("key" = "value")'
            )
        self._advance()
        if not self._match(TokenType.EQ):
            raise self.syntax_error(f'expected = after "{key.text}"')
        value = self._curr
        if value.token_type not in (TokenType.STRING, TokenType.RAW_STRING):
            raise self.syntax_error(
                f'the value of "{key.text}" must be in quotes', hint=f'write "{key.text}" = "…"'
            )
        self._advance()
        if secret(key.text):
            # Unescaped.
            learn_value(value.text)
        return RawProperty(key.text, value.text, self.token_location(key), self.token_location(value))

    def _parse_named_placeholder(self) -> exp.Expr | None:
        if not self._match_set(self.COLON_PLACEHOLDER_TOKENS):
            return None
        return self.expression(exp.Placeholder(this=self._prev.text), token=self._prev)

    # --- queries inside of other things -----------------------------------------------------------

    def _parse_statement(self) -> Any:
        """A statement inside a CTE: only queries are allowed."""
        return self.parse_query()

    def _parse_select_query(self, *args: Any, **kwargs: Any) -> Any:
        if self._curr.token_type == TokenType.FROM:
            raise self.syntax_error("FROM must follow SELECT", hint="write SELECT * FROM …")
        return super()._parse_select_query(*args, **kwargs)

    def _parse_pipe_syntax_query(self, query: exp.Query) -> exp.Query | None:
        raise self.syntax_error("|> is not part of the language", hint="write each step as a query in WITH")

    def parse_query(self) -> exp.Query:
        """A whole query with its modifiers."""
        start = self._curr
        query = self._parse_select(nested=True)
        if isinstance(query, exp.Values):
            query = self._values_to_select(query)
        query = self._parse_query_modifiers(self._parse_set_operations(query)) if query else None
        if not isinstance(query, exp.Query):
            raise self.syntax_error("expected a SELECT", start)
        return query

    def _parse_function_call(self, *args: Any, **kwargs: Any) -> Any:
        if self._curr.text.upper() == "TRIM" and not self._trim_has_keywords():
            kwargs["anonymous"] = True
        token = self._curr
        call = super()._parse_function_call(*args, **kwargs)
        inner = call.this if isinstance(call, exp.Window) else call
        if isinstance(inner, exp.Func) and "start" not in inner.meta:
            inner.update_positions(token)
        return call

    def _trim_has_keywords(self) -> bool:
        depth = 0
        for token in self._tokens[self._index + 1 :]:
            depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
            if not depth:
                return False
            if depth == 1 and token.token_type == TokenType.FROM:
                return True
        return False


def _last_rows(count: int) -> exp.WindowSpec:
    if count == 1:
        return exp.WindowSpec(kind="ROWS", start="CURRENT ROW", end="CURRENT ROW")
    return exp.WindowSpec(
        kind="ROWS", start=exp.Literal.number(count - 1), start_side="PRECEDING", end="CURRENT ROW"
    )


class VelostreamGenerator(SparkGenerator):
    """Generates our clauses as well, and everything exactly as it was read."""

    TRANSFORMS = {kind: write for kind, write in SparkGenerator.TRANSFORMS.items() if kind is not exp.Select}

    def window_sql(self, expression: exp.Window) -> str:
        """OVER with ROWS WINDOW BUFFER in front."""
        text = super().window_sql(expression)
        buffer = expression.args.get(BUFFER)
        if buffer is None:
            return text
        head, _, tail = text.partition(" OVER (")
        return f"{head} OVER (ROWS WINDOW BUFFER {buffer.name} ROWS {tail}"

    def join_sql(self, expression: exp.Join, join_op: str | None = None) -> str:
        """A join with WITHIN INTERVAL after the condition."""
        text = super().join_sql(expression, join_op)
        within = expression.args.get(WITHIN)
        return f"{text} WITHIN {self.sql(within)}" if within is not None else text


class Velostream(Spark):
    """The dialect."""

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokenizer, without opaque commands, and with '' as a quote inside a string."""

        COMMANDS: ClassVar[set[TokenType]] = set()
        STRING_ESCAPES = ["'", '"', "\\"]

    Parser = VelostreamParser
    Generator = VelostreamGenerator
