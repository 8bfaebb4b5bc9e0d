"""Webhooks that are there: read, list, change, verify, test, give a new secret, remove."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Final

from ringback.domain.clock import seconds
from ringback.domain.delivery import Delivery
from ringback.domain.errors import InvalidRequest, NotFound, QuotaExceeded, WebhookNotVerified
from ringback.domain.event import EventName
from ringback.domain.health import RELEASE_STEP
from ringback.domain.ids import Ids
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope
from ringback.domain.retry import DAY, Profile
from ringback.domain.signals import DUE
from ringback.domain.upstreams import Catalog
from ringback.domain.watches import WATCHES
from ringback.domain.webhook import OLD_SECRETS_MAX, SWITCHES, Webhook, WebhookState, When, moved, rotated, switched
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.on_demand import OnDemand
from ringback.notifier.target_guard import TargetGuard
from ringback.services.lifecycle import Lifecycle
from ringback.services.quotas import QuotaKeeper
from ringback.services.verification import Verification
from ringback.services.webhook_rules import (
    check_watched,
    chosen_secret,
    own_webhook,
    require_enabled,
    require_room_for_watch,
    watches,
)

OVERLAP_SECONDS_DEFAULT: Final = float(DAY)
"""A receiver is deployed anew within a day (and what implementations of MCP events use: mcp-events §8)."""
OVERLAP_SECONDS_MAX: Final = 7.0 * DAY
CANCEL_STEP: Final = 200
"""Deliveries of a removed webhook that one unit of work cancels: some ten milliseconds of a slow core."""


class Unlimited(Enum):
    """What a rate is changed to when there is to be none."""

    UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What may be changed of a webhook; None leaves a thing as it is."""

    url: str | None = None
    events: frozenset[EventName] | None = None
    description: str | None = None
    include_result: bool | None = None
    when: When | None = None
    retries: Profile | None = None
    rate_per_second: float | Unlimited | None = None
    state: WebhookState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated:
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
        ids: Ids,
        on_demand: OnDemand,
        guard: TargetGuard,
        quotas: QuotaKeeper,
        lifecycle: Lifecycle,
        verification: Verification,
        catalog: Catalog,
    ) -> None:
        self._store = store
        self._ids = ids
        self._on_demand = on_demand
        self._guard = guard
        self._quotas = quotas
        self._lifecycle = lifecycle
        self._verification = verification
        self._catalog = catalog

    async def get(self, caller: Caller, webhook_id: str) -> Webhook:
        caller.require(Scope.READ)
        return await self._store.read(lambda tx: own_webhook(tx, caller.principal, webhook_id))

    async def page(self, caller: Caller, *, before: str | None, limit: int) -> Sequence[Webhook]:
        caller.require(Scope.READ)
        return await self._store.scan(
            caller.principal, lambda tx: tx.webhooks.page(caller.principal, before=before, limit=limit)
        )

    async def change(self, caller: Caller, webhook_id: str, change: Change) -> Webhook:
        """Change what is named. Whatever was held for a webhook goes out as soon as that becomes active."""
        caller.require(Scope.WEBHOOKS)
        if change.url is not None:
            await self._guard.check(change.url, caller.principal)

        async def apply(tx: Transaction) -> Webhook:
            before = await own_webhook(tx, caller.principal, webhook_id)
            after = replace(_changed(before, change), updated_at=tx.now())
            if change.events is not None:
                check_watched(caller, after, self._catalog)
            if watches(after) and after.state is not WebhookState.DISABLED:
                await require_room_for_watch(tx, after)  # while disabled it took up none
            if watches(before) or watches(after):
                tx.ring(WATCHES)
            after = await self._verification.update(tx, before, after)
            if before.state is not after.state is WebhookState.ACTIVE:
                await tx.delivery_lanes.release(after.id, now=tx.now(), limit=RELEASE_STEP)
                tx.ring(DUE)
            return after

        changed = await self._store.write(apply)
        return changed if change.url is None else await self._verification.once_challenged(changed)

    async def verify(self, caller: Caller, webhook_id: str) -> Webhook:
        """Challenge its URL now; the webhook as it is after that, or as it is while the answer takes too long."""
        caller.require(Scope.WEBHOOKS)
        self._lifecycle.require_open()

        async def ask(tx: Transaction) -> Webhook:
            webhook = await own_webhook(tx, caller.principal, webhook_id)
            require_enabled(webhook)
            await self._verification.again(tx, webhook)
            return webhook

        webhook = await self._store.write(ask)
        await self._verification.wait(webhook.id)
        return await self._store.read(lambda tx: own_webhook(tx, caller.principal, webhook_id))

    async def test(self, caller: Caller, webhook_id: str) -> Delivery:
        """Send a test to this webhook, and to no other, by the way that every delivery takes."""
        caller.require(Scope.WEBHOOKS)
        self._lifecycle.require_open()
        self._quotas.count_start(caller.principal)

        async def test(tx: Transaction) -> Delivery:
            webhook = await own_webhook(tx, caller.principal, webhook_id)
            require_enabled(webhook)
            return await self._on_demand.test(tx, webhook)

        return await self._store.write(test)

    async def rotate_secret(
        self, caller: Caller, webhook_id: str, *, secret: str | None, overlap_seconds: float
    ) -> Rotated:
        """Sign with a new secret from now on, and with the old ones beside it until the overlap is over."""
        caller.require(Scope.WEBHOOKS)
        newest, generated = chosen_secret(secret, self._ids)

        async def rotate(tx: Transaction) -> Rotated:
            now = tx.now()
            webhook = await own_webhook(tx, caller.principal, webhook_id)
            webhook = rotated(webhook, newest, now=now, overlap_seconds=overlap_seconds)
            _require_few_secrets(webhook, now)
            await tx.webhooks.update(webhook, WebhookPart.SECRETS)
            return Rotated(webhook=webhook, secret=generated, overlap_ends_at=now + seconds(overlap_seconds))

        return await self._store.write(rotate)

    async def remove(self, caller: Caller, webhook_id: str) -> None:
        """Remove it; what of it was not delivered yet is cancelled.

        Thousands may be held, so that is done in steps. Before the second, the webhook is disabled, and hears nothing more; if
        the steps end before the last, it stays so, and the owner removes it again.
        """
        caller.require(Scope.WEBHOOKS)

        async def step(tx: Transaction) -> bool:
            webhook = await own_webhook(tx, caller.principal, webhook_id)
            if watches(webhook):
                tx.ring(WATCHES)
            if await tx.delivery_lanes.cancel(webhook.id, now=tx.now(), limit=CANCEL_STEP) < CANCEL_STEP:
                await tx.webhooks.delete(webhook.id)
                return True
            # One that waits for a proof stays as it is: from a disabled one, a change would make it active without.
            if WebhookState.DISABLED in SWITCHES[webhook.state]:
                disabled = replace(switched(webhook, WebhookState.DISABLED), updated_at=tx.now())
                await tx.webhooks.update(disabled, WebhookPart.STATE)
            return False

        removed = await self._store.write(step)
        while not removed:
            try:
                removed = await self._store.write(step)
            except NotFound:  # another request has removed it meanwhile
                removed = True


