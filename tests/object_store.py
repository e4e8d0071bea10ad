"""Real object stores for the tests: servers that speak S3, Google's protocol and Azure's."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

import pytest
from pyarrow import fs

from velostream.config import cache_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

KEY, SECRET = "velo-tests", "5bqR7-canary-secret"
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_SECRET = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""What Azurite knows by itself; it is no secret of anybody."""


def program(name: str = "versitygw") -> Path | None:
    """A server that `scripts/objectstore` builds."""
    return next(iter(sorted((cache_home() / "objectstore").glob(f"{name}-*"))), None)


class ObjectStore(ABC):
    """One server; `store` is a client of the tests' own."""

    scheme: ClassVar[str]
    program: ClassVar[str]
    secrets: ClassVar[Mapping[str, str]] = {}
    """Properties that are secret, with variables that hold them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "data").mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    @abstractmethod
    def properties(self) -> dict[str, str]:
        """What a statement says to reach it."""

    @property
    @abstractmethod
    def store(self) -> fs.FileSystem:
        """A client."""

    @abstractmethod
    def command(self, found: Path) -> Sequence[str]:
        """How the server is started."""

    def start(self) -> None:
        found = program(self.program)
        assert found is not None
        with (self._folder / "log").open("ab") as out:
            self._process = subprocess.Popen(
                self.command(found),
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


class S3(ObjectStore):
    """versitygw, over a folder."""

    scheme, program = "s3", "versitygw"
    secrets: ClassVar[Mapping[str, str]] = {"access.key.id": "STORE_KEY", "secret.access.key": "STORE_SECRET"}

    @property
    def properties(self) -> dict[str, str]:
        return {
            "endpoint": self.endpoint,
            "access.key.id": KEY,
            "secret.access.key": SECRET,
        }

    @property
    def store(self) -> fs.FileSystem:
        return fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
            allow_bucket_deletion=True,
        )

    def command(self, found: Path) -> Sequence[str]:
        (self._folder / "side").mkdir(exist_ok=True)
        place = ["--sidecar", str(self._folder / "side"), str(self._folder / "data")]
        return [str(found), "--port", f"127.0.0.1:{self.port}", "--quiet", "posix", *place]


class Google(ObjectStore):
    """fake-gcs-server, over a folder; it knows no keys."""

    scheme, program = "gs", "fake-gcs-server"

    @property
    def properties(self) -> dict[str, str]:
        return {"endpoint": self.endpoint, "anonymous": "true"}

    @property
    def store(self) -> fs.FileSystem:
        return fs.GcsFileSystem(
            anonymous=True, scheme="http", endpoint_override=f"127.0.0.1:{self.port}", project_id="tests"
        )

    def command(self, found: Path) -> Sequence[str]:
        where = [
            "-scheme",
            "http",
            "-host",
            "127.0.0.1",
            "-port",
            str(self.port),
            "-external-url",
            self.endpoint,
        ]
        return [str(found), *where, "-filesystem-root", str(self._folder / "data")]


class Azure(ObjectStore):
    """Azurite, over a folder."""

    scheme, program = "az", "azurite"
    secrets: ClassVar[Mapping[str, str]] = {"account.key": "STORE_SECRET"}

    @property
    def properties(self) -> dict[str, str]:
        return {"endpoint": self.endpoint, "account": AZURE_ACCOUNT, "account.key": AZURE_SECRET}

    @property
    def store(self) -> fs.FileSystem:
        place, scheme = f"127.0.0.1:{self.port}", "http"
        return fs.AzureFileSystem(
            AZURE_ACCOUNT,
            account_key=AZURE_SECRET,
            blob_storage_authority=place,
            blob_storage_scheme=scheme,
            dfs_storage_authority=place,
            dfs_storage_scheme=scheme,
        )

    def command(self, found: Path) -> Sequence[str]:
        node = shutil.which("node")
        assert node is not None
        where = [
            "--blobHost",
            "127.0.0.1",
            "--blobPort",
            str(self.port),
            "--location",
            str(self._folder / "data"),
        ]
        said = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        return [node, str(found / "node_modules" / ".bin" / "azurite-blob"), *where, *said]


@contextmanager
def running(folder: Path, kind: type[ObjectStore] = S3) -> Iterator[ObjectStore]:
    """A server of its own; skips the test where none was built."""
    if program(kind.program) is None:
        pytest.skip("no object store: scripts/objectstore builds it")
    server = kind(folder)
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
        return f"{self.server.scheme}://{self.name}/{key}"

    def said(self, **more: str) -> str:
        """The properties as SQL, with secrets by reference."""
        by_reference = {name: f"${{env:{variable}}}" for name, variable in self.server.secrets.items()}
        given = {
            **self.server.properties,
            **by_reference,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        return ", ".join(f"\"{name}\" = '{value}'" for name, value in given.items())
