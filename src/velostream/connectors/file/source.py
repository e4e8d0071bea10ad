"""Files of this machine as a source of changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.file.folder import Folder
from velostream.connectors.files.source import FilesSource
from velostream.errors import SourceEmptyError

if TYPE_CHECKING:
    from velostream.connectors.base import SourceContext
    from velostream.connectors.file.options import FileOptions


class FileSource(FilesSource):
    """See `FilesSource`; with `file.create.empty` a missing file is created."""

    def __init__(self, options: FileOptions, context: SourceContext) -> None:
        self._folder = Folder(options.path or "", context.reach)
        self._creates = options.file_create_empty
        self._makes = context.makes
        super().__init__(self._folder, options, context)

    def check(self) -> None:
        """See `Source`."""
        path = self._folder.path
        if self._creates and not self.spool.position and not self._folder.several and not path.exists():
            if not self._makes:
                raise SourceEmptyError(f'file "{path}" does not exist, and will be created')
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        super().check()
