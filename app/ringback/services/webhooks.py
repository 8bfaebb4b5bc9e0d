"""Webhooks that are there: read, list, change, verify, test, give a new secret, remove."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Final

from ringback.domain.change_subscriptions import CHANGE_SUBSCRIPTIONS_TOPIC
from ringback.domain.clock import seconds
from ringback.domain.delivery import Delivery
from ringback.domain.errors import InvalidRequest, NotFound, QuotaExceeded, WebhookNotVerified
from ringback.domain.event import EventName
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope
from ringback.domain.retry import DAY, RetryProfile
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.upstreams import ToolCatalog
from ringback.domain.webhook import (
    OWNER_STATE_TRANSITIONS,
    PREVIOUS_SECRETS_MAX,
    DeliveryCondition,
    Webhook,
    WebhookState,
    with_rotated_secret,
    with_state,
    with_url,
)
from ringback.domain.webhook_health import RELEASE_BATCH_SIZE
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.requested_deliveries import RequestedDeliveries
from ringback.services.lifecycle import Lifecycle
from ringback.services.quotas import QuotaEnforcer
from ringback.services.verification import WebhookVerification
from ringback.services.webhook_checks import (
    check_subscribed_upstream,
    choose_secret,
    get_own_webhook,
    require_enabled,
    require_subscription_quota,
    subscribes_to_changes,
)

SECRET_OVERLAP_SECONDS_DEFAULT: Final = float(DAY)
"""A receiver is deployed anew within a day (and what implementations of MCP events use: mcp-events §8)."""
SECRET_OVERLAP_SECONDS_MAX: Final = 7.0 * DAY
CANCEL_BATCH_SIZE: Final = 200
"""Deliveries of a removed webhook that one unit of work cancels: some ten milliseconds of a slow core."""


class RateLimitRemoval(Enum):
    """What a rate is changed to when there is to be none."""

    UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookChange:
    """What may be changed of a webhook; None leaves a thing as it is."""

    url: str | None = None
    events: frozenset[EventName] | None = None
    description: str | None = None
    include_result: bool | None = None
    when: DeliveryCondition | None = None
    retries: RetryProfile | None = None
    rate_per_second: float | RateLimitRemoval | None = None
    state: WebhookState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RotatedSecret:
    webhook: Webhook
    secret: str | None = field(default=None, repr=False)
    """The new signing secret if it was generated just now; shown this once."""
    overlap_ends_at: datetime
    """Until then what signed before still signs, too."""


class Webhooks:
    def __init__(
        self,
        *,
        store: Store,
        ids: IdGenerator,
        requested_deliveries: RequestedDeliveries,
        guard: TargetGuard,
        quotas: QuotaEnforcer,
        lifecycle: Lifecycle,
        verification: WebhookVerification,
        catalog: ToolCatalog,
    ) -> None:
        self._store = store
        self._ids = ids
        self._requested_deliveries = requested_deliveries
        self._guard = guard
        self._quotas = quotas
        self._lifecycle = lifecycle
        self._verification = verification
        self._catalog = catalog

    async def get_webhook(self, caller: Caller, webhook_id: str) -> Webhook:
        caller.require_scope(Scope.READ)
        return await self._store.read(lambda tx: get_own_webhook(tx, caller.principal, webhook_id))

    async def list_webhooks(self, caller: Caller, *, position: str | None, limit: int) -> Sequence[Webhook]:
        caller.require_scope(Scope.READ)
        return await self._store.scan(
            caller.principal, lambda tx: tx.webhooks.list_page(caller.principal, position=position, limit=limit)
        )

    async def change_webhook(self, caller: Caller, webhook_id: str, change: WebhookChange) -> Webhook:
        """Change what is named. Whatever was held for a webhook goes out as soon as that becomes active."""
        caller.require_scope(Scope.WEBHOOKS)
        if change.url is not None:
            await self._guard.check_url(change.url, caller.principal)

        async def apply(tx: Transaction) -> Webhook:
            previous = await get_own_webhook(tx, caller.principal, webhook_id)
            updated = replace(_apply_change(previous, change), updated_at=tx.now())
            if change.events is not None:
                check_subscribed_upstream(caller, updated, self._catalog)
            if subscribes_to_changes(updated) and updated.state is not WebhookState.DISABLED:
                await require_subscription_quota(tx, updated)  # while disabled it took up none
            if subscribes_to_changes(previous) or subscribes_to_changes(updated):
                tx.notify(CHANGE_SUBSCRIPTIONS_TOPIC)
            updated = await self._verification.update_webhook(tx, previous, updated)
            if previous.state is not updated.state is WebhookState.ACTIVE:
                await tx.webhook_deliveries.release_held(updated.id, now=tx.now(), limit=RELEASE_BATCH_SIZE)
                tx.notify(DELIVERY_DUE_TOPIC)
            return updated

        changed = await self._store.write(apply)
        return changed if change.url is None else await self._verification.wait_until_challenged(changed)

    async def verify_webhook(self, caller: Caller, webhook_id: str) -> Webhook:
        """Challenge its URL now; the webhook as it is after that, or as it is while the answer takes too long."""
        caller.require_scope(Scope.WEBHOOKS)
        self._lifecycle.require_running()

        async def restart_challenge(tx: Transaction) -> Webhook:
            webhook = await get_own_webhook(tx, caller.principal, webhook_id)
            require_enabled(webhook)
            await self._verification.restart_challenge(tx, webhook)
            return webhook

        webhook = await self._store.write(restart_challenge)
        await self._verification.wait_for_challenge(webhook.id)
        return await self._store.read(lambda tx: get_own_webhook(tx, caller.principal, webhook_id))

    async def send_test(self, caller: Caller, webhook_id: str) -> Delivery:
        """Send a test to this webhook, and to no other, by the way that every delivery takes."""
        caller.require_scope(Scope.WEBHOOKS)
        self._lifecycle.require_running()
        self._quotas.acquire_start(caller.principal)

        async def test(tx: Transaction) -> Delivery:
            webhook = await get_own_webhook(tx, caller.principal, webhook_id)
            require_enabled(webhook)
            return await self._requested_deliveries.insert_test(tx, webhook)

        return await self._store.write(test)

    async def rotate_secret(
        self, caller: Caller, webhook_id: str, *, secret: str | None, overlap_seconds: float
    ) -> RotatedSecret:
        """Sign with a new secret from now on, and with the old ones beside it until the overlap is over."""
        caller.require_scope(Scope.WEBHOOKS)
        newest, generated = choose_secret(secret, self._ids)

        async def rotate(tx: Transaction) -> RotatedSecret:
            now = tx.now()
            webhook = await get_own_webhook(tx, caller.principal, webhook_id)
            webhook = with_rotated_secret(webhook, newest, now=now, overlap_seconds=overlap_seconds)
            _require_secret_quota(webhook, now)
            await tx.webhooks.update(webhook, WebhookPart.SECRETS)
            return RotatedSecret(webhook=webhook, secret=generated, overlap_ends_at=now + seconds(overlap_seconds))

        return await self._store.write(rotate)

    async def remove_webhook(self, caller: Caller, webhook_id: str) -> None:
        """Remove it; what of it was not delivered yet is cancelled.

        Thousands may be held, so that is done in steps. Before the second, the webhook is disabled, and hears nothing more; if
        the steps end before the last, it stays so, and the owner removes it again.
        """
        caller.require_scope(Scope.WEBHOOKS)

        async def remove_batch(tx: Transaction) -> bool:
            webhook = await get_own_webhook(tx, caller.principal, webhook_id)
            if subscribes_to_changes(webhook):
                tx.notify(CHANGE_SUBSCRIPTIONS_TOPIC)
            if (
                await tx.webhook_deliveries.cancel_open(webhook.id, now=tx.now(), limit=CANCEL_BATCH_SIZE)
                < CANCEL_BATCH_SIZE
            ):
                await tx.webhooks.delete(webhook.id)
                return True
            # One that waits for a proof stays as it is: from a disabled one, a change would make it active without.
            if WebhookState.DISABLED in OWNER_STATE_TRANSITIONS[webhook.state]:
                disabled = replace(with_state(webhook, WebhookState.DISABLED), updated_at=tx.now())
                await tx.webhooks.update(disabled, WebhookPart.STATE)
            return False

        removed = await self._store.write(remove_batch)
        while not removed:
            try:
                removed = await self._store.write(remove_batch)
            except NotFound:  # another request has removed it meanwhile
                removed = True


def _require_secret_quota(webhook: Webhook, now: datetime) -> None:
    ends = [secret.ends_at for secret in webhook.secrets if secret.ends_at is not None]
    if len(ends) > PREVIOUS_SECRETS_MAX:
        raise QuotaExceeded(
            f"{PREVIOUS_SECRETS_MAX} older secrets of this webhook still sign. Wait until the first of them ends, or end them "
            "with a shorter overlap_seconds; 0 ends them all at once.",
            retry_after_seconds=math.ceil((min(ends) - now).total_seconds()),
            quota="old_secrets",
            limit=PREVIOUS_SECRETS_MAX,
        )


def _apply_change(webhook: Webhook, change: WebhookChange) -> Webhook:
    state = change.state or webhook.state
    if state is not webhook.state:
        _require_switchable(webhook, state)
    return replace(
        with_url(with_state(webhook, state), change.url or webhook.url),
        events=webhook.events if change.events is None else change.events,
        description=webhook.description if change.description is None else change.description,
        include_result=webhook.include_result if change.include_result is None else change.include_result,
        when=change.when or webhook.when,
        retries=change.retries or webhook.retries,
        rate_per_second=_changed_rate(webhook, change),
    )


def _changed_rate(webhook: Webhook, change: WebhookChange) -> float | None:
    if isinstance(change.rate_per_second, RateLimitRemoval):
        return None
    return change.rate_per_second or webhook.rate_per_second


def _require_switchable(webhook: Webhook, state: WebhookState) -> None:
    if state not in {WebhookState.ACTIVE, WebhookState.DISABLED}:
        raise InvalidRequest("state may be set to 'active' or 'disabled' only.")
    if state not in OWNER_STATE_TRANSITIONS[webhook.state]:
        raise WebhookNotVerified(
            "The webhook waits for the proof that its URL wants callbacks. It becomes active by that and by nothing else; "
            f"until then nothing is sent to it. Ask for it: POST /v1/webhooks/{webhook.id}/verify. If you no longer want it, "
            "remove it."
        )
