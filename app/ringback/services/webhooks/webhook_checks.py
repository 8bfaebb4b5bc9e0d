"""Checks that several webhook services share: ownership, signing secrets, filters, and limits of change subscriptions."""

import math
from datetime import datetime, timedelta
from typing import Final

from ringback.domain.change_subscriptions import check_change_subscription, find_reached_limit
from ringback.domain.errors import (
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    Unavailable,
    UnknownUpstream,
    WebhookNotActive,
)
from ringback.domain.event import EventName
from ringback.domain.ids import IdGenerator, WebhookId, is_webhook_id
from ringback.domain.ports import Transaction
from ringback.domain.principal import Caller, Principal
from ringback.domain.retry import DAY
from ringback.domain.upstreams import ToolCatalog
from ringback.domain.webhook import PREVIOUS_SECRETS_MAX, Webhook, WebhookState
from ringback.notifier.http.target import TargetCache, TargetPolicy
from ringback.signing import secrets as signing_secrets
from ringback.suggestions import suggest_name

SECRET_OVERLAP_SECONDS_DEFAULT: Final = float(DAY)
"""Most receivers deploy within a day. Implementations of MCP events use the same value (mcp-events §8)."""

SECRET_REPEATED_FOR: Final = timedelta(hours=1)
"""How long a repeated request shows the generated secret again: a client repeats a lost request within minutes."""


async def get_own_webhook(tx: Transaction, principal: Principal, webhook_id: str) -> Webhook:
    if is_webhook_id(webhook_id):
        webhook = await tx.webhooks.get(WebhookId(webhook_id))
        if webhook is not None and webhook.principal == principal:
            return webhook
    raise NotFound("No webhook of yours has this id. List yours: GET /v1/webhooks")


async def get_own_named_webhook(tx: Transaction, principal: Principal, name: str) -> Webhook:
    if (webhook := await tx.registered_webhooks.find_by_name(principal, name)) is not None:
        return webhook
    raise NotFound(f"No webhook of yours has this name. Register it: PUT /v1/webhooks/by-name/{name}")


def require_enabled(webhook: Webhook) -> None:
    if webhook.state is WebhookState.DISABLED:
        raise WebhookNotActive(
            "The webhook is disabled, so it receives nothing. Enable it first: "
            f'PATCH /v1/webhooks/{webhook.id} {{"state": "active"}}'
        )


def choose_secret(requested: str | None, ids: IdGenerator) -> tuple[str, str | None]:
    """The requested secret, or a generated one. The second value is the generated secret, which the response shows once."""
    if not requested:
        generated = signing_secrets.generate_secret(ids.random_bytes(signing_secrets.SECRET_BYTES))
        return generated, generated
    try:
        signing_secrets.parse_secret(requested)
    except signing_secrets.InvalidSecret as problem:
        raise InvalidRequest(f"secret: {problem}") from None
    return requested, None


def get_repeated_secret(webhook: Webhook, *, now: datetime) -> str | None:
    """The generated secret, for a request that repeats the registration of the webhook; None once its owner has changed it."""
    is_first_version = webhook.updated_at == webhook.created_at and not webhook.has_unreadable_secrets
    is_shown = is_first_version and now - webhook.created_at <= SECRET_REPEATED_FOR
    return webhook.secrets[0].value if is_shown else None


def require_secret_quota(webhook: Webhook, now: datetime) -> None:
    ends = [secret.ends_at for secret in webhook.secrets if secret.ends_at is not None]
    if len(ends) > PREVIOUS_SECRETS_MAX:
        raise QuotaExceeded(
            f"{PREVIOUS_SECRETS_MAX} previous secrets of this webhook still sign. Wait until the first of "
            f"them ends, or end them "
            "with a shorter overlap_seconds; 0 ends all of them at once.",
            retry_after_seconds=math.ceil((min(ends) - now).total_seconds()),
            quota="old_secrets",
            limit=PREVIOUS_SECRETS_MAX,
        )


