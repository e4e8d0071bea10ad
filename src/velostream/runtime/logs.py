"""The log of a data directory: one line of JSON per event, for `velo logs` and for machines."""

from __future__ import annotations

import logging
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from pathlib import Path

NAME = "velostream.log"
_MOST_BYTES = 10_000_000


def log_to(folder: Path, level: str) -> logging.Handler:
    """Send what we log to a file of the folder, and nothing to the terminal. Returns what `stop` takes."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handler = RotatingFileHandler(
        folder / NAME, maxBytes=_MOST_BYTES, backupCount=3, encoding="utf-8", delay=True
    )
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
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
    """Keep what we log off the terminal, also where no data directory takes it."""
    root = logging.getLogger("velostream")
    root.propagate = False
    if not root.handlers:
        root.addHandler(logging.NullHandler())
    if not structlog.is_configured():
        structlog.configure(
            logger_factory=structlog.stdlib.LoggerFactory(), wrapper_class=structlog.stdlib.BoundLogger
        )


def stop(handler: logging.Handler) -> None:
    """Let go of the file."""
    logging.getLogger("velostream").removeHandler(handler)
    handler.close()
