"""The webhook and the row that a subscription is: id, filters, grant, secrets, and what its client reads about deliveries."""

from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from ringback.domain.attempt_category import wire_reason
from ringback.domain.clock import epoch_milliseconds, seconds
from ringback.domain.event import event_name
from ringback.domain.event_subscriptions import EventSubscription, SubscriptionEnd
from ringback.domain.event_types import arguments_topic, split_name
from ringback.domain.ids import WebhookId
from ringback.domain.principal import OIDC_PRINCIPAL_PREFIX, Caller, Principal
from ringback.domain.retry import RetryProfile
from ringback.domain.webhook import (
    PREVIOUS_SECRETS_MAX,
    MessageIds,
    Webhook,
    WebhookOrigin,
    WebhookSecret,
    WebhookState,
    with_rotated_secret,
    with_state,
)
from ringback.protocol.mcp_events.backend import DeliveryStatus, SubscriptionKey, SubscriptionRequest
from ringback.protocol.mcp_events.errors import CallbackFailure, ErrorProfile
from ringback.protocol.mcp_events.grants import TtlPolicy, grant_ttl
from ringback.protocol.mcp_events.subscription_key import subscription_id
from ringback.services.webhooks.webhook_checks import SECRET_OVERLAP_SECONDS_DEFAULT

FILTER_BY_ARGUMENT: Final = {
    "call_id": "call_id",
    "client_session_id": "client_session_id",
    "correlation_id": "correlation_id",
    "upstream": "upstream",
    "tool": "tool",
    "uri": "resource_uri",
}
"""The filters of a webhook by the arguments of event types. Each is strict: an event without the value does not match."""


def get_subscription_id(principal: Principal, key: SubscriptionKey) -> WebhookId:
    return WebhookId(subscription_id(principal, key.url, key.name, key.canonical_arguments, key.subscriber))


def build_subscribed_webhook(
    caller: Caller, request: SubscriptionRequest, *, shown_name: str | None, policy: TtlPolicy, now: datetime
) -> Webhook:
    """The webhook of a new subscription. `request.name` is the name of the event in the log.

    Only an upstream understands the arguments of its own event types: they are the topic of its events, and no filters.
    """
    granted_seconds = grant_subscription_ttl(caller, request, policy)
    is_of_upstream = split_name(request.name)[0] is not None
    filters = {} if is_of_upstream else _find_filters(request)
    return Webhook(
        id=get_subscription_id(caller.principal, request.key),
        principal=caller.principal,
        url=request.url,
        events=frozenset({event_name(request.name)}),
        topic=arguments_topic(request.canonical_arguments) if is_of_upstream else None,
        shown_event_name=shown_name,
        match_correlation="correlation_id" in filters,
        retries=RetryProfile.MINUTES,
        secrets=(WebhookSecret(value=request.secret),),
        origin=WebhookOrigin.MCP,
        created_at=now,
        updated_at=now,
        expires_at=None if granted_seconds is None else now + seconds(granted_seconds),
        **filters,
    )


def choose_message_ids(profile: ErrorProfile, wanted: MessageIds) -> MessageIds:
    """What the webhook-id of the subscription's events is. Clients of the sketch demand that it equals the eventId."""
    return wanted if profile is ErrorProfile.SEP else MessageIds.EVENT


def grant_subscription_ttl(caller: Caller, request: SubscriptionRequest, policy: TtlPolicy) -> float | None:
    """The granted seconds; None for no expiry.

    A subscription ends with the API key that subscribed it, or at its expiry. With an access token only the expiry makes its
    client show again that it may have it, so such a client never gets one without expiry.
    """
    if caller.principal.startswith(OIDC_PRINCIPAL_PREFIX):
        policy = replace(policy, grants_no_expiry=False)
    return grant_ttl(request.ttl, policy)


def _find_filters(request: SubscriptionRequest) -> dict[str, Any]:
    return {
        name: request.arguments[argument]
        for argument, name in FILTER_BY_ARGUMENT.items()
        if request.arguments.get(argument) is not None
    }


