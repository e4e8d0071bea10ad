"""The prompt on a real terminal: what is typed, and what the screen shows."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pexpect
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]

VELO = [sys.executable, "-m", "velostream"]
PATIENCE = 60


@pytest.fixture
def prompt(tmp_path: Path) -> Iterator[pexpect.spawn]:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "xterm-256color"}
    child = pexpect.spawn(
        VELO[0],
        [*VELO[1:], "sql", "--data-dir", str(tmp_path / "data")],
        env=environment,
        dimensions=(40, 120),
        encoding="utf-8",
        timeout=PATIENCE,
    )
    yield child
    child.close(force=True)


@pytest.fixture
def typed(prompt: pexpect.spawn) -> Callable[[str], None]:
    def type_(line: str) -> None:
        # What is typed before the prompt is drawn may be lost.
        prompt.expect(r"velo> \x1b\[0m[\s\S]*\x1b\[\?25h")
        prompt.send(line + "\r")

    return type_


def velo(folder: Path, *arguments: str) -> str:
    """Another terminal: what a command prints."""
    command = [*VELO, *arguments, "--data-dir", str(folder / "data")]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE).stdout


def test_a_table_is_watched_while_another_terminal_changes_it(
    prompt: pexpect.spawn, typed: Callable[[str], None], tmp_path: Path
):
    typed("CREATE TABLE scores (name STRING PRIMARY KEY, points INT);")
    prompt.expect('table "scores" created')
    typed("INSERT INTO scores VALUES ('ann', 3), ('bob', 5);")
    prompt.expect("2 rows inserted")
    typed("SELECT name, points FROM scores ORDER BY points DESC EMIT CHANGES;")
    prompt.expect(r"bob[^\n]*5[\s\S]*ann[^\n]*3")
    velo(tmp_path, "sql", "INSERT OR REPLACE INTO scores VALUES ('ann', 9)")
    prompt.expect(r"ann[^\n]*9[\s\S]*bob[^\n]*5")
    velo(tmp_path, "sql", "DELETE FROM scores WHERE name = 'bob'")
    prompt.expect("1 rows; ")
    prompt.sendintr()
    prompt.expect("stopped")
    typed("SELECT name, points FROM scores;")
    prompt.expect("1 row in ")
    typed("\\watch 0.5")
    prompt.expect(r"every 0.5 s; Ctrl-C ends[\s\S]*ann[^\n]*9")
    velo(tmp_path, "sql", "INSERT INTO scores VALUES ('cid', 1)")
    prompt.expect(r"cid[^\n]*1")
    prompt.sendintr()
    prompt.expect("stopped")
    typed("\\q")
    prompt.expect(pexpect.EOF)


def test_commands(prompt: pexpect.spawn, typed: Callable[[str], None], tmp_path: Path):
    typed("CREATE TABLE p (id INT PRIMARY KEY, note STRING); INSERT INTO p VALUES (7, 'seven');")
    prompt.expect("1 row inserted")
    typed("\\d")
    prompt.expect(r"name[^\n]*rows[^\n]*key[\s\S]*\bp\b[^\n]*\b1\b[^\n]*\bid\b[\s\S]*2 rows in")
    typed("\\d p")
    prompt.expect(r"column[^\n]*type[\s\S]*id[^\n]*INT[^\n]*true[\s\S]*note[^\n]*STRING[^\n]*false")
    typed("\\j")
    prompt.expect("no jobs yet")
    (tmp_path / "app.sql").write_text("SELECT 1;")
    held = subprocess.run(
        [*VELO, "run", "app.sql", "--data-dir", "data"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert held.returncode == 2
    assert f"in use by process {prompt.pid} (velo sql)" in held.stderr
    typed("\\x")
    prompt.expect("blocks of lines")
    typed("SELECT * FROM p;")
    prompt.expect(r"row [\s\S]*note[^\n]*seven")
    typed("SELECT * FROM p EMIT CHANGES;")
    prompt.expect(r"row [\s\S]*note[^\n]*seven[\s\S]*Ctrl-C ends")
    prompt.sendintr()
    prompt.expect("stopped")
    typed("\\x off")
    prompt.expect("rows are shown as a table")
    typed("SELECT * FROM p;")
    prompt.expect(r"id[^\n]*note[\s\S]*7[^\n]*seven[\s\S]*1 row in")
    typed("CREATE TABLE t AS SELECT * FROM datagen://trades?rows=5;")
    prompt.expect('table "t" created')
    typed("\\j")
    prompt.expect(r"name[^\n]*state[\s\S]*\bt\b[^\n]*(running|finished)[\s\S]*1 row in")
    # Rows of a source, in several batches: one header, and no boxes.
    typed("SELECT trade_id FROM datagen://trades?rows_per_second=20&rows=60;")
    prompt.expect(r"rows appear as they come; Ctrl-C ends[^\r]*\r\n")
    prompt.expect("t60\r\n")
    assert prompt.before.split("\r\n") == ["trade_id", "-" * 8, *(f"t{n}" for n in range(1, 60)), ""]
    typed("\\help")
    prompt.expect(r"\\watch \[SECONDS\]")
    typed("\\jobs")
    prompt.expect(r"\\jobs is not a command")


def test_a_live_view_of_columns_of_any_type_fits_a_small_terminal(tmp_path: Path):
    velo(
        tmp_path,
        "sql",
        "CREATE TABLE t (id INT PRIMARY KEY, xs ARRAY<INT>, s STRUCT<a: INT>, m MAP<STRING, INT>, x DOUBLE);"
        "INSERT INTO t SELECT id, array(id), named_struct('a', id), map('k', id), double('NaN') "
        "FROM VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9) v(id)",
    )
    following = pexpect.spawn(
        VELO[0],
        [*VELO[1:], "sql", "SELECT * FROM t ORDER BY id EMIT CHANGES", "--data-dir", str(tmp_path / "data")],
        env={**os.environ, "TERM": "xterm-256color"},
        dimensions=(9, 60),
        encoding="utf-8",
        timeout=PATIENCE,
    )
    try:
        following.expect(r"1[^\n]*\[1\][^\n]*\{\"a\":1\}[^\n]*\{\"k\":1\}[^\n]*NaN")
        following.expect(r"9 rows; 6 more; 9 changes in [^\n]*Ctrl-C ends")
        velo(tmp_path, "sql", "UPDATE t SET xs = NULL WHERE id = 1")
        following.expect(r"9 rows; 6 more; 10 changes in [^\n]*Ctrl-C ends")
    finally:
        following.close(force=True)


def test_changes_of_a_table_as_lines(tmp_path: Path):
    """Without a terminal: a stream of rows with their sign."""
    velo(tmp_path, "sql", "CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 10)")
    command = [*VELO, "sql", "SELECT id, v FROM t EMIT CHANGES", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(
        [*command, "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == '{"id":1,"v":10,"_weight":1}\n'
        velo(tmp_path, "sql", "UPDATE t SET v = 11 WHERE id = 1")
        assert follower.stdout.readline() == '{"id":1,"v":10,"_weight":-1}\n'
        assert follower.stdout.readline() == '{"id":1,"v":11,"_weight":1}\n'
        follower.terminate()
