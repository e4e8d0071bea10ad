"""Avro records to Python values, with schema resolution from the writer's schema to the reader's.

Compiled once per pair of schemas into nested functions from the bytes and a place in them to a value and the
place after it. Values are what Arrow expects: instants are counts of microseconds, dates of days, decimals
exact. A record that ends early, has bytes left, or does not fit raises ValueError.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from velostream.formats.avro.bytes import (
    array,
    enumerated,
    failing,
    listed_record,
    logical,
    mapping,
    member,
    named_record,
    physical,
    read_long,
    read_null,
    union,
)
from velostream.formats.avro.types import AvroSchema, Kind, branches, kind_of, merged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from velostream.formats.avro.bytes import Read

_PROMOTED = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}


class UnreadableError(ValueError):
    """Records of one schema cannot be read as another."""


def record_reader(
    writer: AvroSchema, reader: AvroSchema, names: Sequence[str]
) -> Callable[[bytes], list[Any]]:
    """A function that decodes a whole record to the values of the reader's fields `names`."""
    read = Resolution(writer, reader).top(names)

    def whole(record: bytes) -> list[Any]:
        try:
            values, end = read(record, 0)
        except (IndexError, struct.error) as exc:
            raise ValueError("the record ends early") from exc
        if end != len(record):
            raise ValueError(
                "the record ends early"
                if end > len(record)
                else f"{len(record) - end} bytes follow the record"
            )
        found: list[Any] = values
        return found

    return whole


