"""`velo plan`: what running a file would change, without changing it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from velostream.runtime.instance import open_instance

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Velo

FILE = """
CREATE TABLE users (id INT PRIMARY KEY, name STRING);
CREATE TABLE names AS SELECT name, COUNT(*) AS n FROM users GROUP BY name;
INSERT INTO users VALUES (1, 'ann');
"""


def test_an_empty_folder(velo: Velo, tmp_path: Path) -> None:
    (tmp_path / "app.sql").write_text(FILE)
    data = tmp_path / "nothing"
    ran = velo("plan", str(tmp_path / "app.sql"), "--data-dir", str(data), "--format", "json")
    assert ran.code == 0
    steps = [json.loads(line) for line in ran.out.splitlines()]
    assert [(step["action"], step["name"]) for step in steps] == [
        ("create", "users"),
        ("create", "names"),
        ("run", "users"),
    ]
    assert ran.err.endswith("app.sql: 2 to create, 1 to run\n")
    assert not data.exists()
    assert velo("plan", str(tmp_path / "app.sql"), "--data-dir", str(data), "--exit-code").code == 5


def test_while_another_process_holds_the_directory(velo: Velo, tmp_path: Path) -> None:
    file, data = tmp_path / "app.sql", str(tmp_path / "data")
    with open_instance(data) as db:
        db.sql(
            "CREATE TABLE users (id INT, name STRING); CREATE VIEW big AS SELECT id FROM users WHERE id > 1"
        )
        file.write_text("CREATE TABLE users (id INT, name STRING);")
        ran = velo("plan", str(file), "--data-dir", data, "--exit-code")
        assert (ran.code, ran.err) == (0, f"{file}: nothing to do\n")
        assert "DROP VIEW big ends it" in ran.out
        file.write_text("CREATE OR REPLACE TABLE users (id INT);")
        ran = velo("plan", str(file), "--data-dir", data)
        assert ran.code == 0
        assert [line.split()[:3] for line in ran.out.splitlines()[2:]] == [
            ["replace", "table", "users"],
            ["rebuild", "view", "big"],
        ]
        assert ran.err == f"{file}: 1 to replace, 1 to rebuild\n"


def test_what_running_would_refuse(velo: Velo, tmp_path: Path) -> None:
    file, data = tmp_path / "app.sql", str(tmp_path / "data")
    with open_instance(data) as db:
        db.sql("CREATE TABLE users (id INT)")
    file.write_text("CREATE TABLE users (id BIGINT);")
    ran = velo("plan", str(file), "--data-dir", data)
    assert ran.code == 1
    assert "was created by another statement" in ran.err
    assert ran.err.endswith("app.sql: 1 refused\n")
    file.write_text("CREATE TABEL users (id BIGINT);")
    ran = velo("plan", str(file), "--data-dir", data)
    assert (ran.code, ran.out) == (1, "")
