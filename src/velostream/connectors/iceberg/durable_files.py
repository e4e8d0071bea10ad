"""Files of a warehouse on this machine, which are durable before a commit names them."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from velostream.disk.sealed_json import sync_folder

if TYPE_CHECKING:
    from pyiceberg.io import OutputStream

NAME = f"{__name__}.DurableFiles"
"""How pyiceberg is told of the class."""


class DurableFiles(PyArrowFileIO):
    """PyArrow's files, except that those of this machine are synced when they are closed."""

    def new_output(self, location: str) -> PyArrowFile:
        """A file that is made; objects of a store are durable by themselves."""
        made = super().new_output(location)
        scheme, _, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return made
        return _LocalFile(made, path, self)


class _LocalFile(PyArrowFile):
    def __init__(self, made: PyArrowFile, path: str, files: DurableFiles) -> None:
        super().__init__(made.location, path, files.fs_by_scheme("file", ""))
        self._here = Path(path)

    def create(self, overwrite: bool = False) -> OutputStream:
        """See `OutputFile`."""
        new = [parent for parent in self._here.parents if not parent.exists()]
        self._here.parent.mkdir(parents=True, exist_ok=True)
        for folder in new:
            sync_folder(folder.parent)
        return io.BufferedWriter(_Synced(self._here, "wb" if overwrite else "xb"), 1 << 20)


class _Synced(io.FileIO):
    def close(self) -> None:
        if not self.closed:
            os.fsync(self.fileno())
            super().close()
            sync_folder(Path(os.fsdecode(self.name)).parent)
