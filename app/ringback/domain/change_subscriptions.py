"""Subscriptions of webhooks to `upstream.changed`, as the component that subscribes at upstreams reads them."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from ringback.domain.errors import InvalidRequest
from ringback.domain.event import EventName
from ringback.domain.event_types import arguments_topic
from ringback.domain.principal import Principal
from ringback.domain.upstreams import Listing, UpstreamChange
from ringback.domain.webhook import Webhook
from ringback.protocol.mcp_events.errors import EventError
from ringback.protocol.mcp_events.subscription_key import canonical_arguments

RESOURCE_URI_LENGTH_MAX: Final = 2048
"""Characters in a resource URI of a webhook, and its bytes in UTF-8: the limit of a callback URL. PostgreSQL finds the webhook
by an index of URIs, and refuses a row whose entry there has more than 2704 bytes."""
RESOURCE_URIS_MAX: Final = 256
"""Resources of one upstream over all webhooks. Each is one subscription at the upstream."""
OWN_RESOURCE_URIS_MAX: Final = RESOURCE_URIS_MAX // 4
"""Those of them that only webhooks and demands of one principal name: it leaves most of them to the others."""
CHANGE_SUBSCRIPTIONS_TOPIC: Final = "change_subscriptions"
"""Topic: a subscription to an upstream's changes was added or removed."""

_CHANGE_NAMES: Final = {
    Listing.TOOLS: "tools",
    Listing.RESOURCES: "resources",
    Listing.RESOURCE_TEMPLATES: "resources",
    Listing.PROMPTS: "prompts",
    Listing.EVENTS: "events",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSubscription:
    """At least one webhook of the principal subscribes to this, or a poll or stream of the principal demands it."""

    principal: Principal
    upstream: str
    resource_uri: str | None
    """None means the upstream's lists."""

    def matches_change(self, change: UpstreamChange) -> bool:
        is_same = self.upstream == change.upstream and self.resource_uri == change.uri
        return is_same and change.concerns(self.principal)


class ChangeSubject(NamedTuple):
    """What changes: a resource of an upstream, or one of its lists."""

    upstream: str
    resource_uri: str | None
    """None means the upstream's lists."""


def make_change_arguments(upstream: str, uri: str | None) -> dict[str, str]:
    """The arguments of a demand for these changes."""
    return {"upstream": upstream} if uri is None else {"upstream": upstream, "uri": uri}


def find_change_topic(upstream: str, uri: str | None) -> str:
    """The topic of a demand for these changes (`EventDemand.topic`); empty if there can be none: the URI is too long."""
    try:
        return arguments_topic(canonical_arguments(make_change_arguments(upstream, uri))) or ""
    except EventError:
        return ""


def find_reached_limit(watched: Collection[ChangeSubscription], *, principal: Principal, uri: str) -> int | None:
    """The limit on watched resources that another one of this principal would exceed; None if it exceeds none.

    `watched` is from `ChangeSubscriptionRows.list_watched_resources`. A resource that is watched already costs nothing more.
    """
    watchers: dict[str, set[Principal]] = {}
    for each in watched:
        if each.resource_uri is not None:
            watchers.setdefault(each.resource_uri, set()).add(each.principal)
    own_count = sum(principals == {principal} for principals in watchers.values())
    if uri in watchers:
        return None
    if own_count >= OWN_RESOURCE_URIS_MAX:
        return OWN_RESOURCE_URIS_MAX
    return RESOURCE_URIS_MAX if len(watchers) >= RESOURCE_URIS_MAX else None


class ChangeSubscriptionRows(Protocol):
    """Implemented by the stores (`domain.ports`), over the rows of webhooks and of demands (`event_types.EventDemand`).

    Webhooks that are disabled or have expired, and demands that have ended, subscribe to nothing.
    """

    async def list_all(self, *, now: datetime) -> Collection[ChangeSubscription]:
        """Each subscription once: as many as principals have. A unit that writes asks for fewer."""
        ...

    async def has_subscription(self, wanted: ChangeSubscription, *, now: datetime) -> bool: ...

    async def list_of_subjects(
        self, subjects: Collection[ChangeSubject], *, now: datetime
    ) -> Collection[ChangeSubscription]:
        """Each subscription to any of these once."""
        ...

    async def list_watched_resources(self, upstream: str, *, now: datetime) -> Collection[ChangeSubscription]:
        """The resources of the upstream that are watched, each with some of its subscriptions.

        If several principals watch a resource, at least two of them are there.
        """
        ...


def change_name(change: UpstreamChange) -> str:
    """What has changed: tools | resources | prompts | events | resource."""
    return "resource" if change.listing is None else _CHANGE_NAMES[change.listing]


def check_change_subscription(webhook: Webhook) -> None:
    """Raise `InvalidRequest` if the webhook's filters exclude every `upstream.changed`, or its resource_uri has no effect.

    The same for a resource_uri that is too long to be stored.
    """
    if EventName.UPSTREAM_CHANGED not in webhook.events:
        if webhook.resource_uri is not None:
            raise InvalidRequest("resource_uri: only upstream.changed is about resources. Add it to events.")
        return
    if webhook.upstream is None:
        raise InvalidRequest("events: upstream.changed is about one upstream. Say which: upstream.")
    if webhook.tool or webhook.call_id or webhook.client_session_id or webhook.match_correlation:
        raise InvalidRequest(
            "events: upstream.changed belongs to no call, so a webhook that selects calls (tool, call_id, "
            "client_session_id, match_correlation) would never receive it. Register another webhook for it."
        )
    if len((webhook.resource_uri or "").encode()) > RESOURCE_URI_LENGTH_MAX:
        raise InvalidRequest(f"resource_uri: it may have at most {RESOURCE_URI_LENGTH_MAX} bytes in UTF-8.")
