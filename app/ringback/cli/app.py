"""The root of the command line."""

from typing import Annotated

import typer

from ringback import __version__
from ringback.cli import deliveries, keys, webhooks
from ringback.cli.call import call
from ringback.cli.doctor import doctor
from ringback.cli.listen import listen
from ringback.cli.mcp import mcp
from ringback.cli.output import show
from ringback.cli.serve import serve

# A traceback is for whoever repairs a bug: it is printed as Python prints it, and never with the values of variables.
app = typer.Typer(name="ringback", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(serve)
app.command()(mcp)
app.add_typer(keys.app, name="keys")
app.command()(call)
app.command()(listen)
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(deliveries.app, name="deliveries")
app.command()(doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        show(f"ringback {__version__}")
        raise typer.Exit


@app.callback()
def ringback(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The callback service for MCP: call a tool, hang up, get rung back."""