def require_effective_outcomes(webhook: Webhook) -> None:
    """Raise `InvalidRequest` if the webhook names outcomes and receives no event that has one."""
    if webhook.outcomes is not None and EventName.CALL_FINISHED not in webhook.events:
        raise InvalidRequest("outcomes: only call.finished has an outcome. Add it to events, or leave outcomes out.")


async def require_headers_for_origin(
    tx: Transaction, webhook: Webhook, url: str, *, are_given: bool, policy: TargetPolicy, replaces_secret: bool = False
) -> None:
    """Raise `InvalidRequest` if stored headers would be sent to another origin, or if new ones could not be stored.

    Responses show names only, so a stolen API key must not get the values by changing the URL. Headers are sealed with the
    secrets: while these cannot be read, they stay as they are, in case that their key comes back, unless a new secret
    replaces all of it. Raises `Unavailable` while other nodes may read them.
    """
    targets = TargetCache(policy)
    is_elsewhere = targets.get_origin(url) != targets.get_origin(webhook.url)
    if webhook.has_unreadable_secrets:
        if are_given or is_elsewhere or replaces_secret:
            await require_no_other_reader(tx, webhook)
        if (are_given or is_elsewhere) and not replaces_secret:
            raise InvalidRequest(
                "headers: the key that sealed the webhook's secret and headers is missing here, so the headers, and the origin "
                f"of the URL, cannot be changed. Rotate the secret first: POST /v1/webhooks/{webhook.id}/rotate-secret. Then "
                "send the headers that the webhook is to have."
            )
    elif webhook.headers and not are_given and is_elsewhere:
        raise InvalidRequest(
            "headers: the webhook has headers, and its new URL has another origin. Send the headers again with the URL, "
            "or {} to remove them."
        )


async def require_no_other_reader(tx: Transaction, webhook: Webhook) -> None:
    """Raise `Unavailable` if other nodes may read the secrets and headers, and this one cannot.

    A new secret would replace all that is sealed: the headers, and the previous secrets that still sign.
    """
    if webhook.has_unreadable_secrets and await tx.sealing_keys.lacks_any():
        raise Unavailable(
            "This node lacks a key of other nodes, and one of them may know the webhook's secret and headers. Send the request "
            "again."
        )


def subscribes_to_changes(webhook: Webhook) -> bool:
    """Whether the webhook matches changes of an upstream, so that the service must subscribe to them."""
    return EventName.UPSTREAM_CHANGED in webhook.events


def check_subscribed_upstream(caller: Caller, webhook: Webhook, catalog: ToolCatalog) -> None:
    """Raise `UnknownUpstream` unless the upstream is configured and visible to the caller."""
    check_change_subscription(webhook)
    if subscribes_to_changes(webhook) and not (
        webhook.upstream is not None
        and catalog.has_upstream(webhook.upstream)
        and caller.may_use_upstream(webhook.upstream)
    ):
        raise UnknownUpstream(
            "upstream: there is no upstream of this name. List them: GET /v1/upstreams", upstream=webhook.upstream
        )


def warn_of_unlisted_upstream(caller: Caller, webhook: Webhook, catalog: ToolCatalog) -> str:
    """A sentence for a webhook whose upstream the caller's list does not have; empty for others.

    It is no error: calls of servers that report them name upstreams without an entry, and an entry can follow.
    """
    if webhook.upstream is None:
        return ""
    listed = [each.name for each in (*catalog.list_upstreams(), *catalog.list_skipped())]
    names = [name for name in listed if caller.may_use_upstream(name)]
    if webhook.upstream in names:
        return ""
    return f"GET /v1/upstreams lists no '{webhook.upstream}' now.{suggest_name(webhook.upstream, names)}"


async def require_subscription_quota(tx: Transaction, webhook: Webhook) -> None:
    if webhook.resource_uri is None or webhook.upstream is None:
        return
    watched = await tx.change_subscriptions.list_watched_resources(webhook.upstream, now=tx.now())
    limit = find_reached_limit(watched, principal=webhook.principal, uri=webhook.resource_uri)
    if limit is not None:
        raise QuotaExceeded(
            f"{limit} resources of this upstream have subscriptions already. Remove a webhook that names one of them.",
            retry_after_seconds=60,
            quota="watched_resources",
            limit=limit,
        )
