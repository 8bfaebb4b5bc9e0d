"""Types of external events: those of upstreams that offer MCP Events, and those that clients publish.

    Ringback's own   call.finished, …       `EventName`
    published        order.paid             declared or published by a principal, and known to that principal only
    an upstream's    github/pr.opened       the name of the upstream, a slash, the upstream's own name of the type

These are the names in the log, in webhooks and in REST. MCP clients see them at `/mcp`. A client of `/mcp/github` sees the
types of this upstream under their own names (`EventType.own_name`), beside Ringback's. A slash separates an upstream's names
from all others, so no upstream can send an event that looks like Ringback's or like another upstream's.

An upstream is asked for the events of a type with arguments, which only the upstream understands. So an event in the log has a
topic: the digest of the arguments for which it was sent. A reader with the same arguments, whatever the order of their keys,
has the same topic.

A publisher declares no arguments of its own: readers of a published type filter by `client_session_id`, `correlation_id` and
`upstream`, which are columns of the log and keys of the index of webhooks. Arguments that name members of `data` would be none:
an event would match as many topics as it has such members, and without a key for each, one event would visit every webhook of
its type. A publisher puts the value that readers choose by into `correlation_id`, or into the name of the type. A server that
needs arguments of its own emits with `ringback.extension.Events`, whose types have them, and is an upstream.

The specification asks that the schema of a type changes by addition only. The service cannot judge what subscribers rely on: it
shows the new schema and ends no subscription, so it never sends the reason `schema_changed`. It warns a publisher of a change
that is no addition (`payload_changes`). A publisher gives an incompatible schema a new name; an upstream that ends its
subscriptions is asked again.

`services.events.event_types.EventTypes` serves readers:

    list_event_types(caller, upstream)              what events/list shows; lists again what is minutes old
    find_event_type(caller, name)                   None for an unknown name
    demand_events(caller, event_type, arguments)    makes the upstream's events arrive in the log; before each poll, every
                                                    150 s of a stream, and at each (re)subscription of a webhook
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

from ringback.domain.event import EventName, event_name
from ringback.domain.ids import EventId
from ringback.domain.principal import Principal
from ringback.protocol.upstream_logins import UPSTREAM_NAME_PATTERN

PUBLISHED_NAME_PATTERN: Final = r"^[a-z0-9_-]+(\.[a-z0-9_-]+)+$"
"""Words with dots, as Ringback's own names and most event catalogs of the trade."""
EVENT_NAME_LENGTH_MAX: Final = 160
"""The name of an upstream (24), a slash, and the upstream's own name."""
OWN_NAME_LENGTH_MAX: Final = 128
"""Characters in a published name, or in an upstream's own name: the length of a tool's name in the specification."""
DATA_LEVELS_MAX: Final = 190
"""The nesting limit of `data`, as of results: pydantic's parser, which many clients have, reads 200 levels of a message. A page
with a deeper one could not be read, nor passed: its cursor is in it."""
RESERVED_PREFIXES: Final = ("call.", "upstream.", "webhook.", "ringback.", "mcp.")
"""Ringback's own events begin with these, now or later."""
DEMAND_SECONDS: Final = 600.0
"""How long a poll or stream counts as demand. Longer than any interval between two polls that we ask for."""
DEMANDS_TOPIC: Final = "event-demands"
"""Topic: demand for an upstream's events began or ended."""
FOLLOWED_TOPIC: Final = "event-followings"
"""Topic: the events of a type are now read at their upstream."""
_EVENT_ID_PATTERN: Final = re.compile(r"[\x21-\x7e]{1,128}")
"""Ids that a header can carry as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    name: str
    """The name in the log."""
    own_name: str
    """The name at the upstream; the same as `name` for a published type."""
    upstream: str | None
    """None for a published type."""
    description: str
    input_schema: Mapping[str, Any] = field(repr=False)
    """JSON Schema of the arguments, the upstream's own; empty for a published type: the filters of every event apply."""
    payload_schema: Mapping[str, Any] = field(repr=False)
    """JSON Schema of `data`."""
    streams: bool = False
    """Whether its upstream offers events/stream for it, besides or instead of events/poll. Readers of the log have all ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedEventType:
    """A stored type of the principal's own events."""

    principal: Principal
    name: str
    description: str
    payload_schema: Any
    created_at: datetime
    updated_at: datetime

    def to_event_type(self) -> EventType:
        return EventType(
            name=self.name,
            own_name=self.name,
            upstream=None,
            description=self.description,
            input_schema={},
            payload_schema=self.payload_schema,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDemand:
    """A principal wants an upstream's events of one type, for arguments."""

    principal: Principal
    event_name: str
    topic: str
    """Empty for no arguments."""
    arguments: Any
    polled_until: datetime
    """When the demand of pollers ends. The demand of a webhook ends with the webhook."""
    gap_seq: int = 0
    """The place in the log of the last gap; 0 for none. Before it, the upstream had lost events, or no client demanded them."""


class DemandKey(NamedTuple):
    """Names a demand."""

    principal: Principal
    event_name: str
    topic: str


class DemandedTopic(NamedTuple):
    """What principals demand of an upstream, once for all of them."""

    event_name: str
    topic: str
    is_own: bool
    """Whether the principal that asks is one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFollowing:
    """How far the events of a type were read at their upstream, for arguments."""

    event_name: str
    topic: str
    """Empty for no arguments."""
    cursor: str | None
    """The upstream's cursor; None if it gives none."""
    updated_at: datetime


class EventTypeRows(Protocol):
    """Implemented by the stores (`domain.ports`)."""

    async def get(self, principal: Principal, name: str) -> PublishedEventType | None: ...

    async def list_of_principal(self, principal: Principal) -> Sequence[PublishedEventType]:
        """By name; no more than a principal may declare."""
        ...

    async def save(self, event_type: PublishedEventType) -> None:
        """Insert it, or replace its description and schema."""
        ...

    async def remove(self, principal: Principal, name: str) -> bool: ...


class CurrentEventDemands(Protocol):
    """The demands of all principals that have not ended."""

    async def list_current(self, *, now: datetime) -> Sequence[EventDemand]:
        """Demands of pollers before their end, and those of webhooks that are neither disabled nor expired."""
        ...

    async def list_different(self, *, now: datetime) -> Sequence[EventDemand]:
        """One of the current demands with each name and topic, of any principal."""
        ...

    async def list_of_upstream(self, upstream: str, principal: Principal, *, now: datetime) -> Sequence[DemandedTopic]:
        """The different names and topics of current demands for this upstream's events, of all principals."""
        ...

    async def is_current(self, principal: Principal, event_name: str, topic: str, *, now: datetime) -> bool:
        """Whether this principal's demand has not ended."""
        ...

    async def list_principals(self, event_name: str, topic: str, *, now: datetime) -> Sequence[Principal]:
        """The principals with a current demand, sorted."""
        ...


class EventDemandRows(CurrentEventDemands, Protocol):
    """Implemented by the stores (`domain.ports`)."""

    async def get(self, principal: Principal, event_name: str, topic: str) -> EventDemand | None: ...

    async def save(self, demand: EventDemand) -> None:
        """Insert it, or extend it: `polled_until` never decreases, and `gap_seq` stays."""
        ...

    async def mark_gap(self, principal: Principal, event_name: str, topic: str, *, seq: int) -> None:
        """Set `gap_seq`, which never decreases."""
        ...

    async def count_of_principal(self, principal: Principal) -> int: ...

    async def list_ended(self, *, now: datetime, after: DemandKey | None, limit: int) -> Sequence[DemandKey]:
        """Demands that are not current, sorted, and of these the first after `after`."""
        ...

    async def remove_ended(self, keys: Sequence[DemandKey], *, now: datetime) -> None:
        """Remove those of these demands that are not current, and all followings without a demand."""
        ...


class EventFollowingRows(Protocol):
    """Implemented by the stores (`domain.ports`)."""

    async def get(self, event_name: str, topic: str) -> EventFollowing | None: ...

    async def save(self, following: EventFollowing) -> None: ...


def qualified_name(upstream: str, own_name: str) -> str:
    """The name in the log of an upstream's type."""
    return f"{upstream}/{own_name}"


def split_name(name: str) -> tuple[str | None, str]:
    """The upstream and its own name of the type; None and the name for a type without an upstream."""
    upstream, separator, own_name = name.partition("/")
    return (upstream, own_name) if separator else (None, name)


def arguments_topic(canonical_arguments: str) -> str | None:
    """The topic of arguments in their canonical form (RFC 8785). None for no arguments."""
    if canonical_arguments == "{}":
        return None
    return hashlib.sha256(canonical_arguments.encode()).hexdigest()[:32]


def upstream_event_id(upstream: str, own_id: str) -> EventId:
    """The `eventId` of an upstream's event, for every reader: the name of the upstream, a colon, and the upstream's id.

    No id of Ringback's has a colon, so no upstream can make a receiver take another event for a copy. An id that a header could
    not carry is replaced by its digest.
    """
    if _EVENT_ID_PATTERN.fullmatch(own_id):
        return EventId(f"{upstream}:{own_id}")
    return EventId(f"{upstream}:sha256-{hashlib.sha256(own_id.encode('utf-8', 'surrogatepass')).hexdigest()}")


def is_publishable_name(name: str) -> bool:
    return (
        len(name) <= OWN_NAME_LENGTH_MAX
        and re.fullmatch(PUBLISHED_NAME_PATTERN, name) is not None
        and not name.startswith(RESERVED_PREFIXES)
    )


def is_upstream_name(name: str) -> bool:
    """Whether an upstream's type could have this name."""
    upstream, own_name = split_name(name)
    return upstream is not None and UPSTREAM_NAME_PATTERN.fullmatch(upstream) is not None and is_listable_name(own_name)


def is_listable_name(own_name: str) -> bool:
    """Whether an upstream's own name of a type can be passed on."""
    return 0 < len(own_name) <= OWN_NAME_LENGTH_MAX and own_name.isprintable()


def is_own_name(name: str) -> bool:
    """Whether it is the name of an event of Ringback's own."""
    return isinstance(event_name(name), EventName)
