"""`ringback calls`: lists, shows, cancels, answers and erases calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn

import typer

from ringback.cli.arguments import ListingGroup, parse_arguments, time_option, with_offset
from ringback.cli.call_words import describe_status
from ringback.cli.client_options import (
    CallId,
    DocumentOptions,
    DryRun,
    OfCorrelation,
    OfSession,
    OfTool,
    OfUpstream,
    OperatorOptions,
    Outcome,
    PrincipalOptions,
    PrintOptions,
    client_command,
)
from ringback.cli.commands.erasures import erase_call
from ringback.cli.output import exit_with_error, print_list, print_message, print_model, print_output
from ringback.client.problems import InvalidRequest

if TYPE_CHECKING:
    from ringback.client import Call, Cancellation, RingbackClient

app = typer.Typer(cls=ListingGroup, help="List, show, cancel, answer and erase calls.")

LIST_LIMIT_DEFAULT: Final = 50
_COLUMNS: Final = (
    *("id", "status", "outcome", "upstream", "tool", "client_session_id", "correlation_id", "created_at"),
)

_UNSUCCESSFUL: Final = ("tool_error", "upstream_error", "rejected", "timed_out", "unknown", "cancelled")

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]
OpenStatus = Literal["working", "input_required"]


@app.callback(invoke_without_command=True)
@client_command()
def list_calls(
    context: typer.Context,
    *,
    session: OfSession = None,
    correlation: OfCorrelation = None,
    status: Annotated[Status | None, typer.Option("--status", help="Only calls with this status.")] = None,
    outcome: Annotated[Outcome | None, typer.Option("--outcome", help="Only calls that ended like this.")] = None,
    upstream: OfUpstream = None,
    tool: OfTool = None,
    queued: Annotated[
        bool,
        typer.Option(
            "--queued", help="Only working calls that have not started: they wait in a queue or for their time."
        ),
    ] = False,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only calls that ended without a result, or with an error of their tool.")
    ] = False,
    since: Annotated[datetime | None, time_option("--since", "Only calls created from this time on.")] = None,
    until: Annotated[datetime | None, time_option("--until", "Only calls created before this time.")] = None,
    id_prefix: Annotated[str | None, typer.Option("--id", help="Only calls whose id begins so: call_01KAGZ.")] = None,
    min_runs: Annotated[
        int | None,
        typer.Option("--min-runs", min=1, help="Only calls that ran at least this often (2: that ran again)."),
    ] = None,
    min_delivery_attempts: Annotated[
        int | None,
        typer.Option(
            "--min-delivery-attempts", min=2, help="Only calls of which a delivery has had at least this many attempts."
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Largest number of calls.")] = LIST_LIMIT_DEFAULT,
    options: OperatorOptions,
) -> None:
    """List your calls, newest first."""
    if context.invoked_subcommand is not None:
        return
    if failed and outcome is not None:
        raise typer.BadParameter("--failed and --outcome exclude each other")
    if queued and (failed or outcome is not None or status not in {None, "working"}):
        raise typer.BadParameter("--queued lists working calls: leave out --failed, --outcome and any other --status")
    outcomes = _UNSUCCESSFUL if failed else None if outcome is None else (outcome,)

    calls = options.collect(
        lambda client: client.calls(
            client_session_id=session,
            correlation_id=correlation,
            status="working" if queued else status,
            upstream=upstream,
            tool=tool,
            started=False if queued else None,
            outcome=outcomes,
            since=with_offset(since),
            until=with_offset(until),
            id_prefix=id_prefix,
            min_runs=min_runs,
            min_delivery_attempts=min_delivery_attempts,
        ),
        limit=limit,
    )
    filters = (
        *(session, correlation, status, upstream, tool, outcomes, since, until),
        *(queued, id_prefix, min_runs, min_delivery_attempts, options.owner),
    )
    none = "There are no such calls." if any(filters) else "You have no calls. Start one: ringback call UPSTREAM TOOL"
    print_list(calls, options.with_owner(_COLUMNS), as_json=options.as_json, none=none, to_row=_to_row)


def _to_row(call: Call) -> Mapping[str, Any]:
    return call.model_dump() | {"status": describe_status(call)}


@app.command("show")
@client_command()
def show_call(call_id: CallId, *, options: DocumentOptions) -> None:
    """Show a call as JSON, without its result. `ringback join` prints the result."""
    print_model(options.run(lambda client: client.call(call_id)))


@app.command("cancel-all")
@client_command()
def cancel_calls(
    *,
    session: OfSession = None,
    correlation: OfCorrelation = None,
    upstream: OfUpstream = None,
    tool: OfTool = None,
    status: Annotated[OpenStatus | None, typer.Option("--status", help="Only calls with this status.")] = None,
    dry_run: DryRun = False,
    options: PrincipalOptions,
) -> None:
    """Request the cancellation of your open calls that match the filters. At least one filter is needed."""
    cancellation = options.run(
        lambda client: client.cancel_calls(
            client_session_id=session,
            correlation_id=correlation,
            upstream=upstream,
            tool=tool,
            status=status,
            dry_run=dry_run,
        )
    )
    options.print_model(cancellation, partial(_print_cancellations, dry_run=dry_run))


def _print_cancellations(cancellation: Cancellation, *, dry_run: bool) -> None:
    would_be = "would be " if dry_run else ""
    print_output(f"{would_be}cancelled: {cancellation.cancelled}")
    print_output(f"{would_be}requested: {cancellation.requested}")
    if cancellation.more:
        print_message("There are more calls: run the command again.")


@app.command("cancel")
@client_command()
def cancel_call(call_id: CallId, *, options: OperatorOptions) -> None:
    """Request the cancellation of a call. A call that has ended stays as it is."""
    options.print_model(options.run(lambda client: client.cancel(call_id)), _print_cancelled)


def _print_cancelled(call: Call) -> None:
    print_output(f"status: {call.status}")
    if not call.final:
        print_message("Its upstream has been asked to stop the tool, and may take time.")
    elif call.status != "cancelled":
        print_message(f"It had already ended ({call.outcome}).")


@app.command("answer")
@client_command()
def answer_call(
    call_id: CallId,
    *,
    arg: Annotated[
        list[str] | None,
        typer.Option(
            "--arg",
            metavar="NAME=VALUE",
            help="Accept, with this requested value: JSON, or a string. May be repeated, as with `ringback call`.",
        ),
    ] = None,
    accept: Annotated[
        str | None,
        typer.Option("--accept", metavar="JSON", help="Accept, with all requested values as one JSON object."),
    ] = None,
    decline: Annotated[bool, typer.Option("--decline", help="Decline: the tool continues without the values.")] = False,
    key: Annotated[
        str | None, typer.Option("--key", help="The request's key. Not needed if the call has one open request.")
    ] = None,
    options: PrintOptions,
) -> None:
    """Answer a tool's request for input."""
    parse_response = partial(_parse_response, arg or [], accept, decline=decline)
    parse_response(None)  # what is malformed is refused before any request

    async def answer(client: RingbackClient) -> Call:
        chosen, schema = await _read_request(client, call_id, key) if arg or key is None else (key, None)
        try:
            answered = await client.answer(call_id, {chosen: parse_response(schema)})
        except InvalidRequest as refused:
            _print_requested_form(refused, chosen)
            raise
        if chosen not in answered.accepted:
            _exit_without_request(call_id, chosen)
        return answered.call

    options.print_model(options.run(answer), lambda call: print_output(f"status: {call.status}"))


