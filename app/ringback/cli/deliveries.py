"""`ringback deliveries`: lists, shows and repeats deliveries through the REST API."""

from itertools import count
from typing import Annotated, Final, Literal

import typer

from ringback.cli.client_options import (
    URL_DEFAULT,
    ApiKey,
    ForAllPrincipals,
    ForPrincipal,
    Url,
    choose_principal,
    columns_for,
    run_with_client,
)
from ringback.cli.output import (
    AlwaysJson,
    AsJson,
    exit_on_errors,
    model_to_json,
    print_json,
    print_message,
    print_models,
    print_output,
    print_table,
)
from ringback.client import Delivery, RingbackClient

app = typer.Typer(no_args_is_help=True, help="List and repeat deliveries.")

LIST_LIMIT_DEFAULT: Final = 50
_COLUMNS: Final = ("id", "state", "webhook_id", "call_id", "generation", "attempt_count", "last_category", "created_at")

State = Literal["held", "pending", "leased", "delivered", "dead", "cancelled"]
DeliveryId = Annotated[str, typer.Argument(metavar="DELIVERY", help="The delivery's id, dlv_…")]


@app.command("list")
@exit_on_errors()
def list_deliveries(
    *,
    state: Annotated[State | None, typer.Option("--state", help="Only deliveries in this state.")] = None,
    webhook: Annotated[str | None, typer.Option("--webhook", help="Only deliveries to this webhook.")] = None,
    call: Annotated[str | None, typer.Option("--call", help="Only deliveries of this call's events.")] = None,
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
        numbers = count(1)
        found: list[Delivery] = []
        async for delivery in client.deliveries(state=state, webhook_id=webhook, call_id=call):
            found.append(delivery)
            if next(numbers) == limit:
                break
        return found

    deliveries = run_with_client(url, api_key, newest, principal=owner)
    if as_json:
        print_models(deliveries)
    elif deliveries:
        print_table(columns_for(owner, _COLUMNS), (delivery.model_dump() for delivery in deliveries))
    else:
        print_message("There are no such deliveries.")


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
    delivery_id: DeliveryId,
    *,
    principal: ForPrincipal = None,
    all_principals: ForAllPrincipals = False,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """Send a delivery again, with the same webhook-id."""
    owner = choose_principal(principal, all_principals)
    delivery = run_with_client(url, api_key, lambda client: client.redeliver(delivery_id), principal=owner)
    if as_json:
        print_json(model_to_json(delivery))
        return
    print_output(delivery.id)
    print_message(f"{delivery.state}. See the outcome: ringback deliveries show {delivery.id}")
