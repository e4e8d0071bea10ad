"""The statement parser: from a piece of text to one statement as written.

The first words decide which statement it is; queries and expressions inside are left to the dialect.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from velostream.errors import SqlSyntaxError, UnsafeError, did_you_mean
from velostream.model.statements import JobAction, ObjectKind, ShowKind
from velostream.sql.parse import elsewhere, guesses
from velostream.sql.parse import syntax as raw
from velostream.sql.parse.dialect import Velostream, VelostreamParser
from velostream.sql.text.script import URI_MARK, Piece
from velostream.sql.windows.clauses import WINDOW_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from velostream.location import Location

_DIALECT = Velostream()
_TABLE = ObjectKind.TABLE.upper()
_MATERIALIZED = ("MATERIALIZED", "VIEW")
"""Other words for TABLE, of a table that follows its query."""
_KINDS = {kind.upper(): kind for kind in ObjectKind}
_SHOWN = {kind.upper(): kind for kind in ShowKind}
_UNSAFE = {
    "ADD": "ADD JAR and ADD FILE load code into Spark",
    "SET": "SET changes Spark's configuration",
    "RESET": "RESET changes Spark's configuration",
    "LOAD": "LOAD DATA reads files",
    "ANALYZE": "ANALYZE is Spark's own administration",
    "REFRESH": "REFRESH is Spark's own administration",
    "CACHE": "CACHE is Spark's own administration",
    "UNCACHE": "UNCACHE is Spark's own administration",
    "USE": "there are no databases to switch to",
}


def parse_piece(piece: Piece) -> raw.Raw | None:
    """The statement; None for only white space and comments. Raises SqlError."""
    tokens = tokenize(piece)
    return StatementParser(piece, tokens).parse() if tokens else None


def tokenize(piece: Piece) -> list[Token]:
    """The tokens, without their comments."""
    try:
        tokens = _DIALECT.tokenize(piece.text)
    except TokenError:
        # sqlglot's message quotes the surrounding text, including passwords.
        raise SqlSyntaxError(
            "the text cannot be read as SQL", location=piece.location(0, max(1, len(piece.text)))
        ) from None
    end = Token(TokenType.SENTINEL, "")
    for token, after, later in zip(tokens, [*tokens[1:], end], [*tokens[2:], end, end], strict=False):
        token.comments.clear()
        if token.token_type is TokenType.COMMA and (not after or after.token_type in _AFTER_NO_COMMA):
            place = piece.location(token.start, token.end + 1)
            raise SqlSyntaxError('nothing follows ","', location=place)
        if token.token_type in _CLAUSE_OR_NAME and not _begins_clause(token, after, later):
            token.token_type = TokenType.VAR
    return tokens


def _begins_clause(token: Token, after: Token, later: Token) -> bool:
    """Whether WINDOW or OFFSET begins a clause; otherwise it is a column, or Spark's window(…)."""
    if token.token_type is TokenType.OFFSET:
        return after.token_type in (TokenType.NUMBER, TokenType.PLACEHOLDER, TokenType.COLON)
    return after.text.upper() in WINDOW_WORDS or later.token_type is TokenType.ALIAS


