"""Durations as options: `--for 60s`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from datetime import timedelta


def duration(context: click.Context, parameter: click.Parameter, value: str | None) -> timedelta | None:
    """A click callback that takes `100ms 30s 5m 2h 1d`."""
    from velostream.model.durations import parse_duration

    if value is None:
        return None
    try:
        return parse_duration(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc), context, parameter) from None
