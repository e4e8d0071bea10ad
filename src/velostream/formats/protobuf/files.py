"""Protobuf schemas: texts compiled to descriptors, which are sent as bytes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from velostream.errors import ConfigError, SourceConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LONGEST_COMPILATION = 30
_EXTRA = "pip install 'velostream[protobuf]'"


@dataclass(frozen=True)
class ProtoSchema:
    """A descriptor set, the schema's own file, and the message of the records."""

    files: bytes
    main: str
    message: str

    def message_at(self, indexes: Sequence[int]) -> str:
        """The full name of a message of the schema's file, by its indexes; ValueError when there is none."""
        file = next(one for one in descriptor_set(self.files).file if one.name == self.main)
        within, name = file.message_type, file.package
        for index in indexes:
            if not 0 <= index < len(within):
                raise ValueError(f"the schema has no message {'.'.join(map(str, indexes))}")
            name = f"{name}.{within[index].name}" if name else within[index].name
            within = _written(within[index])
        return str(name)

    def indexes_of(self, message: str) -> list[int]:
        """The indexes of a message in the schema's file."""
        file = next(one for one in descriptor_set(self.files).file if one.name == self.main)
        short = message.removeprefix(f"{file.package}.") if file.package else message
        within, found = file.message_type, []
        for part in short.split("."):
            names = [one.name for one in within]
            if part not in names:
                raise SourceConfigError(f'message "{message}" is not in the schema')
            found.append(names.index(part))
            within = _written(within[found[-1]])
        return found


def _written(message: Any) -> list[Any]:
    """The declared messages inside a message; maps generate others."""
    return [one for one in message.nested_type if not one.options.map_entry]


def descriptor_set(files: bytes) -> Any:
    """The descriptor set of the bytes."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    return FileDescriptorSet.FromString(files)


def message_class(schema: ProtoSchema, message: str | None = None) -> Any:
    """The class of a message, from a pool of its own; SourceConfigError when the schema is invalid."""
    google = protobuf()
    pool = google.descriptor_pool.DescriptorPool()
    left = list(descriptor_set(schema.files).file)
    while left:
        later = [one for one in left if not _added(pool, one)]
        if len(later) == len(left):
            raise SourceConfigError(f'Protobuf file "{left[0].name}" imports what is not there')
        left = later
    try:
        found = pool.FindMessageTypeByName(message or schema.message)
    except KeyError as exc:
        raise SourceConfigError(f'message "{message or schema.message}" is not in the schema') from exc
    return google.message_factory.GetMessageClass(found)


def _added(pool: Any, file: Any) -> bool:
    try:
        pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
    except (TypeError, KeyError, ValueError):
        return False
    return True


def protobuf() -> Any:
    """The package; ConfigError when it is not installed."""
    try:
        from google import protobuf as found
        from google.protobuf import descriptor_pool, message, message_factory  # noqa: F401 - its attributes
    except ImportError as exc:
        raise ConfigError("Protobuf needs the package protobuf", hint=_EXTRA) from exc
    return found


def from_descriptors(raw: bytes, message: str | None) -> ProtoSchema:
    """A descriptor set as `protoc --include_imports --descriptor_set_out` writes it."""
    decode_error = protobuf().message.DecodeError
    try:
        files = descriptor_set(raw).file
    except decode_error as exc:
        raise SourceConfigError("not a set of Protobuf descriptors") from exc
    own = [one for one in files if one.message_type and not one.name.startswith("google/protobuf/")]
    if not own:
        raise SourceConfigError("the Protobuf schema has no message")
    return _chosen(raw, own[-1].name, message)


def compiled(name: str, text: str, used: Mapping[str, str], message: str | None) -> ProtoSchema:
    """A schema from its text and those of its imports, by the names under which they are imported."""
    with tempfile.TemporaryDirectory(prefix="velostream-proto-") as folder:
        root = Path(folder)
        for path, content in {**used, name: text}.items():
            pure = PurePosixPath(path)
            if pure.is_absolute() or ".." in pure.parts or not pure.name:
                raise SourceConfigError(f'"{path}" is no name of a Protobuf file')
            target = root / "in" / pure
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content, encoding="utf-8")
        return _compile(root / "in", name, root / "out", message)


def compiled_file(path: Path, message: str | None) -> ProtoSchema:
    """A schema from a .proto file, with its imports beside it; or from a descriptor set."""
    if path.suffix != ".proto":
        return from_descriptors(path.read_bytes(), message)
    with tempfile.TemporaryDirectory(prefix="velostream-proto-") as folder:
        return _compile(path.resolve().parent, path.name, Path(folder) / "out", message)


def _compile(root: Path, name: str, out: Path, message: str | None) -> ProtoSchema:
    found = importlib.util.find_spec("grpc_tools")
    if found is None or found.origin is None:
        raise ConfigError(
            "compiling .proto files needs the package grpcio-tools",
            hint=f"{_EXTRA}, or give a descriptor set: protoc --include_imports --descriptor_set_out",
        )
    # In a process of its own, as it writes errors to the standard error of its process.
    folders = [f"-I{root}", f"-I{Path(found.origin).parent / '_proto'}"]
    command = [sys.executable, "-m", "grpc_tools.protoc", *folders, "--include_imports"]
    try:
        done = subprocess.run(
            [*command, f"--descriptor_set_out={out}", name],
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST_COMPILATION,
        )
    except subprocess.TimeoutExpired as exc:
        raise SourceConfigError(f'Protobuf schema "{name}" takes too long to compile') from exc
    if done.returncode or not out.exists():
        told = [line for line in done.stderr.splitlines() if "warning" not in line.lower() and name in line]
        reason = told[0].replace(f"{root}/", "") if told else "unknown"
        raise SourceConfigError(f'Protobuf schema "{name}" does not compile: {reason}')
    return _chosen(out.read_bytes(), name, message)


def _chosen(files: bytes, main: str, message: str | None) -> ProtoSchema:
    file = next(one for one in descriptor_set(files).file if one.name == main)
    if not file.message_type:
        raise SourceConfigError("the Protobuf schema has no message")
    first = file.message_type[0].name
    chosen = message or (f"{file.package}.{first}" if file.package else first)
    schema = ProtoSchema(files, main, chosen)
    message_class(schema)
    return schema
