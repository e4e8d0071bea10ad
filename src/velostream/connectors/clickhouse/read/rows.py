"""Tables, views and queries of ClickHouse that are asked for their rows."""

from __future__ import annotations

from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.connectors.clickhouse.client.tables import Table, columns_of, table_of
from velostream.connectors.clickhouse.client.types import INSTANT, quoted
from velostream.connectors.clickhouse.read.parts import ranges_of, still_there
from velostream.connectors.databases.marks import marked, parameter_values
from velostream.connectors.databases.parallel import in_parallel
from velostream.connectors.databases.polling import Asked
from velostream.connectors.databases.source import Described
from velostream.connectors.databases.text_rows import decode
from velostream.connectors.databases.user_sql import check_user_sql
from velostream.errors import SourceConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from velostream.connectors.clickhouse.client.connections import Answer, Client
    from velostream.connectors.clickhouse.client.types import Column
    from velostream.connectors.clickhouse.options import ClickHouseOptions
    from velostream.connectors.databases.newest import Since
    from velostream.connectors.databases.text_rows import Decoded


class ClickHouseRows(Asked):
    """See `Asked`: every read is one query, whose result is a snapshot and is streamed.

    A whole table of one server may be read by several queries, each a range of its rows on disk.
    """

    def __init__(self, client: Client, options: ClickHouseOptions, declared: pa.Schema | None) -> None:
        self._client = client
        self._options = options
        self._binary = [field.name for field in declared or () if pa.types.is_binary(field.type)]
        self._found: tuple[list[Column], Table | None] | None = None
        self._checked = False
        self.name = f'{client.name}, table "{options.table}"' if options.table else f"{client.name}, a query"

    def describe(self) -> Described:
        """See `Asked`."""
        columns, table = self._columns()
        names = [column.name for column in columns]
        for said, given in (
            ("incremental.column", [self._options.incremental_column]),
            ("key", self._options.key_columns),
        ):
            for name in given:
                if name is not None and name not in names:
                    raise SourceConfigError(
                        f'{self.name} has no column "{name}", which "{said}" names',
                        hint=did_you_mean(name, names),
                    )
        key = self._options.key_columns
        if not key and table is not None and table.replaces and self._final(table):
            key = table.sorting_key if set(table.sorting_key) <= set(names) else ()
        return Described(pa.schema([pa.field(column.name, column.arrow) for column in columns]), key)

    def look(self) -> None:
        """See `Asked`."""
        self._found = self._looked_up()

    def rows(self, since: Since | None) -> Iterator[Decoded]:
        """See `Asked`."""
        columns, table = self._columns()
        texts = [column.text for column in columns]
        streams = self._streams(columns, table, since)
        for batch in in_parallel(chain.from_iterable, streams, len(streams), self._options.prefetch_count):
            yield decode(texts, batch.columns)

    def interrupt(self) -> None:
        """See `Asked`."""
        self._client.interrupt()

    def close(self) -> None:
        """See `Asked`."""
        self._client.close()

    # --- queries ------------------------------------------------------------------------------------------

    def _streams(self, columns: Sequence[Column], table: Table | None, since: Since | None) -> list[Answer]:
        options = self._options
        whole = since is None and options.order_by is None and options.limit is None
        whole = whole and options.incremental_column is None
        if table is not None and whole and options.readers > 1 and not self._final(table):
            ranges = ranges_of(self._client, table, options.readers)
            opened = [self._stream(columns, table, None, condition) for condition in ranges]
            # Each query has its snapshot by now. They agree if nothing that they name was merged since.
            if opened and still_there(self._client, table, ranges):
                return opened
            for stream in opened:
                stream.close()
        return [self._stream(columns, table, since, None)]

    def _stream(
        self, columns: Sequence[Column], table: Table | None, since: Since | None, only: str | None
    ) -> Answer:
        query, values = self._query(columns, table, since, only)
        size = self._options.fetch_size or self._options.batch_size
        return self._client.stream(query, values, {"max_block_size": size}, f"cannot read {self.name}")

    def _query(
        self, columns: Sequence[Column], table: Table | None, since: Since | None, only: str | None
    ) -> tuple[str, dict[str, Any]]:
        options = self._options
        relation, values = self._relation(table)
        conditions = [f"({options.where}\n)"] if options.where is not None else []
        conditions += [only] if only is not None else []
        grows = next((column for column in columns if column.name == options.incremental_column), None)
        if since is not None and grows is not None:
            values["last"] = since.value.removesuffix("Z")
            bound = f"{{last:{grows.compared_as}}}"
            if options.poll_query is not None:
                # The user's own condition stands for all of ours.
                relation, conditions = f"({marked(options.poll_query, 1, lambda _: bound)}\n) AS q", []
            else:
                known = f"CAST({quoted(grows.name)} AS {INSTANT})" if grows.finer_than_here else None
                sign = since.sign(keyed=bool(self.describe().key))
                conditions.append(f"{known or quoted(grows.name)} {sign} {bound}")
        # Names of their own, since an alias hides the column of its name from WHERE.
        chosen = ", ".join(
            f"CAST({quoted(column.name)} AS {column.wire}) AS velostream_{number}"
            for number, column in enumerate(columns)
        )
        text = f"SELECT {chosen} FROM {relation}"
        if conditions:
            text += f" WHERE {' AND '.join(conditions)}"
        if grows is not None:
            text += f" ORDER BY {quoted(grows.name)}"
        elif options.order_by is not None:
            text += f" ORDER BY {options.order_by}\n"
        if options.limit is not None:
            text += f" LIMIT {options.limit + (since.again if since is not None else 0)}"
        return text, values

    def _relation(self, table: Table | None) -> tuple[str, dict[str, Any]]:
        """What is selected from, and the values of its marks."""
        if table is not None:
            return table.identifier + (" FINAL" if self._final(table) else ""), {}
        assert self._options.query is not None
        given = _typed(self._options.query_params)
        bound = marked(self._options.query, len(given), lambda n: f"{{p{n}:{given[n][0]}}}")
        return f"({bound}\n) AS q", {f"p{n}": value for n, (_, value) in enumerate(given)}

    def _final(self, table: Table) -> bool:
        return table.merges_rows if self._options.final is None else self._options.final

    def _columns(self) -> tuple[list[Column], Table | None]:
        if self._found is None:
            self.look()
        assert self._found is not None
        return self._found

    def _looked_up(self) -> tuple[list[Column], Table | None]:
        if not self._checked:
            check_user_sql(self._options)
        table = None
        if self._options.table is not None:
            table = table_of(self._client, self._options.database_schema, self._options.table)
        relation, values = self._relation(table)
        what = f"cannot read {self.name}"
        found = columns_of(self._client, relation, values, what, self._binary)
        if not self._checked:
            self._check(relation, values, found)
            self._checked = True
        return found, table

    def _check(self, relation: str, values: dict[str, Any], columns: Sequence[Column]) -> None:
        """Refuse SQL of the user's that is more than it has to be; nothing is read."""
        options, ask = self._options, self._client.rows
        if options.query is not None:
            given = _typed(options.query_params)
            text = marked(options.query, len(given), lambda n: f"{{p{n}:{given[n][0]}}}")
            ask(f"EXPLAIN AST {text}", values, '"query" is no query')
        if options.poll_query is not None:
            grows = next((each for each in columns if each.name == options.incremental_column), None)
            kind = grows.compared_as if grows is not None else "String"
            text = marked(options.poll_query, 1, lambda _: f"CAST(NULL AS Nullable({kind}))")
            for whole in (f"EXPLAIN AST {text}", f"DESCRIBE ({text}\n)"):
                ask(whole, {}, '"poll.query" is no query')
        if options.where is not None:
            what = f'"where" = "{options.where}" is no condition on the rows'
            # No text ends both of these and goes on with something else.
            ask(f"SELECT 1 FROM {relation} WHERE ({options.where}\n) LIMIT 0", values, what)
            ask(f"SELECT CASE WHEN ({options.where}\n) THEN 1 END FROM {relation} LIMIT 0", values, what)
        if options.order_by is not None:
            what = f'"order.by" = "{options.order_by}" is no order of the rows'
            text = f"SELECT * FROM {relation} ORDER BY {options.order_by}\n LIMIT 0"
            for whole in (text, f"SELECT * FROM ({text}) AS q"):
                ask(whole, values, what)


def _typed(text: str | None) -> list[tuple[str, Any]]:
    """The values of `query.params`, each with the type that it is bound with.

    In a JSON list, `1` is a number and `"1"` a text. A value that stands alone is a number if it reads as
    one.
    """
    values = parameter_values(text)
    if text is not None and not text.lstrip().startswith("["):
        alone = text.strip()
        if alone.lstrip("-").isdecimal():
            values = [int(alone)]
        elif alone.lstrip("-").replace(".", "", 1).isdecimal():
            values = [Decimal(alone)]
    return [_bound(value) for value in values]


def _bound(value: Any) -> tuple[str, Any]:
    if isinstance(value, bool):
        return "Bool", value
    if isinstance(value, int):
        return "Int64" if -(2**63) <= value < 2**63 else "Int256", value
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        scale = -exponent if isinstance(exponent, int) and exponent < 0 else 0
        return f"Decimal(76, {scale})", format(value, "f")
    return "Nullable(String)" if value is None else "String", value