class StatementParser:
    """Parses the tokens of one statement."""

    def __init__(self, piece: Piece, tokens: list[Token]) -> None:
        self.piece = piece
        self.tokens = tokens
        self.parser = VelostreamParser(error_level=ErrorLevel.IMMEDIATE, dialect=_DIALECT)
        self.parser.start(piece, tokens)

    def parse(self) -> raw.Raw:
        """The whole statement; leftover tokens are an error."""
        try:
            statement = self._statement()
            if self.parser.current:
                raise self._unexpected()
        except ParseError as exc:
            # sqlglot's message quotes the surrounding text, including passwords.
            raise self._translated(exc) from None
        except RecursionError as exc:
            raise SqlSyntaxError("the statement is nested too deeply", location=self._whole()) from exc
        except (
            AttributeError,
            TypeError,
            ValueError,
            AssertionError,
            IndexError,
            KeyError,
            ArithmeticError,
        ) as exc:
            # sqlglot fails on some malformed text with internal errors; for the user it is a syntax error.
            raise self.parser.syntax_error("the statement cannot be understood here") from exc
        return replace(statement, text=self._text(), location=self._whole(), end=self.tokens[-1].end + 1)

    def parse_schema(self, kind: ObjectKind) -> raw.RawSchema:
        """Columns in parentheses and nothing else."""
        try:
            schema = self._schema(kind)
        except ParseError as exc:
            raise self._translated(exc) from None
        if self._current:
            raise self._unexpected()
        return schema

    def _statement(self) -> raw.Raw:
        word = self._current.text.upper() if self._current.token_type != TokenType.STRING else ""
        parse = _STATEMENTS.get(word)
        if parse is not None:
            return parse(self)
        first = word.partition(" ")[0]  # sqlglot reads ADD JAR as one word
        if first in _UNSAFE:
            raise UnsafeError(f"{first} is not allowed", detail=_UNSAFE[first], location=self._place())
        if self._current.token_type == TokenType.L_PAREN:
            return self.select()
        raise SqlSyntaxError(
            f'"{self._current.text}" does not begin a statement',
            hint=elsewhere.STATEMENTS.get(word)
            or did_you_mean(word, _STATEMENTS)
            or f"statements begin with {', '.join(_LISTED)}",
            location=self._place(),
        )

    # --- the statements ---------------------------------------------------------------------------

    def create(self) -> raw.Raw:
        """CREATE TABLE, STREAM, SOURCE or VIEW."""
        self._take("CREATE")
        or_replace = self.parser.words("OR", "REPLACE")
        kind, word = self._kind("CREATE")
        if_not_exists = self.parser.words("IF", "NOT", "EXISTS")
        name = self._name(kind)
        schema = self._schema(kind) if self._current.token_type == TokenType.L_PAREN else raw.RawSchema()
        if kind is not ObjectKind.SOURCE and self._current.token_type == TokenType.FROM:
            whole = f"CREATE {word} {name.text} AS SELECT * FROM {self._show_token(self.parser.following)}"
            raise self._unexpected("AS SELECT", hint=whole if self.parser.following else None)
        query, relation, properties = None, None, None
        if kind is ObjectKind.SOURCE:
            relation = self._source_relation()
        elif word != _TABLE or self._current.text.upper() == "AS":
            self._take("AS", hint=f"CREATE {word} {name.text} AS SELECT …")
            query = self._query()
        properties = self._with()
        if kind is ObjectKind.TABLE and query is None and not schema.columns:
            raise SqlSyntaxError(
                f'table "{name.text}" has neither columns nor a query',
                hint=f"write CREATE TABLE {name.text} (column type, …) or … AS SELECT …",
                location=name.location,
            )
        return raw.RawCreate(
            kind,
            name,
            schema,
            query,
            relation,
            properties,
            bool(or_replace),
            bool(if_not_exists),
            **_PLACELESS,
        )

    def _source_relation(self) -> exp.Table:
        self._take("FROM", hint="CREATE SOURCE name FROM kafka://topic")
        table = self.parser.relation()
        if not isinstance(table, exp.Table):
            raise self._unexpected("a URI")
        return table

    def insert(self) -> raw.Raw:
        """INSERT INTO a table or a URI."""
        self._take("INSERT")
        or_replace = self.parser.words("OR", "REPLACE")
        self._take("INTO", hint="INSERT INTO table VALUES (…)")
        self.parser.words("TABLE")
        target = self.parser.relation(name_only=self.parser.following.token_type == TokenType.L_PAREN)
        if not isinstance(target, exp.Table) or self._current.token_type == TokenType.COLON:
            raise self._unexpected("a table or URI")
        self.parser.attach_with(target)
        columns: tuple[raw.Name, ...] = ()
        if (
            self._current.token_type == TokenType.L_PAREN
            and self.parser.following.token_type not in _QUERY_STARTS
        ):
            columns = tuple(self._name_list())
        rows: tuple[tuple[exp.Expr, ...], ...] = ()
        query = None
        if self._current.token_type == TokenType.VALUES:
            self.parser.advance()
            rows = tuple(self._rows())
        else:
            query = self._query()
        if self._current.token_type == TokenType.ON:
            raise self._unexpected("the end of the statement", hint=elsewhere.ON_CONFLICT)
        return raw.RawInsert(target, columns, rows, query, self._with(), bool(or_replace), **_PLACELESS)

    def _rows(self) -> list[tuple[exp.Expr, ...]]:
        rows = [self._row()]
        while self.parser.match(TokenType.COMMA):
            rows.append(self._row())
        return rows

    def _row(self) -> tuple[exp.Expr, ...]:
        if not self.parser.match(TokenType.L_PAREN):
            raise self._unexpected("( and the values of a row")
        values = [self._expression()]
        while self.parser.match(TokenType.COMMA):
            values.append(self._expression())
        self.parser.close()
        return tuple(values)

    def update(self) -> raw.Raw:
        """UPDATE t SET …."""
        self._take("UPDATE")
        table = self._name(ObjectKind.TABLE)
        self._take("SET")
        assignments = [self._assignment()]
        while self.parser.match(TokenType.COMMA):
            assignments.append(self._assignment())
        return raw.RawUpdate(table, tuple(assignments), self._where(), **_PLACELESS)

    def _assignment(self) -> tuple[raw.Name, exp.Expr]:
        column = self._any_name("a column")
        if not self.parser.match(TokenType.EQ):
            raise self._unexpected("=")
        return column, self._expression()

    def delete(self) -> raw.Raw:
        """DELETE FROM t."""
        self._take("DELETE")
        self._take("FROM")
        return raw.RawDelete(self._name(ObjectKind.TABLE), self._where(), **_PLACELESS)

    def truncate(self) -> raw.Raw:
        """TRUNCATE [TABLE] t: another word for DELETE FROM t."""
        self._take("TRUNCATE")
        if self.parser.following:
            self.parser.words(_TABLE)
        return raw.RawDelete(self._name(ObjectKind.TABLE), None, "TRUNCATE", **_PLACELESS)

    def alter(self) -> raw.Raw:
        """ALTER TABLE t RENAME TO, SET or ADD COLUMN."""
        self._take("ALTER")
        if self._current.text.upper() in (ObjectKind.STREAM.upper(), ObjectKind.SOURCE.upper(), "VIEW"):
            raise SqlSyntaxError(
                f"a {self._current.text.lower()} cannot be altered",
                hint=f"write CREATE OR REPLACE {self._current.text.upper()}",
                location=self._place(),
            )
        self._kind("ALTER")
        table = self._name(ObjectKind.TABLE)
        if self.parser.words("RENAME"):
            hint = f"ALTER TABLE {table.text} RENAME TO another_name"
            self._take("TO", hint=self._instead_of_altering(hint))
            return raw.RawRename(table, self._name(ObjectKind.TABLE), **_PLACELESS)
        if self._current.text.upper() == "SET" and self.parser.following.token_type == TokenType.L_PAREN:
            return raw.RawSet(table, self.parser.parse_with(), **_PLACELESS)
        if self.parser.words("ADD"):
            self.parser.words("COLUMN")
            if_not_exists = self.parser.words("IF", "NOT", "EXISTS")
            return raw.RawAddColumn(table, self._column(), bool(if_not_exists), **_PLACELESS)
        hint = f'ALTER TABLE {table.text} SET ("property" = "value")'
        raise self._unexpected("RENAME TO, SET (…) or ADD COLUMN", hint=self._instead_of_altering(hint))

    def _instead_of_altering(self, otherwise: str) -> str:
        """How a column is dropped or changed, which ALTER does not do."""
        if self._current.text.upper() not in ("DROP", "ALTER", "MODIFY", "CHANGE", "COLUMN"):
            return otherwise
        return (
            "make it anew with the columns that it should have: CREATE OR REPLACE TABLE … AS SELECT …; "
            "rows that were put in by hand go over with INSERT INTO … SELECT"
        )

    def select(self) -> raw.Raw:
        """A query outside of another statement."""
        return raw.RawSelect(self._query(), self._with(), **_PLACELESS)

    def show(self) -> raw.Raw:
        """SHOW …."""
        self._take("SHOW")
        if self.parser.words("CREATE"):
            self._skip_kind()
            return raw.RawNamed(self._any_name("a name"), True, **_PLACELESS)
        if self.parser.words(*ShowKind.MATERIALIZED_VIEWS.upper().split()):
            return raw.RawShow(ShowKind.MATERIALIZED_VIEWS, None, **_PLACELESS)
        kind = _SHOWN.get(self._current.text.upper())
        if kind is None:
            raise SqlSyntaxError(
                f'SHOW "{self._current.text}" is not known',
                hint=did_you_mean(self._current.text, _SHOWN)
                or f"SHOW takes {', '.join([*_SHOWN, 'CREATE'])}",
                location=self._place(),
            )
        self.parser.advance()
        connector = None
        if kind is ShowKind.PROPERTIES and self.parser.words("FOR"):
            connector = self._any_name("a connector")
        return raw.RawShow(kind, connector, **_PLACELESS)

    def describe(self) -> raw.Raw:
        """DESCRIBE name."""
        self.parser.advance()
        self._skip_kind()
        return raw.RawNamed(self._any_name("a name"), False, **_PLACELESS)

    def _skip_kind(self) -> None:
        """Read TABLE, VIEW, … before a name; a table may have such a name itself."""
        if not self.parser.following or self.parser.words(*_MATERIALIZED):
            return
        if self._current.text.upper() in _KINDS:
            self.parser.advance()

    def explain(self) -> raw.Raw:
        """EXPLAIN of another statement."""
        self._take("EXPLAIN")
        if not self._current:
            raise self._unexpected("a statement")
        first = self._current
        inner = self._statement()
        location = self.parser.token_location(first, self.tokens[-1])
        inner = replace(inner, text=location.text, location=location, end=self.tokens[-1].end + 1)
        return raw.RawExplain(inner, **_PLACELESS)

    def control(self) -> raw.Raw:
        """PAUSE, RESUME or STOP JOB."""
        action = JobAction(self._current.text.lower())
        self.parser.advance()
        self._take("JOB", hint=f"{action.upper()} JOB id")
        return raw.RawControl(action, self._job(), **_PLACELESS)

    def _job(self) -> str:
        """The id of a job, which may have dashes in it; it ends the statement."""
        first = last = self._current
        while self._current:
            last = self._current
            self.parser.advance()
        if not first:
            raise self._unexpected("the id of a job")
        place = self.parser.token_location(first, last)
        job = first.text if first is last else place.text
        if any(character.isspace() for character in place.text) and first is not last:
            raise SqlSyntaxError("expected one id after JOB", location=place)
        return job

    def drop(self) -> raw.Raw:
        """DROP …."""
        self._take("DROP")
        if self.parser.words("JOB"):
            return raw.RawDropJob(self._job(), **_PLACELESS)
        kind, word = self._kind("DROP")
        if_exists = self.parser.words("IF", "EXISTS")
        return raw.RawDrop(kind, self._name(kind), bool(if_exists), word.lower(), **_PLACELESS)

    def replay(self) -> raw.Raw:
        """REPLAY DEAD LETTERS."""
        self._take("REPLAY")
        self._take("DEAD", hint="REPLAY DEAD LETTERS")
        self._take("LETTERS", hint="REPLAY DEAD LETTERS")
        return raw.RawReplay(self._where(), **_PLACELESS)

    # --- parts ------------------------------------------------------------------------------------

    def _query(self) -> raw.RawQuery:
        start = self._current
        if not start:
            raise self._unexpected("a SELECT")
        tree = self.parser.parse_query()
        return raw.RawQuery(tree, self.parser.token_location(start, self.parser.previous))

    def _with(self) -> raw.RawWith | None:
        if self.parser.at_with():
            return self.parser.parse_with()
        return None

    def _where(self) -> exp.Expr | None:
        return self._expression() if self.parser.match(TokenType.WHERE) else None

    def _expression(self) -> exp.Expr:
        expression = self.parser.condition()
        if not isinstance(expression, exp.Expr):
            raise self._unexpected("an expression")
        return expression

    def _schema(self, kind: ObjectKind) -> raw.RawSchema:
        self.parser.advance()
        columns: list[raw.RawColumn] = []
        key: tuple[raw.Name, ...] = ()
        watermark = None
        while True:
            if self.parser.words("PRIMARY", "KEY") or self.parser.match(TokenType.PRIMARY_KEY):
                key = tuple(self._name_list())
            elif self._current.text.upper() == "WATERMARK" and self.parser.following.text.upper() == "FOR":
                watermark = self._watermark(kind)
            else:
                columns.append(self._column())
            if not self.parser.match(TokenType.COMMA):
                break
        if not self.parser.match(TokenType.R_PAREN):
            raise self._unexpected(", or )", hint=elsewhere.after_column(self._current.text))
        return raw.RawSchema(tuple(columns), key, watermark)

    def _column(self) -> raw.RawColumn:
        name = self._any_name("a column")
        kind = self.parser.data_type()
        if not isinstance(kind, exp.DataType):
            instead = elsewhere.TYPES.get(self._current.text.upper()) if self._current else None
            raise self._unexpected(f'the type of column "{name.text}"', hint=instead)
        primary = default = None
        while True:
            if self.parser.words("DEFAULT"):
                default = self._expression()
            elif self.parser.words("PRIMARY", "KEY") or self.parser.match(TokenType.PRIMARY_KEY):
                primary = True
            else:
                return raw.RawColumn(name, kind, bool(primary), default)

    def _watermark(self, kind: ObjectKind) -> tuple[raw.Name, exp.Expr]:
        if kind is not ObjectKind.SOURCE:
            raise SqlSyntaxError("WATERMARK belongs to CREATE SOURCE", location=self._place())
        self.parser.advance(2)
        column = self._any_name("a column")
        self._take("AS")
        return column, self._expression()

    def _kind(self, verb: str) -> tuple[ObjectKind, str]:
        """What the statement is about, and the words for it."""
        if self.parser.words(*_MATERIALIZED):
            return ObjectKind.TABLE, " ".join(_MATERIALIZED)
        kind = _KINDS.get(self._current.text.upper())
        if kind is None:
            raise SqlSyntaxError(
                f'{verb} "{self._current.text}" is not known'
                if self._current
                else f"expected a kind after {verb}",
                hint=elsewhere.KINDS.get(self._current.text.upper())
                or did_you_mean(self._current.text, _KINDS)
                or f"{verb} takes {', '.join([*_KINDS, ' '.join(_MATERIALIZED)])}",
                location=self._place(),
            )
        self.parser.advance()
        return kind, kind.upper()

    def _name(self, kind: ObjectKind) -> raw.Name:
        name = self._any_name(f"the name of the {kind}")
        if self._current.token_type == TokenType.DOT:
            raise SqlSyntaxError(f"a {kind} has one name, without dots", location=self._place())
        if URI_MARK in name.text:
            raise SqlSyntaxError(f"expected the name of the {kind}, not a URI", location=name.location)
        return name

    def _any_name(self, expected: str) -> raw.Name:
        token = self._current
        if token.token_type in _NEVER_NAMES or not token:
            raise self._unexpected(expected)
        self.parser.advance()
        return raw.Name(token.text, self.parser.token_location(token))

    def _name_list(self) -> list[raw.Name]:
        if not self.parser.match(TokenType.L_PAREN):
            raise self._unexpected("(")
        names = [self._any_name("a column")]
        while self.parser.match(TokenType.COMMA):
            names.append(self._any_name("a column"))
        if not self.parser.match(TokenType.R_PAREN):
            raise self._unexpected(", or )")
        return names

    def _take(self, word: str, hint: str | None = None) -> None:
        if not self.parser.words(word):
            raise self._unexpected(word, hint)

    # --- places and errors ------------------------------------------------------------------------

    @property
    def _current(self) -> Token:
        return self.parser.current

    def _place(self) -> Location:
        if self._current:
            return self.parser.token_location(self._current)
        last = self.tokens[-1]
        return self.piece.location(last.end, last.end + 1)

    def _whole(self) -> Location:
        return self.parser.token_location(self.tokens[0], self.tokens[-1])

    def _text(self) -> str:
        return self._whole().text

    def _unexpected(self, expected: str | None = None, hint: str | None = None) -> SqlSyntaxError:
        found = f'"{self._show_token(self._current)}"' if self._current else "the end of the statement"
        hint = hint or guesses.source(self.tokens, self._current, self.piece.text)
        if expected:
            return SqlSyntaxError(f"expected {expected}, found {found}", hint=hint, location=self._place())
        misspelled = guesses.misspelled(self.tokens, self._current) if hint is None else None
        if misspelled is not None:
            token, guess = misspelled
            return SqlSyntaxError(
                f'"{self._show_token(token)}" is not expected here',
                hint=f'did you mean "{guess}"?',
                location=self.parser.token_location(token),
            )
        return SqlSyntaxError(f"{found} is not expected here", hint=hint, location=self._place())

    def _show_token(self, token: Token) -> str:
        return self.parser.token_location(token).shown

    def _translated(self, exc: ParseError) -> SqlSyntaxError:
        token = getattr(exc, "token", None) or self._current or self.tokens[-1]
        message = str(exc)
        if message.startswith(("Expecting", "Expected")):
            at_end = not self._current
            expected = message.split(" ", 1)[1].split(" but got", maxsplit=1)[0].strip()
            found = "the end of the statement" if at_end else f'"{self._show_token(self._current)}"'
            hint = guesses.source(self.tokens, self._current, self.piece.text)
            return SqlSyntaxError(f"expected {expected}, found {found}", hint=hint, location=self._place())
        if message.startswith("Required"):
            message = (
                f'something is missing before "{self._show_token(token)}"'
                if self._current
                else "the statement is incomplete"
            )
        else:
            message = message[:1].lower() + message[1:].rstrip(".")
        return SqlSyntaxError(message, location=self.parser.token_location(token))


