"""Values computed from a row's number, the same in Spark and in NumPy.

Everything is integer arithmetic below 2**62, so that neither side overflows or rounds; a decimal is an
integer number of its smallest units.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

PRIME = 2_147_483_647
_INT64 = pa.int64()
_STRING = pa.string()
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_ROUNDS = ((48_271, 15), (69_621, 13))


@dataclass(frozen=True)
class Mix:
    """A pseudo-random number below `PRIME` for each row number; each `salt` gives another sequence."""

    salt: int

    @cached_property
    def sql(self) -> str:
        """As Spark SQL over the column `id`."""
        text = f"(id % {PRIME} + {self._shift}) % {PRIME}"
        for factor, bits in _ROUNDS:
            product = f"(({text}) * {factor} % {PRIME})"
            text = f"({product} ^ shiftright({product}, {bits}))"
        return text

    def numbers(self, ids: Numbers) -> Numbers:
        """As NumPy."""
        mixed: Numbers = (ids % PRIME + self._shift) % PRIME
        for factor, bits in _ROUNDS:
            product = mixed * factor % PRIME
            mixed = product ^ (product >> bits)
        return mixed

    @property
    def _shift(self) -> int:
        return (self.salt * 1_000_003 + 12_345) % PRIME


class Values(ABC):
    """One generated column."""

    type: pa.DataType

    @abstractmethod
    def sql(self, mix: Mix) -> str:
        """The value as Spark SQL over the column `id`."""

    @abstractmethod
    def array(self, ids: Numbers, mix: Mix) -> pa.Array:
        """The same values as Arrow."""


@dataclass(frozen=True)
class RowNumber(Values):
    """The row's number, from 1 (wrapping around in a short type), as an integer or after a prefix."""

    type: pa.DataType
    prefix: str = ""

    @property
    def _count(self) -> int:
        return 2**63 - 1 if self.prefix else 2 ** (self.type.bit_width - 1) - 1

    def sql(self, mix: Mix) -> str:
        """See `Values`."""
        number = f"id % {self._count} + 1"
        if self.prefix:
            return f"concat('{self.prefix}', {number})"
        return f"CAST({number} AS {_integer_name(self.type)})"

    def array(self, ids: Numbers, mix: Mix) -> pa.Array:
        """See `Values`."""
        numbers = pa.array(ids % self._count + 1)
        if self.prefix:
            return pc.binary_join_element_wise(self.prefix, numbers.cast(pa.string()), "")
        return numbers.cast(self.type)


@dataclass(frozen=True)
class Between(Values):
    """Integers from `low` to `high`, both included, as an integer or after a prefix."""

    low: int
    high: int
    type: pa.DataType = _INT64
    prefix: str = ""

    def sql(self, mix: Mix) -> str:
        """See `Values`."""
        number = f"({self.low} + {mix.sql} % {self.high - self.low + 1})"
        return (
            f"concat('{self.prefix}', {number})"
            if self.prefix
            else f"CAST({number} AS {_integer_name(self.type)})"
        )

    def array(self, ids: Numbers, mix: Mix) -> pa.Array:
        """See `Values`."""
        numbers = pa.array(self.low + mix.numbers(ids) % (self.high - self.low + 1))
        if self.prefix:
            return pc.binary_join_element_wise(self.prefix, numbers.cast(pa.string()), "")
        return numbers.cast(self.type)


@dataclass(frozen=True)
class Choice(Values):
    """One of some texts."""

    texts: tuple[str, ...]
    type: pa.DataType = _STRING

    def sql(self, mix: Mix) -> str:
        """See `Values`."""
        quoted = ", ".join(f"'{text}'" for text in self.texts)
        return f"element_at(array({quoted}), CAST({mix.sql} % {len(self.texts)} AS INT) + 1)"

    def array(self, ids: Numbers, mix: Mix) -> pa.Array:
        """See `Values`."""
        return pa.array(self.texts).take(pa.array(mix.numbers(ids) % len(self.texts)))


@dataclass(frozen=True)
class Units(Values):
    """Decimals from `low` to `high`, given in the smallest unit of the type."""

    low: int
    high: int
    type: pa.DataType

    def sql(self, mix: Mix) -> str:
        """See `Values`."""
        number = f"{self.low} + {mix.sql} % {self.high - self.low + 1}"
        precision, scale = self.type.precision, self.type.scale
        if scale == 0:
            return f"CAST({number} AS DECIMAL({precision},0))"
        unit = "0." + "0" * (scale - 1) + "1"
        # An integer times a unit is exact: the product has at most 19 digits.
        product = f"CAST({number} AS DECIMAL(19,0)) * CAST({unit} AS DECIMAL({scale},{scale}))"
        return f"CAST({product} AS DECIMAL({precision},{scale}))"

    def array(self, ids: Numbers, mix: Mix) -> pa.Array:
        """See `Values`."""
        numbers = self.low + mix.numbers(ids) % (self.high - self.low + 1)
        unscaled = np.zeros((len(numbers), 2), dtype=np.int64)
        unscaled[:, 0] = numbers
        return pa.Array.from_buffers(
            pa.decimal128(self.type.precision, self.type.scale),
            len(numbers),
            [None, pa.py_buffer(unscaled.tobytes())],
        )


@dataclass(frozen=True)
class Moment(Values):
    """The instant at which the row is generated: `start` plus its number times the period."""

    start_micros: int
    rows_per_second: float
    type: pa.DataType = _TIMESTAMP

    @property
    def _rate(self) -> int:
        return max(1, round(self.rows_per_second * 1000))

    def sql(self, mix: Mix) -> str:
        """See `Values`."""
        rate = self._rate
        micros = f"id div {rate} * 1000000000 + id % {rate} * 1000000000 div {rate}"
        return f"timestamp_micros({self.start_micros} + {micros})"

    def array(self, ids: Numbers, mix: Mix) -> pa.Array:
        """See `Values`."""
        rate = self._rate
        micros = ids // rate * 1_000_000_000 + ids % rate * 1_000_000_000 // rate
        return pa.array(self.start_micros + micros).cast(self.type)


@dataclass(frozen=True)
class Cast(Values):
    """Another column's values in another type: doubles, booleans and dates out of integers."""

    numbers: Between
    type: pa.DataType

    def sql(self, mix: Mix) -> str:
        """See `Values`."""
        inner = self.numbers.sql(mix)
        if pa.types.is_date(self.type):
            return f"date_add(DATE'2024-01-01', CAST({inner} AS INT))"
        if pa.types.is_boolean(self.type):
            return f"({inner} = 1)"
        return (
            f"CAST(CAST({inner} AS DOUBLE) / 4 AS {'FLOAT' if pa.types.is_float32(self.type) else 'DOUBLE'})"
        )

    def array(self, ids: Numbers, mix: Mix) -> pa.Array:
        """See `Values`."""
        inner = self.numbers.array(ids, mix)
        if pa.types.is_date(self.type):
            return pc.add(inner, 19_723).cast(pa.int32()).cast(pa.date32())
        if pa.types.is_boolean(self.type):
            return pc.equal(inner, 1)
        return pc.divide(inner.cast(pa.float64()), 4.0).cast(self.type)


def _integer_name(kind: pa.DataType) -> str:
    return {8: "TINYINT", 16: "SMALLINT", 32: "INT"}.get(kind.bit_width, "BIGINT")
