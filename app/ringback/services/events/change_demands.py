"""The demand of pollers and streams for changes of upstreams.

Changes are recorded only for principals who want them: those with a webhook for `upstream.changed`, and those with a demand. A
demand is stored, because the node that watches the upstreams may be another one.
"""

from datetime import datetime

from ringback.domain.change_subscriptions import (
    CHANGE_SUBSCRIPTIONS_TOPIC,
    find_reached_limit,
    make_change_arguments,
)
from ringback.domain.clock import Clock, seconds
from ringback.domain.errors import InvalidRequest, UnknownUpstream
from ringback.domain.event import EventName
from ringback.domain.event_types import DEMAND_SECONDS, EventDemand, arguments_topic
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller
from ringback.domain.upstreams import ToolCatalog
from ringback.protocol.mcp_events.subscription_key import canonical_arguments
from ringback.services.events.event_demands import DemandedEvents, demand_quota_exceeded, renew_demand


class ChangeDemands:
    def __init__(self, *, store: Store, clock: Clock, ids: IdGenerator, catalog: ToolCatalog) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._catalog = catalog

    async def demand_changes(self, caller: Caller, upstream: str, uri: str | None) -> DemandedEvents:
        """Make changes of the upstream's lists, or of the resource, arrive in the caller's log for `DEMAND_SECONDS`.

        Raises `UnknownUpstream`, `InvalidRequest` and `QuotaExceeded`.
        """
        if not (self._catalog.has_upstream(upstream) and caller.may_use_upstream(upstream)):
            raise UnknownUpstream("arguments.upstream: there is no upstream of this name that you may use.")
        if uri is not None and not uri.isprintable():  # as the resource_uri of a webhook
            raise InvalidRequest("arguments.uri: it must have printable characters only.")
        now = self._clock.now()
        demand = _build_demand(caller, upstream, uri, polled_until=now + seconds(DEMAND_SECONDS))
        return await renew_demand(
            self._store,
            caller,
            demand,
            ids=self._ids,
            topic=CHANGE_SUBSCRIPTIONS_TOPIC,
            require_quota=_require_free_resource,
        )


def _build_demand(caller: Caller, upstream: str, uri: str | None, *, polled_until: datetime) -> EventDemand:
    arguments = make_change_arguments(upstream, uri)
    return EventDemand(
        principal=caller.principal,
        event_name=EventName.UPSTREAM_CHANGED,
        topic=arguments_topic(canonical_arguments(arguments)) or "",
        arguments=arguments,
        polled_until=polled_until,
    )


async def _require_free_resource(tx: Transaction, demand: EventDemand) -> None:
    """Each resource is one subscription at the upstream, for whichever webhooks and demands."""
    if (uri := demand.arguments.get("uri")) is None:
        return
    watched = await tx.change_subscriptions.list_watched_resources(demand.arguments["upstream"], now=tx.now())
    limit = find_reached_limit(watched, principal=demand.principal, uri=uri)
    if limit is not None:
        raise demand_quota_exceeded("watched_resources", limit, "Watch another resource of this upstream no longer.")
