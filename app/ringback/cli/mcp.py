"""`ringback mcp`: the MCP endpoints of a running service, over standard input and output.

It is for clients that only start commands. It forwards messages and stores nothing: calls live in the service, so this process
may be killed at any time, and many may run at once.
"""

import asyncio
import os
import re
from collections.abc import Mapping
from typing import Annotated, Final
from urllib.parse import urlencode

import httpx2
import typer

from ringback.cli.client_options import URL_DEFAULT, ApiKey, Url
from ringback.cli.output import exit_on_errors
from ringback.cli.service_errors import SERVICE_ERRORS
from ringback.cli.stdio_bridge import EndpointConfig, run_bridge

CALLBACK_SECRET_VARIABLE: Final = "RINGBACK_CALLBACK_SECRET"  # noqa: S105 - a variable's name
"""A secret on a command line would be visible to every user of the machine."""
_UPSTREAM_NAME_PATTERN: Final = re.compile(r"[a-z0-9-]{1,24}")
_WAIT_SECONDS_MAX: Final = 60.0
"""The service accepts up to 60 s, and waits as long as its own limit allows."""


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
    client_session_id: Annotated[
        str | None,
        typer.Option(
            "--client-session-id",
            envvar="RINGBACK_CLIENT_SESSION_ID",
            help="Your own name for the client's session. Every call has it, and callbacks contain it.",
        ),
    ] = None,
    correlation_id: Annotated[
        str | None,
        typer.Option(
            "--correlation-id",
            envvar="RINGBACK_CORRELATION_ID",
            help="Your own name for this piece of work. Every call has it, and callbacks contain it.",
        ),
    ] = None,
    callback_url: Annotated[
        str | None,
        typer.Option(
            "--callback-url",
            envvar="RINGBACK_CALLBACK_URL",
            help="Where Ringback reports the end of every call. The environment variable RINGBACK_CALLBACK_SECRET is the "
            "secret that signs these callbacks; without it, Ringback generates one.",
        ),
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(
            "--webhook",
            metavar="ID",
            envvar="RINGBACK_WEBHOOK",
            help="A registered webhook that receives every call's events.",
        ),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0,
            max=_WAIT_SECONDS_MAX,
            help="How long a tool call waits for its result before it gets a pending result. Default: the service's setting.",
        ),
    ] = None,
) -> None:
    """Serve MCP on standard input and output, for clients that start a command. Needs a running `ringback serve`.

    A `_meta` that the client sets itself overrides these options. If the service restarts, the client only notices a pause: its
    session begins again by itself, and requests are sent again, which starts no call twice. After 45 seconds without the
    service, requests get an error that says what to do.
    """
    callback_secret = os.environ.get(CALLBACK_SECRET_VARIABLE)
    if callback_secret and not callback_url:
        raise typer.BadParameter(
            "it signs the callbacks to --callback-url: set that, too", param_hint=CALLBACK_SECRET_VARIABLE
        )
    headers = {
        "Ringback-Client-Session-Id": _check_value("--client-session-id", client_session_id),
        "Ringback-Correlation-Id": _check_value("--correlation-id", correlation_id),
        "Ringback-Callback-Url": _check_value("--callback-url", callback_url),
        "Ringback-Callback-Secret": _check_value(CALLBACK_SECRET_VARIABLE, callback_secret),
    }
    query = {"webhook": _check_value("--webhook", webhook), "wait": None if wait is None else f"{round(wait, 3):g}"}
    endpoint = EndpointConfig(
        url=_build_endpoint_url(url, upstream, _drop_absent(query)),
        api_key=api_key or None,
        headers=_drop_absent(headers),
    )
    asyncio.run(run_bridge(endpoint))


def _check_value(option: str, value: str | None) -> str | None:
    """The value for an HTTP header or a query parameter, None if it is empty. The service checks the rest of it."""
    if not value:
        return None
    if not value.isprintable() or value != value.strip():
        raise typer.BadParameter("use printable characters, and no spaces around them", param_hint=option)
    return value


def _drop_absent(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _build_endpoint_url(url: str, upstream: str | None, query: Mapping[str, str]) -> str:
    try:
        base = httpx2.URL(url)
    except httpx2.InvalidURL:
        base = httpx2.URL("")
    if base.scheme not in {"http", "https"} or not base.host:
        raise typer.BadParameter("write it as http://HOST:PORT or https://HOST", param_hint="--url")
    if upstream is not None and not _UPSTREAM_NAME_PATTERN.fullmatch(upstream):
        raise typer.BadParameter("names have lower-case letters, digits and '-'", param_hint="--upstream")
    endpoint = f"{url.rstrip('/')}/mcp" + (f"/{upstream}" if upstream else "")
    return f"{endpoint}?{urlencode(query)}" if query else endpoint
