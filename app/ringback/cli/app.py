"""The root of the command line."""

import importlib
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup

from ringback import __version__


class _Place(NamedTuple):
    module: str
    name: str


COMMANDS: Final[Mapping[str, _Place]] = {
    "serve": _Place("ringback.cli.serve", "serve"),
    "mcp": _Place("ringback.cli.mcp", "mcp"),
    "keys": _Place("ringback.cli.keys", "app"),
    "call": _Place("ringback.cli.call", "call"),
    "listen": _Place("ringback.cli.listen", "listen"),
    "webhooks": _Place("ringback.cli.webhooks", "app"),
    "deliveries": _Place("ringback.cli.deliveries", "app"),
    "doctor": _Place("ringback.cli.doctor", "doctor"),
}
"""The commands in the order of the help, and the module that has each."""


class Commands(TyperGroup):
    """Imports a command when it is wanted: the service takes 3 s of CPU to import, and a client does not need it."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # Stand-ins: their names are suggested in place of a typing error.
        self.commands = {name: TyperCommand(name) for name in COMMANDS}

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | TyperGroup | None:  # noqa: ARG002 - typer's signature
        place = COMMANDS.get(cmd_name)
        return None if place is None else _command(cmd_name, place)


def _command(name: str, place: _Place) -> TyperCommand | TyperGroup:
    found = getattr(importlib.import_module(place.module), place.name)
    if isinstance(found, typer.Typer):
        group = typer.main.get_group(found)
        group.name = name
        return group
    single = typer.Typer(add_completion=False)
    single.command(name)(found)
    return cast("TyperCommand", typer.main.get_command(single))


# A traceback is for whoever repairs a bug: it is printed as Python prints it, and never with the values of variables.
app = typer.Typer(
    name="ringback", cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ringback {__version__}")
        raise typer.Exit


@app.callback()
def ringback(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The callback service for MCP: call a tool, hang up, get rung back."""
