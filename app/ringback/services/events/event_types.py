"""The types of events that a caller can subscribe to besides Ringback's own, and the demand for those of upstreams.

`domain.event_types` explains their names. A principal declares the types that it publishes, or publishes an event of a new
name, which declares it. So a webhook for a misspelled name is refused.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol

from ringback.domain import json_size, jsontext
from ringback.domain.clock import Clock, seconds
from ringback.domain.errors import InvalidRequest, NotFound, QuotaExceeded
from ringback.domain.event_types import (
    DEMAND_SECONDS,
    DEMANDS_TOPIC,
    FOLLOWED_TOPIC,
    EventDemand,
    EventType,
    PublishedEventType,
    arguments_topic,
    is_own_name,
    is_publishable_name,
    split_name,
)
from ringback.domain.ids import IdGenerator
from ringback.domain.payload_changes import find_incompatible_change
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.services.access.api_keys import require_held_key
from ringback.services.audit import record_own_change
from ringback.services.events.event_demands import DemandedEvents, renew_demand, require_upstream_demand_quota
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.schema_checks import PAYLOADS_REFUSED, SchemaCheckLimiter
from ringback.services.long_polling import poll_until
from ringback.suggestions import suggest_name

log = logging.getLogger(__name__)

PUBLISHED_TYPES_MAX: Final = 100
"""Types that one principal can declare: more than an application has. Each is a row that events/list returns."""
FOLLOW_WAIT_SECONDS: Final = 5.0
"""How long a new demand waits until the upstream is asked. A subscriber without a cursor misses what happens before that."""
SCHEMA_BYTES_MAX: Final = 64 * 1024
"""As for the `data` of an event."""
SCHEMAS_BYTES_MAX: Final = 16 * 1024 * 1024
"""The memory that the decoded schemas of one principal take together. Each list of the types decodes all of them, in up to a
tenth of a second. A hundred schemas of 16 KB are about as much."""
ANY_OBJECT: Final = {"type": "object"}
"""The schema of a type that was declared without one."""


class UpstreamEventTypes(Protocol):
    """The types that upstreams listed last. Only `refresh_event_types` sends requests."""

    async def refresh_event_types(self, upstream: str | None) -> None:
        """List again what is older than some minutes, at the upstreams that are connected now."""
        ...

    def list_event_types(self, upstream: str | None) -> Sequence[EventType]:
        """Those of one upstream, or of all upstreams."""
        ...

    def find_event_type(self, name: str) -> EventType | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTypeDeclaration:
    name: str
    description: str | None = None
    payload_schema: Any = None


class DeclaredType(NamedTuple):
    event_type: PublishedEventType
    is_new: bool
    warning: str | None
    """What subscribers must know, because the schema has changed otherwise than by addition."""


class DeclaredPayload(NamedTuple):
    """The data of an event, and the schema that its type declares for it."""

    schema: Mapping[str, Any]
    data: Mapping[str, Any]
    place: Sequence[str | int] = ("data",)
    """Where the data is in the request."""


class PayloadSchemas(Protocol):
    """Validates data of events against JSON Schemas, in bounded time."""

    def find_schema_error(self, schema: Mapping[str, Any]) -> str | None:
        """Why a schema cannot be declared; None if it can."""
        ...

    def find_errors(self, payloads: Sequence[DeclaredPayload]) -> Sequence[Mapping[str, str]]:
        """The first errors, each with `pointer` and `detail`. Data that takes too many steps to check has none."""
        ...


class EventTypes:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: IdGenerator,
        lifecycle: Lifecycle,
        catalog: UpstreamEventTypes,
        payload_schemas: PayloadSchemas,
        check_limiter: SchemaCheckLimiter,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._lifecycle = lifecycle
        self._catalog = catalog
        self._payload_schemas = payload_schemas
        self._check_limiter = check_limiter

    # -- types --

    async def list_event_types(self, caller: Caller, upstream: str | None = None) -> Sequence[EventType]:
        """The types of the upstream, or of all upstreams and those that the principal publishes, which the caller may use."""
        await self._catalog.refresh_event_types(upstream)
        listed = [each for each in self._catalog.list_event_types(upstream) if _may_use(caller, each)]
        if upstream is not None:
            return listed
        published = await self._store.read(lambda tx: tx.event_types.list_of_principal(caller.principal))
        return [*listed, *(each.to_event_type() for each in published)]

    async def find_event_type(self, caller: Caller, name: str) -> EventType | None:
        """None for an unknown name, and for a type of an upstream that the caller may not use."""
        if split_name(name)[0] is not None:
            found = self._catalog.find_event_type(name)
            return found if found is not None and _may_use(caller, found) else None
        published = await self._store.read(lambda tx: tx.event_types.get(caller.principal, name))
        return None if published is None else published.to_event_type()

    async def declare_event_type(self, caller: Caller, declaration: EventTypeDeclaration) -> DeclaredType:
        """Declare the type, or replace its description and its schema. The same declaration again changes nothing."""
        require_publisher(caller)
        require_publishable(declaration.name)
        self._check_payload_schema(caller, declaration.payload_schema)

        async def save(tx: Transaction) -> DeclaredType:
            await require_held_key(tx, caller)
            known = await tx.event_types.get(caller.principal, declaration.name)
            declared = await save_event_type(tx, caller.principal, declaration)
            if declared != known:
                await record_own_change(tx, caller, "declare_event_type", declared.name)
            return DeclaredType(declared, known is None, _warn_of_change(known, declared))

        return await self._store.write_for(caller.principal, save)

    def _check_payload_schema(self, caller: Caller, schema: Any) -> None:
        if len(jsontext.dumps(schema)) > SCHEMA_BYTES_MAX:
            raise InvalidRequest(f"payload_schema: it has more than {SCHEMA_BYTES_MAX} bytes.")
        if schema is None:
            return
        with self._check_limiter.measure_check(caller.principal, PAYLOADS_REFUSED):
            error = self._payload_schemas.find_schema_error(schema)
        if error is not None:
            raise InvalidRequest(f"payload_schema: it is no JSON Schema that can be checked: {error}.")

    async def remove_event_type(self, caller: Caller, name: str) -> None:
        """Remove the declaration. Its events and webhooks stay; the next published event declares it again."""
        require_publisher(caller)

        async def remove(tx: Transaction) -> None:
            if not await tx.event_types.remove(caller.principal, name):
                raise NotFound("You have declared no event type of this name. List yours: GET /v1/event-types")
            await record_own_change(tx, caller, "remove_event_type", name)

        await self._store.write_for(caller.principal, remove)

    # -- subscriptions --

    async def check_event_names(self, caller: Caller, names: Collection[str]) -> None:
        """Raise `InvalidRequest` for a name that the caller can receive no event of."""
        external = [name for name in sorted(names) if not is_own_name(name)]
        for name in external:
            if await self.find_event_type(caller, name) is None:
                known = [
                    each.name for each in await self.list_event_types(caller)
                ]  # listed again, if that is minutes ago
                if name not in known:
                    raise InvalidRequest(_describe_unknown(name, known))

    async def demand_upstream_events(self, caller: Caller, names: Collection[str]) -> None:
        """Demand the events of those of these names that are an upstream's, without arguments."""
        external = [name for name in sorted(names) if split_name(name)[0] is not None]
        await self._demand_all(
            caller, [name for name in external if await self.find_event_type(caller, name) is not None]
        )

    async def demand_events(self, caller: Caller, event_type: EventType, canonical_arguments: str) -> DemandedEvents:
        """Make the upstream's events of this type, for these arguments, arrive in the log.

        The demand lasts for `DEMAND_SECONDS`, and after that as long as a webhook with this event and topic exists. It is
        stored, because another node may follow the upstream, and because a restart must not lose events between two polls.
        Waits until the upstream is asked, `FOLLOW_WAIT_SECONDS` at most. `canonical_arguments` are JSON in the form of
        RFC 8785. Raises `QuotaExceeded`.
        """
        if event_type.upstream is None:
            return DemandedEvents(None, is_new=False)
        return await self._demand(caller, event_type.name, canonical_arguments)

    async def get_gap_seq(self, caller: Caller, name: str, topic: str | None) -> int:
        """The place in the log of the last gap of these events, for a reader that has seen the demand begin; 0 for none."""
        demand = await self._store.read(lambda tx: tx.event_demands.get(caller.principal, name, topic or ""))
        return 0 if demand is None else demand.gap_seq

    async def renew_upstream_demands(self, caller: Caller, names: Collection[str]) -> None:
        """As `demand_upstream_events`, for names that were checked before: the upstream may be away now."""
        upstreams = {name: split_name(name)[0] for name in sorted(names)}
        await self._demand_all(
            caller,
            [
                name
                for name, upstream in upstreams.items()
                if upstream is not None and caller.may_use_upstream(upstream)
            ],
        )

    async def _demand_all(self, caller: Caller, names: Sequence[str]) -> None:
        """All are demanded before the wait: an upstream that is away delays a webhook once, however many events it names."""
        demands = [self._build_demand(caller, name, "{}") for name in names]
        for demand in demands:
            await self._renew(caller, demand)
        if demands:
            await self._wait_until_followed(demands)

    async def _demand(self, caller: Caller, name: str, canonical_arguments: str) -> DemandedEvents:
        demand = self._build_demand(caller, name, canonical_arguments)
        demanded = await self._renew(caller, demand)
        await self._wait_until_followed([demand])
        return demanded

    def _build_demand(self, caller: Caller, name: str, canonical_arguments: str) -> EventDemand:
        return EventDemand(
            principal=caller.principal,
            event_name=name,
            topic=arguments_topic(canonical_arguments) or "",
            arguments=jsontext.loads(canonical_arguments),
            polled_until=self._clock.now() + seconds(DEMAND_SECONDS),
        )

    async def _renew(self, caller: Caller, demand: EventDemand) -> DemandedEvents:
        return await renew_demand(
            self._store, caller, demand, ids=self._ids, topic=DEMANDS_TOPIC, require_quota=require_upstream_demand_quota
        )

    async def _wait_until_followed(self, demands: Sequence[EventDemand]) -> None:
        async def read(tx: Transaction) -> bool:
            for demand in demands:
                if await tx.event_followings.get(demand.event_name, demand.topic) is None:
                    return False
            return True

        await poll_until(
            lambda: self._store.read(read),
            bool,
            signals=self._store.signals,
            topics=[FOLLOWED_TOPIC],
            wait_seconds=FOLLOW_WAIT_SECONDS,
            clock=self._clock,
            lifecycle=self._lifecycle,
        )


