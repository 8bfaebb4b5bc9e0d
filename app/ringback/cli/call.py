"""`ringback call`: starts a call; with --wait it shows the progress and prints the result."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Final, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ringback.cli.arguments import parse_arguments
from ringback.cli.client_options import URL_DEFAULT, ApiKey, Url, create_client
from ringback.cli.output import (
    EXIT_NO_RESULT,
    exit_on_errors,
    print_json,
    print_message,
    print_output,
    strip_control_characters,
)
from ringback.client import Call, CallbackOptions, Problem, RingbackClient, Started

INITIAL_WAIT_SECONDS: Final = 1.0
"""A call that ends within this time is printed without a progress bar."""
POLL_INTERVAL_SECONDS: Final = 0.5
"""Between two requests for the progress. The service records progress at most once a second."""


@exit_on_errors()
def call(
    upstream: Annotated[str, typer.Argument(help="The name of the upstream.")],
    tool: Annotated[str, typer.Argument(help="The name of its tool.")],
    *,
    arg: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="NAME=VALUE", help="An argument: JSON, or a string. May be repeated."),
    ] = None,
    json_args: Annotated[
        str | None, typer.Option("--json-args", metavar="JSON", help="All arguments as one JSON object.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the call ends, and print the result.")] = False,
    session: Annotated[str | None, typer.Option("--session", help="Your client_session_id.")] = None,
    correlation: Annotated[str | None, typer.Option("--correlation", help="Your correlation_id.")] = None,
    callback: Annotated[
        str | None, typer.Option("--callback", metavar="URL", help="Send a callback to this URL.")
    ] = None,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """Start a call of a tool. The call continues if this command is interrupted."""

    async def run() -> int:
        async with create_client(url, api_key) as client:
            schema = await _input_schema(client, upstream, tool) if arg else None
            started = await client.start_call(
                upstream,
                tool,
                parse_arguments(arg or [], json_arguments=json_args, input_schema=schema),
                client_session_id=session,
                correlation_id=correlation,
                callback=CallbackOptions(url=callback) if callback else None,
                wait_seconds=INITIAL_WAIT_SECONDS if wait else None,
            )
            if not wait:
                _show_started(started)
                return 0
            return await _show_outcome(client, started)

    if code := asyncio.run(run()):
        raise typer.Exit(code)


async def _input_schema(client: RingbackClient, upstream: str, tool: str) -> Mapping[str, Any] | None:
    """The tool's inputSchema, or None if it cannot be read: starting the call then fails with a clearer message."""
    try:
        tools = await client.tools(upstream)
    except Problem:
        return None
    return next((listed.input_schema for listed in tools if listed.name == tool), None)


def _show_started(started: Started) -> None:
    print_output(f"call_id: {started.call.id}")
    print_output(f"status: {started.call.status}")
    print_output(f"resume_token: {started.resume_token}")
    for webhook in started.webhooks:
        print_output(f"rings: {webhook.url} ({webhook.id}, {webhook.state})")
    if started.callback_secret:
        print_output(f"callback_secret: {started.callback_secret}")
    if started.hint:
        print_message(started.hint)


async def _show_outcome(client: RingbackClient, started: Started) -> int:
    """Print the result on standard output, or the reason for its absence on standard error. Returns the exit code."""
    if started.callback_secret:
        print_message(f"callback_secret: {started.callback_secret}")
    call = started.call if started.call.final else await _follow_call(client, started.call)
    if call.status != "completed":
        print_message(_outcome_detail(call))
        return EXIT_NO_RESULT
    _show_result(started.result if started.result is not None else await client.result(call.id))
    return 0 if call.outcome == "result" else EXIT_NO_RESULT


async def _follow_call(client: RingbackClient, call: Call) -> Call:
    """Poll the call until it ends, with a progress bar if standard error is a terminal."""
    print_message(f"{call.id} is running. It continues if you interrupt this command.")
    console = Console(stderr=True)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(call.status, total=None)
        while not call.final:
            await asyncio.sleep(POLL_INTERVAL_SECONDS)
            call = await client.call(call.id)
            if call.progress is not None:
                bar.update(
                    task,
                    description=strip_control_characters(call.progress.message or call.status),
                    completed=call.progress.progress,
                    total=call.progress.total,
                )
    return call


def _outcome_detail(call: Call) -> str:
    message = (call.error or {}).get("message")
    return f"{call.id} ended as {call.status} ({call.outcome})" + (f": {message}" if message else ".")


def _show_result(result: Mapping[str, Any]) -> None:
    """Print text blocks as text, and everything else as JSON."""
    content: Any = result.get("content")
    if not isinstance(content, list) or not content:
        print_json(result)
        return
    for block in cast("list[Any]", content):
        match block:
            case {"type": "text", "text": str() as text}:
                print_output(text)
            case _:
                print_json(block)
