"""Existing webhooks: read, list, change, verify, test and remove them, and rotate their secrets."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final

from ringback.domain.clock import seconds
from ringback.domain.cursor import Page
from ringback.domain.delivery import Delivery
from ringback.domain.errors import InvalidRequest, NotFound
from ringback.domain.ids import IdGenerator, WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope
from ringback.domain.retry import DAY
from ringback.domain.upstreams import ToolCatalog
from ringback.domain.verification import Challenge
from ringback.domain.webhook import (
    Webhook,
    WebhookHealth,
    WebhookState,
    with_rotated_secret,
)
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.recorder import Recorder
from ringback.notifier.requested_deliveries import RequestedDeliveries
from ringback.services.audit import record_own_change
from ringback.services.events.event_types import EventTypes
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.quotas import QuotaEnforcer
from ringback.services.webhooks.attempt_scheduling import AttemptScheduler, OpenDeliveries
from ringback.services.webhooks.subscription_ends import remove_subscription_batch
from ringback.services.webhooks.verification import WebhookVerification
from ringback.services.webhooks.webhook_changes import (
    SUBSCRIPTION_ADVICE,
    WebhookChange,
    apply_change,
    describe_change,
    require_change_of_subscription,
)
from ringback.services.webhooks.webhook_checks import (
    check_subscribed_upstream,
    choose_secret,
    get_own_named_webhook,
    get_own_webhook,
    require_enabled,
    require_headers_for_origin,
    require_no_other_reader,
    require_secret_quota,
)
from ringback.services.webhooks.webhook_updates import UpdatedWebhook, remove_webhook_batch, update_webhook

SECRET_OVERLAP_SECONDS_MAX: Final = 7.0 * DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedWebhook:
    webhook: Webhook
    deliveries: OpenDeliveries


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedDelivery:
    """A test or a redelivery, and the open deliveries of its webhook, with which it is sent."""

    delivery: Delivery
    deliveries: OpenDeliveries


@dataclass(frozen=True, slots=True, kw_only=True)
class RotatedSecret(ChangedWebhook):
    secret: str | None = field(default=None, repr=False)
    """The new signing secret if the service has just generated it. It is shown only in this response."""
    overlap_ends_at: datetime
    """Until then, the previous secrets sign too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeState:
    """Whether a webhook's URL has proven that it accepts callbacks, and what is under way to find out."""

    challenge: Challenge | None
    """Planned, running or repeated; None if none is open."""
    proven_at: datetime | None
    """The latest proof of this URL for the owner; None if there is none, or it was removed after its time."""


