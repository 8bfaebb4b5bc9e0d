"""Log lines about event subscriptions: who subscribed to what, at which host, and why it was refused or has ended.

subscription.created | subscription.refreshed (debug) | subscription.refused | subscription.ended

No line has a secret, an argument, or a URL: paths and queries of receivers may be secrets.
"""

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

from ringback.domain.event_subscriptions import EventSubscription, SubscriptionEnd
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.principal import Caller
from ringback.domain.webhook import SUBSCRIPTION_ID_PREFIX
from ringback.protocol.mcp_events.backend import SubscriptionGrant, SubscriptionRequest
from ringback.protocol.mcp_events.errors import EventError

log = logging.getLogger(__name__)


@contextmanager
def logging_refusals(caller: Caller, request: SubscriptionRequest) -> Generator[None]:
    """Log the `EventError` that a subscribe ends with."""
    try:
        yield
    except EventError as error:
        data = error.data or {}
        reason = data.get("reason") or data.get("limit")
        log.info(
            "subscription.refused", extra=_describe(caller, request) | {"error": str(error.name), "reason": reason}
        )
        raise


def log_grant(caller: Caller, request: SubscriptionRequest, grant: SubscriptionGrant) -> SubscriptionGrant:
    """Log a subscription that is stored, and return it. A refresh is one for debugging: clients repeat it all day."""
    is_new = grant.delivery_status is None
    expires_at = None if grant.refresh_before is None else grant.refresh_before.isoformat()
    log.log(
        logging.INFO if is_new else logging.DEBUG,
        "subscription.created" if is_new else "subscription.refreshed",
        extra=_describe(caller, request) | {"subscription_id": grant.id, "expires_at": expires_at},
    )
    return grant


def log_end(tx: Transaction, subscription: EventSubscription, end: SubscriptionEnd, reason: str | None = None) -> None:
    """Log the end of the subscription once the transaction is committed."""
    facts = {
        "subscription_id": subscription.id,
        "principal": subscription.principal,
        "event_name": subscription.event_name or None,  # a tombstone has none
        "end": str(end),
        "reason": reason,
    }
    tx.on_commit(lambda: log.info("subscription.ended", extra=facts))


async def log_expired(tx: Transaction, removed: Sequence[WebhookId]) -> None:
    """Log the subscriptions among these webhooks, which the janitor has removed because they were not refreshed."""
    for webhook_id in removed:
        if webhook_id.startswith(SUBSCRIPTION_ID_PREFIX):
            subscription = await tx.subscriptions.get(webhook_id)
            if subscription is not None and subscription.end is SubscriptionEnd.EXPIRED:
                log_end(tx, subscription, SubscriptionEnd.EXPIRED)


def _describe(caller: Caller, request: SubscriptionRequest) -> dict[str, str | None]:
    return {"principal": caller.principal, "event_name": request.name, "host": _find_host(request.url)}


def _find_host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
