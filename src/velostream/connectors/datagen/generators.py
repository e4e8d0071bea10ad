"""The named generators, and one for columns that a user declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.connectors.datagen.values import Between, Cast, Choice, Moment, RowNumber, Units, Values
from velostream.errors import SourceConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

_MONEY = pa.decimal128(10, 2)
_SYMBOLS = ("AAPL", "AMZN", "GOOG", "META", "MSFT", "NFLX", "NVDA", "TSLA")

NAMES = ("trades", "orders", "users", "clicks")


def generator(name: str, schema: pa.Schema | None, moment: Moment) -> Mapping[str, Values]:
    """The columns of a named generator, or of a declared schema; SourceConfigError when neither fits."""
    if schema is not None:
        named = _named(name, moment) or {}
        return {
            field.name: named[field.name]
            if field.name in named and named[field.name].type == field.type
            else _for_type(field.name, field.type, moment)
            for field in schema
        }
    found = _named(name, moment)
    if found is None:
        raise SourceConfigError(
            f'there is no generator "{name}"',
            detail=f"generators: {', '.join(NAMES)}",
            hint=did_you_mean(name, NAMES)
            or "declare columns: CREATE SOURCE name (column type, …) FROM datagen://…",
        )
    return found


def _named(name: str, moment: Moment) -> dict[str, Values] | None:
    generators: dict[str, dict[str, Values]] = {
        "trades": {
            "trade_id": RowNumber(pa.string(), "t"),
            "user_id": Between(1, 100, pa.string(), "u"),
            "symbol": Choice(_SYMBOLS),
            "side": Choice(("BUY", "SELL")),
            "quantity": Between(1, 500),
            "price": Units(1_000, 99_999, _MONEY),
            "ts": moment,
        },
        "orders": {
            "order_id": RowNumber(pa.int64()),
            "customer_id": Between(1, 1_000),
            "product": Choice(("book", "chair", "desk", "lamp", "pen", "phone")),
            "quantity": Between(1, 10),
            "amount": Units(99, 99_999, _MONEY),
            "status": Choice(("new", "paid", "shipped", "returned")),
            "ts": moment,
        },
        "users": {
            "user_id": RowNumber(pa.string(), "u"),
            "name": Between(1, 100_000, pa.string(), "user "),
            "country": Choice(("BR", "DE", "FR", "GB", "IN", "JP", "US")),
            "tier": Choice(("bronze", "silver", "gold")),
            "balance": Units(0, 9_999_999, pa.decimal128(12, 2)),
            "created_at": moment,
        },
        "clicks": {
            "click_id": RowNumber(pa.int64()),
            "user_id": Between(1, 1_000, pa.string(), "u"),
            "page": Choice(("/", "/cart", "/checkout", "/help", "/search")),
            "duration_ms": Between(1, 60_000),
            "ts": moment,
        },
    }
    return generators.get(name)


def _for_type(name: str, kind: pa.DataType, moment: Moment) -> Values:
    if pa.types.is_integer(kind):
        return _integers(name, kind)
    if pa.types.is_decimal(kind):
        return Units(0, 10 ** min(kind.precision, 9) - 1, kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return Between(1, 100, pa.string(), f"{name.replace(chr(39), '')}_")
    if pa.types.is_floating(kind):
        return Cast(Between(0, 1_000_000), kind)
    if pa.types.is_boolean(kind):
        return Cast(Between(0, 1), kind)
    if pa.types.is_date(kind):
        return Cast(Between(0, 364), kind)
    if pa.types.is_timestamp(kind):
        return moment
    raise SourceConfigError(f'datagen cannot make values of type {kind} for column "{name}"')


def _integers(name: str, kind: pa.DataType) -> Values:
    if kind.bit_width >= 32 and (name == "id" or name.endswith("_id")):
        return RowNumber(kind)
    return Between(0, min(2 ** (kind.bit_width - 1) - 1, 1_000_000), kind)
