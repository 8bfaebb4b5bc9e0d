"""`ringback call`: start a call, and with --wait show its progress and its result."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Final, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ringback.cli.arguments import parse_arguments
from ringback.cli.connect import URL_DEFAULT, ApiKey, Url, client_of
from ringback.cli.output import UNFINISHED, printable, reported, show, show_json, tell
from ringback.client import Call, CallbackOptions, Problem, RingbackClient, Started

QUICK_SECONDS: Final = 1.0
"""What ends within it is printed without a progress bar."""
POLL_SECONDS: Final = 0.5
"""Between two looks at the progress, which the service writes down once a second at most."""


@reported()
def call(
    upstream: Annotated[str, typer.Argument(help="The upstream, as the service names it.")],
    tool: Annotated[str, typer.Argument(help="Its tool.")],
    *,
    arg: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="NAME=VALUE", help="An argument; JSON where the tool takes it. May be repeated."),
    ] = None,
    json_args: Annotated[
        str | None, typer.Option("--json-args", metavar="JSON", help="All arguments as one JSON object.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end and print the result.")] = False,
    session: Annotated[str | None, typer.Option("--session", help="Your client_session_id.")] = None,
    correlation: Annotated[str | None, typer.Option("--correlation", help="Your correlation_id.")] = None,
    callback: Annotated[str | None, typer.Option("--callback", metavar="URL", help="Ring this URL at the end.")] = None,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """Start a call of a tool. It runs to its end whatever becomes of this command."""

    async def run() -> int:
        async with client_of(url, api_key) as client:
            schema = await _input_schema(client, upstream, tool) if arg else None
            started = await client.start_call(
                upstream,
                tool,
                parse_arguments(arg or [], json_arguments=json_args, input_schema=schema),
                client_session_id=session,
                correlation_id=correlation,
                callback=CallbackOptions(url=callback) if callback else None,
                wait_seconds=QUICK_SECONDS if wait else None,
            )
            if not wait:
                _show_started(started)
                return 0
            return await _show_end(client, started)

    if code := asyncio.run(run()):
        raise typer.Exit(code)


async def _input_schema(client: RingbackClient, upstream: str, tool: str) -> Mapping[str, Any] | None:
    """The tool's inputSchema; None where it cannot be had, for the start of the call tells why in better words."""
    try:
        tools = await client.tools(upstream)
    except Problem:
        return None
    return next((listed.input_schema for listed in tools if listed.name == tool), None)


def _show_started(started: Started) -> None:
    show(f"call_id: {started.call.id}")
    show(f"status: {started.call.status}")
    show(f"resume_token: {started.resume_token}")
    for webhook in started.webhooks:
        show(f"rings: {webhook.url} ({webhook.id}, {webhook.state})")
    if started.callback_secret:
        show(f"callback_secret: {started.callback_secret}")
    if started.hint:
        tell(started.hint)


async def _show_end(client: RingbackClient, started: Started) -> int:
    """Print the result on standard output, or on standard error why there is none; the exit code."""
    if started.callback_secret:
        tell(f"callback_secret: {started.callback_secret}")
    call = started.call if started.call.final else await _watch(client, started.call)
    if call.status != "completed":
        tell(_why(call))
        return UNFINISHED
    _show_result(started.result if started.result is not None else await client.result(call.id))
    return 0 if call.outcome == "result" else UNFINISHED


async def _watch(client: RingbackClient, call: Call) -> Call:
    """Look at the call until it ends, with a bar on standard error if that is a terminal."""
    tell(f"{call.id} runs, and goes on if you interrupt this.")
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
            await asyncio.sleep(POLL_SECONDS)
            call = await client.call(call.id)
            if call.progress is not None:
                bar.update(
                    task,
                    description=printable(call.progress.message or call.status),
                    completed=call.progress.progress,
                    total=call.progress.total,
                )
    return call


def _why(call: Call) -> str:
    message = (call.error or {}).get("message")
    return f"{call.id} ended as {call.status} ({call.outcome})" + (f": {message}" if message else ".")


def _show_result(result: Mapping[str, Any]) -> None:
    """Text as text; everything else as the JSON that it is."""
    content: Any = result.get("content")
    if not isinstance(content, list) or not content:
        show_json(result)
        return
    for block in cast("list[Any]", content):
        match block:
            case {"type": "text", "text": str() as text}:
                show(text)
            case _:
                show_json(block)
