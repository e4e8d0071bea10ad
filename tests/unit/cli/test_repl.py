from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from velostream.cli.invocation import Invocation
from velostream.cli.prompt.completion import SqlCompleter
from velostream.cli.prompt.repl import Repl, complete, history

if TYPE_CHECKING:
    from pathlib import Path

RELATIONS = {"trades": ["trade_id", "price"], "users": ["user_id", "name"]}


def proposals(text: str) -> list[str]:
    completer = SqlCompleter(lambda: RELATIONS)
    return [found.text for found in completer.get_completions(Document(text), CompleteEvent())]


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        ("SELECT 1;", True),
        ("SELECT 1;  \n", True),
        ("SELECT 1", False),
        ("SELECT ';", False),
        ("SELECT 1; SELECT", False),
        ("SELECT 1 -- done;", False),
        ("\\q", True),
        ("help", True),
        ("", False),
    ],
)
def test_enter_runs_what_ends_with_a_semicolon(text: str, ended: bool) -> None:
    assert complete(text) is ended


def test_names_are_completed_where_they_can_stand() -> None:
    assert proposals("SELECT * FROM tr") == ["trades"]
    assert "kafka://" in proposals("SELECT * FROM ka")
    assert proposals("SELECT pri")[:1] == ["price"]
    assert proposals("SELECT t.pr") == []
    assert proposals("SELECT * FROM trades t WHERE t.pr") == ["t.price"]
    assert "SELECT" in proposals("SEL")
    assert "select" in proposals("sel")
    assert "date_trunc" in proposals("SELECT date_tr")
    assert "rows_per_second" in proposals("SELECT * FROM datagen://trades WITH (rows_per")
    assert proposals("SELECT ") == []


def test_short_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repl = Repl(Invocation(data_dir=str(tmp_path / "data")))
    repl.execute("\\watch")
    assert "no statement to repeat yet" in capsys.readouterr().err
    repl.execute("CREATE TABLE p (id INT, name STRING); INSERT INTO p VALUES (7, 'x')")
    repl.execute("\\watch")
    assert "changes something" in capsys.readouterr().err
    for command, shown in {"\\d": "p  ", "\\d p;": "name", "\\dt": "p  "}.items():
        repl.execute(command)
        assert shown in capsys.readouterr().out
    repl.execute("\\j")
    repl.execute("\\help")
    assert "\\watch [SECONDS]" in capsys.readouterr().err
    repl.execute("\\wach")
    assert 'did you mean "\\watch"' in capsys.readouterr().err
    for shown in ("\\x on", "\\x on", "\\x off", "\\x maybe"):
        repl.execute(shown)
    told = capsys.readouterr().err
    assert told.count("blocks of lines") == 2
    assert told.index("as a table") > told.rindex("blocks of lines")
    assert '"maybe" is neither on nor off' in told
    for seconds in ("nan", "inf", "-1", "1e400"):
        repl.execute(f"\\watch {seconds}")
        assert f'"{seconds}" is not a number of seconds' in capsys.readouterr().err
    repl.execute("CREATE TABLE `my-table` (id INT)")
    for name in ("my-table", "`my-table`"):
        repl.execute(f"\\d {name}")
        assert "INT" in capsys.readouterr().out
    repl.execute("\\watch soon")
    assert "not a number of seconds" in capsys.readouterr().err
    repl.execute("\\x")
    assert "blocks of lines" in capsys.readouterr().err
    repl.close()


def test_history_keeps_no_secrets_and_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    kept = history()
    kept.store_string("SELECT 1;")
    kept.store_string("SELECT * FROM postgresql://h/d WITH ('password' = 'x');")
    path = tmp_path / "velostream" / "history"
    assert "SELECT 1;" in path.read_text()
    assert "password" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_whatever_happens_the_prompt_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repl = Repl(Invocation(data_dir=str(tmp_path / "data")))
    repl.execute("help")
    repl.execute("SELECT 1 AS one;")
    repl.execute("SELEC 1;")
    repl.execute("CREATE TABLE p (id INT); INSERT INTO p VALUES (7);")
    repl.execute("SELECT * FROM p;")
    repl.close()
    captured = capsys.readouterr()
    assert captured.out == "one\n---\n  1\nid\n--\n 7\n"
    assert "Statements end with a semicolon" in captured.err
    assert "error: <sql>:1:1" in captured.err
