from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

from velostream.cli.commands import logs

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from tests.conftest import WaitUntil
    from tests.unit.cli.conftest import Velo


def entry(job: str, event: str, **more: str) -> str:
    return json.dumps(
        {"job": job, "event": event, "level": "info", "timestamp": "2026-01-02T03:04:05.678901Z", **more}
    )


def write(folder: Path, *lines: str, name: str = "velostream.log") -> None:
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    with (folder / "logs" / name).open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_lines_for_people(velo: Velo, data_dir: Path) -> None:
    write(data_dir, entry("a", "job", state="running"), "not json")
    ran = velo("logs")
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "2026-01-02 03:04:05.678 info    a: job state=running",
        f"{' ' * 9}not json",
    ]


def test_only_one_job_and_only_the_last(velo: Velo, data_dir: Path) -> None:
    write(data_dir, entry("a", "one"), name="velostream.log.1")
    write(data_dir, entry("b", "two"), entry("a", "three"))
    assert [line.split()[-1] for line in velo("logs", "--job", "a").out.splitlines()] == ["one", "three"]
    assert [line.split()[-1] for line in velo("logs", "-n", "2").out.splitlines()] == ["two", "three"]
    assert json.loads(velo("logs", "--job", "b", "--format", "json").out)["event"] == "two"


def test_a_job_of_which_nothing_was_logged(velo: Velo, data_dir: Path) -> None:
    write(data_dir, entry("orders", "one"))
    ran = velo("logs", "--job", "order")
    assert (ran.code, ran.out) == (0, "")
    assert 'nothing was logged about job "order" yet; did you mean "orders"?' in ran.err


def test_of_a_failure_in_java_only_the_root_cause_is_told(velo: Velo, data_dir: Path) -> None:
    trace = """Traceback (most recent call last):
  File "loop.py", line 63, in start
    self._query = writer.start()
py4j.protocol.Py4JJavaError: An error occurred while calling o135.start.
: java.io.IOException: Cannot run program "chmod": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
Caused by: java.io.IOException: error=2, No such file or directory
\tat java.base/java.lang.ProcessImpl.forkAndExec(Native Method)
\t... 26 more
"""
    write(
        data_dir, entry("a", "job", exception=trace), entry("b", "job", exception="Traceback\nValueError: x")
    )
    told = [line.strip() for line in velo("logs").out.splitlines()]
    assert told[1::2] == ['cannot run program "chmod": error=2, No such file or directory', "ValueError: x"]


def test_nothing_yet(velo: Velo, data_dir: Path) -> None:
    assert velo("logs").code == 2
    data_dir.mkdir()
    ran = velo("logs")
    assert ran.code == 0
    assert "nothing was logged" in ran.err


def test_following_across_a_rotation(
    tmp_path: Path, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.01)
    path = tmp_path / "logs" / "velostream.log"
    write(tmp_path, "old")
    seen: list[str] = []

    def follow() -> None:
        for line in logs.appended(path):
            seen.append(line)
            if line == "end":
                return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()

    def appended() -> bool:
        write(tmp_path, "new")
        return "new" in seen

    wait_until(appended)
    path.rename(path.with_suffix(".log.1"))
    write(tmp_path, "rotated", "end")
    thread.join(10)
    assert "old" not in seen
    assert seen[-2:] == ["rotated", "end"]
