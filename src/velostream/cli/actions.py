"""Commands that have actions, such as `velo topic list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from velostream.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping


class Actions(click.Group):
    """A command's actions; an unknown one is reported with the nearest.

    `others`: what the actions of other programs are called here.
    """

    def __init__(self, *arguments: Any, others: Mapping[str, str] | None = None, **given: Any) -> None:
        super().__init__(*arguments, **given)
        self._others = others or {}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            known = ", ".join(self.commands)
            raise ConfigError(
                f'velo {self.name} cannot "{args[0]}"',
                hint=self._others.get(args[0]) or did_you_mean(args[0], self.commands) or f"it can: {known}",
            )
        return super().resolve_command(ctx, args)
