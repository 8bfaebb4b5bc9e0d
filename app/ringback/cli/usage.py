"""`ringback usage`: your quotas, and how much of each is used."""

from typing import Annotated, Final

import typer

from ringback.cli.client_options import URL_DEFAULT, ApiKey, Url, run_with_client
from ringback.cli.output import AsJson, exit_on_errors, print_models, print_table

_COLUMNS: Final = ("name", "limit", "used", "scope")


@exit_on_errors()
def usage(
    principal: Annotated[
        str | None, typer.Option("--principal", help="Another principal. Needs the scope admin.")
    ] = None,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """Show your quotas, and how much of each is used."""
    limits = run_with_client(url, api_key, lambda client: client.usage(principal=principal))
    if as_json:
        print_models(limits)
    else:
        print_table(_COLUMNS, (limit.model_dump() for limit in limits))
