"""SQL conditions and expressions over one table, as the Python API takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.errors import UnsupportedError

if TYPE_CHECKING:
    import pyarrow as pa

    from velostream.serving.version import TableVersion


class Questions:
    """Placeholder until the query engine lands."""

    def ask(self, version: TableVersion, projection: str, where: str | None) -> pa.Table:
        """Answer."""
        raise UnsupportedError("conditions are not supported")

    def counts(self, name: str) -> tuple[int, int]:
        """Queries and cache hits of one table."""
        return 0, 0
