"""`ringback upstreams` and `ringback tools`: what can be called, how it is doing, and whether it takes calls."""

from typing import Annotated, Final

import typer

from ringback.cli.arguments import ListingGroup
from ringback.cli.client_options import URL_DEFAULT, ApiKey, Url, run_with_client
from ringback.cli.output import (
    AsJson,
    exit_on_errors,
    model_to_json,
    print_json,
    print_list,
    print_output,
)
from ringback.cli.upstream_logins import login, logout
from ringback.client import UpstreamIntake

_UPSTREAM_COLUMNS: Final = (
    "name",
    "state",
    "login",
    "intake",
    "transport",
    "driver",
    "calls_in_flight",
    "last_error",
    "advice",
)
_TOOL_COLUMNS: Final = ("name", "title", "description")


UpstreamName = Annotated[
    str, typer.Argument(metavar="UPSTREAM", help="The upstream's name, as in `ringback upstreams`.")
]

app = typer.Typer(
    cls=ListingGroup, help="List, pause, drain and resume the MCP servers behind the service, and sign in."
)
app.command()(login)
app.command()(logout)


@app.callback(invoke_without_command=True)
@exit_on_errors()
def upstreams(
    context: typer.Context, *, as_json: AsJson = False, url: Url = URL_DEFAULT, api_key: ApiKey = None
) -> None:
    """List the MCP servers behind the service, and how each is doing.

    With several nodes, states and calls in flight are those of the node that answers.
    """
    if context.invoked_subcommand is not None:
        return
    found = run_with_client(url, api_key, lambda client: client.upstreams())
    print_list(
        found,
        _UPSTREAM_COLUMNS,
        as_json=as_json,
        none="The service has no upstreams. Start it with some: ringback serve --upstream NAME=COMMAND_OR_URL",
        to_row=lambda upstream: {**upstream.model_dump(), "login": upstream.login.state},
    )


@app.command()
@exit_on_errors()
def pause(upstream: UpstreamName, as_json: AsJson = False, url: Url = URL_DEFAULT, api_key: ApiKey = None) -> None:
    """Keep an upstream's calls queued, new ones too. Running calls continue. Needs the scope admin."""
    changed = run_with_client(url, api_key, lambda client: client.pause_upstream(upstream))
    _print_intake(changed, "New calls are queued, and no queued call begins.", as_json=as_json)


@app.command()
@exit_on_errors()
def drain(upstream: UpstreamName, as_json: AsJson = False, url: Url = URL_DEFAULT, api_key: ApiKey = None) -> None:
    """Refuse new calls of an upstream. Queued and running calls continue. Needs the scope admin."""
    changed = run_with_client(url, api_key, lambda client: client.drain_upstream(upstream))
    _print_intake(changed, "New calls are refused; queued and running ones continue.", as_json=as_json)


@app.command()
@exit_on_errors()
def resume(upstream: UpstreamName, as_json: AsJson = False, url: Url = URL_DEFAULT, api_key: ApiKey = None) -> None:
    """Accept and run an upstream's calls again. Needs the scope admin."""
    changed = run_with_client(url, api_key, lambda client: client.resume_upstream(upstream))
    _print_intake(changed, "Queued calls begin now.", as_json=as_json)


def _print_intake(changed: UpstreamIntake, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(model_to_json(changed))
    else:
        print_output(f"{changed.name} is {changed.intake}. {what}")


@exit_on_errors()
def tools(
    upstream: UpstreamName,
    *,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """List the tools of an upstream. With --json also their schemas."""
    found = run_with_client(url, api_key, lambda client: client.tools(upstream))
    print_list(found, _TOOL_COLUMNS, as_json=as_json, none=f"The upstream '{upstream}' lists no tools.")
