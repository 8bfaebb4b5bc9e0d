"""`ringback deliveries`: lists, shows and repeats deliveries through the REST API."""

from itertools import count
from typing import Annotated, Final

import typer
from rich.table import Table

from ringback.cli.client_options import URL_DEFAULT, ApiKey, Url
from ringback.cli.output import AsJson, create_console, exit_on_errors, print_json, print_message, print_output
from ringback.cli.webhooks import run_with_client
from ringback.client import Delivery, RingbackClient

app = typer.Typer(no_args_is_help=True, help="List and repeat deliveries.")

LIST_LIMIT_DEFAULT: Final = 50
_COLUMNS: Final = ("id", "state", "webhook_id", "call_id", "generation", "attempt_count", "last_category", "created_at")

DeliveryId = Annotated[str, typer.Argument(metavar="DELIVERY", help="The delivery's id, dlv_…")]


@app.command("list")
@exit_on_errors()
def list_deliveries(
    *,
    state: Annotated[
        str | None, typer.Option("--state", help="held, pending, leased, delivered, dead or cancelled.")
    ] = None,
    webhook: Annotated[str | None, typer.Option("--webhook", help="Only deliveries to this webhook.")] = None,
    call: Annotated[str | None, typer.Option("--call", help="Only deliveries of this call's events.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Largest number of deliveries.")] = LIST_LIMIT_DEFAULT,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """List deliveries, newest first."""

    async def newest(client: RingbackClient) -> list[Delivery]:
        numbers = count(1)
        found: list[Delivery] = []
        async for delivery in client.deliveries(state=state, webhook_id=webhook, call_id=call):
            found.append(delivery)
            if next(numbers) == limit:
                break
        return found

    deliveries = run_with_client(url, api_key, newest)
    if as_json:
        print_json([delivery.model_dump() for delivery in deliveries])
        return
    table = Table(*_COLUMNS)
    for delivery in deliveries:
        document = delivery.model_dump()
        table.add_row(*("-" if document[name] is None else str(document[name]) for name in _COLUMNS))
    create_console().print(table)


@app.command("show")
@exit_on_errors()
def show_delivery(delivery_id: DeliveryId, url: Url = URL_DEFAULT, api_key: ApiKey = None) -> None:
    """Show a delivery with every attempt, as JSON. It does not contain the body."""
    print_json(run_with_client(url, api_key, lambda client: client.delivery(delivery_id)).model_dump())


@app.command()
@exit_on_errors()
def redeliver(delivery_id: DeliveryId, url: Url = URL_DEFAULT, api_key: ApiKey = None) -> None:
    """Send a delivery again, with the same webhook-id."""
    delivery = run_with_client(url, api_key, lambda client: client.redeliver(delivery_id))
    print_output(delivery.id)
    print_message(f"{delivery.state}. See the outcome: ringback deliveries show {delivery.id}")
