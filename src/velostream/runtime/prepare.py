"""What makes starts and small batches fast, made once per machine and kept in the cache.

Two things, each optional: a pinned jar with which Spark writes local files without forking a shell
command for each, and an archive of Spark's classes that Java maps into memory instead of loading them one
by one (session 5.8 s without and 4.0 s with it, first result of a streaming job 9.7 s and 6.7 s).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from velostream.config import cache_home
from velostream.errors import JavaError
from velostream.runtime.java import JavaHome, find_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ARCHIVES_KEPT = 3
FETCH_TIMEOUT = 120.0
_IVY_SETTINGS = "VELOSTREAM_IVY_SETTINGS"
WARM_UP_TIMEOUT = 300.0


@dataclass(frozen=True)
class Jar:
    """A jar from Maven, pinned to its very bytes."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """What it is called in the cache."""
        return f"{self.artifact}-{self.version}.jar"


JARS = (
    Jar(
        "com.globalmentor",
        "hadoop-bare-naked-local-fs",
        "0.1.0",
        "e0cc30fb0531eb0b59468dc0abf5b257533d2365b5e9f45e795edd707aa78c62",
    ),
)
"""What the driver's class path gets besides Spark."""

DELTA_JARS = (
    Jar(
        "io.delta",
        "delta-spark_4.2_2.13",
        "4.4.0",
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Jar(
        "io.delta",
        "delta-storage",
        "4.4.0",
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
)
"""Delta Lake, which only a statement that uses it fetches and loads."""


@dataclass(frozen=True)
class Prepared:
    """The parts that are there; each is optional."""

    jars: tuple[Path, ...] = ()
    """On the driver's class path, before Spark's own."""
    archives: tuple[Path, ...] = ()
    """Java's class-data archives for exactly this class path: its own classes if it came without, Spark's."""


def prepared(cache_dir: Path, java: JavaHome) -> Prepared:
    """What the cache holds for this pyspark and this Java. Only looks, in a few milliseconds."""
    paths = [(cache_dir / "jars" / jar.file_name, jar.sha256) for jar in JARS]
    jars = tuple(path for path, digest in paths if _digest(path) == digest)
    archives = (*_base_archive(cache_dir, java), _archive_path(cache_dir, java, jars))
    return Prepared(jars, archives if all(archive.is_file() for archive in archives) else ())


def prepare(say: Callable[[str], None] = lambda line: None, ivy_settings: str | None = None) -> Prepared:
    """Make what is missing in the cache, and return what there is then.

    A part that cannot be made (no network, a full disk) is reported with one line through `say` and left
    out; nothing depends on it but speed. `ivy_settings` is a file as for `spark.jars.ivySettings`, for
    machines behind a mirror. Raises JavaError when there is no Java at all.
    """
    cache = cache_home()
    java = find_java()
    try:
        with _only_one(cache):
            settings = ivy_settings or os.environ.get(_IVY_SETTINGS)
            for jar in JARS:
                _fetch(jar, cache, java, settings, say, ": small batches will be slower")
            found = prepared(cache, java)
            if not found.archives:
                _archive(cache, java, found, say)
    except OSError as exc:
        say(f'cannot use cache "{cache}" ({exc.strerror}): going on without it')
    return prepared(cache, java)


def fetched(jars: tuple[Jar, ...], what: str, ivy_settings: str | None = None) -> tuple[Path, ...]:
    """Jars that a statement cannot do without, downloaded the first time; JavaError when that fails."""
    cache = cache_home()
    paths = tuple(cache / "jars" / jar.file_name for jar in jars)
    said: list[str] = []
    with _only_one(cache):
        for jar in jars:
            _fetch(jar, cache, find_java(), ivy_settings or os.environ.get(_IVY_SETTINGS), said.append)
    if any(_digest(path) != jar.sha256 for path, jar in zip(paths, jars, strict=True)):
        raise JavaError(
            f"{what} cannot be downloaded",
            detail="\n".join(said) or None,
            hint="connect to the network once, or set Spark's spark.jars.ivySettings for a mirror",
        )
    return paths


@contextmanager
def _only_one(cache: Path) -> Iterator[None]:
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _fetch(
    jar: Jar,
    cache: Path,
    java: JavaHome,
    settings: str | None,
    say: Callable[[str], None],
    consequence: str = "",
) -> None:
    """Download with the Ivy that pyspark carries, check the bytes, then put the jar in place in one step."""
    from velostream.runtime.gateway import SPARK_HOME

    target = cache / "jars" / jar.file_name
    if _digest(target) == jar.sha256:
        return
    say(f"fetching {jar.group}:{jar.artifact}:{jar.version}")
    target.parent.mkdir(parents=True, exist_ok=True)
    ivy = next((SPARK_HOME / "jars").glob("ivy-*.jar"))
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command: list[str | Path] = [java.java, *java.options, "-jar", ivy]
        command += ["-settings", settings] if settings else []
        command += ["-cache", str(cache / "ivy"), "-notransitive", "-confs", "default"]
        command += ["-dependency", jar.group, jar.artifact, jar.version]
        command += ["-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
        try:
            subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=FETCH_TIMEOUT, check=True
            )
        except subprocess.SubprocessError:
            say(f"{jar.artifact} cannot be downloaded{consequence}")
            return
        fetched = Path(folder) / jar.file_name
        if _digest(fetched) != jar.sha256:
            say(f"{jar.artifact} was downloaded but is not the pinned file: it is not used")
            return
        fetched.replace(target)


def _archive_path(cache: Path, java: JavaHome, jars: tuple[Path, ...]) -> Path:
    """Named after everything that Java checks before it believes an archive, itself and each jar.

    And after what was recorded, so that another way of warming up makes another archive.
    """
    from velostream.runtime.gateway import class_path

    recorded = _digest(Path(__file__).with_name("warmup.py")) or ""
    parts = [java.version, str(java.java.resolve()), recorded]
    for entry in class_path(jars).split(os.pathsep):
        try:
            status = Path(entry).stat()
        except OSError:
            continue
        parts.append(f"{entry} {status.st_size} {status.st_mtime_ns}")
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache / f"spark-{key}.jsa"


def _base_archive(cache: Path, java: JavaHome) -> tuple[Path, ...]:
    """The archive of Java's own classes that Spark's builds on, where Java does not bring it."""
    if (java.home / "lib" / "server" / "classes.jsa").is_file():
        return ()
    key = hashlib.sha256(f"{java.version} {java.java.resolve()}".encode()).hexdigest()[:16]
    return (cache / f"java-{key}.jsa",)


def _archive(cache: Path, java: JavaHome, found: Prepared, say: Callable[[str], None]) -> None:
    """Run Spark once through what our jobs do, and let Java write down the classes it loaded."""
    target = _archive_path(cache, java, found.jars)
    draft = target.with_suffix(f".{os.getpid()}")
    say("recording Spark's classes for faster starts")
    try:
        base = _base_archive(cache, java)
        for path in base:
            _run([str(java.java), "-Xshare:dump", f"-XX:SharedArchiveFile={path}"])
        with tempfile.TemporaryDirectory(prefix="velostream-") as folder:
            paths = [folder, str(draft), *map(str, base)]
            _run([sys.executable, "-m", "velostream.runtime.warmup", *paths])
        draft.replace(target)
    except (OSError, subprocess.SubprocessError) as exc:
        output = (getattr(exc, "stderr", None) or str(exc)).strip().splitlines()
        say(f"no archive of Spark's classes, starts will be slower: {output[-1] if output else exc}")
    else:
        _drop_old_archives(cache)
    finally:
        draft.unlink(missing_ok=True)


def _run(command: list[str]) -> None:
    subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WARM_UP_TIMEOUT, check=True
    )


def _drop_old_archives(cache: Path) -> None:
    archives = sorted(cache.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in archives[ARCHIVES_KEPT:]:
        old.unlink(missing_ok=True)


def main() -> int:
    """`python -m velostream.runtime.prepare`: what the Makefile runs after an install."""
    try:
        prepare(say=lambda line: print(line, file=sys.stderr, flush=True))  # noqa: T201
    except JavaError as exc:
        print(exc, file=sys.stderr)  # noqa: T201
        return exc.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
