"""`ringback listen`: callbacks on this machine, by the event stream or, with --port, by webhook."""

import asyncio
import os
from pathlib import Path
from typing import Annotated, Final

import typer

from ringback.cli.arguments import require_http_url
from ringback.cli.client_options import (
    NO_TEXT,
    URL_DEFAULT,
    ApiKey,
    OfCorrelation,
    OfSession,
    choose_service,
    create_client,
    start_own_service,
)
from ringback.cli.durable_listener.defaults import ATTEMPTS_MAX_DEFAULT, PARALLEL_DEFAULT
from ringback.cli.durable_listener.state_file import EventSelection, StateFileUnusable, default_path
from ringback.cli.imports import lean_imports
from ringback.cli.output import exit_on_errors
from ringback.client.problems import InvalidArgument
from ringback.signing import secrets

NAMES_DEFAULT: Final = ("call.finished", "call.input_required")
"""The events of a webhook by default."""
EXEC_TIMEOUT_SECONDS_DEFAULT: Final = 3600.0
"""An agent that is woken works for minutes; after an hour its command hangs."""


@exit_on_errors(StateFileUnusable)
def listen(
    context: typer.Context,
    *,
    forward_to: Annotated[
        str | None, typer.Option("--forward-to", metavar="URL", help="Send each callback to this URL, signed.")
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="CMD",
            help="Run this shell command for each callback, which it gets on standard input; its ids are in "
            "RINGBACK_WEBHOOK_ID, RINGBACK_CALL_ID, RINGBACK_CLIENT_SESSION_ID, RINGBACK_CORRELATION_ID. "
            "Exit code 0: handled; 65: refused; other: tried again.",
        ),
    ] = None,
    session: OfSession = None,
    correlation: OfCorrelation = None,
    event: Annotated[
        list[str] | None,
        typer.Option(
            "--event", help="An event to listen for. May be repeated. Default: call.finished, call.input_required."
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="PATH", help="The file with the position and the callbacks that wait."),
    ] = None,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="At the first start, begin with the oldest event, not with new ones.")
    ] = False,
    retry_given_up: Annotated[
        bool, typer.Option("--retry-given-up", help="Handle the callbacks again that were given up.")
    ] = False,
    attempts: Annotated[
        int, typer.Option("--attempts", min=1, max=1_000_000, help="Attempts before a callback is given up.")
    ] = ATTEMPTS_MAX_DEFAULT,
    parallel: Annotated[
        int, typer.Option("--parallel", min=1, max=256, help="Sessions whose callbacks are handled at the same time.")
    ] = PARALLEL_DEFAULT,
    exec_timeout: Annotated[
        float, typer.Option("--exec-timeout", metavar="SECONDS", min=0.1, help="The longest run of the command.")
    ] = EXEC_TIMEOUT_SECONDS_DEFAULT,
    notify: Annotated[
        bool,
        typer.Option(
            "--notify",
            help="Also show a desktop notification for each callback, once; without a desktop, ring the terminal.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each callback as one line of JSON.")] = False,
    secret: Annotated[
        str | None,
        typer.Option(
            "--secret", metavar="WHSEC", help="The signing secret, whsec_…, of forwarded callbacks, or of the webhook."
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="Receive callbacks by webhook at this port instead, and print them; 0 chooses a free one.",
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar="RINGBACK_URL",
            help=f"The URL of the service (default {URL_DEFAULT}). A receiver registers a webhook there, and the service must "
            "allow callbacks to this machine, as `serve --dev` does.",
        ),
    ] = None,
    api_key: ApiKey = None,
) -> None:
    """Receive callbacks, and print them, forward them or run a command for each, until interrupted.

    No public URL is needed: the command follows the service's events. Its position and the waiting callbacks are in a file,
    so nothing is lost while it does not run. After a crash a callback may come twice, with the same webhook-id.

    Callbacks of one session are handled one at a time, in order.
    """
    _check_texts(*(event or ()), session, correlation, forward_to, url, api_key)
    _check_secret(secret)
    if port is not None:
        _reject_durable_options(context)
        _receive(context, port, secret, url, api_key, as_json=as_json)
        return
    if forward_to and command:
        raise typer.BadParameter("give --forward-to or --exec, not both")
    if as_json and (forward_to or command):
        raise typer.BadParameter("--json prints callbacks; leave it out with --forward-to and --exec")
    if secret and not forward_to:
        raise typer.BadParameter("--secret signs what --forward-to sends, or belongs to the webhook of --port")
    if forward_to:
        require_http_url(forward_to, option="--forward-to", example="http://HOST:PORT/PATH")
    start_own_service(url or URL_DEFAULT, api_key)
    service_url, api_key = choose_service(url or URL_DEFAULT, api_key)
    with lean_imports():
        from ringback.cli.listening import ListenOptions, run_listener  # noqa: PLC0415 - help does without it

    selection = EventSelection(
        url=service_url, names=tuple(event or NAMES_DEFAULT), client_session_id=session, correlation_id=correlation
    )
    options = ListenOptions(
        selection=selection,
        api_key=api_key,
        state=state or default_path(selection, api_key=api_key, environment=os.environ),
        from_start=from_start,
        retry_given_up=retry_given_up,
        forward_to=forward_to,
        secret=secret,
        command=command,
        command_timeout_seconds=exec_timeout,
        attempts=attempts,
        parallel=parallel,
        as_json=as_json,
        notify=notify,
    )
    asyncio.run(run_listener(options))


def _receive(
    context: typer.Context, port: int, secret: str | None, url: str | None, api_key: str | None, *, as_json: bool
) -> None:
    """Receive callbacks by webhook. A secret without --url on the command line belongs to a webhook that exists."""
    with lean_imports():
        from ringback.cli.callback_receiver import receive_callbacks  # noqa: PLC0415 - most listeners need no HTTP server
        from ringback.cli.stop_signals import stop_or_end  # noqa: PLC0415 - as `receive_callbacks`

    is_url_given = _is_given(context, "url")
    client = None if url is None or (secret is not None and not is_url_given) else create_client(url, api_key)
    if client is None and secret is None:
        raise typer.BadParameter("give --secret of your webhook, or --url of a service to register a webhook with")

    asyncio.run(receive_callbacks(port, secret, client=client, as_json=as_json, handle_stop_signals=stop_or_end))


def _reject_durable_options(context: typer.Context) -> None:
    """--port receives by webhook, so the options of the event stream have no meaning with it."""
    for name in context.params.keys() - {"port", "secret", "url", "api_key", "as_json"}:
        if _is_given(context, name):
            option = "--exec" if name == "command" else f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"{option} does not go with --port; leave --port out to follow the event stream")


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether the parameter is on the command line: it may also come from the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _check_texts(*texts: str | None) -> None:
    """Paths and shell commands may be any bytes; texts that are sent to the service or stored are UTF-8."""
    try:
        "".join(text or "" for text in texts).encode()
    except UnicodeEncodeError:
        raise InvalidArgument(NO_TEXT) from None


def _check_secret(secret: str | None) -> None:
    if secret is None:
        return
    try:
        secrets.parse_secret(secret)
    except secrets.InvalidSecret as error:
        raise typer.BadParameter(str(error), param_hint="--secret") from None
