"""Commands that have actions, such as `velo topic list`."""

from __future__ import annotations

import click

from velostream.errors import ConfigError, did_you_mean


class Actions(click.Group):
    """A command's actions; an unknown one is reported with the nearest."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            known = ", ".join(self.commands)
            raise ConfigError(
                f'velo {self.name} cannot "{args[0]}"',
                hint=did_you_mean(args[0], self.commands) or f"it can: {known}",
            )
        return super().resolve_command(ctx, args)
