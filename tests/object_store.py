"""A real object store for the tests: a server that speaks S3, on a private port and folder."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from pyarrow import fs

from velostream.config import cache_home

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY, SECRET = "velo-tests", "5bqR7-canary-secret"


def program() -> Path | None:
    """The server that `scripts/objectstore` builds."""
    return next(iter(sorted((cache_home() / "objectstore").glob("versitygw-*"))), None)


class ObjectStore:
    """One server; `store` is a client of the tests' own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "data").mkdir()
        (folder / "side").mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        return {
            "endpoint": self.endpoint,
            "access.key.id": KEY,
            "secret.access.key": SECRET,
        }

    @property
    def store(self) -> fs.S3FileSystem:
        return fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
            allow_bucket_deletion=True,
        )

    def start(self) -> None:
        found = program()
        assert found is not None
        command = [str(found), "--port", f"127.0.0.1:{self.port}", "--quiet", "posix"]
        with (self._folder / "log").open("ab") as out:
            self._process = subprocess.Popen(
                [*command, "--sidecar", str(self._folder / "side"), str(self._folder / "data")],
                env={**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET},
                stdout=out,
                stderr=out,
            )
        deadline = time.monotonic() + 30
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert time.monotonic() < deadline, (self._folder / "log").read_text()
            assert self._process.poll() is None, (self._folder / "log").read_text()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def running(folder: Path) -> Iterator[ObjectStore]:
    """A server of its own; skips the test where none was built."""
    if program() is None:
        pytest.skip("no object store: scripts/objectstore builds it")
    server = ObjectStore(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class Bucket:
    """A bucket of the test's own."""

    def __init__(self, server: ObjectStore, name: str) -> None:
        self.server, self.name = server, name
        self._store = server.store
        self._store.create_dir(name)

    def put(self, key: str, content: bytes | str) -> None:
        data = content.encode() if isinstance(content, str) else content
        with self._store.open_output_stream(f"{self.name}/{key}", compression=None) as out:
            out.write(data)

    def get(self, key: str) -> bytes:
        with self._store.open_input_stream(f"{self.name}/{key}", compression=None) as stream:
            return bytes(stream.read())

    def delete(self, key: str) -> None:
        self._store.delete_file(f"{self.name}/{key}")

    def keys(self, prefix: str = "") -> list[str]:
        folder = f"{self.name}/{prefix}".rstrip("/")
        found = self._store.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
        return sorted(info.path[len(self.name) + 1 :] for info in found if info.type == fs.FileType.File)

    def uri(self, key: str = "") -> str:
        return f"s3://{self.name}/{key}"

    def said(self, **more: str) -> str:
        """The properties as SQL, with secrets by reference."""
        given = {
            "endpoint": self.server.endpoint,
            "access.key.id": "${env:STORE_KEY}",
            "secret.access.key": "${env:STORE_SECRET}",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        return ", ".join(f"\"{name}\" = '{value}'" for name, value in given.items())
