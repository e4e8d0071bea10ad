"""`velo connector new`: a package that works, and is found and tested where it is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from velostream.cli import main


@pytest.fixture
def velo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """`velo connector …` in a folder of its own: exit code and what it says."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str]:
        code = main.run(("connector", *arguments))
        printed = capsys.readouterr()
        assert printed.out == ""
        return code, printed.err

    return call


def installed(package: Path, site: Path) -> dict[str, str]:
    """What `pip install` makes of a package, and the environment of programs that find it there.

    The tools that build a package are not among those of the tests, and nothing is fetched here.
    """
    project = tomllib.loads((package / "pyproject.toml").read_text())
    (folder,) = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    shutil.copytree(package / folder, site / (package / folder).name)
    name, version = project["project"]["name"], project["project"]["version"]
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    points = project["project"]["entry-points"]
    (info / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in of.items()) for group, of in points.items()
        )
    )
    ours = {
        name: value for name, value in os.environ.items() if not name.startswith(("VELOSTREAM_", "PYTEST_"))
    }
    return {**ours, "PYTHONPATH": str(site)}


def run(folder: Path, environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.sampled(2)
def test_a_package_passes_its_own_tests_where_it_is_installed(velo, tmp_path: Path):
    code, told = velo("new", "weather")
    assert code == 0
    package = tmp_path / "velostream-weather"
    made = sorted(str(path.relative_to(package)) for path in package.rglob("*") if path.is_file())
    assert made == [
        "README.md",
        "pyproject.toml",
        "src/velostream_weather/__init__.py",
        "src/velostream_weather/sink.py",
        "src/velostream_weather/source.py",
        "tests/test_weather.py",
    ]
    assert all(f"velostream-weather/{path}" in told for path in made)
    assert 'next: cd velostream-weather && pip install -e ".[test]" && pytest -q' in told
    environment = installed(package, tmp_path / "site")
    listed = run(tmp_path, environment, "velostream", "sql", "SHOW CONNECTORS", "--format", "csv")
    assert "weather,weather,true,true,new records,exactly_once,,true" in listed.splitlines()
    tested = run(package, environment, "pytest", "-q", "-W", "error")
    assert re.search(r"\d\d passed in", tested), tested
    assert "skipped" not in tested


def test_a_package_is_as_tidy_as_ours(velo, tmp_path: Path):
    assert velo("new", "weather", "--into", "here")[0] == 0
    texts = {path: path.read_text() for path in (tmp_path / "here").rglob("*") if path.is_file()}
    assert not [path for path, text in texts.items() if "acme" in f"{path.name}{text}".lower()]
    ruff = Path(sys.executable).with_name("ruff")
    for action in (["check", "--select", "E,F,I,UP,B,D1,TC", "--ignore", "D105,D107"], ["format", "--check"]):
        done = subprocess.run(
            [ruff, *action, "--isolated", "--line-length", "110", "--exclude", "tests", "here"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("name", "why", "hint"),
    [
        ("My-Thing", 'a connector cannot be called "My-Thing"', "such as mything"),
        ("x", 'a connector cannot be called "x"', "two to forty lowercase letters"),
        ("7up", 'a connector cannot be called "7up"', "such as up"),
        ("../up", 'a connector cannot be called "../up"', "such as up"),
        ("source", 'a connector cannot be called "source"', "name it after the system"),
        ("any", 'a connector cannot be called "any"', "name it after the system"),
        ("file", 'there is a connector "file" already', "SHOW CONNECTORS"),
        ("postgresql", 'there is a connector "postgresql" already', "SHOW CONNECTORS"),
    ],
)
def test_names_that_cannot_be_used(velo, tmp_path: Path, name: str, why: str, hint: str):
    code, told = velo("new", name)
    assert code == 2
    assert why in told
    assert hint in told
    assert list(tmp_path.iterdir()) == []


def test_folders_that_cannot_be_used(velo, tmp_path: Path):
    (tmp_path / "velostream-weather").mkdir()
    code, told = velo("new", "weather")
    assert code == 2
    assert '"velostream-weather" exists already' in told
    assert "velo connector new weather --into another-folder" in told
    code, told = velo("new", "weather", "--into", "no/where")
    assert code == 2
    assert 'there is no folder "no"' in told
    assert list((tmp_path / "velostream-weather").iterdir()) == []


def test_actions_that_there_are_not(velo):
    code, told = velo("now", "weather")
    assert code == 2
    assert 'did you mean "new"?' in told
