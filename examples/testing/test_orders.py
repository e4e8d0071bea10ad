"""The cases of orders.velotest, each in three ways, and a test that edits a file."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

import velostream
from velostream.testing import Bench, Case, Way, find_cases

FOLDER = Path(__file__).parent
CASES = find_cases(FOLDER / "orders.velotest").cases


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    with Bench() as bench:
        yield bench


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(bench: Bench, case: Case, way: Way) -> None:
    bench.run(case, way).check()


def test_totals_of_a_file(tmp_path: Path) -> None:
    orders = tmp_path / "orders.csv"
    orders.write_text("id,customer,amount\n1,ann,80.00\n")
    with velostream.connect(tmp_path / "data") as db:
        db.sql(f"CREATE SOURCE orders FROM file://{orders}")
        db.sql((FOLDER / "app.sql").read_text())
        assert db.table("totals").get("ann").total == Decimal("80.00")

        orders.write_text("id,customer,amount\n1,ann,180.00\n")
        db.table("good_customers").wait_for("customer = 'ann' AND total = 180.00", timeout=60)
