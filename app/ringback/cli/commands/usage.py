"""`ringback usage`: your quotas, and how much of each is used."""

from typing import Annotated, Final

import typer

from ringback.cli.client_options import PrintOptions, client_command
from ringback.cli.output import print_list

_COLUMNS: Final = ("name", "limit", "used", "scope")


@client_command()
def usage(
    principal: Annotated[
        str | None, typer.Option("--principal", help="Another principal. Needs the scope admin.")
    ] = None,
    *,
    options: PrintOptions,
) -> None:
    """Show your quotas, and how much of each is used."""
    limits = options.run(lambda client: client.usage(principal=principal))
    print_list(limits, _COLUMNS, as_json=options.as_json, none="There are no quotas.")
