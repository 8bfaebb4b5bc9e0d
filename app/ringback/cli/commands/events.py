"""`ringback events`: prints the event log, and follows it; `ringback events publish` adds an event of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ringback.cli.arguments import parse_arguments, read_object
from ringback.cli.call_words import format_progress
from ringback.cli.callback_text import describe_own_data, describe_webhook_event
from ringback.cli.client_options import (
    CORRELATION_OPTIONS,
    SESSION_OPTIONS,
    OfCorrelation,
    OfSession,
    OperatorOptions,
    PrintOptions,
    client_command,
)
from ringback.cli.output import model_to_json, print_json_line, print_message, print_output
from ringback.client.problems import ClientError, InvalidRequest
from ringback.suggestions import find_similar

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ringback.client import Event, EventType, PublishedEvent, RingbackClient
    from ringback.client.options import EventOptions

app = typer.Typer(
    no_args_is_help=False,
    help="Print events, oldest first, and publish your own. With --follow, nothing is lost when the service restarts.\n\n"
    "With --all-principals, events are printed newest first.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LineOptions(PrintOptions):
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on one line.")] = False

    def print_json(self, model: BaseModel) -> None:
        print_json_line(model_to_json(model))


@dataclass(frozen=True, slots=True, kw_only=True)
class _EventsOptions(_LineOptions, OperatorOptions):
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as JSON on one line.")] = False


@app.callback(invoke_without_command=True)
@client_command()
def events(
    context: typer.Context,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new events, until interrupted.")] = False,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Only events after this cursor. Default: from the oldest kept event.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Only events of this name, such as call.finished.")] = None,
    call: Annotated[str | None, typer.Option("--call", help="Only events of this call.")] = None,
    session: OfSession = None,
    correlation: OfCorrelation = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Largest number of events. Default: all.")] = None,
    options: _EventsOptions,
) -> None:
    """Print events, unless a subcommand is given."""
    if context.invoked_subcommand is not None:
        return
    if options.all_principals and follow:
        raise typer.BadParameter("--follow needs one principal: events of all have no common order")

    async def print_events(client: RingbackClient) -> None:
        read_events = client.stream_events if follow else client.events
        found = read_events(
            cursor=cursor,
            name=name,
            call_id=call,
            client_session_id=session,
            correlation_id=correlation,
            on_truncated=_print_truncation,
        )
        last = cursor
        try:
            async with aclosing(found):
                printed = 0
                async for event in found:
                    options.print_model(event, _print_event)
                    last = None if options.all_principals else event.cursor
                    printed += 1
                    if printed == limit:
                        break
        except InvalidRequest:
            last = None  # the service refuses this cursor or filter
            raise
        finally:
            if last is not None:
                print_message(f"Continue: ringback events --cursor {last}")

    options.run(print_events)


def _print_truncation() -> None:
    print_message("Events after your cursor are missing: they are older than the service keeps them.")


def _print_event(event: Event) -> None:
    owner = f" {event.principal}" if event.principal else ""
    print_output(f"{event.timestamp:%Y-%m-%d %H:%M:%S}{owner} {event.name} {describe_data(event.data)}".rstrip())


def describe_data(data: Mapping[str, Any]) -> str:
    """The event's call on one line: `git/git_log completed (result) call_… correlation_id=c1`. Or its webhook, or its data."""
    if webhook := describe_webhook_event(data):
        return webhook
    if "call_id" not in data:
        return describe_own_data(data)
    outcome = f" ({data['outcome']})" if data.get("outcome") else ""
    tool = "/".join(str(data[member]) for member in ("upstream", "tool") if data.get(member))
    head = f"{tool} {data.get('status') or ''}{outcome}".strip()
    labels = [f"{label}={data[label]}" for label in ("client_session_id", "correlation_id") if data.get(label)]
    return " ".join(part for part in (head, str(data.get("call_id") or ""), _describe_progress(data), *labels) if part)


def _describe_progress(data: Mapping[str, Any]) -> str:
    match data.get("progress"):
        case {"progress": int() | float() as progress, "total": int() | float() | None as total, "message": message}:
            return " ".join(str(part) for part in (format_progress(progress, total), message) if part)
        case _:
            return ""


@app.command("publish")
@client_command()
def publish_event(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name: lower-case words with dots, such as order.paid.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=VALUE]...",
            help="Members of its data: JSON, or a string. null is null where the type admits it.",
        ),
    ] = None,
    *,
    json_data: Annotated[str | None, typer.Option("--json-data", help="Its data, as a JSON object.")] = None,
    event_id: Annotated[
        str | None, typer.Option("--id", help="Your own id of the event. The same id again changes nothing.")
    ] = None,
    session: Annotated[str | None, typer.Option(*SESSION_OPTIONS, help="Its client_session_id.")] = None,
    correlation: Annotated[str | None, typer.Option(*CORRELATION_OPTIONS, help="Its correlation_id.")] = None,
    options: _LineOptions,
) -> None:
    """Publish an event of your own to your webhooks, polls and streams."""
    read_data = partial(
        parse_arguments, arguments or [], json_arguments=json_data, pairs_hint="its data", json_hint="--json-data"
    )
    read_data(input_schema=None)  # wrong usage is refused before any request
    given = {"id": event_id, "client_session_id": session, "correlation_id": correlation}
    members = cast("EventOptions", {member: value for member, value in given.items() if value is not None})

    async def publish(client: RingbackClient) -> None:
        declared = await _read_own_types(client)
        schema = declared[name].payload_schema if name in declared else None
        published = await client.publish_event(name, read_data(input_schema=schema), **members)
        options.print_model(published, _print_published)
        if name not in declared and (similar := find_similar(name, declared)):
            print_message(f"Note: {name} is not declared; did you mean '{similar}'?")

    options.run(publish)


def _print_published(published: PublishedEvent) -> None:
    print_output(f"{published.event_id} {'published' if published.created else 'was published before'}")


async def _read_own_types(client: RingbackClient) -> Mapping[str, EventType]:
    """The types that the principal has declared, by name; none if they cannot be read: publishing says why."""
    try:
        types = await client.event_types()
    except ClientError:
        return {}
    return {each.name: each for each in types if each.upstream is None}


@app.command("declare")
@client_command()
def declare_event_type(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name: lower-case words with dots, such as order.paid.")
    ],
    *,
    description: Annotated[
        str | None, typer.Option("--description", help="For a model: what happens, and when to subscribe.")
    ] = None,
    payload: Annotated[str | None, typer.Option("--payload", help="A JSON Schema of its data, or @FILE.")] = None,
    options: _LineOptions,
) -> None:
    """Declare a type of events of your own, so that clients subscribe to it before its first event.

    Subscribers filter its events by client_session_id, correlation_id and upstream: what a publisher may give each event.
    Change a schema by addition only, because subscribers know the older one; an incompatible change needs a new name.
    """
    payload_schema = None if payload is None else read_object(payload, option="--payload")
    declared = options.run(
        lambda client: client.declare_event_type(name, description=description, payload_schema=payload_schema)
    )
    options.print_model(declared, lambda declared: print_output(f"{declared.name} is declared."))
    if declared.warning is not None:
        print_message(f"Warning: {declared.warning}")
