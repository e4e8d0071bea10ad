"""Every whole statement, and every bare WITH block, that the founding documents print is accepted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from velostream.connectors.registry import Registry
from velostream.location import SourceText
from velostream.sql import EmptyCatalog, check_script, generate

SEEDS = Path(__file__).parents[2] / "sql" / "seeds"
DECLARED = {
    "kafka_users": "kafka://users",
    "kafka_events": "kafka://events",
    "kafka_stream": "kafka://stream",
    "kafka_new_topic": "kafka://new",
    "orders": "kafka://orders",
    "user_profiles": "kafka://profiles",
    "user_positions": "kafka://positions",
    "symbol_metadata": "file:///symbols.csv",
    "trades": "kafka://trades",
    "table": "kafka://table",
}
FITTING = {
    "002_with_04.sql": "SELECT * FROM kafka://orders",
    "002_with_05.sql": "SELECT * FROM file:///data/input.csv",
}
REGISTRY = Registry()


def prelude(statement: str) -> str:
    created = re.search(r"CREATE TABLE (\w+)", statement)
    taken = created[1] if created else None
    return "".join(f"CREATE SOURCE {name} FROM {uri};\n" for name, uri in DECLARED.items() if name != taken)


@pytest.mark.parametrize("path", sorted(SEEDS.glob("*.sql")), ids=lambda path: path.stem)
def test_printed_statements_are_accepted_word_for_word(path: Path) -> None:
    statement = path.read_text()
    if "_with_" in path.name:
        statement = f"{FITTING.get(path.name, 'SELECT * FROM postgresql://host/db?table=users')}\n{statement}"
    declared = prelude(statement)
    checked = check_script(SourceText(declared + statement), EmptyCatalog(), REGISTRY, environment={})
    assert [str(error) for error in checked.errors] == []
    last = checked.statements[-1]
    again = check_script(SourceText(declared + generate(last)), EmptyCatalog(), REGISTRY, environment={})
    assert [str(error) for error in again.errors] == []
    assert again.statements[-1] == last
