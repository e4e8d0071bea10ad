from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from velostream.cli.command_table import COMMANDS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Velo


def test_help_lists_every_command(velo: Velo) -> None:
    for arguments in ((), ("-h",), ("--help",)):
        ran = velo(*arguments)
        assert ran.code == 0
        assert all(f"  {name} " in ran.out for name in COMMANDS)


def test_a_group_of_commands_alone_lists_them(velo: Velo) -> None:
    ran = velo("topic")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == velo("topic", "--help").out
    assert all(f"  {name} " in ran.out for name in ("create", "delete", "list", "produce", "show"))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(velo: Velo, name: str) -> None:
    ran = velo(name, "--help")
    assert ran.code == 0
    assert "--data-dir" in ran.out


def test_version(velo: Velo) -> None:
    assert velo("--version").out.startswith("velo 0.")


def test_an_unknown_command_is_told_with_the_nearest(velo: Velo) -> None:
    ran = velo("chekc", "x.sql")
    assert ran.code == 2
    assert ran.err == 'error: no command "chekc"\nhint: did you mean "check"?\n'


def test_an_unknown_option_is_told_with_the_nearest(velo: Velo) -> None:
    ran = velo("run", "app.sql", "--onse")
    assert ran.code == 2
    assert ran.err == 'error: no option "--onse"\nhint: did you mean "--once"?\n'


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("app.sql", "velo run app.sql"),
        ("stop", "Ctrl-C"),
        ("shell", "velo sql"),
        ("sql app.sql", "velo run app.sql"),
        ("sql -f app.sql", "velo run app.sql"),
        ("sql -c x", 'velo sql "SELECT 1"'),
        ("sql \\d", "velo tables"),
        ("sql help", "velo --help"),
        ("topic consume t", "velo topic show"),
        ("topic describe t", "velo topic list"),
        ("topic rm t", "velo topic delete"),
    ],
)
def test_what_other_programs_call_it(velo: Velo, typed: str, hint: str) -> None:
    ran = velo(*typed.split())
    assert ran.code == 2
    assert hint in ran.err.partition("\nhint: ")[2]


def test_a_value_that_does_not_fit(velo: Velo) -> None:
    assert velo("tables", "--format", "xml").code == 2
    ran = velo("run", "app.sql", "--for", "soon")
    assert ran.code == 2
    assert "100ms, 30s" in ran.err


def test_a_missing_argument(velo: Velo) -> None:
    ran = velo("check")
    assert ran.code == 2
    assert "velo check --help" in ran.err


@pytest.mark.parametrize("command", ["check", "run"])
class TestFiles:
    def test_missing(self, velo: Velo, tmp_path: Path, command: str) -> None:
        (tmp_path / "app.sql").write_text("SELECT 1;")
        ran = velo(command, "apps.sql")
        assert ran.code == 2
        assert ran.err == 'error: file "apps.sql" does not exist\nhint: did you mean "app.sql"?\n'

    def test_directory(self, velo: Velo, tmp_path: Path, command: str) -> None:
        (tmp_path / "app").mkdir()
        (tmp_path / "app" / "main.sql").touch()
        ran = velo(command, "app")
        assert ran.code == 2
        assert ran.err == 'error: "app" is a directory\nhint: name one of its files: main.sql\n'

    def test_empty(self, velo: Velo, tmp_path: Path, command: str) -> None:
        (tmp_path / "app.sql").write_text("\n  \n")
        ran = velo(command, "app.sql")
        assert ran.code == 2
        assert '"app.sql" is empty' in ran.err

    def test_not_utf8(self, velo: Velo, tmp_path: Path, command: str) -> None:
        (tmp_path / "app.sql").write_bytes(b"SELECT 1;\nSELECT 'caf\xe9';")
        ran = velo(command, "app.sql")
        assert ran.code == 2
        assert '"app.sql" is not UTF-8: byte 0xe9 in line 2' in ran.err

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_not_permitted(self, velo: Velo, tmp_path: Path, command: str) -> None:
        (tmp_path / "app.sql").write_text("SELECT 1;")
        (tmp_path / "app.sql").chmod(0)
        ran = velo(command, "app.sql")
        assert ran.code == 2
        assert 'cannot read "app.sql": permission denied' in ran.err


def test_a_byte_order_mark_is_no_error(velo: Velo, tmp_path: Path) -> None:
    (tmp_path / "app.sql").write_bytes(b"\xef\xbb\xbfCREATE TABLE t (id INT);")
    assert velo("check", "app.sql").code == 0


def test_a_wrong_configuration(velo: Velo, tmp_path: Path) -> None:
    (tmp_path / "velostream.toml").write_text('data_dri = "x"')
    ran = velo("tables")
    assert ran.code == 2
    assert 'unknown key "data_dri"' in ran.err
    assert 'did you mean "data_dir"?' in ran.err


def test_a_wrong_setting_of_spark(velo: Velo) -> None:
    ran = velo("tables", "--conf", "spark.ui.enabled")
    assert ran.code == 2
    assert "key=value" in ran.err


def test_options_before_the_command_count_and_those_after_it_win(velo: Velo, tmp_path: Path) -> None:
    velo("--data-dir", str(tmp_path / "one"), "sql", "CREATE TABLE a (id INT)")
    velo(
        "--data-dir",
        str(tmp_path / "one"),
        "sql",
        "--data-dir",
        str(tmp_path / "two"),
        "CREATE TABLE b (id INT)",
    )
    one, two = (
        velo("tables", "--data-dir", str(tmp_path / name), "--format", "csv").out for name in ("one", "two")
    )
    assert ("\na," in one, "\nb," in one) == (True, False)
    assert ("\na," in two, "\nb," in two) == (False, True)


def test_a_bug_of_ours_shows_no_trace_unless_asked(velo: Velo, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("velostream.cli.commands.listings.ask", broken)
    ran = velo("tables")
    assert (ran.code, "Traceback" in ran.err) == (1, False)
    assert "ZeroDivisionError: oops" in ran.err
    assert "Traceback" in velo("tables", "--debug").err


def test_an_interrupt_is_quiet(velo: Velo, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("velostream.cli.commands.listings.ask", interrupted)
    ran = velo("tables")
    assert (ran.code, ran.out, ran.err) == (130, "", "")
