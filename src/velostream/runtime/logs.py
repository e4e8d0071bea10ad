"""The log of a data directory: one line of JSON per event, for `velo logs` and for machines."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import structlog

from velostream.disk.full_disk import storing
from velostream.disk.private import make_folder, open_file
from velostream.secrets import redact

if TYPE_CHECKING:
    from io import TextIOWrapper

    from structlog.typing import EventDict

NAME = "velostream.log"
_MOST_BYTES = 10_000_000


def _without_secrets(_logger: object, _method: str, event: EventDict) -> EventDict:
    return {name: _cleared(value) for name, value in event.items()}


def _cleared(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {str(name): _cleared(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_cleared(each) for each in value]
    return redact(str(value))


class _PrivateLog(RotatingFileHandler):
    """A log file that never raises: lines that the disk refuses are lost, without failing their caller."""

    def _open(self) -> TextIOWrapper:
        file = open_file(Path(self.baseFilename), self.mode, encoding=self.encoding)
        return cast("TextIOWrapper", file)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """See `logging`."""
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)

    def close(self) -> None:
        """See `logging`."""
        with suppress(OSError):
            super().close()


def log_to(folder: Path, level: str) -> logging.Handler:
    """Log to a file of the folder, and nothing to the terminal. Returns the handle that `stop` takes."""
    with storing(folder):
        make_folder(folder)
    handler = _PrivateLog(folder / NAME, maxBytes=_MOST_BYTES, backupCount=3, encoding="utf-8", delay=True)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _without_secrets,
                structlog.processors.JSONRenderer(),
            ],
            foreign_pre_chain=[
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
            ],
        )
    )
    root = logging.getLogger("velostream")
    root.addHandler(handler)
    root.setLevel(level.upper())
    root.propagate = False
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    return handler


def silence() -> None:
    """Keep log lines off the terminal, also where no data directory takes them."""
    root = logging.getLogger("velostream")
    root.propagate = False
    if not root.handlers:
        root.addHandler(logging.NullHandler())
    if not structlog.is_configured():
        structlog.configure(
            logger_factory=structlog.stdlib.LoggerFactory(), wrapper_class=structlog.stdlib.BoundLogger
        )


def stop(handler: logging.Handler) -> None:
    """Close the log file."""
    logging.getLogger("velostream").removeHandler(handler)
    handler.close()
