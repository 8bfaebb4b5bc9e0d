"""`ringback trigger`: sends a signed test event to a webhook, and shows what its receiver answered."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ringback.cli.client_options import PrintOptions, client_command, collect_first
from ringback.cli.output import EXIT_NO_RESULT, TRY_AGAIN, exit_with_error, print_message, print_model, print_output
from ringback.cli.webhook_names import find_webhook_id

if TYPE_CHECKING:
    from ringback.client import Attempt, Delivery, DeliveryDetail, RingbackClient

POLL_INTERVAL_SECONDS: Final = 0.25
WAIT_SECONDS_DEFAULT: Final = 15.0
"""An attempt takes at most 10 seconds."""
WEBHOOKS_LISTED_MAX: Final = 10
"""In the error for several webhooks."""


@client_command()
def trigger(
    webhook: Annotated[
        str | None,
        typer.Argument(
            metavar="[WEBHOOK]", help="The webhook's id, wh_…, or its name. Not needed if you have one webhook."
        ),
    ] = None,
    *,
    wait_seconds: Annotated[
        float, typer.Option("--wait-seconds", min=0, help="How long to wait for the first attempt.")
    ] = WAIT_SECONDS_DEFAULT,
    options: PrintOptions,
) -> None:
    """Send a signed test event to a webhook. Shows what its receiver answered, and exits with 1 unless it accepted."""

    async def send(client: RingbackClient) -> DeliveryDetail:
        webhook_id = await (find_webhook_id(client, webhook) if webhook else _only_webhook(client))
        return await _wait_for_attempt(client, await client.test_webhook(webhook_id), wait_seconds)

    delivery = options.run(send)
    if options.as_json:
        print_model(delivery)
    if code := _print_outcome(delivery, as_json=options.as_json):
        raise typer.Exit(code)


async def _only_webhook(client: RingbackClient) -> str:
    webhooks = await collect_first(client.webhooks(), limit=WEBHOOKS_LISTED_MAX + 1)
    if not webhooks:
        exit_with_error("You have no webhook. Register one: ringback webhooks add CALLBACK_URL")
    if len(webhooks) > 1:
        lines = [f"  {webhook.id}  {webhook.url}" for webhook in webhooks[:WEBHOOKS_LISTED_MAX]]
        exit_with_error("\n".join(["You have several webhooks. Name one: ringback trigger WEBHOOK", *lines]))
    return webhooks[0].id


async def _wait_for_attempt(client: RingbackClient, sent: Delivery, wait_seconds: float) -> DeliveryDetail:
    """The delivery after its first attempt, or as it is when the time is over."""
    ends_at = time.monotonic() + wait_seconds
    while True:
        delivery = await client.delivery(sent.id)
        if delivery.attempts or delivery.state not in {"pending", "leased"} or time.monotonic() >= ends_at:
            return delivery
        await asyncio.sleep(POLL_INTERVAL_SECONDS)


def _print_outcome(delivery: DeliveryDetail, *, as_json: bool) -> int:
    """Print what happened, and return the exit code."""
    if delivery.state == "held":
        print_message(f"It is held until the webhook is active. See why: ringback webhooks show {delivery.webhook_id}")
        return EXIT_NO_RESULT
    if not delivery.attempts:
        print_message(f"No attempt was made yet. See the outcome: ringback deliveries show {delivery.id}")
        return TRY_AGAIN
    attempt = delivery.attempts[-1]
    if not as_json:
        print_output(f"{delivery.id} {_describe_attempt(attempt)}")
    if delivery.state == "delivered":
        return 0
    if attempt.excerpt and not as_json:
        print_output(attempt.excerpt)
    if attempt.advice:
        print_message(attempt.advice)
    print_message(f"The receiver did not accept it. See all attempts: ringback deliveries show {delivery.id}")
    return EXIT_NO_RESULT


def _describe_attempt(attempt: Attempt) -> str:
    status = f" (HTTP {attempt.status_code})" if attempt.status_code else ""
    detail = f", {attempt.detail}," if attempt.detail else ""
    return f"{attempt.category}{status}{detail} in {attempt.duration_ms} ms"
