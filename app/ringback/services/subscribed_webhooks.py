"""The webhook that a subscription is: its id, its filters from the arguments, and its grant."""

from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from ringback.domain.clock import seconds
from ringback.domain.event import event_name
from ringback.domain.event_types import arguments_topic, split_name
from ringback.domain.ids import WebhookId
from ringback.domain.principal import OIDC_PRINCIPAL_PREFIX, Caller, Principal
from ringback.domain.retry import RetryProfile
from ringback.domain.webhook import MessageIds, Webhook, WebhookOrigin, WebhookSecret
from ringback.protocol.mcp_events.backend import SubscriptionKey, SubscriptionRequest
from ringback.protocol.mcp_events.errors import ErrorProfile
from ringback.protocol.mcp_events.grants import TtlPolicy, grant_ttl
from ringback.protocol.mcp_events.subscription_key import subscription_id

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
    return WebhookId(subscription_id(principal, key.url, key.name, key.canonical_arguments))


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
