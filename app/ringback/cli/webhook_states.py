"""`ringback webhooks enable`, `disable`, `pause` and `resume`: whether a webhook receives callbacks now."""

from datetime import UTC

from ringback.cli.client_options import (
    URL_DEFAULT,
    ApiKey,
    ForAllPrincipals,
    ForPrincipal,
    Url,
    WebhookId,
    choose_principal,
    run_with_client,
)
from ringback.cli.output import AsJson, exit_on_errors, model_to_json, print_json, print_message
from ringback.client import WebhookChange
from ringback.client.webhook_models import OpenDeliveries


@exit_on_errors()
def enable(
    webhook_id: WebhookId,
    *,
    principal: ForPrincipal = None,
    all_principals: ForAllPrincipals = False,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """Activate a webhook, and send the callbacks now that were held for it or wait for a later attempt."""
    owner = choose_principal(principal, all_principals)
    _change(webhook_id, url, api_key, {"state": "active"}, principal=owner, as_json=as_json)


@exit_on_errors()
def disable(
    webhook_id: WebhookId,
    *,
    principal: ForPrincipal = None,
    all_principals: ForAllPrincipals = False,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """Disable a webhook. It receives no callbacks until it is enabled."""
    owner = choose_principal(principal, all_principals)
    _change(webhook_id, url, api_key, {"state": "disabled"}, principal=owner, as_json=as_json)


@exit_on_errors()
def pause(
    webhook_id: WebhookId,
    *,
    principal: ForPrincipal = None,
    all_principals: ForAllPrincipals = False,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """Hold a webhook's callbacks until it is resumed. They are still given up at their age."""
    owner = choose_principal(principal, all_principals)
    _change(webhook_id, url, api_key, {"paused": True}, principal=owner, as_json=as_json)


@exit_on_errors()
def resume(
    webhook_id: WebhookId,
    *,
    principal: ForPrincipal = None,
    all_principals: ForAllPrincipals = False,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """Send a paused webhook's callbacks now."""
    owner = choose_principal(principal, all_principals)
    _change(webhook_id, url, api_key, {"paused": False}, principal=owner, as_json=as_json)


def _change(
    webhook_id: str, url: str, api_key: str | None, change: WebhookChange, *, principal: str | None, as_json: bool
) -> None:
    webhook = run_with_client(
        url, api_key, lambda client: client.change_webhook(webhook_id, **change), principal=principal
    )
    if as_json:
        print_json(model_to_json(webhook))
        return
    print_message(f"{webhook.id} is {webhook.state}{' and paused' if webhook.paused_at else ''}.")
    if webhook.state != "disabled":
        print_open_deliveries(webhook)


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
