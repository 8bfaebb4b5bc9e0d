"""`ringback mcp`: the MCP endpoints of a running service, over standard input and output.

It is for clients that only start commands. It forwards messages and stores nothing: calls live in the service, so this process
may be killed at any time, and many may run at once.
"""

import asyncio
import re
import signal
from typing import Annotated, Final

import httpx2
import typer

from ringback.cli.client_options import URL_DEFAULT, ApiKey, Url
from ringback.cli.output import exit_on_errors
from ringback.cli.service_errors import SERVICE_ERRORS
from ringback.cli.stdio_bridge import run_bridge

_UPSTREAM_NAME_PATTERN: Final = re.compile(r"[a-z0-9-]{1,24}")


@exit_on_errors(*SERVICE_ERRORS)
def mcp(
    *,
    url: Url = URL_DEFAULT,
    upstream: Annotated[
        str | None,
        typer.Option(
            "--upstream", metavar="NAME", help="Only this upstream, with its original tool names. Default: all."
        ),
    ] = None,
    api_key: ApiKey = None,
) -> None:
    """Serve MCP on standard input and output, for clients that start a command. Needs a running `ringback serve`."""
    endpoint = _build_endpoint_url(url, upstream)
    # Python cannot interrupt a read of standard input, and this process has nothing to clean up.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(run_bridge(endpoint, api_key=api_key or None))


def _build_endpoint_url(url: str, upstream: str | None) -> str:
    try:
        base = httpx2.URL(url)
    except httpx2.InvalidURL:
        base = httpx2.URL("")
    if base.scheme not in {"http", "https"} or not base.host:
        raise typer.BadParameter("write it as http://HOST:PORT or https://HOST", param_hint="--url")
    if upstream is not None and not _UPSTREAM_NAME_PATTERN.fullmatch(upstream):
        raise typer.BadParameter("names have lower-case letters, digits and '-'", param_hint="--upstream")
    return f"{url.rstrip('/')}/mcp" + (f"/{upstream}" if upstream else "")
