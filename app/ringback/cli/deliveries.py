"""`ringback deliveries`: lists, shows and repeats deliveries through the REST API."""

from datetime import datetime
from typing import Annotated, Final, Literal, cast

import typer

from ringback.cli.arguments import TIME_FORMATS, format_time, with_offset
from ringback.cli.client_options import (
    URL_DEFAULT,
    ApiKey,
    ForAllPrincipals,
    ForPrincipal,
    Url,
    choose_principal,
    collect_first,
    columns_for,
    run_with_client,
)
from ringback.cli.output import (
    AlwaysJson,
    AsJson,
    exit_on_errors,
    model_to_json,
    print_json,
    print_list,
    print_message,
    print_output,
)
from ringback.cli.webhook_states import print_open_deliveries
from ringback.client import Delivery, RedeliveryOptions, RingbackClient

app = typer.Typer(no_args_is_help=True, help="List and repeat deliveries.")

LIST_LIMIT_DEFAULT: Final = 50
_COLUMNS: Final = ("id", "state", "webhook_id", "call_id", "generation", "attempt_count", "last_category", "created_at")

State = Literal["held", "pending", "leased", "delivered", "dead", "cancelled"]
EndedState = Literal["dead", "cancelled", "delivered"]
DeliveryId = Annotated[str, typer.Argument(metavar="DELIVERY", help="The delivery's id, dlv_…")]


@app.command("list")
@exit_on_errors()
def list_deliveries(
    *,
    state: Annotated[State | None, typer.Option("--state", help="Only deliveries in this state.")] = None,
    webhook: Annotated[str | None, typer.Option("--webhook", help="Only deliveries to this webhook.")] = None,
    call: Annotated[str | None, typer.Option("--call", help="Only deliveries of this call's events.")] = None,
    category: Annotated[
        str | None, typer.Option("--category", help="Only those whose last attempt ended like this, such as http_5xx.")
    ] = None,
    min_attempts: Annotated[
        int | None, typer.Option("--min-attempts", min=0, help="Only those with at least this many attempts.")
    ] = None,
    latest: Annotated[
        bool, typer.Option("--latest", help="With --state dead: only those that were not sent again since.")
    ] = False,
    since: Annotated[
        datetime | None, typer.Option("--since", formats=TIME_FORMATS, help="Only those created from this time on.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--until", formats=TIME_FORMATS, help="Only those created before this time.")
    ] = None,
    id_prefix: Annotated[str | None, typer.Option("--id", help="Only those whose id begins so: dlv_01KAGZ.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Largest number of deliveries.")] = LIST_LIMIT_DEFAULT,
    principal: ForPrincipal = None,
    all_principals: ForAllPrincipals = False,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """List deliveries, newest first."""
    owner = choose_principal(principal, all_principals)

    async def newest(client: RingbackClient) -> list[Delivery]:
        return await collect_first(
            client.deliveries(
                state=state,
                webhook_id=webhook,
                call_id=call,
                category=category,
                min_attempts=min_attempts,
                latest=latest,
                since=with_offset(since),
                until=with_offset(until),
                id_prefix=id_prefix,
            ),
            limit=limit,
        )

    deliveries = run_with_client(url, api_key, newest, principal=owner)
    print_list(deliveries, columns_for(owner, _COLUMNS), as_json=as_json, none="There are no such deliveries.")


@app.command("show")
@exit_on_errors()
def show_delivery(
    delivery_id: DeliveryId,
    *,
    principal: ForPrincipal = None,
    all_principals: ForAllPrincipals = False,
    _as_json: AlwaysJson = True,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """Show a delivery with every attempt, as JSON. It does not contain the body."""
    owner = choose_principal(principal, all_principals)
    delivery = run_with_client(url, api_key, lambda client: client.delivery(delivery_id), principal=owner)
    print_json(model_to_json(delivery))


@app.command()
@exit_on_errors()
def redeliver(
    delivery_id: Annotated[
        str | None,
        typer.Argument(metavar="[DELIVERY]", help="The delivery's id, dlv_…. Without it, choose by filters."),
    ] = None,
    *,
    state: Annotated[
        EndedState | None, typer.Option("--state", help="Only deliveries in this state. Default: dead.")
    ] = None,
    webhook: Annotated[str | None, typer.Option("--webhook", help="Only deliveries to this webhook.")] = None,
    call: Annotated[str | None, typer.Option("--call", help="Only deliveries of this call's events.")] = None,
    category: Annotated[
        str | None, typer.Option("--category", help="Only those whose last attempt ended so, for example http_5xx.")
    ] = None,
    session: Annotated[str | None, typer.Option("--session", help="Only calls of this client_session_id.")] = None,
    correlation: Annotated[
        str | None, typer.Option("--correlation", help="Only calls with this correlation_id.")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option("--since", formats=TIME_FORMATS, help="Only those created from this time on.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--until", formats=TIME_FORMATS, help="Only those created before this time.")
    ] = None,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Continue an earlier command.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the numbers, and change nothing.")] = False,
    principal: ForPrincipal = None,
    all_principals: Annotated[
        bool,
        typer.Option(
            "--all-principals",
            help="For an operator (scope admin): DELIVERY may belong to any owner. Filters need --principal NAME.",
        ),
    ] = False,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
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
    options = cast("RedeliveryOptions", {member: value for member, value in given.items() if value is not None})
    owner = choose_principal(principal, all_principals)
    if delivery_id is None and all_principals:
        raise typer.BadParameter("filters choose deliveries of one principal: name it with --principal NAME")
    if delivery_id is None:
        _redeliver_many(options, url, api_key, principal=owner, as_json=as_json)
    elif options:
        raise typer.BadParameter("give either DELIVERY or filters")
    else:
        _redeliver_one(delivery_id, url, api_key, principal=owner, as_json=as_json)


def _redeliver_many(
    options: RedeliveryOptions, url: str, api_key: str | None, *, principal: str | None, as_json: bool
) -> None:
    redelivery = run_with_client(url, api_key, lambda client: client.redeliver_many(**options), principal=principal)
    if as_json:
        print_json(model_to_json(redelivery))
        return
    print_output(f"{'would be redelivered' if options.get('dry_run') else 'redelivered'}: {redelivery.redelivered}")
    print_output(f"skipped: {redelivery.skipped}")
    print_open_deliveries(redelivery)
    if redelivery.cursor:
        print_message(f"There are more: add --cursor {redelivery.cursor}")


def _redeliver_one(delivery_id: str, url: str, api_key: str | None, *, principal: str | None, as_json: bool) -> None:
    delivery = run_with_client(url, api_key, lambda client: client.redeliver(delivery_id), principal=principal)
    if as_json:
        print_json(model_to_json(delivery))
        return
    print_output(delivery.id)
    print_open_deliveries(delivery)
    print_message(f"It is {delivery.state}. See the outcome: ringback deliveries show {delivery.id}")
