"""The trading story that `velo demo` tells: its data, its statements, and what happens to them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

REFERENCE = "symbol_reference.csv"
ROWS_PER_SECOND = 500

SYMBOLS: tuple[tuple[str, str, int, int, str], ...] = (
    ("AAPL", "hardware", 3_400_000_000_000, 1, "512.40"),
    ("AMZN", "retail", 2_100_000_000_000, 2, "498.75"),
    ("GOOG", "software", 2_200_000_000_000, 1, "505.10"),
    ("META", "software", 1_500_000_000_000, 3, "509.90"),
    ("MSFT", "software", 3_200_000_000_000, 1, "501.25"),
    ("NFLX", "media", 290_000_000_000, 3, "496.60"),
    ("NVDA", "hardware", 3_100_000_000_000, 2, "504.80"),
    ("TSLA", "automotive", 800_000_000_000, 4, "507.35"),
)

GENERATED = f"datagen://trades?rows_per_second={ROWS_PER_SECOND}"

POSITIONS = """\
CREATE TABLE user_positions AS
SELECT user_id, symbol, SUM(quantity) AS position_size,
       SUM(quantity * price) AS position_value
FROM {trades}
GROUP BY user_id, symbol"""

METADATA = """\
CREATE TABLE symbol_metadata AS
SELECT symbol, sector, market_cap, risk_rating, last_price
FROM 'file://{folder}/symbol_reference.csv'"""

PROFILES = """\
CREATE TABLE user_profiles (user_id STRING PRIMARY KEY, name STRING,
                            account_type STRING, risk_tolerance INT)"""

PROFILE_ROWS = """\
INSERT INTO user_profiles VALUES
  ('u1', 'Ada', 'margin', 5), ('u2', 'Ben', 'cash', 2), ('u3', 'Cleo', 'margin', 4),
  ('u4', 'Dan', 'cash', 3), ('u5', 'Eve', 'margin', 5), ('u6', 'Finn', 'pension', 1)"""

ACCOUNTS = """\
CREATE TABLE user_accounts (user_id text PRIMARY KEY, name text, account_type text, risk_tolerance int);
INSERT INTO user_accounts VALUES
  ('u1', 'Ada', 'margin', 5), ('u2', 'Ben', 'cash', 2), ('u3', 'Cleo', 'margin', 4),
  ('u4', 'Dan', 'cash', 3), ('u5', 'Eve', 'margin', 5), ('u6', 'Finn', 'pension', 1)"""
"""The profiles, where they are in PostgreSQL."""

FOLLOWED_PROFILES = """\
CREATE TABLE user_profiles AS
SELECT user_id, name, account_type, risk_tolerance
FROM {accounts}
WITH ("cdc" = "true")"""

PNL = """\
CREATE TABLE pnl AS
SELECT u.user_id, u.name, u.risk_tolerance, COUNT(*) AS positions,
       SUM(p.position_value) AS cost,
       SUM(p.position_size * s.last_price) AS market_value,
       SUM(p.position_size * s.last_price - p.position_value) AS pnl
FROM user_positions p
JOIN symbol_metadata s ON s.symbol = p.symbol
JOIN user_profiles u ON u.user_id = p.user_id
WHERE u.risk_tolerance >= s.risk_rating
GROUP BY u.user_id, u.name, u.risk_tolerance"""

DELETE = "DELETE FROM user_profiles WHERE user_id = 'u4'"
DELETE_ACCOUNT = "DELETE FROM user_accounts WHERE user_id = 'u4'"
DELETED = "u4"

PRICED, OLD_PRICE, NEW_PRICE = "NVDA", Decimal("504.80"), Decimal("589.00")
RATED, OLD_RATING, NEW_RATING = "TSLA", 4, 5


def write_reference(folder: Path, *, price: Decimal = OLD_PRICE, rating: int = OLD_RATING) -> None:
    """Write the CSV like an editor does: a new file in place of the old one."""
    lines = ["symbol,sector,market_cap,risk_rating,last_price"]
    for symbol, sector, cap, risk, last in SYMBOLS:
        risk = rating if symbol == RATED else risk
        last = str(price) if symbol == PRICED else last
        lines.append(f"{symbol},{sector},{cap},{risk},{last}")
    draft = folder / f".{REFERENCE}.new"
    draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
    draft.replace(folder / REFERENCE)


def statements(
    folder: Path, trades: str = GENERATED, accounts: str | None = None
) -> tuple[tuple[str, str], ...]:
    """The statements of the demo, in order, each with a description; `accounts` is a table of PostgreSQL."""
    origin = "generated trades" if trades == GENERATED else "trades from Kafka"
    profiles = [("profiles, kept by hand", PROFILES), ("six of them", PROFILE_ROWS)]
    if accounts is not None:
        profiles = [("profiles of a PostgreSQL, followed", FOLLOWED_PROFILES.format(accounts=accounts))]
    return (
        (f"{origin}, summed by user and symbol", POSITIONS.format(trades=trades)),
        ("a CSV file, watched", METADATA.format(folder=folder)),
        *profiles,
        ("the three joined: profit and loss per trader", PNL),
    )
