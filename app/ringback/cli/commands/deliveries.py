"""`ringback deliveries`: lists, shows and repeats deliveries through the REST API."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal, cast

import typer

from ringback.cli.arguments import format_time, time_option, with_offset
from ringback.cli.client_options import (
    DocumentOptions,
    DryRun,
    OfCorrelation,
    OfSession,
    OperatorOptions,
    client_command,
    collect_first,
)
from ringback.cli.commands.webhook_states import print_open_deliveries
from ringback.cli.output import print_list, print_message, print_model, print_output
from ringback.cli.webhook_names import find_webhook_id
from ringback.client.problems import NotFound

if TYPE_CHECKING:
    from ringback.client import Delivery, Redelivery, RedeliveryOptions, RequestedDelivery, RingbackClient

app = typer.Typer(no_args_is_help=True, help="List and repeat deliveries.")

LIST_LIMIT_DEFAULT: Final = 50
_COLUMNS: Final = ("id", "state", "webhook_id", "call_id", "generation", "attempt_count", "last_category", "created_at")

State = Literal["held", "pending", "leased", "delivered", "dead", "cancelled"]
EndedState = Literal["dead", "cancelled", "delivered"]
ToWebhook = Annotated[
    str | None, typer.Option("--webhook", help="Only deliveries to this webhook: its id or its name.")
]
OfCall = Annotated[str | None, typer.Option("--call", help="Only deliveries of this call's events.")]
Since = Annotated[datetime | None, time_option("--since", "Only those created from this time on.")]
Until = Annotated[datetime | None, time_option("--until", "Only those created before this time.")]
DeliveryId = Annotated[str, typer.Argument(metavar="DELIVERY", help="The delivery's id, dlv_…")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RedeliveryOptions(OperatorOptions):
    all_principals: Annotated[
        bool,
        typer.Option(
            "--all-principals",
            help="For an operator (scope admin): DELIVERY may belong to any owner. Filters need --principal NAME.",
        ),
    ] = False


@app.command("list")
@client_command()
def list_deliveries(
    *,
    state: Annotated[State | None, typer.Option("--state", help="Only deliveries in this state.")] = None,
    webhook: ToWebhook = None,
    call: OfCall = None,
    category: Annotated[
        str | None, typer.Option("--category", help="Only those whose last attempt ended like this, such as http_5xx.")
    ] = None,
    min_attempts: Annotated[
        int | None, typer.Option("--min-attempts", min=0, help="Only those with at least this many attempts.")
    ] = None,
    latest: Annotated[
        bool, typer.Option("--latest", help="With --state dead: only those that were not sent again since.")
    ] = False,
    since: Since = None,
    until: Until = None,
    id_prefix: Annotated[str | None, typer.Option("--id", help="Only those whose id begins so: dlv_01KAGZ.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Largest number of deliveries.")] = LIST_LIMIT_DEFAULT,
    options: OperatorOptions,
) -> None:
    """List deliveries, newest first."""

    async def read(client: RingbackClient) -> tuple[list[Delivery], str]:
        webhook_id = None if webhook is None else await find_webhook_id(client, webhook)
        found = client.deliveries(
            state=state,
            webhook_id=webhook_id,
            call_id=call,
            category=category,
            min_attempts=min_attempts,
            latest=latest,
            since=with_offset(since),
            until=with_offset(until),
            id_prefix=id_prefix,
        )
        deliveries = await collect_first(found, limit=limit)
        return deliveries, "" if deliveries or options.as_json else await _explain_absence(client, webhook_id)

    deliveries, none = options.run(read)
    print_list(deliveries, options.with_owner(_COLUMNS), as_json=options.as_json, none=none)


async def _explain_absence(client: RingbackClient, webhook_id: str | None) -> str:
    if webhook_id is not None:
        try:
            await client.webhook(webhook_id)
        except NotFound:
            return (
                f"There are no such deliveries: the webhook {webhook_id} is unknown. List yours: ringback webhooks list"
            )
    return "There are no such deliveries."


@app.command("show")
@client_command()
def show_delivery(delivery_id: DeliveryId, *, options: DocumentOptions) -> None:
    """Show a delivery with every attempt, as JSON. It does not contain the body."""
    print_model(options.run(lambda client: client.delivery(delivery_id)))


@app.command()
@client_command()
def redeliver(
    delivery_id: Annotated[
        str | None,
        typer.Argument(metavar="[DELIVERY]", help="The delivery's id, dlv_…. Without it, choose by filters."),
    ] = None,
    *,
    state: Annotated[
        EndedState | None, typer.Option("--state", help="Only deliveries in this state. Default: dead.")
    ] = None,
    webhook: ToWebhook = None,
    call: OfCall = None,
    category: Annotated[
        str | None, typer.Option("--category", help="Only those whose last attempt ended so, for example http_5xx.")
    ] = None,
    session: OfSession = None,
    correlation: OfCorrelation = None,
    since: Since = None,
    until: Until = None,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Continue an earlier command.")] = None,
    dry_run: DryRun = False,
    options: _RedeliveryOptions,
) -> None:
    """Send a delivery again now, with the same webhook-id; or, without DELIVERY, all ended ones that match the filters."""
    given = {
        "state": state,
        "webhook_id": webhook,
        "call_id": call,
        "category": category,
        "client_session_id": session,
        "correlation_id": correlation,
        "since": format_time(since),
        "until": format_time(until),
        "cursor": cursor,
        "dry_run": dry_run or None,
    }
    filters = cast("RedeliveryOptions", {member: value for member, value in given.items() if value is not None})
    if delivery_id is None and options.all_principals:
        raise typer.BadParameter("filters choose deliveries of one principal: name it with --principal NAME")
    if delivery_id is None:
        redelivery = options.run(partial(_redeliver_matching, filters=filters))
        options.print_model(redelivery, partial(_print_redelivery, dry_run=dry_run))
    elif filters:
        raise typer.BadParameter("give either DELIVERY or filters")
    else:
        options.print_model(options.run(lambda client: client.redeliver(delivery_id)), _print_redelivered)


async def _redeliver_matching(client: RingbackClient, filters: RedeliveryOptions) -> Redelivery:
    if webhook := filters.get("webhook_id"):
        filters = {**filters, "webhook_id": await find_webhook_id(client, webhook)}
    return await client.redeliver_many(**filters)


def _print_redelivery(redelivery: Redelivery, *, dry_run: bool) -> None:
    print_output(f"{'would be redelivered' if dry_run else 'redelivered'}: {redelivery.redelivered}")
    print_output(f"skipped: {redelivery.skipped}")
    print_open_deliveries(redelivery, dry_run=dry_run)
    if redelivery.cursor:
        print_message(f"There are more: add --cursor {redelivery.cursor}")


def _print_redelivered(delivery: RequestedDelivery) -> None:
    print_output(delivery.id)
    print_open_deliveries(delivery)
    print_message(f"It is {delivery.state}. See the outcome: ringback deliveries show {delivery.id}")
