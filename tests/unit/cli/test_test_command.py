"""`velo test` where nothing can be run: no Spark is started."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Velo


def test_no_case_files(velo: Velo, tmp_path: Path) -> None:
    ran = velo("test")
    assert ran.code == 2
    assert ".velotest" in ran.err


def test_a_file_that_is_not_there(velo: Velo, tmp_path: Path) -> None:
    (tmp_path / "orders.velotest").write_text("case a\n  SELECT 1;\n")
    ran = velo("test", "order.velotest")
    assert ran.code == 2
    assert 'did you mean "orders.velotest"?' in ran.err


def test_no_case_of_that_name(velo: Velo, tmp_path: Path) -> None:
    (tmp_path / "orders.velotest").write_text("case a\n  SELECT 1;\n")
    ran = velo("test", "-k", "totals")
    assert ran.code == 2
    assert 'no case has "totals" in its name' in ran.err


def test_a_file_that_cannot_be_read(velo: Velo, tmp_path: Path) -> None:
    (tmp_path / "orders.velotest").write_text("case a\n  SELECT 1;\nexpct t\n")
    ran = velo("test")
    assert ran.code == 1
    assert ran.out == ""
    assert "error: orders.velotest:3:1:" in ran.err
    assert 'did you mean "expect"?' in ran.err
    assert "1 error in case files" in ran.err


def test_errors_as_json(velo: Velo, tmp_path: Path) -> None:
    (tmp_path / "orders.velotest").write_text("case a\nexpct t\n")
    ran = velo("test", "--format", "json")
    assert ran.code == 1
    told = json.loads(ran.err.splitlines()[0])
    assert (told["code"], told["line"]) == ("case", 2)


def test_a_way_that_there_is_not(velo: Velo) -> None:
    assert velo("test", "--way", "sideways").code == 2
