"""Event subscriptions of MCP clients: events/subscribe and events/unsubscribe behind the checks of the protocol.

    subscribe      quota ▸ permission for the event and its arguments ▸ proof of the URL ▸ stored          (mcp-events §6)
    refresh        the same request while the subscription is live: secret, lifetime, attempts now, and the events between its
                   cursor and the last beginning of the subscription, if the cursor is the older one
    unsubscribe    success for what is live or was within `TOMBSTONE_SECONDS`, NotFound for what never was

A subscription is a webhook whose id is derived from its key, so that the same request names the same webhook in every process.
A subscribe that fails stores nothing but the count of its challenge.

Who may subscribe: a caller with the scope `webhooks`. A key that is limited to upstreams may name only these. Without
authentication the service accepts connections of its own machine only, and there is one principal, who may subscribe as over
REST. The permission is checked again when the key ends: the janitor then ends its subscriptions (`subscription_ends`).
"""

from dataclasses import replace
from functools import partial
from typing import Final

from ringback.domain.change_subscriptions import CHANGE_SUBSCRIPTIONS_TOPIC
from ringback.domain.clock import Clock
from ringback.domain.cursor import encode_log_position
from ringback.domain.errors import StoreUnavailable, UnknownUpstream
from ringback.domain.event_subscriptions import EventSubscription, SubscriptionEnd
from ringback.domain.event_types import EventType, is_own_name
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.upstreams import ToolCatalog
from ringback.domain.webhook import (
    MessageIds,
    Webhook,
    WebhookState,
    with_state,
)
from ringback.domain.webhook_health import RELEASE_BATCH_SIZE
from ringback.domain.webhook_rows import WebhookPart, changed_parts
from ringback.notifier.catch_up import CatchUps
from ringback.notifier.log_positions import read_log_position
from ringback.notifier.requested_deliveries import find_watermark_seq
from ringback.protocol.mcp_events.backend import (
    SubscriptionGrant,
    SubscriptionKey,
    SubscriptionRequest,
)
from ringback.protocol.mcp_events.errors import event_not_found
from ringback.protocol.mcp_events.grants import TtlPolicy
from ringback.services.access.api_keys import require_held_key
from ringback.services.audit import record_own_change
from ringback.services.events.event_errors import raising_event_errors
from ringback.services.events.event_types import EventTypes
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.quotas import QuotaEnforcer
from ringback.services.webhooks.attempt_scheduling import AttemptScheduler
from ringback.services.webhooks.callback_proofs import CallbackProofs
from ringback.services.webhooks.subscribed_webhooks import (
    begin_at,
    build_subscribed_webhook,
    build_subscription,
    choose_message_ids,
    describe_deliveries,
    find_lapse,
    get_subscription_id,
    is_live_subscription,
    refresh_webhook,
    with_secret,
)
from ringback.services.webhooks.subscription_ends import unsubscribe_batch
from ringback.services.webhooks.subscription_log import log_grant, logging_refusals
from ringback.services.webhooks.subscription_starts import find_earlier_start, find_start
from ringback.services.webhooks.verification import WebhookVerification
from ringback.services.webhooks.webhook_checks import (
    check_subscribed_upstream,
    require_subscription_quota,
    subscribes_to_changes,
)
from ringback.services.webhooks.webhook_updates import update_webhook

PROOFS_REQUESTED_MAX: Final = 3
"""Proofs of one request. A second one is needed only if the first has expired before the subscription is stored."""


