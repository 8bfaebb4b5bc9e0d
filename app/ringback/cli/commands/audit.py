"""`ringback audit`: who changed what."""

from typing import Annotated

import typer

from ringback.cli.client_options import OperatorOptions, client_command
from ringback.cli.output import print_list

_COLUMNS = ("at", "principal", "key_id", "surface", "operation", "target", "owner", "detail")


@client_command()
def audit(
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="The largest number of entries.")] = 50,
    options: OperatorOptions,
) -> None:
    """Show who changed what you own, newest first.

    With --all-principals, an operator sees all changes, those of the service itself too.
    """
    entries = options.collect(lambda client: client.audit_entries(), limit=limit)
    print_list(entries, _COLUMNS, as_json=options.as_json, none="Nothing was changed that the log still has.")
