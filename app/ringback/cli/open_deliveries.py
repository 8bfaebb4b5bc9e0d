"""Prints what happens with the open deliveries of a webhook, and when."""

from datetime import UTC

from ringback.cli.output import print_message
from ringback.client.webhook_models import OpenDeliveries


def print_open_deliveries(deliveries: OpenDeliveries) -> None:
    """For example: 3 due now, 2 held, next attempt 14:02:11 UTC."""
    parts = [f"{deliveries.due_now} due now"]
    if deliveries.in_flight:
        parts.append(f"{deliveries.in_flight} being sent")
    if deliveries.held:
        parts.append(f"{deliveries.held} held")
    if deliveries.next_attempt_at is not None:
        parts.append(f"next attempt {deliveries.next_attempt_at.astimezone(UTC):%H:%M:%S} UTC")
    print_message(", ".join(parts))