async def save_event_type(
    tx: Transaction, principal: Principal, declaration: EventTypeDeclaration, *, replaces: bool = True
) -> PublishedEventType:
    """Raises `QuotaExceeded` for a new type above `PUBLISHED_TYPES_MAX`, and for a larger schema above `SCHEMAS_BYTES_MAX`."""
    known = await tx.event_types.get(principal, declaration.name)
    if known is not None and not replaces:
        return known
    await tx.event_log.get_head(principal, lock=True)  # two declarations at once are counted one after the other
    known = await tx.event_types.get(principal, declaration.name)  # another unit may have declared it meanwhile
    if known is not None and not replaces:
        return known
    saved = PublishedEventType(
        principal=principal,
        name=declaration.name,
        description=declaration.description or f"An event '{declaration.name}' was published.",
        payload_schema=ANY_OBJECT if declaration.payload_schema is None else declaration.payload_schema,
        created_at=tx.now() if known is None else known.created_at,
        updated_at=tx.now(),
    )
    if known is not None and replace(saved, updated_at=known.updated_at) == known:
        return known
    if known is None or _decoded_bytes(saved) > _decoded_bytes(known):
        await _require_type_quotas(tx, saved)
    await tx.event_types.save(saved)
    return saved


async def _require_type_quotas(tx: Transaction, saved: PublishedEventType) -> None:
    """The caller has locked the log."""
    others = [each for each in await tx.event_types.list_of_principal(saved.principal) if each.name != saved.name]
    if len(others) >= PUBLISHED_TYPES_MAX:
        raise QuotaExceeded(
            f"You have declared {PUBLISHED_TYPES_MAX} event types. Remove one: DELETE /v1/event-types/NAME",
            retry_after_seconds=60,
            quota="event_types",
            limit=PUBLISHED_TYPES_MAX,
        )
    if sum(map(_decoded_bytes, (*others, saved))) > SCHEMAS_BYTES_MAX and saved.payload_schema != ANY_OBJECT:
        raise QuotaExceeded(
            "Your payload_schemas together have too many values. Declare simpler ones, or remove an event type: "
            "DELETE /v1/event-types/NAME",
            retry_after_seconds=60,
            quota="payload_schema_bytes",
            limit=SCHEMAS_BYTES_MAX,
        )


