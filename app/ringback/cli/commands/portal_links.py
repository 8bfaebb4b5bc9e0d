"""`ringback portal-link`: links to pages of the dashboard that need no key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from ringback.cli.arguments import parse_duration
from ringback.cli.client_options import SESSION_OPTIONS, OperatorOptions, PrincipalOptions, client_command
from ringback.cli.output import format_time_text, print_json, print_list, print_message, print_output

if TYPE_CHECKING:
    from ringback.client import CreatedPortalLink

_COLUMNS: Final = ("id", "principal", "client_session_id", "created_by", "expires_at")

app = typer.Typer(no_args_is_help=True, help="Manage links to pages of the dashboard that need no key.")


@app.command()
@client_command()
def create(
    session: Annotated[
        str | None,
        typer.Option(*SESSION_OPTIONS, help="The only client_session_id that it shows. Default: all your pages."),
    ] = None,
    expires: Annotated[str, typer.Option("--expires", metavar="DURATION", help="When it ends: 24h at most.")] = "1h",
    *,
    options: PrincipalOptions,
) -> None:
    """Create a link and print its URL. It cannot be printed again."""
    seconds = _read_lifetime_seconds(expires)
    link = options.run(lambda client: client.create_portal_link(client_session_id=session, expires_in_seconds=seconds))
    options.print_model(link, _print_created)


def _read_lifetime_seconds(expires: str) -> int:
    from ringback.domain.portal_links import PORTAL_LINK_SECONDS_MAX, PORTAL_LINK_SECONDS_MIN  # noqa: PLC0415 - client commands start without the service's modules

    seconds = int(parse_duration(expires, option="--expires"))
    if not PORTAL_LINK_SECONDS_MIN <= seconds <= PORTAL_LINK_SECONDS_MAX:
        raise typer.BadParameter("a link ends after 60s at least and 24h at most", param_hint="--expires")
    return seconds


def _print_created(link: CreatedPortalLink) -> None:
    print_output(link.url)
    pages = "pages" if link.client_session_id is None else f"the session '{link.client_session_id}'"
    print_message(
        f"{link.id} shows {pages} of {link.principal} to each browser with this URL, until "
        f"{format_time_text(link.expires_at)} UTC. End it earlier: ringback portal-link delete {link.id}"
    )


@app.command("list")
@client_command()
def list_links(*, options: OperatorOptions) -> None:
    """List your links, newest first, without their URLs."""
    links = options.collect(lambda client: client.portal_links())
    print_list(
        links,
        _COLUMNS,
        as_json=options.as_json,
        none="You have no portal links. Create one: ringback portal-link create",
        to_row=lambda link: {**link.model_dump(), "client_session_id": link.client_session_id or "all"},
    )


@app.command()
@client_command()
def delete(
    link_id: Annotated[str, typer.Argument(metavar="LINK_ID", help="The link's id, link_….")],
    *,
    options: OperatorOptions,
) -> None:
    """Delete a link. It shows nothing any more, also in browsers that have opened it."""
    options.run(lambda client: client.delete_portal_link(link_id))
    if options.as_json:
        print_json({"id": link_id, "deleted": True})
    else:
        print_message(f"{link_id} is deleted.")
