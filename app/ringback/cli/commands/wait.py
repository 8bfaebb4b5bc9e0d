"""`ringback wait`: waits for any or all of several calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from math import isinf
from typing import TYPE_CHECKING, Annotated

import typer

from ringback.cli.client_options import PrintOptions, WaitSeconds, client_command
from ringback.cli.following import StillAway, describe_outcome, end_of_wait, exit_code_of_wait, repeat_request
from ringback.cli.output import EXIT_NO_RESULT, TRY_AGAIN, print_message, print_models, print_output

if TYPE_CHECKING:
    from ringback.client import Call, RingbackClient


@client_command(exit_code=exit_code_of_wait)
def wait(
    call_ids: Annotated[list[str], typer.Argument(metavar="CALL_ID", help="The ids of the calls, at most 100.")],
    *,
    wait_for_any: Annotated[
        bool, typer.Option("--any/--all", help="End with the first call, or with the last.")
    ] = False,
    wait_seconds: WaitSeconds = None,
    options: PrintOptions,
) -> None:
    """Wait until calls have ended. Exits with 1 if one of the ended calls has no result.

    A restart of the service, or of its database, does not end the wait.
    """
    wait_for_calls = partial(_wait_for_calls, call_ids=call_ids, wait_for_any=wait_for_any, wait_seconds=wait_seconds)
    calls = options.run(wait_for_calls)
    if options.as_json:
        print_models(calls)
    else:
        for call in calls:
            print_output(f"{call.id} {call.status} ({call.outcome})" if call.final else f"{call.id} {call.status}")
    ended = [call for call in calls if call.final]
    if not _is_over(calls, wait_for_any=wait_for_any):
        print_message(
            f"{len(calls) - len(ended)} of {len(calls)} calls continue. Wait again, or: ringback join CALL_ID"
        )
        raise typer.Exit(TRY_AGAIN)
    _exit_with_outcome(ended)


async def _wait_for_calls(
    client: RingbackClient, *, call_ids: list[str], wait_for_any: bool, wait_seconds: float | None
) -> Sequence[Call]:
    """The calls as they were last read. The first request shows that the service is there, so it does not wait."""
    ends_at = end_of_wait(wait_seconds)
    wait_for = client.wait_any if wait_for_any else client.wait_all

    async def wait_for_rest() -> Sequence[Call]:
        remaining = max(0.0, ends_at - asyncio.get_running_loop().time())
        return await wait_for(call_ids, timeout_seconds=None if isinf(remaining) else remaining)

    calls = await repeat_request(lambda: wait_for(call_ids, timeout_seconds=0.0), ends_at=ends_at, has_responded=False)
    if wait_seconds == 0 or _is_over(calls, wait_for_any=wait_for_any):
        return calls
    try:
        return await repeat_request(wait_for_rest, ends_at=ends_at)
    except StillAway:
        return calls


def _is_over(calls: Sequence[Call], *, wait_for_any: bool) -> bool:
    return (any if wait_for_any else all)(call.final for call in calls)


def _exit_with_outcome(ended: list[Call]) -> None:
    failed = [call for call in ended if call.outcome != "result"]
    for call in failed:
        print_message(describe_outcome(call))
    if failed:
        raise typer.Exit(EXIT_NO_RESULT)