def _decoded_bytes(published: PublishedEventType) -> int:
    """The memory that its schema takes."""
    return json_size.estimate_decoded_bytes(jsontext.dumps(published.payload_schema))


def _warn_of_change(known: PublishedEventType | None, declared: PublishedEventType) -> str | None:
    """None for a new type, and for one that had no schema of its own."""
    if known is None or known.payload_schema == ANY_OBJECT:
        return None
    change = find_incompatible_change(known.payload_schema, declared.payload_schema)
    if change is None:
        return None
    return (
        f"payload_schema has changed otherwise than by addition: {change}. Subscribers and kept events have the older one. "
        "Declare an incompatible schema under a new name."
    )


def require_publisher(caller: Caller) -> None:
    """Raise `Forbidden` unless the caller starts calls or reports them."""
    if Scope.ADOPT not in caller.scopes:
        caller.require_scope(Scope.CALLS)


def require_publishable(name: str) -> None:
    """Raise `InvalidRequest` for a name that is not free for events of clients."""
    if not is_publishable_name(name):
        raise InvalidRequest(
            "name: use lower-case words with dots, such as order.paid, of a-z, 0-9, _ and -. Names that begin with call., "
            "upstream., webhook., ringback. or mcp. are not free."
        )


def _may_use(caller: Caller, event_type: EventType) -> bool:
    return event_type.upstream is None or caller.may_use_upstream(event_type.upstream)


def _describe_unknown(name: str, known: Sequence[str]) -> str:
    hint = suggest_name(name, known)
    if split_name(name)[0] is not None:
        return f"events: no upstream of yours offers '{name}'.{hint} List the types: GET /v1/event-types"
    return f"events: you have no event type '{name}'.{hint} Declare it: PUT /v1/event-types/{name}"
