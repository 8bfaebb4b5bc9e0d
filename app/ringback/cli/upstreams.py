"""`ringback upstreams` and `ringback tools`: what can be called, and how it is doing."""

from typing import Annotated, Final

import typer

from ringback.cli.client_options import URL_DEFAULT, ApiKey, Url, run_with_client
from ringback.cli.output import AsJson, exit_on_errors, print_message, print_models, print_table

_UPSTREAM_COLUMNS: Final = ("name", "state", "transport", "driver", "calls_in_flight", "last_error", "advice")
_TOOL_COLUMNS: Final = ("name", "title", "description")


@exit_on_errors()
def upstreams(as_json: AsJson = False, url: Url = URL_DEFAULT, api_key: ApiKey = None) -> None:
    """List the MCP servers behind the service, and how each is doing.

    With several nodes, states and calls in flight are those of the node that answers.
    """
    found = run_with_client(url, api_key, lambda client: client.upstreams())
    if as_json:
        print_models(found)
    elif found:
        print_table(_UPSTREAM_COLUMNS, (upstream.model_dump() for upstream in found))
    else:
        print_message("The service has no upstreams. Start it with some: ringback serve --upstream NAME=COMMAND_OR_URL")


@exit_on_errors()
def tools(
    upstream: Annotated[
        str, typer.Argument(metavar="UPSTREAM", help="The upstream's name, as in `ringback upstreams`.")
    ],
    *,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """List the tools of an upstream. With --json also their schemas."""
    found = run_with_client(url, api_key, lambda client: client.tools(upstream))
    if as_json:
        print_models(found)
    elif found:
        print_table(_TOOL_COLUMNS, (tool.model_dump() for tool in found))
    else:
        print_message(f"The upstream '{upstream}' lists no tools.")