def _require_few_secrets(webhook: Webhook, now: datetime) -> None:
    ends = [secret.ends_at for secret in webhook.secrets if secret.ends_at is not None]
    if len(ends) > OLD_SECRETS_MAX:
        raise QuotaExceeded(
            f"{OLD_SECRETS_MAX} older secrets of this webhook still sign. Wait until the first of them ends, or end them "
            "with a shorter overlap_seconds; 0 ends them all at once.",
            retry_after_seconds=math.ceil((min(ends) - now).total_seconds()),
            quota="old_secrets",
            limit=OLD_SECRETS_MAX,
        )


def _changed(webhook: Webhook, change: Change) -> Webhook:
    state = change.state or webhook.state
    if state is not webhook.state:
        _require_switchable(webhook, state)
    return replace(
        moved(switched(webhook, state), change.url or webhook.url),
        events=webhook.events if change.events is None else change.events,
        description=webhook.description if change.description is None else change.description,
        include_result=webhook.include_result if change.include_result is None else change.include_result,
        when=change.when or webhook.when,
        retries=change.retries or webhook.retries,
        rate_per_second=_rate(webhook, change),
    )


def _rate(webhook: Webhook, change: Change) -> float | None:
    if isinstance(change.rate_per_second, Unlimited):
        return None
    return change.rate_per_second or webhook.rate_per_second


def _require_switchable(webhook: Webhook, state: WebhookState) -> None:
    if state not in {WebhookState.ACTIVE, WebhookState.DISABLED}:
        raise InvalidRequest("state may be set to 'active' or 'disabled' only.")
    if state not in SWITCHES[webhook.state]:
        raise WebhookNotVerified(
            "The webhook waits for the proof that its URL wants callbacks. It becomes active by that and by nothing else; "
            f"until then nothing is sent to it. Ask for it: POST /v1/webhooks/{webhook.id}/verify. If you no longer want it, "
            "remove it."
        )
