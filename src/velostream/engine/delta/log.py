"""Delta's own log, read without Spark: metadata of commits, and the files of a version."""

from __future__ import annotations

import json
import uuid
from bisect import bisect_left
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from velostream.serving.durable.damage import corrupt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CHECKPOINT = ".checkpoint.parquet"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


class DeltaLog:
    """The log of one Delta table."""

    def __init__(self, rows: Path) -> None:
        self._rows = rows
        self.folder = rows / "_delta_log"

    def versions(self) -> list[int]:
        """The commits that the log still has, in order."""
        if not self.folder.is_dir():
            return []
        return sorted(int(path.stem) for path in self.folder.glob("*.json") if path.stem.isdigit())

    def newest(self) -> int | None:
        """The newest commit; None when nothing was ever written."""
        versions = self.versions()
        return versions[-1] if versions else None

    def actions(self, version: int) -> list[dict[str, Any]]:
        """The actions of one commit."""
        path = self._path(version)
        try:
            return [json.loads(line) for line in path.read_bytes().splitlines() if line]
        except (OSError, ValueError) as exc:
            raise corrupt(f'file "{path}" cannot be read', str(exc)) from exc

    def said(self, version: int) -> tuple[dict[str, Any] | None, int]:
        """Our metadata in a commit (None: another program made it), and its time in milliseconds."""
        for action in self.actions(version):
            info = action.get("commitInfo")
            if info is not None:
                text = info.get("userMetadata")
                ours = json.loads(text) if text and text.startswith('{"velostream"') else None
                return ours, int(info.get("timestamp", 0))
        return None, 0

    def first_after(self, number: int) -> int | None:
        """The first commit in the log whose table version is greater than `number`.

        Table versions never decrease; a commit of another program has the version of the commit before it.
        """
        versions = self.versions()
        at = bisect_left(versions, number + 1, key=self._number)
        return versions[at] if at < len(versions) else None

    def _number(self, version: int) -> int:
        said, _ = self.said(version)
        while said is None and self._path(version - 1).is_file():
            version -= 1
            said, _ = self.said(version)
        return int(said["number"]) if said is not None else 0

    def written(self, version: int) -> Iterator[Path]:
        """The files that one commit wrote, the log's own last."""
        for action in self.actions(version):
            for kind in ("add", "cdc"):
                if kind in action:
                    yield self._rows / unquote(action[kind]["path"])
                    vector = self._vector(action[kind].get("deletionVector"))
                    if vector is not None:
                        yield vector
        yield self._path(version)

    def live(self) -> dict[Path, int | None]:
        """The files of the newest version with their sizes; None for deletion vectors."""
        versions = self.versions()
        checkpoints = self.checkpoints()
        start = checkpoints[-1] if checkpoints else -1
        adds: dict[str, dict[str, Any]] = {}
        if checkpoints:
            adds = {add["path"]: add for add in self._checkpointed(start)}
        for version in versions:
            if version <= start:
                continue
            for action in self.actions(version):
                if "remove" in action:
                    adds.pop(action["remove"]["path"], None)
            for action in self.actions(version):
                if "add" in action:
                    adds[action["add"]["path"]] = action["add"]
        found: dict[Path, int | None] = {}
        for add in adds.values():
            found[self._rows / unquote(add["path"])] = int(add["size"])
            vector = self._vector(add.get("deletionVector"))
            if vector is not None:
                found[vector] = None
        return found

    def checkpoints(self) -> list[int]:
        """The versions that have a checkpoint, in order."""
        return sorted(
            int(path.name.partition(".")[0])
            for path in self.folder.glob(f"*{_CHECKPOINT}")
            if path.name.removesuffix(_CHECKPOINT).isdigit()
        )

    def forget_before(self, version: int) -> None:
        """Delete commits that nothing at or after `version` needs: those before the checkpoint below it."""
        below = [each for each in self.checkpoints() if each <= version]
        if not below:
            return
        for path in self.folder.iterdir():
            number = path.name.lstrip(".").partition(".")[0]
            if number.isdigit() and int(number) < below[-1]:
                path.unlink(missing_ok=True)

    def _checkpointed(self, version: int) -> Iterator[dict[str, Any]]:
        import pyarrow.parquet as pq

        path = self.folder / f"{version:020d}{_CHECKPOINT}"
        for row in pq.read_table(path, columns=["add"]).column("add").to_pylist():
            if row is not None:
                yield row

    def _path(self, version: int) -> Path:
        return self.folder / f"{version:020d}.json"

    def _vector(self, vector: dict[str, Any] | None) -> Path | None:
        """The file of a deletion vector; small ones are in the log itself."""
        if not vector or vector.get("storageType") != "u":
            return None
        text = vector["pathOrInlineDv"]
        prefix, code = text[:-20], text[-20:]
        raw = b""
        for start in range(0, 20, 5):
            value = 0
            for character in code[start : start + 5]:
                value = value * 85 + _Z85.index(character)
            raw += value.to_bytes(4, "big")
        name = f"deletion_vector_{uuid.UUID(bytes=raw)}.bin"
        return self._rows / prefix / name if prefix else self._rows / name
