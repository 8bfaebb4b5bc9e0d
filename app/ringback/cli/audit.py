"""`ringback audit`: who changed what."""

from typing import Annotated

import typer

from ringback.cli.client_options import (
    URL_DEFAULT,
    ApiKey,
    ForAllPrincipals,
    ForPrincipal,
    Url,
    choose_principal,
    collect_first,
    run_with_client,
)
from ringback.cli.output import AsJson, exit_on_errors, print_list
from ringback.client import AuditEntry, RingbackClient

_COLUMNS = ("at", "principal", "key_id", "surface", "operation", "target", "owner", "detail")


@exit_on_errors()
def audit(
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="The largest number of entries.")] = 50,
    principal: ForPrincipal = None,
    all_principals: ForAllPrincipals = False,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """Show who changed what you own, newest first.

    With --all-principals, an operator sees all changes, those of the service itself too.
    """

    async def read(client: RingbackClient) -> list[AuditEntry]:
        return await collect_first(client.audit_entries(), limit=limit)

    entries = run_with_client(url, api_key, read, principal=choose_principal(principal, all_principals))
    print_list(entries, _COLUMNS, as_json=as_json, none="Nothing was changed that the log still has.")
