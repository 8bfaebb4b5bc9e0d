"""Opens the parts of the durable listener of `ringback listen`, and runs it until a signal."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ringback.cli.client_options import create_client
from ringback.cli.durable_listener.handlers import CallbackHandler, PrintHandler
from ringback.cli.durable_listener.inbox import Inbox
from ringback.cli.durable_listener.listener import (
    DurableListener,
    ListenerState,
    choose_secret,
    open_listener_state,
    read_subscription_id,
)
from ringback.cli.durable_listener.state_file import EventSelection, StateFileUnusable, find_files_of_other_keys
from ringback.cli.output import print_message, print_output
from ringback.cli.stop_signals import end_if_print_is_blocked, handle_stop_signals
from ringback.client import RingbackClient

if TYPE_CHECKING:
    from ringback.cli.durable_listener.commands import CommandHandler
    from ringback.cli.durable_listener.running_commands import RunningCommands


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
    notify: bool = False


async def run_listener(options: ListenOptions) -> None:
    """Follow the events until the process gets SIGINT or SIGTERM. Raises `StateFileUnusable`."""
    try:
        async with create_client(options.selection.url, options.api_key) as client:
            opening = open_listener_state(options.state, client, options.selection, from_start=options.from_start)
            async with opening as state:
                await _handle_callbacks(options, client, state)
        end_if_print_is_blocked()
    except sqlite3.Error as error:
        raise StateFileUnusable(
            f"{options.state}: {error}. Nothing is lost; start again when this is repaired."
        ) from error


async def _handle_callbacks(options: ListenOptions, client: RingbackClient, state: ListenerState) -> None:
    # Until here nothing runs that needs an orderly end, so a signal ends the process at once.
    stop, abort = handle_stop_signals()
    async with _open_handler(options, state.inbox, stop) as handler:
        if options.retry_given_up:
            print_message(f"Callbacks that are handled again: {await state.inbox.retry_given_up()}")
        _print_beginning(options, is_new=state.is_new)
        listener = DurableListener(
            client,
            state.inbox,
            options.selection,
            _add_notifications(handler) if options.notify else handler,
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
        from ringback.cli.durable_listener.commands import find_missing_program  # noqa: PLC0415 - of --exec only
        from ringback.cli.durable_listener.running_commands import open_running_commands  # noqa: PLC0415 - of --exec only

        if (missing := await find_missing_program(options.command, os.environ)) is not None:
            print_message(
                f"Warning: the shell finds no program '{missing}' for --exec. Install it, or write its whole path; until then, "
                "callbacks are tried again and in the end given up."
            )
        async with open_running_commands(options.state, stop=stop, report=print_message) as running:
            yield create_command_handler(options, options.command, running)
    elif options.forward_to is not None:
        from ringback.cli.durable_listener.forwarding import ForwardHandler, create_http_client  # noqa: PLC0415 - of --forward-to only

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
    options: ListenOptions, command: str, running: "RunningCommands | None" = None
) -> "CommandHandler":
    """The handler of --exec. Its command may use `ringback join` and the like at the listener's service without options."""
    from ringback.cli.durable_listener.commands import CommandHandler  # noqa: PLC0415 - of --exec only

    key = {} if options.api_key is None else {"RINGBACK_API_KEY": options.api_key}
    environment = {**os.environ, "RINGBACK_URL": options.selection.url, **key}
    return CommandHandler(
        command, timeout_seconds=options.command_timeout_seconds, environment=environment, running=running
    )


def _add_notifications(handler: CallbackHandler) -> CallbackHandler:
    from ringback.cli.durable_listener.notifications import DesktopNotifier, NotifyingHandler  # noqa: PLC0415 - of --notify only

    return NotifyingHandler(handler, DesktopNotifier())


def _print_beginning(options: ListenOptions, *, is_new: bool) -> None:
    print_message(f"Listening for events of {options.selection.url}. State: {options.state}")
    if not is_new:
        return
    if not options.from_start:
        print_message("Only events from now on are handled; with --from-start, also those that the service keeps.")
    for other in find_files_of_other_keys(options.state):
        print_message(f"Another API key has listened for the same events. To continue after it: --state {other}")
