"""`ringback webhooks enable`, `disable`, `pause` and `resume`: whether a webhook receives callbacks now."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

from ringback.cli.client_options import OperatorOptions, client_command
from ringback.cli.output import print_message
from ringback.cli.webhook_names import WebhookName, run_with_webhook

if TYPE_CHECKING:
    from ringback.client import ChangedWebhook, WebhookChange
    from ringback.client.webhook_models import OpenDeliveries


@client_command()
def enable(webhook: WebhookName, *, options: OperatorOptions) -> None:
    """Activate a webhook, and send the callbacks now that were held for it or wait for a later attempt."""
    _change(webhook, options, {"state": "active"})


@client_command()
def disable(webhook: WebhookName, *, options: OperatorOptions) -> None:
    """Disable a webhook, and hold its undelivered callbacks until it is enabled. What happens meanwhile gets no callback.

    `pause` holds the callbacks of what happens meanwhile, too. `remove` cancels undelivered callbacks.
    """
    _change(webhook, options, {"state": "disabled"})


@client_command()
def pause(webhook: WebhookName, *, options: OperatorOptions) -> None:
    """Hold a webhook's callbacks until it is resumed, those of new events, too. They are still given up at their age."""
    _change(webhook, options, {"paused": True})


@client_command()
def resume(webhook: WebhookName, *, options: OperatorOptions) -> None:
    """Send a paused webhook's callbacks now."""
    _change(webhook, options, {"paused": False})


def _change(webhook: str, options: OperatorOptions, change: WebhookChange) -> None:
    changed = run_with_webhook(options, webhook, lambda client, webhook_id: client.change_webhook(webhook_id, **change))
    options.print_model(changed, _print_state)


def _print_state(webhook: ChangedWebhook) -> None:
    print_message(f"{webhook.id} is {webhook.state}{' and paused' if webhook.paused_at else ''}.")
    print_open_deliveries(webhook)
    if webhook.state == "disabled":
        print_message(
            "What happens until it is enabled is in `ringback events` only: no replay sends it. To hold these callbacks, too, "
            f"pause the webhook: ringback webhooks pause {webhook.id}"
        )


def print_open_deliveries(deliveries: OpenDeliveries, *, dry_run: bool = False) -> None:
    """For example: Callbacks: 3 due now, 2 held, next attempt 14:02:11 UTC. Those of a dry run are not due yet."""
    parts: list[str] = []
    if deliveries.due_now:
        parts.append(f"{deliveries.due_now} due now")
    if deliveries.in_flight:
        parts.append(f"{deliveries.in_flight} being sent")
    if deliveries.held:
        parts.append(f"{deliveries.held} held")
    if deliveries.next_attempt_at is not None:
        parts.append(f"next attempt {deliveries.next_attempt_at.astimezone(UTC):%H:%M:%S} UTC")
    subject = "Callbacks without --dry-run" if dry_run else "Callbacks"
    print_message(f"{subject}: {', '.join(parts) or 'none is waiting'}")