class Resolution:
    """Compiles readers for a pair of writer's and reader's schema."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self.writer = writer
        self.reader = reader
        self._made: dict[tuple[int, int], list[Read]] = {}

    def top(self, names: Sequence[str]) -> Read:
        """The reader of the record itself, to a list of the values of these fields."""
        wanted = {f["name"]: f for f in kind_of(self.reader.top, self.reader).schema["fields"]}
        steps = self._steps(self.writer.top, [wanted[name] for name in names])
        return listed_record(steps, {name: place for place, name in enumerate(names)})

    def _steps(self, writer: Any, wanted: Sequence[Any]) -> list[tuple[str | None, Read]]:
        """For each field of the writer its name in the result (None: skipped), and its reader.

        Fields that the writer lacks come last, with their defaults.
        """
        left = {field["name"]: field for field in wanted}
        by_alias = {alias: f["name"] for f in wanted for alias in f.get("aliases", ())}
        steps: list[tuple[str | None, Read]] = []
        for field in kind_of(writer, self.writer).schema["fields"]:
            name = field["name"] if field["name"] in left else by_alias.get(field["name"], "")
            target = left.pop(name, None)
            if target is None:
                steps.append((None, self.skipping(field["type"])))
                continue
            try:
                steps.append((name, self.reading(field["type"], target["type"])))
            except UnreadableError as exc:
                raise UnreadableError(f'column "{name}": {exc}') from exc
        for name, field in left.items():
            # Avro refuses a missing field without a default; here the column is NULL.
            value = self.default(field["default"], field["type"]) if "default" in field else None
            steps.append((name, lambda _, place, value=value: (value, place)))  # type: ignore[misc]
        return steps

    def reading(self, writer: Any, reader: Any) -> Read:
        """The reader of a value of the writer's type as the reader's type."""
        ours, theirs = kind_of(writer, self.writer), kind_of(reader, self.reader)
        if ours.name == "union":
            options = [self._branch(branch, reader) for branch in ours.schema]
            return union(options)
        if theirs.name == "union":
            return self._into_union(writer, theirs)
        return self._plain(ours, theirs)

    def _branch(self, writer: Any, reader: Any) -> Read:
        try:
            return self.reading(writer, reader)
        except UnreadableError as exc:
            return failing(str(exc))

    def _into_union(self, writer: Any, theirs: Kind) -> Read:
        ours = kind_of(writer, self.writer)
        if ours.name == "null":
            if any(kind_of(branch, self.reader).name == "null" for branch in theirs.schema):
                return read_null
            raise UnreadableError("null where there must be a value")
        options = branches(theirs.schema, self.reader)
        exact = [n for n, branch in enumerate(options) if _alike(ours, kind_of(branch, self.reader))]
        for number in [*exact, *(n for n in range(len(options)) if n not in exact)]:
            try:
                read = self.reading(writer, options[number])
            except UnreadableError:
                continue
            return read if merged(options, self.reader) else member(read, f"member{number}")
        raise UnreadableError(f"{ours.name} is none of the types of its union")

    def _plain(self, ours: Kind, theirs: Kind) -> Read:
        if ours.name != theirs.name and (ours.name, theirs.name) not in _PROMOTED:
            raise UnreadableError(f"{ours.name} cannot be read as {theirs.name}")
        if ours.name in ("record", "array", "map"):
            return self._nested(ours, theirs)
        if ours.logical != theirs.logical and {ours.logical, theirs.logical} - {None, "uuid"}:
            raise UnreadableError(
                f"{ours.logical or ours.name} cannot be read as {theirs.logical or theirs.name}"
            )
        if ours.name == "enum":
            return enumerated(ours.schema["symbols"], theirs.schema)
        read = physical(ours, theirs.name)
        return logical(read, theirs) if theirs.logical else read

    def _nested(self, ours: Kind, theirs: Kind) -> Read:
        if ours.name == "array":
            return array(self.reading(ours.schema["items"], theirs.schema["items"]))
        if ours.name == "map":
            return mapping(self.reading(ours.schema["values"], theirs.schema["values"]))
        steps = self._steps(ours.schema, theirs.schema["fields"])
        return named_record(steps)

    def skipping(self, writer: Any) -> Read:
        """The reader that skips a value."""
        kind = kind_of(writer, self.writer)
        if kind.name == "union":
            return union([self.skipping(branch) for branch in kind.schema])
        if kind.name == "array":
            return array(self.skipping(kind.schema["items"]))
        if kind.name == "map":
            return mapping(self.skipping(kind.schema["values"]))
        if kind.name == "record":
            return self._skipping_record(kind)
        if kind.name == "enum":
            return read_long
        # Texts are skipped as bytes: a value that is not used need not be valid UTF-8.
        return physical(kind, "bytes" if kind.name == "string" else kind.name)

    def _skipping_record(self, kind: Kind) -> Read:
        """Skip a record; its reader is looked up by schema when it runs, since records may be recursive."""
        key = (id(kind.schema), 0)
        if key in self._made:
            made = self._made[key]
            return lambda data, place: made[0](data, place)  # noqa: PLW0108 - it is being made
        made = self._made[key] = []
        steps = [self.skipping(field["type"]) for field in kind.schema["fields"]]

        def read(data: bytes, place: int) -> tuple[Any, int]:
            for step in steps:
                place = step(data, place)[1]
            return None, place

        made.append(read)
        return read

    def default(self, value: Any, kind: Any) -> Any:
        """A default value from its JSON in the schema; that of a union has the type of its first branch."""
        theirs = kind_of(kind, self.reader)
        if theirs.name == "union":
            first = theirs.schema[0] if theirs.schema else "null"
            if kind_of(first, self.reader).name == "null":
                return None
            options = branches(theirs.schema, self.reader)
            found = self.default(value, first)
            return found if merged(options, self.reader) else {"member0": found}
        if theirs.name == "record":
            return {
                f["name"]: self.default(value.get(f["name"], f.get("default")), f["type"])
                for f in theirs.schema["fields"]
            }
        if theirs.name == "array":
            return [self.default(item, theirs.schema["items"]) for item in value]
        if theirs.name == "map":
            return [(key, self.default(item, theirs.schema["values"])) for key, item in value.items()]
        if theirs.name in ("bytes", "fixed"):
            value = value.encode("latin-1")
        if not theirs.logical:
            return value
        return logical(lambda _, place: (value, place), theirs)(b"", 0)[0]


def _alike(ours: Kind, theirs: Kind) -> bool:
    if ours.name != theirs.name or ours.logical != theirs.logical:
        return False
    named = ours.name in ("record", "enum", "fixed")
    return not named or ours.short_name == theirs.short_name