app.command("erase")(erase_call)


def _parse_response(
    pairs: Sequence[str], accept: str | None, schema: Mapping[str, Any] | None, *, decline: bool
) -> Mapping[str, Any]:
    """The ElicitResult of the options. `schema` is the form of the question, if it is known."""
    if bool(pairs or accept is not None) is decline:
        raise typer.BadParameter("give either --arg NAME=VALUE or --accept JSON, or --decline")
    if decline:
        return {"action": "decline"}
    content = parse_arguments(pairs, json_arguments=accept, input_schema=schema, json_hint="--accept")
    return {"action": "accept", "content": content}


async def _read_request(client: RingbackClient, call_id: str, key: str | None) -> tuple[str, Mapping[str, Any] | None]:
    """The key of the open request and the form of its values, if it has one. Without `key`, of the only open request."""
    call = await client.call(call_id)
    chosen = key or _only_request(call)
    if chosen not in call.input_requests:
        _exit_without_request(call_id, chosen)
    match call.input_requests[chosen].params.get("requestedSchema"):
        case {**form}:
            return chosen, form
        case _:
            return chosen, None


def _exit_without_request(call_id: str, key: str) -> NoReturn:
    exit_with_error(f"{call_id} has no open request '{key}'. See its input_requests: ringback calls show {call_id}")


def _print_requested_form(refused: InvalidRequest, key: str) -> None:
    match refused.extra.get("requested_schemas"):
        case {**schemas} if key in schemas:
            print_message(f"Requested: {json.dumps(schemas[key], ensure_ascii=False)}")
        case _:
            pass


def _only_request(call: Call) -> str:
    """The key of the call's only open request."""
    keys = sorted(call.input_requests)
    if len(keys) != 1:
        several = f"several open requests; choose one with --key: {', '.join(keys)}"
        none = f"no open request: it is {call.status}. See it: ringback calls show {call.id}"
        exit_with_error(f"{call.id} has {several if keys else none}")
    return keys[0]
