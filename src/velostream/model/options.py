"""Typed properties: the base class, and the properties of any source or statement.

A property is declared once, as a pydantic field whose alias is the name that users write; WITH validation,
`SHOW PROPERTIES` and the reference documentation are generated from it.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from zoneinfo import available_timezones

from pydantic import BaseModel, ConfigDict, Field, field_validator

from velostream.model.durations import Duration
from velostream.model.table_storage import MEMORY, STORAGE, STORAGES

if TYPE_CHECKING:
    from pydantic.config import JsonDict

    from velostream.model.statements import Properties

    StorageName = str
else:
    StorageName = Literal[tuple(STORAGES)]

FILE: JsonDict = {"reaches": "file"}
"""Marks a property that names a file or folder, which `allowed.roots` restricts."""
BATCH_ROWS = 10_000
"""Rows that a source hands over at a time where the statement does not say."""
ADDRESS: JsonDict = {"reaches": "address"}
"""Marks a property that names hosts, which `allowed.hosts` restricts."""


class Options(BaseModel):
    """Base of all option models: immutable, unknown names refused, users' names as aliases."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_alias=True, validate_by_name=False)
    of_sources: ClassVar[frozenset[str]] = frozenset()
    """Properties, as users write them, that say how to read, and mean nothing to a sink."""

    @classmethod
    def property_names(cls) -> tuple[str, ...]:
        """Every name that a user may write."""
        return tuple(field.alias or name for name, field in cls.model_fields.items())

    @classmethod
    def reaching(cls) -> dict[str, str]:
        """The properties that name files or addresses, and which of the two."""
        extras = {field.alias or name: field.json_schema_extra for name, field in cls.model_fields.items()}
        return {
            name: str(extra["reaches"])
            for name, extra in extras.items()
            if isinstance(extra, dict) and "reaches" in extra
        }


class SourceOptions(Options):
    """Base of the options of a source whose positions a user may know: where to begin, how much at a time."""

    batch_size: int = Field(BATCH_ROWS, alias="batch.size", gt=0, description="rows handed over at a time")
    starting_offsets: str | None = Field(
        None,
        alias="starting.offsets",
        description='positions to begin after, as JSON {"partition": position}; others from their first row',
    )

    @field_validator("starting_offsets")
    @classmethod
    def _positions(cls, value: str | None) -> str | None:
        cls._parsed(value)
        return value

    @staticmethod
    def _parsed(value: str | None) -> dict[str, Any] | None:
        try:
            found = None if value is None else json.loads(value)
        except ValueError as exc:
            raise ValueError(f"no JSON: {exc}") from None
        if found is not None and not isinstance(found, dict):
            raise ValueError('not of the form {"partition": position}')
        return found

    def beginning(self) -> dict[str, Any] | None:
        """The position of `starting.offsets`."""
        return self._parsed(self.starting_offsets)


class CommonOptions(Options):
    """Properties of any source or statement."""

    key: str | None = Field(None, description="key columns of the table, separated by commas")
    schema_text: str | None = Field(None, alias="schema", description="columns as `name type, …`")
    max_rows_per_batch: int | None = Field(
        None, alias="max.rows.per.batch", gt=0, description="most rows that one micro-batch takes"
    )
    trigger_interval: Duration = Field(
        timedelta(0),
        alias="trigger.interval",
        description="time between micro-batches; 0s is as fast as possible. In real-time mode: "
        "how often progress is recorded, 5m by default",
    )
    on_error: Literal["dead_letter", "skip", "fail"] = Field(
        "dead_letter",
        alias="on.error",
        description="what happens to a row that cannot be decoded, computed or written: it is kept in "
        "dead_letters, only counted, or fails the job",
    )
    event_time_column: str | None = Field(
        None, alias="event.time.column", description="column that holds the event time"
    )
    watermark_column: str | None = Field(
        None, alias="watermark.column", description="another name of event.time.column"
    )
    event_time_format: str = Field(
        "auto",
        alias="event.time.format",
        description="auto, iso8601, epoch_seconds, epoch_millis or a pattern",
    )
    max_out_of_orderness_ms: int = Field(
        0, alias="max_out_of_orderness_ms", ge=0, description="how far events may be out of order"
    )
    idle_timeout: Duration = Field(
        timedelta(minutes=1),
        alias="idle.timeout",
        description="after which a silent partition stops holding the watermark",
    )
    late_rows: Literal["dead_letter", "drop", "update"] = Field(
        "dead_letter", alias="late.rows", description="what happens to a row behind the watermark"
    )
    grace: Duration = Field(timedelta(0), description="how long after its end a window still takes rows")
    window_close_timeout: Duration | None = Field(
        None, alias="window.close.timeout", description="close the last window after this long without rows"
    )
    time_zone: str = Field(
        "UTC",
        alias="time.zone",
        description="time zone of windows of months, of days, and of fractions of a day",
    )
    state_ttl: Duration | None = Field(
        None,
        alias="state.ttl",
        description="groups and keys without a new row for this long are forgotten, windows this long "
        "after they closed; sinks get no retraction",
    )
    retention: Duration | None = Field(
        None,
        description="rows leave the table this long after their event time, or after they were last written",
    )
    join_wait: Duration = Field(
        timedelta(seconds=30), alias="join.wait", description="how long a stream waits for its tables to load"
    )
    join_on_timeout: Literal["wait", "nulls", "skip", "fail"] = Field(
        "wait",
        alias="join.on.timeout",
        description="after join.wait: wait on, join to the tables as they are, pass rows over, or fail",
    )
    partitions: int | None = Field(None, gt=0, description="parallel pipelines")
    partition_strategy: str = Field(
        "smart",
        alias="partition.strategy",
        description="smart, hash, sticky, round_robin or a registered one",
    )
    table_storage: StorageName = Field(MEMORY.name, alias=STORAGE, description="where the table lives")
    delivery: Literal["exactly_once", "at_least_once"] | None = Field(
        None, description="guarantee of the sink"
    )
    latency: Literal["normal", "realtime"] = Field(
        "normal", description="micro-batches, or Spark's real-time mode, from topic to topic"
    )
    decimal_format: Literal["number", "string"] = Field(
        "number", alias="decimal.format", description="how decimals are written in JSON"
    )
    sink: str | None = Field(None, description="URI that a stream is written to")

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        if value not in available_timezones():
            raise ValueError(f'"{value}" is no time zone; write it like Europe/Berlin')
        return value


def common_options(properties: Properties) -> CommonOptions:
    """The common properties of a statement, typed; the others belong to the connector."""
    names = set(CommonOptions.property_names())
    return CommonOptions.model_validate({k: v for k, v in properties.items() if k in names})


def key_of(properties: Properties, declared: tuple[str, ...]) -> tuple[str, ...]:
    """The key of a table: PRIMARY KEY, or the property `key`."""
    if declared:
        return declared
    return tuple(part.strip() for part in properties.get("key", "").split(",") if part.strip())
