"""Which subscriptions an event matches, in memory: the work grows with the matches, not with the subscriptions.

    event type ──▶ names of the arguments that a subscription gives ──▶ their values ──▶ subscriptions

An event looks up one key for each set of argument names in use. A type with a rule of its author has no keys: its rule runs
for each subscription. Only this process writes the file, so the index is complete; it may name subscriptions that have ended,
which the store then does not have. Expired ones are dropped now and then.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, cast

from ringback.domain.event import Event
from ringback.domain.event_subscriptions import EventSubscription
from ringback.domain.ids import WebhookId
from ringback.extension.events.event_types import DeclaredEventType, DeclaredEventTypes
from ringback.extension.events.principals import audience_of
from ringback.protocol.mcp_events.errors import EventError
from ringback.protocol.mcp_events.subscription_key import canonical_arguments

PUTS_PER_SWEEP: Final = 1_000
"""Subscribes between two sweeps for expired subscriptions. Each real client subscribes with a new URL after a restart."""

_Names = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedSubscription:
    id: WebhookId
    event_name: str
    audience: str | None
    arguments: Mapping[str, Any]
    names: _Names
    """The arguments that are not null, sorted. Empty for a type with a rule."""
    key: str
    expires_at: datetime | None

    def may_get(self, event: Event) -> bool:
        return event.client_session_id is None or event.client_session_id == self.audience


_Subscriptions = dict[WebhookId, IndexedSubscription]


@dataclass(slots=True)
class SubscriptionIndex:
    types: DeclaredEventTypes
    loaded: set[str] = field(default_factory=set[str])
    """Event types whose subscriptions are all known. A rollback empties it."""
    _by_id: _Subscriptions = field(default_factory=_Subscriptions)
    _by_key: dict[str, dict[_Names, dict[str, _Subscriptions]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    _puts: int = 0

    @property
    def count(self) -> int:
        """Subscriptions, each under one key."""
        return sum(
            len(each) for of_type in self._by_key.values() for by_key in of_type.values() for each in by_key.values()
        )

    def reset(self) -> None:
        """After a rollback the store may have subscriptions that the index has dropped: they are loaded again."""
        self.loaded.clear()

    def put_subscription(self, subscription: EventSubscription, *, now: datetime) -> None:
        self._puts += 1
        if self._puts % PUTS_PER_SWEEP == 0:
            self._drop_expired(now)
        self.discard(subscription.id)
        declared = self.types.get(subscription.event_name)
        if declared is None or subscription.ended_at is not None:
            return
        indexed = _index(subscription, declared)
        self._by_id[indexed.id] = indexed
        self._by_key[indexed.event_name][indexed.names].setdefault(indexed.key, {})[indexed.id] = indexed

    def discard(self, subscription_id: WebhookId) -> None:
        if (known := self._by_id.pop(subscription_id, None)) is None:
            return
        of_names = self._by_key[known.event_name][known.names]
        del of_names[known.key][subscription_id]
        if not of_names[known.key]:
            del of_names[known.key]
        if not of_names:
            del self._by_key[known.event_name][known.names]

    def _drop_expired(self, now: datetime) -> None:
        """A refresh of one of these puts it again."""
        for known in list(self._by_id.values()):
            if known.expires_at is not None and known.expires_at <= now:
                self.discard(known.id)

    def get(self, subscription_id: WebhookId) -> IndexedSubscription | None:
        return self._by_id.get(subscription_id)

    def find_candidates(self, event: Event) -> Iterator[IndexedSubscription]:
        """A superset of the subscriptions that get this event: rules of authors are not applied."""
        for names, by_key in self._by_key.get(event.name, {}).items():
            if (key := _make_key(names, event.data)) is not None:
                for subscription in list(by_key.get(key, {}).values()):
                    if subscription.may_get(event):
                        yield subscription


def _index(subscription: EventSubscription, declared: DeclaredEventType) -> IndexedSubscription:
    arguments = cast("dict[str, Any]", json.loads(subscription.arguments))
    given = {name: value for name, value in arguments.items() if value is not None}
    lifetime = None if subscription.ttl_ms is None else timedelta(milliseconds=subscription.ttl_ms)
    names = () if declared.matches is not None else tuple(sorted(given))
    return IndexedSubscription(
        id=subscription.id,
        event_name=subscription.event_name,
        audience=audience_of(subscription.principal),
        arguments=arguments,
        names=names,
        key=_make_key(names, given) or "",
        expires_at=None if lifetime is None else subscription.refreshed_at + lifetime,
    )


def _make_key(names: _Names, values: Mapping[str, Any]) -> str | None:
    """The canonical text of these members; None if one is missing, or has none and so equals no argument."""
    try:
        return canonical_arguments({name: values[name] for name in names})
    except (KeyError, EventError):
        return None
