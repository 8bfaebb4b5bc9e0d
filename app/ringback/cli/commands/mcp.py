"""`ringback mcp`: the MCP endpoints of a service, over standard input and output.

It is for clients that only start commands. It forwards messages and stores nothing: calls live in the service, so this process
may be killed at any time, and many may run at once. Without a URL it uses the service of this user, which it starts if none
runs (`embedded_service`). Without a configuration of the user, a service at the default URL comes first.
"""

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Final
from urllib.parse import urlencode

import httpx
import typer

from ringback.cli.arguments import require_http_url
from ringback.cli.client_options import CORRELATION_OPTIONS, SESSION_OPTIONS, URL_DEFAULT, ApiKey
from ringback.cli.embedded_service.paths import find_paths
from ringback.cli.embedded_service.runtime_file import RunningService
from ringback.cli.embedded_service.starter import ServiceStarter
from ringback.cli.server_options import exit_on_service_errors
from ringback.cli.stdio_bridge import EndpointConfig, StartedService, run_bridge
from ringback.domain.clock import SystemClock

CALLBACK_SECRET_VARIABLE: Final = "RINGBACK_CALLBACK_SECRET"  # noqa: S105 - a variable's name
"""A secret on a command line would be visible to every user of the machine."""
PROBE_SECONDS: Final = 2.0
"""For a service on this machine; without one, the connection is refused at once."""
_UPSTREAM_NAME_PATTERN: Final = re.compile(r"[a-z0-9-]{1,24}")
_WAIT_SECONDS_MAX: Final = 60.0
"""The service accepts up to 60 s, and waits as long as its own limit allows."""


@exit_on_service_errors()
def mcp(
    *,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar="RINGBACK_URL",
            help="The URL of the service. Default: your own service, which is started if it does not run; without its "
            f"configuration, {URL_DEFAULT} if a service runs there.",
        ),
    ] = None,
    no_service: Annotated[
        bool, typer.Option("--no-service", help=f"Start no service; without --url, use that at {URL_DEFAULT}.")
    ] = False,
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
            *SESSION_OPTIONS,
            envvar="RINGBACK_CLIENT_SESSION_ID",
            help="Your own name for the client's session. Every call has it, and callbacks contain it.",
        ),
    ] = None,
    correlation_id: Annotated[
        str | None,
        typer.Option(
            *CORRELATION_OPTIONS,
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
            help="How long a tool call waits for its result before it gets a pending result; no wait is longer than the "
            "service's maximum (45 by default). Default: the service's setting.",
        ),
    ] = None,
) -> None:
    """Serve MCP on standard input and output, for clients that start a command.

    If no service runs, it starts yours: one for all clients, with the servers of ~/.config/ringback/mcp.json. It goes on when
    this client ends, and stops by itself when it has had no client and no open call for half an hour.

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

    def make_endpoint(base_url: str, key: str | None) -> EndpointConfig:
        return EndpointConfig(
            url=_build_endpoint_url(base_url, upstream, _drop_absent(query)),
            api_key=key or None,
            headers=_drop_absent(headers),
        )

    endpoint = make_endpoint(url or URL_DEFAULT, api_key)
    # With a configuration of the user, the service at the default URL is another one, perhaps of another user.
    if url or no_service or (not find_paths(os.environ).config.exists() and is_service_at(URL_DEFAULT)):
        asyncio.run(run_bridge(endpoint))
    else:
        asyncio.run(_bridge_to_own_service(make_endpoint, endpoint))


async def _bridge_to_own_service(
    make_endpoint: Callable[[str, str | None], EndpointConfig], endpoint: EndpointConfig
) -> None:
    clock = SystemClock()
    starter = ServiceStarter(find_paths(os.environ), clock=clock, environment=os.environ)

    def make_config(running: RunningService) -> EndpointConfig:
        return make_endpoint(running.url, running.api_key)

    await run_bridge(endpoint, StartedService(starter, make_config, clock=clock))


def is_service_at(url: str) -> bool:
    """Whether a Ringback responds there."""
    try:
        response = httpx.get(f"{url}/healthz", timeout=PROBE_SECONDS, trust_env=False)
        return response.is_success and response.json() == {"status": "ok"}
    except (httpx.HTTPError, ValueError):
        return False


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
    require_http_url(url, option="--url", example="http://HOST:PORT or https://HOST")
    if upstream is not None and not _UPSTREAM_NAME_PATTERN.fullmatch(upstream):
        raise typer.BadParameter("names have lower-case letters, digits and '-'", param_hint="--upstream")
    endpoint = f"{url.rstrip('/')}/mcp" + (f"/{upstream}" if upstream else "")
    return f"{endpoint}?{urlencode(query)}" if query else endpoint