class Webhooks:
    def __init__(
        self,
        *,
        store: Store,
        ids: IdGenerator,
        recorder: Recorder,
        requested_deliveries: RequestedDeliveries,
        attempts: AttemptScheduler,
        guard: TargetGuard,
        quotas: QuotaEnforcer,
        lifecycle: Lifecycle,
        verification: WebhookVerification,
        catalog: ToolCatalog,
        event_types: EventTypes,
    ) -> None:
        self._store = store
        self._ids = ids
        self._recorder = recorder
        self._requested_deliveries = requested_deliveries
        self._attempts = attempts
        self._guard = guard
        self._quotas = quotas
        self._lifecycle = lifecycle
        self._verification = verification
        self._catalog = catalog
        self._event_types = event_types

    async def get_webhook(self, caller: Caller, webhook_id: str) -> Webhook:
        caller.require_scope(Scope.READ)
        return await self._store.read(lambda tx: get_own_webhook(tx, caller.principal, webhook_id))

    async def find_pause_end(self, caller: Caller, webhook_id: str) -> datetime | None:
        """Until when a circuit breaker stops the attempts to a webhook; None also if the caller has no such webhook."""
        caller.require_scope(Scope.READ)

        async def find(tx: Transaction) -> datetime | None:
            webhook = await tx.webhooks.get(WebhookId(webhook_id))
            if webhook is None or caller.listed_principal not in {None, webhook.principal}:
                return None
            return await self._attempts.find_pause_end(tx, webhook)

        return await self._store.read(find)

    async def read_challenge(self, caller: Caller, webhook: Webhook) -> ChallengeState:
        """`webhook`: one that the caller has read."""
        caller.require_scope(Scope.READ)

        async def read(tx: Transaction) -> ChallengeState:
            return ChallengeState(
                challenge=await tx.challenges.get(webhook.id),
                proven_at=await tx.proofs.get_proven_at(webhook.principal, webhook.url),
            )

        return await self._store.read(read)

    async def get_named_webhook(self, caller: Caller, name: str) -> Webhook:
        caller.require_scope(Scope.READ)
        return await self._store.read(lambda tx: get_own_named_webhook(tx, caller.principal, name))

    async def list_webhooks(
        self,
        caller: Caller,
        health: WebhookHealth | None = None,
        *,
        state: WebhookState | None = None,
        position: str | None,
        limit: int,
    ) -> Page[Webhook, str]:
        """Newest first. With a state, a page may have few rows, or none, and a next page."""
        caller.require_scope(Scope.READ)
        principal = caller.listed_principal
        return await self._store.scan(
            caller.principal,
            lambda tx: tx.webhooks.list_page(principal, health, state=state, position=position, limit=limit),
        )

    async def change_webhook(self, caller: Caller, webhook_id: str, change: WebhookChange) -> ChangedWebhook:
        """Apply the change. Held deliveries are sent as soon as the webhook becomes active or is resumed.

        A new URL, and each request to activate or resume the webhook, make its pending deliveries due now. Nothing is written
        if the webhook has the values of the change already.
        """
        caller.require_scope(Scope.WEBHOOKS)
        if change.url is not None:
            await self._guard.check_url(change.url, caller.principal)
        if change.events is not None or change.state is WebhookState.ACTIVE:
            await self._demand_upstream_events(caller, webhook_id, change.events)

        async def apply(tx: Transaction) -> UpdatedWebhook:
            previous = await get_own_webhook(tx, caller.principal, webhook_id)
            if previous.is_subscription:
                require_change_of_subscription(change)
            url, has_headers = change.url or previous.url, change.headers is not None
            await require_headers_for_origin(tx, previous, url, are_given=has_headers, policy=self._guard.policy)
            updated = apply_change(previous, change, now=tx.now())
            if change.events is not None:
                check_subscribed_upstream(caller, updated, self._catalog)
            requests_attempts = change.state is WebhookState.ACTIVE or change.paused is False
            if updated == previous and not requests_attempts:
                return UpdatedWebhook(webhook=previous, scheduled=None)
            changed = await update_webhook(
                tx,
                self._verification,
                self._attempts,
                previous,
                replace(updated, updated_at=tx.now()),
                requests_attempts=requests_attempts,
            )
            await record_own_change(tx, caller, "change_webhook", previous.id, detail=describe_change(change))
            return changed

        updated = await self._store.write_for(caller.principal, apply)
        if change.url is not None and updated.webhook.state is WebhookState.PENDING_VERIFICATION:
            webhook = await self._verification.wait_until_challenged(updated.webhook)
            # The change itself could schedule nothing: it came before the proof.
            return ChangedWebhook(webhook=webhook, deliveries=await self._attempts.schedule_all(webhook))
        return ChangedWebhook(webhook=updated.webhook, deliveries=await self._complete_schedule(updated))

    async def _demand_upstream_events(self, caller: Caller, webhook_id: str, names: frozenset[str] | None) -> None:
        """Demand upstreams' events for a webhook that changes to these names, or becomes active with those that it has.

        While it was disabled, its demands have ended. Raises `InvalidRequest`, `NotFound` and `QuotaExceeded`.
        """
        if names is not None:
            await self._event_types.check_event_names(caller, names)
            return await self._event_types.demand_upstream_events(caller, names)
        webhook = await self._store.read(lambda tx: get_own_webhook(tx, caller.principal, webhook_id))
        if not webhook.is_subscription:
            await self._event_types.renew_upstream_demands(caller, webhook.events)
        return None

    async def _complete_schedule(self, updated: UpdatedWebhook) -> OpenDeliveries:
        if updated.scheduled is not None:
            return await self._attempts.complete_schedule(updated.webhook, updated.scheduled)
        return await self._store.read(lambda tx: self._attempts.describe(tx, updated.webhook))

    async def verify_webhook(self, caller: Caller, webhook_id: str) -> ChangedWebhook:
        """Challenge the URL now, and then make the webhook's pending deliveries due.

        Return the webhook after the challenge, or after the longest wait.
        """
        caller.require_scope(Scope.WEBHOOKS)
        self._lifecycle.require_running()

        async def restart_challenge(tx: Transaction) -> Webhook:
            webhook = await get_own_webhook(tx, caller.principal, webhook_id)
            require_enabled(webhook)
            await self._verification.restart_challenge(tx, webhook)
            await record_own_change(tx, caller, "verify_webhook", webhook.id)
            return webhook

        webhook = await self._store.write_for(caller.principal, restart_challenge)
        await self._verification.wait_for_challenge(webhook.id)
        challenged = await self._store.read(lambda tx: get_own_webhook(tx, caller.principal, webhook_id))
        return ChangedWebhook(webhook=challenged, deliveries=await self._attempts.schedule_all(challenged))

    async def send_test(self, caller: Caller, webhook_id: str) -> RequestedDelivery:
        """Send a test to this webhook only, before its other deliveries. It takes the same path as every delivery."""
        caller.require_scope(Scope.WEBHOOKS)
        self._lifecycle.require_running()
        self._quotas.acquire_start(caller.principal, key_id=caller.key_id)

        async def test(tx: Transaction) -> RequestedDelivery:
            webhook = await get_own_webhook(tx, caller.principal, webhook_id)
            require_enabled(webhook)
            await self._quotas.require_delivery_quota(tx, webhook.principal)
            test = await self._requested_deliveries.insert_test(tx, webhook)
            await record_own_change(tx, caller, "test_webhook", webhook.id)
            return RequestedDelivery(delivery=test, deliveries=await self._attempts.schedule_now(tx, webhook))

        sent = await self._store.write_for(caller.principal, test)
        await self._attempts.schedule_rest(caller.principal, sent.delivery.webhook_id)
        return sent

    async def rotate_secret(
        self, caller: Caller, webhook_id: str, *, secret: str | None, overlap_seconds: float
    ) -> RotatedSecret:
        """Sign with a new secret from now on, and also with the previous secrets until the overlap ends.

        Raises `Unavailable` while only other nodes can read the previous secrets and the headers.
        """
        caller.require_scope(Scope.WEBHOOKS)
        newest, generated = choose_secret(secret, self._ids)

        async def rotate(tx: Transaction) -> RotatedSecret:
            now = tx.now()
            webhook = await get_own_webhook(tx, caller.principal, webhook_id)
            if webhook.is_subscription:
                raise InvalidRequest(f"The secret of a subscription is its client's. {SUBSCRIPTION_ADVICE}")
            await require_no_other_reader(tx, webhook)
            webhook = with_rotated_secret(webhook, newest, now=now, overlap_seconds=overlap_seconds)
            require_secret_quota(webhook, now)
            await tx.webhooks.update(webhook, WebhookPart.SECRETS)
            await record_own_change(tx, caller, "rotate_secret", webhook.id)
            return RotatedSecret(
                webhook=webhook,
                deliveries=await self._attempts.schedule_now(tx, webhook),
                secret=generated,
                overlap_ends_at=now + seconds(overlap_seconds),
            )

        rotated = await self._store.write_for(caller.principal, rotate)
        await self._attempts.schedule_rest(caller.principal, rotated.webhook.id)
        return rotated

    async def remove_named_webhook(self, caller: Caller, name: str) -> None:
        """As `remove_webhook`. The name is free once this returns."""
        caller.require_scope(Scope.WEBHOOKS)
        webhook = await self._store.read(lambda tx: get_own_named_webhook(tx, caller.principal, name))
        await self.remove_webhook(caller, webhook.id)

    async def remove_webhook(self, caller: Caller, webhook_id: str) -> None:
        """Remove the webhook and cancel its open deliveries. The receiver of a subscription gets `terminated`.

        Thousands of deliveries can be open, so each transaction cancels one batch. If the process stops before the last batch,
        the owner removes the webhook again.
        """
        caller.require_scope(Scope.WEBHOOKS)

        async def remove_batch(tx: Transaction, *, is_first: bool = False) -> bool:
            webhook = await get_own_webhook(tx, caller.principal, webhook_id)
            if is_first:
                await record_own_change(tx, caller, "remove_webhook", webhook.id)
            if webhook.is_subscription:
                return await remove_subscription_batch(tx, self._recorder, webhook.id)
            return await remove_webhook_batch(tx, webhook)

        removed = await self._store.write_for(caller.principal, partial(remove_batch, is_first=True))
        while not removed:
            try:
                removed = await self._store.write_for(caller.principal, remove_batch)
            except NotFound:  # another request has removed it in the meantime
                removed = True
