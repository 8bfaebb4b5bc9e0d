"""`ringback portal-link`: links to pages of the dashboard that need no key."""

from typing import Annotated

import typer
from rich.table import Table

from ringback.cli.arguments import parse_duration
from ringback.cli.client_options import (
    URL_DEFAULT,
    ApiKey,
    ForAllPrincipals,
    ForPrincipal,
    Url,
    choose_principal,
    run_with_client,
)
from ringback.cli.output import (
    AsJson,
    create_console,
    exit_on_errors,
    model_to_json,
    print_json,
    print_message,
    print_output,
)
from ringback.client import CreatedPortalLink, PortalLink, RingbackClient

app = typer.Typer(no_args_is_help=True, help="Manage links to pages of the dashboard that need no key.")


@app.command()
@exit_on_errors()
def create(
    session: Annotated[
        str | None, typer.Option("--session", help="The only client_session_id that it shows. Default: all your pages.")
    ] = None,
    expires: Annotated[str, typer.Option("--expires", metavar="DURATION", help="When it ends: 24h at most.")] = "1h",
    *,
    principal: ForPrincipal = None,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """Create a link and print its URL. It cannot be printed again."""
    seconds = int(parse_duration(expires, option="--expires"))

    async def send(client: RingbackClient) -> CreatedPortalLink:
        return await client.create_portal_link(client_session_id=session, expires_in_seconds=seconds)

    link = run_with_client(url, api_key, send, principal=principal)
    if as_json:
        print_json(model_to_json(link))
        return
    print_output(link.url)
    print_message(
        f"{link.id} shows pages of {link.principal} to each browser with this URL, until {link.expires_at.isoformat()}. End it "
        f"earlier: ringback portal-link delete {link.id}"
    )


@app.command("list")
@exit_on_errors()
def list_links(
    *,
    principal: ForPrincipal = None,
    all_principals: ForAllPrincipals = False,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """List your links, newest first, without their URLs."""

    async def read(client: RingbackClient) -> list[PortalLink]:
        return [link async for link in client.portal_links()]

    links = run_with_client(url, api_key, read, principal=choose_principal(principal, all_principals))
    if as_json:
        print_json([model_to_json(link) for link in links])
        return
    table = Table("id", "principal", "session", "created by", "expires")
    for link in links:
        table.add_row(
            link.id, link.principal, link.client_session_id or "all", link.created_by, link.expires_at.isoformat()
        )
    create_console().print(table)


@app.command()
@exit_on_errors()
def delete(
    link_id: Annotated[str, typer.Argument(metavar="LINK_ID", help="The link's id, link_….")],
    *,
    principal: ForPrincipal = None,
    all_principals: ForAllPrincipals = False,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """Delete a link. It shows nothing any more, also in browsers that have opened it."""

    async def send(client: RingbackClient) -> None:
        await client.delete_portal_link(link_id)

    run_with_client(url, api_key, send, principal=choose_principal(principal, all_principals))
    if as_json:
        print_json({"id": link_id, "deleted": True})
    else:
        print_message(f"{link_id} is deleted.")
