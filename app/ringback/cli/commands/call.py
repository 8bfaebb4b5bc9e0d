"""`ringback call`: starts a call; with --wait it shows the progress and prints the result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ringback.cli.arguments import parse_arguments, require_finite, time_option, with_offset
from ringback.cli.call_words import join_advice
from ringback.cli.client_options import (
    CORRELATION_OPTIONS,
    SESSION_OPTIONS,
    PrintOptions,
    WaitForInput,
    WaitSeconds,
    client_command,
)
from ringback.cli.following import end_of_wait, exit_code_of_wait, has_terminal, show_outcome
from ringback.cli.output import print_message, print_output
from ringback.client.options import CallbackOptions
from ringback.client.problems import Problem

if TYPE_CHECKING:
    from ringback.client import RingbackClient, Started

INITIAL_WAIT_SECONDS: Final = 1.0
"""A call that ends within this time is printed without a progress bar."""
_NUMBER: Final = re.compile(r"[0-9.]+[a-z]*")
"""`5`, and `5s`."""


@client_command(exit_code=exit_code_of_wait)
def call(
    context: typer.Context,
    upstream: Annotated[str, typer.Argument(metavar="UPSTREAM", help="The name of the upstream.")],
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The name of its tool.")],
    *,
    arg: Annotated[
        list[str] | None,
        typer.Option(
            "--arg",
            metavar="NAME=VALUE",
            help="An argument: JSON, or a string. May be repeated. 'null' is null where admitted; '\"null\"' is text.",
        ),
    ] = None,
    json_args: Annotated[
        str | None, typer.Option("--json-args", metavar="JSON", help="All arguments as one JSON object.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the call ends, and print the result. Takes no number.")
    ] = False,
    wait_seconds: WaitSeconds = None,
    wait_for_input: WaitForInput = False,
    session: Annotated[str | None, typer.Option(*SESSION_OPTIONS, help="Your client_session_id.")] = None,
    correlation: Annotated[str | None, typer.Option(*CORRELATION_OPTIONS, help="Your correlation_id.")] = None,
    callback: Annotated[
        str | None, typer.Option("--callback", metavar="URL", help="Send a callback to this URL.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--idempotency-key", help="Your name for this start: repeating it returns the same call."),
    ] = None,
    not_before: Annotated[
        datetime | None, time_option("--not-before", "Start at this time. Without an offset: of this machine.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout-seconds", min=0, callback=require_finite, help="End the call if it takes longer."),
    ] = None,
    accepts_input: Annotated[
        bool,
        typer.Option(
            "--accepts-input",
            help="The tool may ask: answer with `ringback calls answer`. So it may if --wait-for-input is given, or if this "
            "command waits at a terminal.",
        ),
    ] = False,
    options: PrintOptions,
) -> None:
    """Start a call of a tool. The call continues if this command is interrupted.

    --wait-seconds and --wait-for-input wait, too.
    """
    _refuse_rest(context, wait=wait)
    wait = wait or wait_for_input or wait_seconds is not None
    initial_wait = INITIAL_WAIT_SECONDS if wait_seconds is None else min(INITIAL_WAIT_SECONDS, wait_seconds)

    async def run(client: RingbackClient) -> int:
        ends_at = end_of_wait(wait_seconds)
        schema = await _input_schema(client, upstream, tool) if arg else None
        started = await client.start_call(
            upstream,
            tool,
            parse_arguments(arg or [], json_arguments=json_args, input_schema=schema),
            client_session_id=session,
            correlation_id=correlation,
            idempotency_key=key,
            callback=CallbackOptions(url=callback) if callback else None,
            wait_seconds=initial_wait if wait else None,
            not_before=with_offset(not_before),
            timeout_seconds=timeout,
            accepts_input=accepts_input or wait_for_input or (wait and has_terminal()) or None,
        )
        if not wait:
            options.print_model(started, _print_started)
            return 0
        if started.callback_secret:
            print_message(f"callback_secret: {started.callback_secret}")
        return await show_outcome(
            client,
            started.call,
            started.result,
            ends_at=ends_at,
            wait_for_input=wait_for_input,
            as_json=options.as_json,
        )

    if code := options.run(run):
        raise typer.Exit(code)


def _refuse_rest(context: typer.Context, *, wait: bool) -> None:
    """Refuse what follows UPSTREAM and TOOL, such as the number of `--wait 5`, or `path=.` without --arg."""
    if not context.args:
        return
    rest = " ".join(context.args)
    advice = "Give the tool's arguments with --arg NAME=VALUE."
    if wait and _NUMBER.fullmatch(context.args[0]):
        advice = "--wait takes no number: it waits until the call ends. To stop waiting earlier: --wait-seconds SECONDS"
    context.fail(f"Got unexpected extra arguments ({rest}). {advice}")


async def _input_schema(client: RingbackClient, upstream: str, tool: str) -> Mapping[str, Any] | None:
    """The tool's inputSchema, or None if it cannot be read: starting the call then fails with a clearer message."""
    try:
        tools = await client.tools(upstream)
    except Problem:
        return None
    return next((listed.input_schema for listed in tools if listed.name == tool), None)


def _print_started(started: Started) -> None:
    print_output(f"call_id: {started.call.id}")
    print_output(f"status: {started.call.status}")
    print_output(f"resume_token: {started.resume_token}")
    for webhook in started.webhooks:
        print_output(
            f"webhook: {webhook.url} ({webhook.id}, {webhook.state}{' and paused' if webhook.paused_at else ''})"
        )
    if started.callback_secret:
        print_output(f"callback_secret: {started.callback_secret}")
    if started.hint:
        from ringback.cli.hints import name_commands  # noqa: PLC0415 - its patterns take milliseconds

        print_message(name_commands(started.hint))
    print_message(join_advice(started.call.id))