class EventSubscriptions:
    """Implements the two webhook methods of `protocol.mcp_events.backend.EventBackend`."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        catch_ups: CatchUps,
        verification: WebhookVerification,
        proofs: CallbackProofs,
        attempts: AttemptScheduler,
        quotas: QuotaEnforcer,
        lifecycle: Lifecycle,
        catalog: ToolCatalog,
        event_types: EventTypes,
        ttl_policy: TtlPolicy,
        message_ids: MessageIds = MessageIds.EVENT,
    ) -> None:
        self._store = store
        self._clock = clock
        self._catch_ups = catch_ups
        self._verification = verification
        self._proofs = proofs
        self._attempts = attempts
        self._quotas = quotas
        self._lifecycle = lifecycle
        self._catalog = catalog
        self._event_types = event_types
        self._ttl_policy = ttl_policy
        self._message_ids = message_ids

    async def subscribe(
        self, caller: Caller, request: SubscriptionRequest, *, shown_name: str | None = None
    ) -> SubscriptionGrant:
        """Insert the subscription or refresh it. Raises `EventError`; then nothing is stored.

        `request.name` is the name of the event type in the log. Callbacks have `shown_name`, if that is another one.
        """
        with logging_refusals(caller, request), raising_event_errors():
            caller.require_scope(Scope.WEBHOOKS)
            self._lifecycle.require_running()
            wanted = build_subscribed_webhook(
                caller, request, shown_name=shown_name, policy=self._ttl_policy, now=self._clock.now()
            )
            wanted = replace(wanted, message_ids=choose_message_ids(request.error_profile, self._message_ids))
            is_live = await self._store.read(lambda tx: self._check_quota(tx, wanted))
            external = await self._authorize(caller, request, wanted)
            misses_events = False
            for _ in range(PROOFS_REQUESTED_MAX):
                if not is_live:
                    # The principal's proofs are those of all its clients: a subscriber proves the URL itself.
                    await self._proofs.require_proof(wanted, is_anew=request.subscriber is not None)
                if external is not None:
                    demanded = await self._event_types.demand_events(caller, external, request.canonical_arguments)
                    misses_events = misses_events or demanded.has_missed_events(request.cursor)
                save = partial(self._save, caller=caller, request=request, wanted=wanted, misses_events=misses_events)
                grant = await self._store.write_for(caller.principal, save)
                if grant is not None:
                    await self._attempts.schedule_rest(caller.principal, wanted.id)
                    return log_grant(caller, request, grant)
                is_live = False
            raise StoreUnavailable("The proof of delivery.url expired before the subscription was stored. Try again.")

    async def unsubscribe(self, caller: Caller, key: SubscriptionKey) -> None:
        """End the subscription with this key. Raises `EventError` (NotFound) for a key that the caller never had."""
        with raising_event_errors():
            caller.require_scope(Scope.WEBHOOKS)
            subscription_id = get_subscription_id(caller.principal, key)
            end_batch = partial(unsubscribe_batch, caller=caller, subscription_id=subscription_id)
            is_first = True
            while not await self._store.write_for(caller.principal, partial(end_batch, is_first=is_first)):
                is_first = False

    async def _check_quota(self, tx: Transaction, wanted: Webhook) -> bool:
        """Whether the subscription is live; raises `QuotaExceeded` if it is not and another one would exceed the quota."""
        webhook, subscription = await tx.webhooks.get(wanted.id), await tx.subscriptions.get(wanted.id)
        if is_live_subscription(webhook, subscription, tx.now()):
            return True
        await self._quotas.require_event_subscription_quota(tx, wanted.principal, subscription)
        return False

    async def _authorize(self, caller: Caller, request: SubscriptionRequest, wanted: Webhook) -> EventType | None:
        """Raise unless the caller may receive these events. Return the event type if it is not one of Ringback's own."""
        if not is_own_name(request.name):
            event_type = await self._event_types.find_event_type(caller, request.name)
            if event_type is None:
                raise event_not_found(request.name)
            return event_type
        if wanted.upstream is not None and not caller.may_use_upstream(wanted.upstream):
            raise UnknownUpstream("arguments.upstream: there is no upstream of this name that you may use.")
        check_subscribed_upstream(caller, wanted, self._catalog)
        return None

    async def _save(
        self, tx: Transaction, *, caller: Caller, request: SubscriptionRequest, wanted: Webhook, misses_events: bool
    ) -> SubscriptionGrant | None:
        """Store the subscription; None, and nothing is stored, if its URL needs a proof first.

        `misses_events`: the log lacks events of an upstream after the cursor of the request.
        """
        await require_held_key(tx, caller)
        wanted = begin_at(wanted, tx.now())  # the challenge has taken some of the time since the request
        webhook = await tx.webhooks.get(wanted.id)
        head = await tx.event_log.get_head(wanted.principal, lock=True)
        subscription = await tx.subscriptions.get(wanted.id)
        if webhook is not None and subscription is not None and is_live_subscription(webhook, subscription, tx.now()):
            return await self._refresh(tx, caller, request, wanted, webhook, subscription)
        if await self._verification.needs_proof(tx, wanted):
            return None
        await self._quotas.require_event_subscription_quota(tx, wanted.principal, subscription)
        grant = await self._begin(tx, caller, request, wanted, webhook, subscription, head=head)
        return replace(grant, truncated=grant.truncated or misses_events)

    async def _begin(
        self,
        tx: Transaction,
        caller: Caller,
        request: SubscriptionRequest,
        wanted: Webhook,
        lapsed: Webhook | None,
        subscription: EventSubscription | None,
        *,
        head: int,
    ) -> SubscriptionGrant:
        """Begin the subscription, also after it lapsed. Events from now on match it; earlier ones follow as a catch-up."""
        start = await find_start(tx, wanted, request, head=head, lapsed_at=find_lapse(lapsed, subscription))
        if start.after_seq < head:
            await self._quotas.require_delivery_quota(tx, wanted.principal)
        if subscribes_to_changes(wanted):
            await require_subscription_quota(tx, wanted)
            tx.notify(CHANGE_SUBSCRIPTIONS_TOPIC)
        if subscription is not None and subscription.end in {SubscriptionEnd.TERMINATED, SubscriptionEnd.REMOVED}:
            # Its last open delivery says that it has ended, which is not true any more.
            await tx.webhook_deliveries.cancel_open(wanted.id, now=tx.now(), limit=RELEASE_BATCH_SIZE)
        webhook = await self._insert_or_revive(tx, wanted, lapsed)
        await tx.subscriptions.save(build_subscription(caller, request, webhook, began_after=start.began_after))
        await record_own_change(tx, caller, "register_webhook", webhook.id)
        if start.after_seq < head:
            await self._catch_ups.begin_catch_up(tx, webhook, after_seq=start.after_seq)
        return SubscriptionGrant(
            id=webhook.id,
            refresh_before=webhook.expires_at,
            cursor=encode_log_position(await read_log_position(tx, webhook.principal, start.after_seq)),
            truncated=start.truncated,
        )

    async def _insert_or_revive(self, tx: Transaction, wanted: Webhook, lapsed: Webhook | None) -> Webhook:
        if lapsed is None:
            await tx.webhooks.insert(wanted)
            return wanted
        revived = replace(
            with_state(lapsed, WebhookState.ACTIVE),
            **wanted.settings(),
            shown_event_name=wanted.shown_event_name,
            message_ids=wanted.message_ids,
            created_at=wanted.created_at,
            expires_at=wanted.expires_at,
            paused_at=None,
            missed_from=None,
        )
        revived = with_secret(revived, wanted.secrets[0].value, now=tx.now())
        await tx.webhooks.update(revived, WebhookPart.SETTINGS, *changed_parts(lapsed, revived))
        await tx.webhook_deliveries.release_held(revived.id, now=tx.now(), limit=RELEASE_BATCH_SIZE)
        tx.notify(DELIVERY_DUE_TOPIC)
        return revived

    async def _refresh(
        self,
        tx: Transaction,
        caller: Caller,
        request: SubscriptionRequest,
        wanted: Webhook,
        webhook: Webhook,
        subscription: EventSubscription,
    ) -> SubscriptionGrant:
        """Extend a live subscription. A suspended one becomes active; a failing one gets an attempt now."""
        earlier = await find_earlier_start(tx, wanted, request, began_after=subscription.began_after)
        sends_again = earlier is not None and earlier.after_seq < subscription.began_after
        if sends_again:
            await self._quotas.require_delivery_quota(tx, wanted.principal)
        refreshed = refresh_webhook(webhook, wanted, now=tx.now())
        updated = await update_webhook(
            tx,
            self._verification,
            self._attempts,
            webhook,
            refreshed,
            requests_attempts=webhook.failing_since is not None,
        )
        began_after = subscription.began_after if earlier is None else earlier.began_after
        saved = build_subscription(caller, request, wanted, began_after=began_after)
        await tx.subscriptions.save(replace(saved, created_at=subscription.created_at))
        if earlier is not None and sends_again:
            await self._catch_ups.begin_catch_up(tx, updated.webhook, after_seq=earlier.after_seq)
        next_attempt_at = None if updated.scheduled is None else updated.scheduled.next_attempt_at
        return SubscriptionGrant(
            id=webhook.id,
            refresh_before=refreshed.expires_at,
            cursor=encode_log_position(
                await read_log_position(tx, webhook.principal, await _find_position(tx, webhook))
            ),
            truncated=webhook.missed_from is not None or (earlier is not None and earlier.truncated),
            delivery_status=describe_deliveries(webhook, updated.webhook, next_attempt_at, now=tx.now()),
        )


async def _find_position(tx: Transaction, webhook: Webhook) -> int:
    """The position at or before which everything was delivered, and of which the client has missed nothing."""
    watermark = await find_watermark_seq(tx, webhook)
    return watermark if webhook.missed_from is None else min(watermark, webhook.missed_from - 1)
