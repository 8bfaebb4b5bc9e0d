"""`ringback wait`: waits for any or all of several calls, or for all that match."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ringback.cli.arguments import time_option, with_offset
from ringback.cli.call_words import describe_outcome, describe_status
from ringback.cli.client_options import (
    OfCorrelation,
    OfSession,
    OfTool,
    OfUpstream,
    PrintOptions,
    WaitSeconds,
    client_command,
)
from ringback.cli.following import StillAway, end_of_wait, exit_code_of_wait, repeat_request
from ringback.cli.output import (
    EXIT_NO_RESULT,
    TRY_AGAIN,
    exit_with_error,
    print_message,
    print_models,
    print_output,
)
from ringback.client.problems import Problem

if TYPE_CHECKING:
    from ringback.client import Call, RingbackClient
    from ringback.client.awaited_calls import AwaitedCalls


class _Waited(NamedTuple):
    calls: Sequence[Call]
    """As they were last read."""
    erased_ids: Sequence[str]
    """Calls that were erased during the wait."""
    is_over: bool


@client_command(exit_code=exit_code_of_wait)
def wait(
    call_ids: Annotated[
        list[str] | None, typer.Argument(metavar="CALL_ID", help="The ids of the calls, at most 100.")
    ] = None,
    *,
    session: OfSession = None,
    correlation: OfCorrelation = None,
    upstream: OfUpstream = None,
    tool: OfTool = None,
    since: Annotated[datetime | None, time_option("--since", "Only calls created from this time on.")] = None,
    wait_for_any: Annotated[
        bool, typer.Option("--any/--all", help="End with the first call, or with the last.")
    ] = False,
    wait_seconds: WaitSeconds = None,
    options: PrintOptions,
) -> None:
    """Wait until calls have ended. Exits with 1 if one of the ended calls has no result.

    Without ids, these are all calls that match now, at most 10,000. Those that had ended before are printed, too, and count
    for the exit code. Calls that start during the wait are not waited for.

    Calls that are erased during the wait are named, and the exit code is 1, with --any only if no other one ends. A restart of
    the service, or of its database, does not end the wait.
    """
    filters = {
        "client_session_id": session,
        "correlation_id": correlation,
        "upstream": upstream,
        "tool": tool,
        "since": with_offset(since),
    }
    filters = {name: value for name, value in filters.items() if value is not None}
    _check_selection(call_ids or [], filters, wait_for_any=wait_for_any)

    async def run(client: RingbackClient) -> _Waited:
        search = partial(_find_calls, client, call_ids or [], filters)
        with _naming_call(call_ids or []):
            return await _wait(search, for_any=wait_for_any, wait_seconds=wait_seconds)

    waited = options.run(run)
    if not waited.calls and not waited.erased_ids:
        exit_with_error("There are no such calls.")
    _print_calls(waited, as_json=options.as_json)
    ended = [call for call in waited.calls if call.final]
    if not waited.is_over:
        count = len(waited.calls)
        print_message(f"{count - len(ended)} of {count} calls continue. Wait again, or: ringback join CALL_ID")
        raise typer.Exit(TRY_AGAIN)
    is_enough = bool(ended) if wait_for_any else not waited.erased_ids
    if not _have_results(ended) or not is_enough:
        raise typer.Exit(EXIT_NO_RESULT)


def _check_selection(call_ids: Sequence[str], filters: Mapping[str, Any], *, wait_for_any: bool) -> None:
    if call_ids and filters:
        raise typer.BadParameter("give CALL_IDs or filters, not both")
    if not call_ids and not filters:
        raise typer.BadParameter("give CALL_IDs, or --session, --correlation, --upstream, --tool or --since")
    if filters and wait_for_any:
        raise typer.BadParameter("--any takes CALL_IDs: of the calls that match, some may have ended already")


@contextmanager
def _naming_call(call_ids: Sequence[str]) -> Generator[None]:
    """A problem with one of the ids names the id instead of its place in the request."""
    try:
        yield
    except Problem as problem:
        index = problem.extra.get("index")
        if isinstance(index, int) and 0 <= index < len(call_ids):
            problem.detail = problem.detail.replace(f"call_ids[{index}]", call_ids[index], 1)
            problem.args = (problem.detail,)
        raise


async def _find_calls(client: RingbackClient, call_ids: Sequence[str], filters: Mapping[str, Any]) -> AwaitedCalls:
    from ringback.client.awaited_calls import AwaitedCalls, find_matching_calls  # noqa: PLC0415 - help needs no client

    if filters:
        return await find_matching_calls(client, filters)
    return AwaitedCalls(client, await client.wait_all(call_ids, timeout_seconds=0.0))


async def _wait(search: Callable[[], Awaitable[AwaitedCalls]], *, for_any: bool, wait_seconds: float | None) -> _Waited:
    """A restart of the service during the wait changes nothing about which calls are waited for."""
    ends_at, now = end_of_wait(wait_seconds), asyncio.get_running_loop().time
    awaited = await repeat_request(search, ends_at=ends_at, has_responded=False)
    progress = _ProgressLines()
    progress.show(awaited.calls)

    def is_over() -> bool:
        return awaited.any_ended if for_any else awaited.all_ended

    with suppress(StillAway):
        while not is_over() and now() < ends_at:
            await repeat_request(lambda: awaited.wait_round(ends_at - now(), for_any=for_any), ends_at=ends_at)
            progress.show(awaited.calls)
    return _Waited(awaited.calls, awaited.erased_ids, is_over())


class _ProgressLines:
    """A line on standard error for each change of how many calls have ended, unless all had before the wait."""

    def __init__(self) -> None:
        self._last_line = ""

    def show(self, calls: Sequence[Call]) -> None:
        line = _describe_progress(calls)
        is_new = line != self._last_line and (self._last_line or not all(call.final for call in calls))
        if is_new:
            self._last_line = line
            print_message(line)


def _describe_progress(calls: Sequence[Call]) -> str:
    ended = f"{sum(call.final for call in calls)} of {len(calls)} calls have ended"
    asking = sum(bool(call.input_requests) for call in calls)
    if not asking:
        return f"{ended}."
    return (
        f"{ended}, and {asking} {'waits' if asking == 1 else 'wait'} for input: ringback calls --status input_required"
    )


def _print_calls(waited: _Waited, *, as_json: bool) -> None:
    if as_json:
        print_models(waited.calls)
    else:
        for call in waited.calls:
            print_output(
                f"{call.id} {call.status} ({call.outcome})" if call.final else f"{call.id} {describe_status(call)}"
            )
    for call_id in waited.erased_ids:
        print_message(f"{call_id} was erased during the wait.")


def _have_results(ended: Sequence[Call]) -> bool:
    """Says of each call that has none why."""
    failed = [call for call in ended if call.outcome != "result"]
    for call in failed:
        print_message(describe_outcome(call))
    return not failed
