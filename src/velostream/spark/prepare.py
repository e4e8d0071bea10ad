"""Prepares fast starts and small batches, once per machine, in the cache.

Two parts, each optional: a pinned jar with which Spark writes local files without forking a shell command for
each, and an archive of Spark's classes that Java maps into memory instead of loading them one by one (session
5.8 s without and 4.0 s with it, first result of a streaming job 9.7 s and 6.7 s).
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from velostream.config import cache_home
from velostream.disk.private import OTHERS
from velostream.errors import JavaError
from velostream.spark.jars.maven import IVY_SETTINGS, JARS, digest, fetch, only_one
from velostream.spark.java import JavaHome, find_java

if TYPE_CHECKING:
    from collections.abc import Callable

ARCHIVES_KEPT = 3
WARM_UP_TIMEOUT = 300.0


@dataclass(frozen=True)
class Prepared:
    """The prepared parts; each is optional."""

    jars: tuple[Path, ...] = ()
    """Jars for the driver's class path, before Spark's own."""
    archives: tuple[Path, ...] = ()
    """Java's class-data archives for this very class path: of its own classes if it lacks one, of Spark's."""


def prepared(cache_dir: Path, java: JavaHome) -> Prepared:
    """What the cache has for this pyspark and this Java. Only looks, in a few milliseconds."""
    paths = [(cache_dir / "jars" / jar.file_name, jar.sha256) for jar in JARS]
    jars = tuple(path for path, pinned in paths if digest(path) == pinned)
    archives = (*base_archive(cache_dir, java), archive_path(cache_dir, java, jars))
    return Prepared(jars, archives if all(archive.is_file() for archive in archives) else ())


def prepare(say: Callable[[str], None] = lambda line: None, ivy_settings: str | None = None) -> Prepared:
    """Create the missing parts in the cache, and return all parts.

    A part that cannot be created (no network, a full disk) is reported with one line through `say` and left
    out; only speed depends on it. `ivy_settings` is a file as for `spark.jars.ivySettings`, for machines
    behind a mirror. Raises JavaError when there is no Java at all.
    """
    cache = cache_home()
    java = find_java()
    try:
        with only_one(cache):
            settings = ivy_settings or os.environ.get(IVY_SETTINGS)
            fetch(JARS, cache, java, settings, say, ": small batches will be slower")
            found = prepared(cache, java)
            if not found.archives:
                record_archive(cache, java, found, say)
    except OSError as exc:
        say(f'cannot use cache "{cache}" ({exc.strerror}): going on without it')
    return prepared(cache, java)


def archive_path(cache: Path, java: JavaHome, jars: tuple[Path, ...]) -> Path:
    """Named after everything that Java checks before it believes an archive, itself and each jar.

    And after what was recorded, so that another warm-up makes another archive.
    """
    from velostream.spark.gateway import class_path

    recorded = digest(Path(__file__).parents[1] / "devtools" / "warmup.py") or ""
    parts = [java.version, str(java.java.resolve()), recorded]
    for entry in class_path(jars).split(os.pathsep):
        try:
            status = Path(entry).stat()
        except OSError:
            continue
        parts.append(f"{entry} {status.st_size} {status.st_mtime_ns}")
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache / f"spark-{key}.jsa"


def base_archive(cache: Path, java: JavaHome) -> tuple[Path, ...]:
    """The archive of Java's own classes that Spark's builds on, where Java does not include it."""
    if (java.home / "lib" / "server" / "classes.jsa").is_file():
        return ()
    key = hashlib.sha256(f"{java.version} {java.java.resolve()}".encode()).hexdigest()[:16]
    return (cache / f"java-{key}.jsa",)


def record_archive(cache: Path, java: JavaHome, found: Prepared, say: Callable[[str], None]) -> None:
    """Run Spark once through what our jobs do, and let Java write down the classes it loaded."""
    target = archive_path(cache, java, found.jars)
    draft = target.with_suffix(f".{os.getpid()}")
    say("recording Spark's classes for faster starts")
    try:
        base = base_archive(cache, java)
        for path in base:
            _run([str(java.java), "-Xshare:dump", f"-XX:SharedArchiveFile={path}"])
        with tempfile.TemporaryDirectory(prefix="velostream-") as folder:
            paths = [folder, str(draft), *map(str, base)]
            _run([sys.executable, "-m", "velostream.devtools.warmup", *paths])
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
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WARM_UP_TIMEOUT,
        check=True,
        umask=OTHERS,
    )


def _drop_old_archives(cache: Path) -> None:
    archives = sorted(cache.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in archives[ARCHIVES_KEPT:]:
        old.unlink(missing_ok=True)


def main() -> int:
    """`python -m velostream.spark.prepare`: what the Makefile runs after an install."""
    try:
        prepare(say=lambda line: print(line, file=sys.stderr, flush=True))  # noqa: T201
    except JavaError as exc:
        print(exc, file=sys.stderr)  # noqa: T201
        return exc.exit_code
    except KeyboardInterrupt:
        print("stopped; what is missing is made the next time", file=sys.stderr)  # noqa: T201
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main())