def begin_at(wanted: Webhook, now: datetime) -> Webhook:
    """The webhook with its whole lifetime from now on."""
    passed = now - wanted.created_at
    expires_at = None if wanted.expires_at is None else wanted.expires_at + passed
    return replace(wanted, created_at=now, updated_at=now, expires_at=expires_at)


def is_live_subscription(webhook: Webhook | None, subscription: EventSubscription | None, now: datetime) -> bool:
    return (
        webhook is not None
        and subscription is not None
        and subscription.ended_at is None
        and webhook.state is not WebhookState.DISABLED
        and (webhook.expires_at is None or webhook.expires_at > now)
    )


def find_lapse(lapsed: Webhook | None, subscription: EventSubscription | None) -> datetime | None:
    """When the subscription ended without its client's doing; None if it is new, or if its client ended it."""
    if subscription is None or subscription.end in {SubscriptionEnd.UNSUBSCRIBED, SubscriptionEnd.REMOVED}:
        return None
    return subscription.ended_at or (None if lapsed is None else lapsed.expires_at)


def with_secret(webhook: Webhook, secret: str, *, now: datetime) -> Webhook:
    """The webhook with this secret. The previous one signs on for a day; of many, the oldest are dropped."""
    if not webhook.has_unreadable_secrets and webhook.secrets[0].value == secret:
        return webhook
    rotated = with_rotated_secret(webhook, secret, now=now, overlap_seconds=SECRET_OVERLAP_SECONDS_DEFAULT)
    return replace(rotated, secrets=rotated.secrets[: 1 + PREVIOUS_SECRETS_MAX])


def refresh_webhook(webhook: Webhook, wanted: Webhook, *, now: datetime) -> Webhook:
    """The webhook of a live subscription, with what the refresh wants. A suspended one becomes active."""
    refreshed = with_secret(webhook, wanted.secrets[0].value, now=now)
    if webhook.state is WebhookState.SUSPENDED:
        refreshed = with_state(refreshed, WebhookState.ACTIVE)
    return replace(
        refreshed,
        expires_at=wanted.expires_at,
        shown_event_name=wanted.shown_event_name,
        message_ids=wanted.message_ids,
        updated_at=now,
    )


def build_subscription(
    caller: Caller, request: SubscriptionRequest, webhook: Webhook, *, began_after: int
) -> EventSubscription:
    lifetime = None if webhook.expires_at is None else webhook.expires_at - webhook.created_at
    return EventSubscription(
        id=WebhookId(webhook.id),
        principal=webhook.principal,
        event_name=request.name,
        arguments=request.canonical_arguments,
        error_profile=str(request.error_profile),
        key_id=caller.key_id,
        ttl_ms=None if lifetime is None else round(lifetime.total_seconds() * 1000),
        created_at=webhook.created_at,
        refreshed_at=webhook.created_at,
        began_after=began_after,
    )


def describe_deliveries(
    before: Webhook, after: Webhook, next_attempt_at: datetime | None, *, now: datetime
) -> DeliveryStatus:
    """What happened until this refresh, which has made the subscription active again."""
    is_throttled = next_attempt_at is not None and next_attempt_at > now
    return DeliveryStatus(
        active=not after.holds_deliveries(),
        last_delivery_at=before.last_delivery_at,
        last_error=_to_failure(before.last_error),
        failed_since=before.failing_since,
        throttled=True if is_throttled else None,
        retry_after_ms=epoch_milliseconds(next_attempt_at) - epoch_milliseconds(now)
        if is_throttled and next_attempt_at is not None
        else None,
    )


def _to_failure(last_error: str | None) -> CallbackFailure | None:
    """One of the six categories; an error that is none of a receiver's (unreadable secrets) is left out."""
    reason = None if last_error is None else wire_reason(last_error)
    return CallbackFailure(reason) if reason in set(CallbackFailure) else None
