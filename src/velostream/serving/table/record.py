"""Rows as readers get them: tuples whose fields also have names."""

from __future__ import annotations

import keyword
from functools import lru_cache
from operator import itemgetter
from typing import Any, ClassVar


class Row(tuple[Any, ...]):
    """One row: a tuple with named fields.

    Fields are read by position, by name (`row["price"]`), or as attributes (`row.price`) where the
    column's name can be one; a column named like a method of tuple, such as `count`, wins over it.
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, str):
            try:
                return tuple.__getitem__(self, self._fields.index(item))
            except ValueError:
                raise KeyError(item) from None
        return tuple.__getitem__(self, item)

    def _asdict(self) -> dict[str, Any]:
        """The row as a dict, in column order."""
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"Row({fields})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._fields, tuple(self))


@lru_cache(maxsize=512)
def row_class(fields: tuple[str, ...]) -> type[Row]:
    """The class of rows with these columns; the same class for the same columns."""
    attributes: dict[str, Any] = {"__slots__": (), "_fields": fields}
    for position, name in enumerate(fields):
        if name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_"):
            attributes.setdefault(name, property(itemgetter(position)))
    return type("Row", (Row,), attributes)


def _restore(fields: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    return row_class(fields)(values)