_AFTER_NO_COMMA = frozenset(
    {
        TokenType.FROM,
        TokenType.WHERE,
        TokenType.GROUP_BY,
        TokenType.ORDER_BY,
        TokenType.HAVING,
        TokenType.R_PAREN,
        TokenType.R_BRACKET,
        TokenType.COMMA,
    }
)
_CLAUSE_OR_NAME = (TokenType.WINDOW, TokenType.OFFSET)
_PLACELESS: dict[str, Any] = {"text": "", "location": None}
_QUERY_STARTS = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.VALUES, TokenType.FROM)
_NEVER_NAMES = frozenset(
    {
        TokenType.NUMBER,
        TokenType.STRING,
        *(kind for kind in VelostreamParser.RESERVED_TOKENS if kind is not TokenType.IDENTIFIER),
    }
)

_STATEMENTS: dict[str, Callable[[StatementParser], raw.Raw]] = {
    "SELECT": StatementParser.select,
    "WITH": StatementParser.select,
    "VALUES": StatementParser.select,
    "CREATE": StatementParser.create,
    "INSERT": StatementParser.insert,
    "UPDATE": StatementParser.update,
    "DELETE": StatementParser.delete,
    "TRUNCATE": StatementParser.truncate,
    "ALTER": StatementParser.alter,
    "SHOW": StatementParser.show,
    "DESCRIBE": StatementParser.describe,
    "DESC": StatementParser.describe,
    "EXPLAIN": StatementParser.explain,
    "PAUSE": StatementParser.control,
    "RESUME": StatementParser.control,
    "STOP": StatementParser.control,
    "DROP": StatementParser.drop,
    "REPLAY": StatementParser.replay,
}
_LISTED = tuple(word for word in _STATEMENTS if word not in ("WITH", "DESC", "VALUES"))
