"""`ringback listen`: callbacks on this machine, by the event stream or, with --port, by webhook."""

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import httpx
import typer

from ringback.cli.callback_receiver import receive_callbacks
from ringback.cli.client_options import URL_DEFAULT, ApiKey, create_client
from ringback.cli.durable_listener.callback_dispatcher import ATTEMPTS_MAX_DEFAULT, PARALLEL_DEFAULT
from ringback.cli.durable_listener.commands import CommandHandler
from ringback.cli.durable_listener.forwarding import ForwardHandler, create_http_client
from ringback.cli.durable_listener.handlers import CallbackHandler, PrintHandler
from ringback.cli.durable_listener.inbox import Inbox
from ringback.cli.durable_listener.listener import (
    DurableListener,
    choose_secret,
    open_listener_state,
    read_subscription_id,
)
from ringback.cli.durable_listener.running_commands import RunningCommands, open_running_commands
from ringback.cli.durable_listener.state_file import (
    EventSelection,
    StateFileUnusable,
    default_path,
    find_files_of_other_keys,
)
from ringback.cli.output import exit_on_errors, exit_with_error, print_message, print_output
from ringback.signing import secrets

NAMES_DEFAULT: Final = ("call.finished", "call.input_required")
"""The events of a webhook by default."""
EXEC_TIMEOUT_SECONDS_DEFAULT: Final = 3600.0
"""An agent that is woken works for minutes; after an hour its command hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """The options of the durable listener."""

    selection: EventSelection
    api_key: str | None
    state: Path
    from_start: bool
    retry_given_up: bool
    forward_to: str | None
    secret: str | None
    command: str | None
    command_timeout_seconds: float
    attempts: int
    parallel: int
    as_json: bool


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
    session: Annotated[str | None, typer.Option("--session", help="Only calls with this client_session_id.")] = None,
    correlation: Annotated[
        str | None, typer.Option("--correlation", help="Only calls with this correlation_id.")
    ] = None,
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
    as_json: Annotated[bool, typer.Option("--json", help="Print each callback as one line of JSON.")] = False,
    secret: Annotated[
        str | None,
        typer.Option(
            "--secret",
            metavar="WHSEC",
            help="The signing secret, whsec_…, of forwarded callbacks, or of the webhook.",
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
        _check_forward_url(forward_to)
    selection = EventSelection(
        url=url or URL_DEFAULT,
        names=tuple(event or NAMES_DEFAULT),
        client_session_id=session,
        correlation_id=correlation,
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
    )
    try:
        asyncio.run(_listen(options))
    except sqlite3.Error as error:
        exit_with_error(f"{options.state}: {error}. Nothing is lost; start again when this is repaired.")


async def _listen(options: ListenOptions) -> None:
    stop, abort = _handle_stop_signals()
    async with create_client(options.selection.url, options.api_key) as client:
        opening = open_listener_state(options.state, client, options.selection, from_start=options.from_start)
        async with opening as state, _open_handler(options, state.inbox, stop) as handler:
            if options.retry_given_up:
                print_message(f"Callbacks that are handled again: {await state.inbox.retry_given_up()}")
            _print_beginning(options, is_new=state.is_new)
            listener = DurableListener(
                client,
                state.inbox,
                options.selection,
                handler,
                report=print_message,
                attempts_max=options.attempts,
                parallel=options.parallel,
                shows_handled=bool(options.forward_to or options.command),
            )
            if not stop.is_set():  # it may be set while commands of an earlier listener are waited for
                await listener.run(stop, abort)


@asynccontextmanager
async def _open_handler(options: ListenOptions, inbox: Inbox, stop: asyncio.Event) -> AsyncGenerator[CallbackHandler]:
    if options.command is not None:
        async with open_running_commands(options.state, stop=stop, report=print_message) as running:
            yield create_command_handler(options, options.command, running)
    elif options.forward_to is not None:
        secret, is_generated = await choose_secret(inbox, options.secret)
        if is_generated:
            print_message(
                f"Forwarded callbacks are signed with {secret}. It is shown once and stays in the state file."
            )
        async with create_http_client() as http:
            yield ForwardHandler(
                options.forward_to,
                secret=secret,
                subscription_id=await read_subscription_id(inbox),
                http=http,
                current_time=lambda: datetime.now(UTC),  # noqa: TID251 - receivers compare it with their clocks
            )
    else:
        yield PrintHandler(print_output, as_json=options.as_json)


def create_command_handler(
    options: ListenOptions, command: str, running: RunningCommands | None = None
) -> CommandHandler:
    """The handler of --exec. Its command may use `ringback join` and the like at the listener's service without options."""
    key = {} if options.api_key is None else {"RINGBACK_API_KEY": options.api_key}
    environment = {**os.environ, "RINGBACK_URL": options.selection.url, **key}
    return CommandHandler(
        command, timeout_seconds=options.command_timeout_seconds, environment=environment, running=running
    )


def _handle_stop_signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Events that the first and the second signal set."""
    stop, abort = asyncio.Event(), asyncio.Event()

    def handle_signal() -> None:
        (abort if stop.is_set() else stop).set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, handle_signal)
    return stop, abort


def _print_beginning(options: ListenOptions, *, is_new: bool) -> None:
    print_message(f"Listening for events of {options.selection.url}. State: {options.state}")
    if not is_new:
        return
    if not options.from_start:
        print_message("Only events from now on are handled; with --from-start, also those that the service keeps.")
    for other in find_files_of_other_keys(options.state):
        print_message(f"Another API key has listened for the same events. To continue after it: --state {other}")


def _receive(
    context: typer.Context, port: int, secret: str | None, url: str | None, api_key: str | None, *, as_json: bool
) -> None:
    """Receive callbacks by webhook. A secret without --url on the command line belongs to a webhook that exists."""
    is_url_given = _is_given(context, "url")
    client = None if url is None or (secret is not None and not is_url_given) else create_client(url, api_key)
    if client is None and secret is None:
        raise typer.BadParameter("give --secret of your webhook, or --url of a service to register a webhook with")

    async def run() -> None:
        stop, _ = _handle_stop_signals()
        await receive_callbacks(port, secret, client=client, stop=stop, as_json=as_json)

    asyncio.run(run())


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


def _check_secret(secret: str | None) -> None:
    if secret is None:
        return
    try:
        secrets.parse_secret(secret)
    except secrets.InvalidSecret as error:
        raise typer.BadParameter(str(error), param_hint="--secret") from None


def _check_forward_url(url: str) -> None:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise typer.BadParameter("write it as http://HOST:PORT/PATH", param_hint="--forward-to")
