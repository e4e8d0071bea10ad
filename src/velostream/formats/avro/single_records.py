"""Avro records to Python values: from the schema they were written with to the one they are read with.

Compiled once per pair of schemas into nested functions from the bytes and a place in them to a value and the
place after it. Values are what Arrow takes: instants are counts of microseconds, dates of days, decimals
exact. A record that ends early or late, or does not fit, is a ValueError.
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
    """A function that gives the values of the reader's fields `names` from a whole record."""
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
    """Readers of one schema's data as another's."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self.writer = writer
        self.reader = reader
        self._made: dict[tuple[int, int], list[Read]] = {}

    def top(self, names: Sequence[str]) -> Read:
        """Of the record itself, as a list of the values of these fields."""
        wanted = {f["name"]: f for f in kind_of(self.reader.top, self.reader).schema["fields"]}
        steps = self._steps(self.writer.top, [wanted[name] for name in names])
        return listed_record(steps, {name: place for place, name in enumerate(names)})

    def _steps(self, writer: Any, wanted: Sequence[Any]) -> list[tuple[str | None, Read]]:
        """Per field of the writer: under which name it goes (None: nowhere), and how it is read.

        Fields that the writer has not come last, with their defaults.
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
            # Where Avro wants a default and there is none, a column has NULL.
            value = self.default(field["default"], field["type"]) if "default" in field else None
            steps.append((name, lambda _, place, value=value: (value, place)))  # type: ignore[misc]
        return steps

    def reading(self, writer: Any, reader: Any) -> Read:
        """How a value of one type is read as another."""
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
        """How a value is passed over."""
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
        # Texts are passed over as bytes: what nobody reads need not be valid.
        return physical(kind, "bytes" if kind.name == "string" else kind.name)

    def _skipping_record(self, kind: Kind) -> Read:
        """Records may hold themselves, so they are found again by their schema."""
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
        """A default, which a schema writes as JSON: of a union that of its first type."""
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
