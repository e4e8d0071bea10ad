"""Properties that all databases share."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from velostream.model.changes import Messages
from velostream.model.columns import KEY
from velostream.model.durations import Duration
from velostream.model.options import ADDRESS, Options
from velostream.model.traits import SourceTraits

_READERS = 2
_LOOK_EVERY = timedelta(milliseconds=500)
"""The delay between two looks at the log of changes, where the thread that fills it has told of none."""


OF_LOGS = ("slot_name", "publication_name", "binlog_file", "binlog_position")
"""Properties of the logs of changes of single databases."""
_WITH_CDC = ("cdc_format", "cdc_start", "cdc_start_position", "initial_load", *OF_LOGS)


class DatabaseOptions(Options):
    """Connection, query, change capture and speed of a database source or sink."""

    connection: str | None = Field(
        None, description="a connection of the configuration ([connections.name]), or a driver's own address"
    )
    driver: str | None = Field(None, description="name of a registered driver")
    host: str | None = Field(None, description="server", json_schema_extra=ADDRESS)
    port: int | None = Field(None, gt=0, lt=65536, description="port of the server")
    database: str | None = Field(None, description="database on the server")
    username: str | None = Field(None, description="user")
    password: str | None = Field(None, description="password; best as ${env:NAME} or ${file:path}")
    ssl_mode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] = Field(
        "prefer", alias="ssl.mode", description="whether TLS is used and what is verified"
    )
    ssl_root_cert: str | None = Field(None, alias="ssl.root.cert", description="trusted authorities")
    ssl_cert: str | None = Field(None, alias="ssl.cert", description="our certificate")
    ssl_key: str | None = Field(None, alias="ssl.key", description="file of our private key")
    connect_timeout: Duration = Field(
        timedelta(seconds=10), alias="connect.timeout", description="how long a connection may take"
    )
    socket_timeout: Duration | None = Field(
        None, alias="socket.timeout", description="how long the server may stay silent"
    )
    pool_size: int = Field(
        4, alias="pool.size", gt=0, description="connections held; also connection.pool.size"
    )
    connection_pool_size: int | None = Field(
        None, alias="connection.pool.size", gt=0, description="another name of pool.size"
    )
    pool_max_idle: int | None = Field(None, alias="pool.max.idle", ge=0, description="idle connections kept")
    pool_validation_query: str | None = Field(
        None, alias="pool.validation.query", description="run before a pooled connection is used again"
    )

    table: str | None = Field(None, description="table to read or write")
    query: str | None = Field(None, description="query to read, instead of a table")
    database_schema: str | None = Field(None, alias="schema", description="schema of the table")
    where: str | None = Field(None, description="filter on the table, as SQL of the database")
    order_by: str | None = Field(None, alias="order.by", description="order of the rows")
    limit: int | None = Field(None, ge=0, description="most rows to read")
    query_params: str | None = Field(
        None, alias="query.params", description="values of the query's ? marks: one value, or a JSON list"
    )

    poll_interval: Duration | None = Field(None, alias="poll.interval", description="time between polls")
    incremental_column: str | None = Field(
        None, alias="incremental.column", description="a column that only grows; deletes are not seen then"
    )
    poll_query: str | None = Field(
        None, alias="poll.query", description="query of each poll; ? is the last value of incremental.column"
    )
    cdc: bool = Field(False, description="follow the database's own log of changes")
    cdc_format: Literal["native", "debezium"] = Field(
        "native",
        alias="cdc.format",
        description="taken over from Debezium's configuration: rows are the same either way",
    )
    cdc_start: str | None = Field(
        None,
        alias="cdc.start",
        description="latest, earliest or a position; also cdc.start.position",
        json_schema_extra={"default_text": "latest"},
    )
    cdc_start_position: str | None = Field(
        None, alias="cdc.start.position", description="another name of cdc.start"
    )
    initial_load: Literal["full", "none"] = Field(
        "full", alias="initial.load", description="whether the rows that are there are read first"
    )
    slot_name: str | None = Field(None, alias="slot.name", description="replication slot (PostgreSQL)")
    publication_name: str | None = Field(
        None, alias="publication.name", description="publication (PostgreSQL)"
    )
    binlog_file: str | None = Field(None, alias="binlog.file", description="binlog to begin in (MySQL)")
    binlog_position: str = Field(
        "auto",
        alias="binlog.position",
        pattern=r"^(auto|\d+)$",
        description="position in it, or auto (MySQL)",
    )
    on_gap: Literal["reload", "fail"] = Field(
        "reload", alias="on.gap", description="what to do when changes were lost on the server"
    )

    create_table: bool = Field(
        False,
        alias="table.create.if.missing",
        description="create the table that is written to, with the key as its primary key",
    )
    batch_size: int = Field(
        10_000, alias="batch.size", gt=0, description="rows handed over or written at a time"
    )
    fetch_size: int | None = Field(None, alias="fetch.size", gt=0, description="rows per round trip")
    prefetch_count: int | None = Field(None, alias="prefetch.count", ge=0, description="batches read ahead")
    parallel_readers: int | None = Field(
        None, alias="parallel.readers", gt=0, description="connections that share the first load"
    )
    query_timeout: Duration | None = Field(None, alias="query.timeout", description="longest time of a query")
    transaction_isolation: (
        Literal["read_uncommitted", "read_committed", "repeatable_read", "serializable"] | None
    ) = Field(None, alias="transaction.isolation", description="isolation of reads")

    of_sources: ClassVar[frozenset[str]] = frozenset(
        {
            *("query", "query.params", "where", "order.by", "limit"),
            *("poll.interval", "incremental.column", "poll.query", "on.gap"),
            *("cdc", "cdc.format", "cdc.start", "cdc.start.position", "initial.load"),
            *("slot.name", "publication.name", "binlog.file", "binlog.position"),
            *("fetch.size", "prefetch.count", "parallel.readers", "transaction.isolation"),
        }
    )
    names_a_relation: ClassVar[bool] = True
    """Whether the address has to name a table or a query."""
    of_others: ClassVar[tuple[str, ...]] = ()
    """Properties of other databases, which mean nothing to this one."""

    @property
    def start(self) -> str | None:
        """Where changes begin: `cdc.start`, by either of its names."""
        return self.cdc_start if self.cdc_start is not None else self.cdc_start_position

    @property
    def readers(self) -> int:
        """Connections that share the first load."""
        return self.parallel_readers or min(self.connection_pool_size or self.pool_size, _READERS)

    @model_validator(mode="after")
    def _means_something(self) -> Self:
        fields = type(self).model_fields
        for name in self.model_fields_set:
            told = f'"{fields[name].alias or name}"'
            if name in self.of_others:
                raise ValueError(f"{told} is a property of another database")
            if name in _WITH_CDC and not self.cdc:
                raise ValueError(f'{told} is about changes that are followed: it needs "cdc" = "true"')
        return self

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.query_params is not None and self.query is None:
            raise ValueError('"query.params" are the values of the ? marks of "query", which is missing')
        if self.poll_query is not None and self.incremental_column is None:
            raise ValueError(
                'the ? of "poll.query" is the last value of "incremental.column": name that, too'
            )
        if self.cdc and self.order_by is not None:
            raise ValueError(
                '"cdc" follows changes in the order in which they are made; leave out "order.by"'
            )
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.table is not None and self.query is not None:
            raise ValueError('"table" and "query" exclude each other; give one of them')
        if self.table is None and self.query is None and self.names_a_relation:
            raise ValueError('name a "table" or a "query": …://host/database?table=name')
        if self.cdc and self.query is not None:
            raise ValueError('"cdc" follows a table and cannot be used with "query"; use "poll.interval"')
        if self.cdc and self.limit is not None:
            raise ValueError(
                '"cdc" cannot be used with "limit": a later change could not be told to be in it'
            )
        if self.cdc and (self.poll_interval is not None or self.incremental_column is not None):
            raise ValueError('"cdc" follows every change; leave out "poll.interval" and "incremental.column"')
        if self.cdc_start is not None and self.cdc_start_position is not None:
            raise ValueError('"cdc.start" and "cdc.start.position" are the same property; give one of them')
        return self


def database_traits(options: DatabaseOptions) -> SourceTraits:
    """The traits of a relation in a database: its rows replace each other by key, and are not read twice."""
    return SourceTraits(
        messages=Messages(KEY, upserts=True),
        rereadable=False,
        frames_in_order=True,
        poll_interval=_LOOK_EVERY,
        once=not options.cdc and options.poll_interval is None,
        unseen=_unseen(options),
    )


def _unseen(options: DatabaseOptions) -> str | None:
    """What no poll with these properties tells, and the job cannot know either."""
    if options.cdc or options.poll_interval is None or options.incremental_column is None:
        return None
    return (
        f'rows are asked for by "{options.incremental_column}": deletes are not seen, nor rows that are '
        "committed late with an older value"
    )
