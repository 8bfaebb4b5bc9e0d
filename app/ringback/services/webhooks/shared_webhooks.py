"""Webhooks that are registered once although a client asks for them again and again.

    a callback with a client_session_id   calls of one session that give the same callback share one webhook: the first call
                                          registers it, and each later one names it and extends its expiry
    `ringback_notify_me`                  the same registration again is the same webhook, with a later expiry

It is the same webhook if the URL, the filters and all settings are the same. A rate limit does not count, because only the
owner can set one. A request with a secret shares only a webhook that signs with this secret: another secret makes another
webhook, so that every callback verifies with the secret that its call gave. A request without a secret shares the newest one.
"""

import hmac
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from ringback.domain.clock import seconds
from ringback.domain.errors import InvalidRequest, NotFound, WebhookNotActive
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.retry import DAY
from ringback.domain.webhook import Webhook
from ringback.domain.webhook_rows import WebhookPart
from ringback.services.webhooks.webhook_checks import get_own_webhook, require_enabled

CANDIDATES_MAX: Final = 16
"""Webhooks of one target that are compared, newest first. They differ in settings or secrets; a client has few of each, and one
that sends a new secret with every call finds none of them useful."""
LINGER_SECONDS: Final = 7.0 * DAY
"""How long a shared callback stays after the deadline of its last call: as long as results are kept by default."""
EXPIRY_STEP: Final = timedelta(days=1)
"""An expiry is extended by at least this, so that a busy session writes it once a day and not with every call."""


async def find_same_webhook(tx: Transaction, wanted: Webhook, *, has_any_secret: bool) -> Webhook | None:
    """The newest webhook of the principal that is the same as `wanted`.

    With `has_any_secret`, because the client gave none, it may sign with any. Raises `WebhookNotActive` if it is disabled.
    """
    candidates = await tx.call_webhooks.list_of_target(
        wanted.principal,
        url=wanted.url,
        client_session_id=wanted.client_session_id,
        call_id=wanted.call_id,
        limit=CANDIDATES_MAX,
    )
    for webhook in candidates:
        if _is_same(webhook, wanted, now=tx.confirmed_now()) and (has_any_secret or _has_secret_of(webhook, wanted)):
            require_enabled(webhook)
            return webhook
    return None


async def extend_expiry(tx: Transaction, webhook: Webhook, needed_until: datetime) -> Webhook | None:
    """The webhook, which expires after `needed_until`; None if another unit has removed it since it was found."""
    if webhook.expires_at is None or webhook.expires_at >= needed_until:
        return webhook
    latest = await tx.webhooks.get(webhook.id)  # locked: its owner may be changing it
    if latest is None or latest.expires_at is None or latest.expires_at >= needed_until:
        return latest  # another call, which needs it longer, was first
    extended = replace(latest, expires_at=needed_until + EXPIRY_STEP, updated_at=tx.now())
    await tx.webhooks.update(extended, WebhookPart.SETTINGS)
    return extended


def callback_needed_until(deadline_at: datetime) -> datetime:
    """How long a shared callback of a call with this deadline is needed."""
    return deadline_at + seconds(LINGER_SECONDS)


async def get_named_webhook(tx: Transaction, principal: Principal, webhook_id: str) -> Webhook:
    """The principal's webhook that a call names; raises for an unknown, foreign or expired one, or if it receives no calls."""
    try:
        webhook = await get_own_webhook(tx, principal, webhook_id)
    except NotFound:
        raise NotFound(
            "webhook: no webhook of yours has this id. List yours with `ringback webhooks list`. Nothing was started."
        ) from None
    if webhook.is_subscription:
        raise InvalidRequest(
            f"{webhook.id} is an MCP client's subscription to one event type. Name a webhook of yours, wh_…."
        )
    require_enabled(webhook)
    if webhook.expires_at is not None and webhook.expires_at <= tx.confirmed_now():
        raise WebhookNotActive(f"The webhook {webhook.id} has expired. Name another one. Nothing was started.")
    if webhook.call_id is not None:
        raise InvalidRequest(
            f"The webhook {webhook.id} is only for the call {webhook.call_id}. Name one without a call_id. Nothing was started."
        )
    if not any(name.startswith("call.") for name in webhook.events):
        raise InvalidRequest(
            f"The webhook {webhook.id} receives no events of calls. Name another one. Nothing was started."
        )
    return webhook


def _is_same(webhook: Webhook, wanted: Webhook, *, now: datetime) -> bool:
    return (
        webhook.origin is wanted.origin
        and not webhook.is_subscription
        and (webhook.expires_at is None or webhook.expires_at > now)
        and webhook.settings() == wanted.settings() | {"rate_per_second": webhook.rate_per_second}
    )


def _has_secret_of(webhook: Webhook, wanted: Webhook) -> bool:
    """Whether the webhook signs with the given secret. It does not after its owner has rotated the secret."""
    if webhook.has_unreadable_secrets:
        return False
    return hmac.compare_digest(webhook.secrets[0].value.encode(), wanted.secrets[0].value.encode())
